"""Readers of the whole feed that never read, among some that do: they are cut off, and that is all.

While everything is held as fast as it goes, the server's memory stays within bounds, whoever reads
sees every event, and a bystander's `/` is answered as ever.
"""

import socket
from contextlib import ExitStack
from functools import partial

from tests.process.server import PATIENCE_S, eventually
from tests.torture.clients import HOST
from tests.torture.followers import Follower, compare
from tests.torture.probe import Probe
from tests.torture.report import Harness, Report
from tests.torture.scratch import Neighbours, allowed, resident_mib, scratch
from tests.torture.target import Target
from tests.torture.traffic import SOON_S, Ledger, Traffic

DEAF = 500
HOLDS = 60_000
CLIENTS = 48
BUFFER_BYTES = 65_536
GROWN_MIB_MAX = 96
P99_MS_MAX = 100.0
_LITTLE_ROOM = 4_096
_ASKED = b"GET /events?after=latest HTTP/1.1\r\nHost: torture\r\nAccept: text/event-stream\r\n\r\n"


def run(scale: float, *, bug: str | None = None) -> Report:
    """Let so many listen without reading while so many things are held."""
    report, ledger = Report(), Ledger()
    deaf, holds = round(DEAF * scale), round(HOLDS * scale)
    with (
        scratch(bug=bug, feed__buffer_bytes=BUFFER_BYTES) as target,
        Neighbours(target) as neighbours,
        ExitStack() as opened,
    ):
        target.start()
        hearing = [opened.enter_context(Follower(target)) for _ in range(2)]
        for _ in range(deaf):
            opened.enter_context(_deaf(target.port))
        before_mib = resident_mib(target)
        with Probe(target.port) as probe:
            most_mib = _hold(target, ledger, holds)
        compare(target, hearing, report)
        _require_dropped(target, report, deaf)
    report.figures["held"] = len(ledger.acknowledged)
    report.figures["/ p50, p99, worst ms"] = probe.percentiles
    report.figures["MiB grown"] = most_mib - before_mib
    report.figures["cores used by others"] = neighbours.cores
    bound = allowed(P99_MS_MAX, scale)
    report.require(probe.p99_ms <= bound, f"/ took {probe.p99_ms} ms (p99)")
    grown = most_mib - before_mib
    report.require(grown <= GROWN_MIB_MAX, f"{grown} MiB more for those who do not read")
    return report


def _deaf(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _LITTLE_ROOM)
    connection.settimeout(PATIENCE_S)
    connection.connect((HOST, port))
    connection.sendall(_ASKED)
    return connection


def _hold(target: Target, ledger: Ledger, holds: int) -> int:
    """The most memory that the server was seen with meanwhile."""
    most_mib, done = resident_mib(target), 0
    with Traffic(target, ledger, clients=CLIENTS, ttl_seconds=(SOON_S,)) as traffic:
        while done < holds:
            done += max(1, holds // 20)
            traffic.wait_for(done)
            most_mib = max(most_mib, resident_mib(target))
    return most_mib


def _require_dropped(target: Target, report: Report, deaf: int) -> None:
    dropped = partial(target.seen, "reader-dropped", reason="slow")
    try:
        eventually(lambda: len(dropped()) >= deaf)
    except AssertionError:
        report.violations.append(f"{deaf - len(dropped())} who do not read are still there")
    report.figures["dropped"] = len(dropped())
    report.require(len(dropped()) <= deaf, "somebody was dropped who reads")


HARNESS = Harness(
    name="deaf-readers",
    promise="500 readers that never read cost bounded memory, and nobody who reads an event",
    run=run,
    controls={"buffer-without-bound": partial(run, 0.15, bug="buffer-without-bound")},
    short=0.15,
)
