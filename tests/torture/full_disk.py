"""The disk is full for a while: refusals in plain words, nothing lost, and no restart to recover.

It is attacked on a small file system in memory, on a small ext4, and on a disk that a preloaded
library makes full: the last one is all that is left where nobody may mount.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Protocol

from tests.process.server import eventually, wait_until_past
from tests.support.invariants import violations
from tests.torture.disks import ext4, tmpfs
from tests.torture.forgetful import forgetful_disk
from tests.torture.report import CannotRun, Harness, Report
from tests.torture.target import Disk, Target, target_on
from tests.torture.traffic import CLIENTS, LATE_S, Ledger, Traffic

ROUNDS = 10
DUE, DUE_S = 50, 2
LATE_SECONDS_MAX, SHORT_LATE_SECONDS_MAX = 2.0, 4.0
"""How long alarms that fell due without space may take once it is back; a short version runs
beside other work."""


_WAITED = "alarms that waited for space"


class FillableDisk(Disk, Protocol):
    """One that can be made full, and given its space back."""

    def fill(self) -> None: ...

    def free(self) -> None: ...


DISKS: dict[str, Callable[[], AbstractContextManager[FillableDisk]]] = {
    "tmpfs": partial(tmpfs, 16),
    "ext4": partial(ext4, 32),
    "preloaded": forgetful_disk,
}


def run(scale: float) -> Report:
    """Fill each disk so many times while clients hold and alarms fall due."""
    report = Report()
    for kind, make in DISKS.items():
        try:
            with make() as disk:
                _attack(report, kind, disk, max(1, round(ROUNDS * scale)))
        except CannotRun as reason:
            if kind == "preloaded":
                raise
            report.figures[kind] = f"not here: {reason}"
    report.require(int(report.figures[_WAITED]) > 0, "there was always space for alarms")
    return report


def control(bug: str) -> Report:
    """One round of a service that takes a full disk the wrong way."""
    report = Report()
    with forgetful_disk() as disk:
        _attack(report, "preloaded", disk, 1, bug)
    return report


def _attack(
    report: Report, kind: str, disk: FillableDisk, rounds: int, bug: str | None = None
) -> None:
    ledger = Ledger()
    late_s_max = LATE_SECONDS_MAX if rounds >= ROUNDS else SHORT_LATE_SECONDS_MAX
    with target_on(disk, bug) as target:
        target.start()
        for _ in range(rounds):
            late_s = _fill_and_free(report, target, disk, ledger)
            report.worst(f"{kind}: alarms late, s at most", round(late_s, 2))
            report.require(late_s <= late_s_max, f"alarms came {late_s:.1f} s after the space")
            if not target.is_running:
                report.violations.append("a full disk ended the process")
                break
        else:
            report.violations += _blamed(target)
            target.stop()
        report.violations += violations(target.database)
        report.violations += [*ledger.lost(target), *ledger.untrue(target)]
    report.figures[f"{kind}: times full"] = rounds
    report.figures[f"{kind}: acknowledged"] = len(ledger.acknowledged)
    report.figures[f"{kind}: answered 507"] = ledger.refusals()["storage-full"]


def _fill_and_free(report: Report, target: Target, disk: FillableDisk, ledger: Ledger) -> float:
    """One round; the seconds from the first free byte to the last alarm that was due."""
    last_due_at = [ledger.hold(target, DUE_S)["expiresAt"] for _ in range(DUE)][-1]
    _fill_under_load(target, disk, ledger)
    try:
        wait_until_past(last_due_at)
        if not target.is_running:
            return 0.0
        _check_while_full(report, target, ledger)
    finally:
        disk.free()
    late_s = _seconds_until_none_is_overdue(target)
    ledger.hold(target, LATE_S)
    return late_s


def _fill_under_load(target: Target, disk: FillableDisk, ledger: Ledger) -> None:
    """Take every byte that clients have not used, until nobody is served any more."""
    with Traffic(target, ledger, ttl_seconds=[LATE_S]) as traffic:
        traffic.wait_for(100)
        until = len(ledger.refused) + 10 * CLIENTS

        def is_full() -> bool:
            disk.fill()
            return len(ledger.refused) >= until or not target.is_running

        eventually(is_full)
    disk.fill()


def _check_while_full(report: Report, target: Target, ledger: Ledger) -> None:
    known = next(iter(ledger.acknowledged))
    report.require(target.read(known)["reservationId"] == known, "reading needs space")
    name = next(ledger.ids)
    answer = target.call("POST", f"/reservations/{name}", {"ttlSeconds": LATE_S})
    if answer.status == 201:  # some bytes of the log were free to be written again
        ledger.acknowledged[name] = answer.body
    else:
        said = (answer.status, answer.body["code"])
        report.require(said == (507, "storage-full"), f"a full disk was answered by {said}")
    strange = ledger.refusals().keys() - {"storage-full"}
    report.require(not strange, f"a full disk was answered by {strange}")
    report.count(_WAITED, target.overdue())


def _seconds_until_none_is_overdue(target: Target) -> float:
    began = time.monotonic()
    with suppress(AssertionError):
        eventually(lambda: target.overdue() == 0, SHORT_LATE_SECONDS_MAX + 1)
    return time.monotonic() - began


def _blamed(target: Target) -> list[str]:
    """Alarms that were counted as failed, though the disk was at fault."""
    failed = target.query("SELECT reservation FROM event WHERE type = 'alarm-failed'")
    retried = [line for line in target.seen("reservation-alarm") if line["retryCount"] > 0]
    return [f"alarms were blamed: {failed[:3]} {retried[:3]}"] if failed or retried else []


HARNESS = Harness(
    name="full-disk",
    promise="a full disk is answered by 507, loses nothing, and alarms fire once it has space",
    run=run,
    controls={
        "answer before commit": partial(control, "answer-before-commit"),
        "a full disk ends the process": partial(control, "full-is-fatal"),
        "no look without a call": partial(control, "oversleep"),
    },
)
