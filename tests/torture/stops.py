"""SIGTERM under load, while clients hang on to half-sent requests: it ends in time and keeps all.

Whoever got a 201 keeps the hold. Whoever got no answer finds it whole, with its event, or not at
all; what was only half sent is not there.
"""

import random
import signal
import socket
import time
from contextlib import ExitStack
from functools import partial

from tests.process.server import PATIENCE_S, STOP_SECONDS_MAX
from tests.support.invariants import violations
from tests.torture.clients import HOST, hold
from tests.torture.report import Harness, Report
from tests.torture.scratch import Neighbours, allowed, scratch
from tests.torture.target import Target
from tests.torture.traffic import Ledger, Traffic

STOPS = 20
CLIENTS = 24
_LOAD_MAX = 600
_HALF = hold("half-sent", 3600)
HALF_SENT = [_HALF[:size] for size in (0, 10, len(_HALF) // 2, len(_HALF) - 5, len(_HALF) - 1)]
_WHOLE = """
SELECT count(*) FROM reservation AS r LEFT JOIN event AS e
    ON e.reservation = r.id AND e.generation = r.generation AND e.type = 'held'
WHERE r.id = '{name}' AND e.at = r.created_at
"""


def run(scale: float, *, bug: str | None = None) -> Report:
    """Stop it so many times, each time while some hundred requests are under way."""
    return _run(max(2, round(STOPS * scale)), allowed(STOP_SECONDS_MAX, scale), bug)


def _run(stops: int, seconds_max: float, bug: str | None) -> Report:
    report, ledger, longest = Report(), Ledger(), 0.0
    with scratch(bug=bug) as target, Neighbours(target) as neighbours:
        for _ in range(stops):
            unanswered = len(ledger.unanswered)
            seconds = _stop_under_load(target, ledger, report)
            longest = max(longest, seconds)
            report.require(seconds <= seconds_max, f"the stop took {seconds:.2f} s")
            _check(target, ledger, report)
            report.count("stops")
            report.count("unanswered", len(ledger.unanswered) - unanswered)
            if bug is not None and report.violations:
                break  # it has shown
    report.figures["longest stop s"] = round(longest, 2)
    report.figures["acknowledged"] = len(ledger.acknowledged)
    report.figures["cores used by others"] = neighbours.cores
    return report


def _stop_under_load(target: Target, ledger: Ledger, report: Report) -> float:
    target.start()
    with ExitStack() as opened:
        for text in HALF_SENT * 4:
            client = opened.enter_context(socket.create_connection((HOST, target.port), PATIENCE_S))
            client.sendall(text)
        with Traffic(target, ledger, clients=CLIENTS) as traffic:
            traffic.wait_for(random.randint(100, _LOAD_MAX))
            began = time.monotonic()
            target.send(signal.SIGTERM)
            status = target.wait(70)
            seconds = time.monotonic() - began
    ledger.take_announcements(target)
    report.require(status == 0, f"the stop ended with status {status}: {target.complaints()}")
    report.require(target.complaints() == "", f"it complained: {target.complaints()[:200]}")
    for line in target.lines:
        report.require(line["event"] not in _COMPLAINTS, f"it complained: {line}")
    return seconds


_COMPLAINTS = {"service-failed", "http-error", "request-failed", "settle-failed"}


def _check(target: Target, ledger: Ledger, report: Report) -> None:
    log = target.database.with_name(target.database.name + "-wal")
    report.require(not log.exists(), "a clean stop left a write-ahead log")  # reading makes one
    lost = list(ledger.lost(target))
    report.count("lost", len(lost))
    report.violations += lost
    ledger.forget(target)
    report.violations += violations(target.database)
    report.require(
        target.query(_WHOLE.format(name="half-sent")) == [(0,)], "half a request was done"
    )
    kept = {name for (name,) in target.query("SELECT id FROM reservation")}
    for name in ledger.unanswered & kept:
        report.count("unanswered and done")
        report.require(target.query(_WHOLE.format(name=name)) == [(1,)], f"{name} is half done")


HARNESS = Harness(
    name="stops",
    promise="SIGTERM under load and half-sent bodies: ends within 5 s, keeps what it acknowledged",
    run=run,
    controls={
        "answer-before-commit": partial(_run, 12, 60, "answer-before-commit"),
        "wait-for-every-client": partial(_run, 1, STOP_SECONDS_MAX, "wait-for-every-client"),
    },
)
