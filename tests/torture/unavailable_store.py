"""The store cannot be used for a while: the disk fails to read, or another process locks it.

Nothing was committed then, and callers are told so. The dispatcher pauses as a whole and blames no
alarm; once the store is back all that is due fires, without a restart and without a call. Only
EIO while reading ends the process: SQLite reports it as a corrupt database, which nobody may use.
"""

import errno
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial

from tests.process.server import PATIENCE_S, eventually, wait_until_past
from tests.support.invariants import violations
from tests.torture.forgetful import ForgetfulDisk, forgetful_disk
from tests.torture.report import Harness, Report
from tests.torture.target import Target, target_on
from tests.torture.traffic import LATE_S, Ledger, Traffic

ROUNDS = 5
KNOWN, DUE, DUE_S = 300, 400, 3
"""Enough that most pages of the table are still on the disk when their alarms are due."""


LATE_SECONDS_MAX = 5.0
ASKED = 2

_GIVEN_UP_MS = 3_000
"""Each batch waits for the lock for a second; who still did at its end would not have to look."""

_TRIES = 1_000
_CLAIMED = "SELECT count(*) FROM reservation WHERE alarm_claim IS NOT NULL"

Trouble = Callable[[ForgetfulDisk, Target], AbstractContextManager[None]]


@contextmanager
def unreadable(disk: ForgetfulDisk, target: Target) -> Iterator[None]:
    """The disk fails to read what is not in memory, but for damage."""
    target.line("reservation-alarm")
    disk.fail("read", errno.ETIMEDOUT, ".db")
    yield
    disk.heal()


@contextmanager
def locked(disk: ForgetfulDisk, target: Target) -> Iterator[None]:
    """Another process holds the lock for writing, and took it in the middle of attempts."""
    with closing(sqlite3.connect(target.database, timeout=0, isolation_level=None)) as other:

        def takes_it() -> bool:
            with suppress(sqlite3.OperationalError):
                other.execute("BEGIN IMMEDIATE")
                if other.execute(_CLAIMED).fetchone() == (0,):
                    other.execute("ROLLBACK")
            return other.in_transaction

        def is_in_the_middle() -> bool:
            """The service has the lock again a moment after each commit: one must be quick."""
            return any(takes_it() for _ in range(_TRIES))

        eventually(is_in_the_middle)
        yield
        wait_until_past(time.time_ns() // 1_000_000 + _GIVEN_UP_MS)
        other.execute("ROLLBACK")


TROUBLES: dict[str, Trouble] = {"unreadable": unreadable, "locked": locked}


def run(scale: float) -> Report:
    """Let each trouble meet a dispatcher at work so many times.

    It claims one by one: the work lasts, so that a trouble meets it in the middle.
    """
    report = Report()
    for _ in range(max(1, round(ROUNDS * scale))):
        for name, trouble in TROUBLES.items():
            with forgetful_disk() as disk, target_on(disk, alarms__claim_max=1) as target:
                _outlast(report, name, partial(trouble, disk, target), target)
        with forgetful_disk() as disk, target_on(disk, alarms__claim_max=1) as target:
            _end_by_damage(report, disk, target)
    return report


def control(bug: str) -> Report:
    """One trouble, in the middle of attempts for certain, of a service that takes it ill."""
    report = Report()
    with forgetful_disk() as disk, target_on(disk, bug, alarms__claim_max=1) as target:
        _outlast(report, "locked", partial(locked, disk, target), target)
    return report


def _outlast(
    report: Report, name: str, trouble: Callable[[], AbstractContextManager[None]], target: Target
) -> None:
    """One trouble that passes, and what comes after it in the same life."""
    ledger = Ledger()
    asked, last_due_at = _prepare(target, ledger)
    with trouble():
        report.count(f"{name}: answered 503", _ask(report, target, ledger, asked))
        wait_until_past(last_due_at)
        report.require(target.overdue() > 0, f"{name}: alarms went on")
    _check_that_all_fires(report, name, target)
    retried = [line for line in target.seen("reservation-alarm") if line["retryCount"] > 0]
    report.require(not retried, f"{name}: {len(retried)} alarms were blamed")
    _check_the_end(report, target, ledger)


def _end_by_damage(report: Report, disk: ForgetfulDisk, target: Target) -> None:
    """A disk that says it is damaged ends the process; the next one finds it healed."""
    ledger = Ledger()
    _, last_due_at = _prepare(target, ledger)
    target.line("reservation-alarm")
    disk.fail("read", errno.EIO, ".db")
    status = target.exit_status(PATIENCE_S)
    report.require(status == 1, f"damaged: the exit status is {status}")
    target.end()
    wait_until_past(last_due_at)
    disk.heal()
    target.start()
    _check_that_all_fires(report, "damaged", target)
    _check_the_end(report, target, ledger)


def _check_that_all_fires(report: Report, name: str, target: Target) -> None:
    began = time.monotonic()
    with suppress(AssertionError):
        eventually(lambda: target.overdue() == 0, LATE_SECONDS_MAX + 1)
    late_s = round(time.monotonic() - began, 2)
    report.require(late_s <= LATE_SECONDS_MAX, f"{name}: alarms came {late_s} s late")
    report.worst(f"{name}: alarms late, s at most", late_s)


def _check_the_end(report: Report, target: Target, ledger: Ledger) -> None:
    failed = [line for line in target.seen("reservation-alarm") if line["outcome"] != "ok"]
    report.require(not failed, f"{len(failed)} alarms failed")
    target.stop()
    report.violations += [*violations(target.database), *ledger.lost(target)]


def _prepare(target: Target, ledger: Ledger) -> tuple[list[str], int]:
    """One life leaves holds behind, some to ask for and more to expire, to the next."""
    target.start()
    with Traffic(target, ledger, ttl_seconds=[LATE_S]) as traffic:
        traffic.wait_for(KNOWN)
    asked = sorted(ledger.acknowledged)[:: KNOWN // ASKED]
    with Traffic(target, ledger, ttl_seconds=[DUE_S]) as traffic:
        traffic.wait_for(DUE)
    target.stop()
    target.start().line("integrity-checked")
    return asked, max(
        held["expiresAt"]
        for held in ledger.acknowledged.values()
        if held["expiresAt"] - held["createdAt"] == DUE_S * 1000
    )


def _ask(report: Report, target: Target, ledger: Ledger, names: list[str]) -> int:
    """Hold some again and read them; how many were refused. Memory may still answer for some."""
    refused = 0
    for name in names[:ASKED]:
        read = target.call("GET", f"/reservations/{name}")
        held = target.call("POST", f"/reservations/{name}", {"ttlSeconds": LATE_S})
        if held.status == 201:
            ledger.acknowledged[name] = held.body
        for answer in (read, held):
            if answer.status >= 400:
                refused += 1
                said = (answer.status, answer.body["code"], answer.headers.get("Retry-After"))
                told = said == (503, "storage-unavailable", "1")
                report.require(told, f"a store in trouble was answered by {said}")
    report.require(refused > 0, "nobody noticed the trouble")
    return refused


HARNESS = Harness(
    name="unavailable-store",
    promise="a store in trouble is answered by 503, pauses the dispatcher and blames no alarm",
    run=run,
    controls={
        "the alarm is blamed": partial(control, "blame-the-alarm"),
        "no look without a call": partial(control, "oversleep"),
    },
)
