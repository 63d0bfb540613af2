"""The power goes while clients hold: what was acknowledged is there when it comes back.

With root and a loop device the disk is a real ext4 that is shut down under the service; without
them, and as often again with them, it is one that a preloaded library makes forgetful.
"""

import random
import threading
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from tests.process.server import eventually, wait_until_past
from tests.support.invariants import violations
from tests.torture.disks import ext4
from tests.torture.forgetful import forgetful_disk
from tests.torture.report import CannotRun, Harness, Report
from tests.torture.target import Disk, Target, target_on
from tests.torture.traffic import Ledger, Traffic

CUTS, CUTS_MIN = 50, 3
CONTROLLED_MAX = 12


class MortalDisk(Disk, Protocol):
    """One that can be cut off from its power; `agony_s` is how long its processes outlive it."""

    agony_s: float

    def cut(self) -> None: ...

    def revive(self) -> None: ...


def run(scale: float) -> Report:
    """`CUTS` cuts on ext4 where that is possible, and as many on the forgetful disk."""
    report, cuts = Report(), max(CUTS_MIN, round(CUTS * scale))
    try:
        with real_disk() as disk:
            _attack(report, "ext4", disk, cuts)
    except CannotRun as reason:
        report.figures["ext4"] = f"not here: {reason}"
    with forgetful_disk() as disk:
        _attack(report, "forgetful", disk, cuts)
    return report


def control(bug: str, *, is_real: bool) -> Report:
    """Cuts of a service that is not durable, until one shows it; without a real disk, the other.

    A moment's commit is all that is lost, if nothing else was on its way to be committed.
    """
    report = Report()
    try:
        with real_disk() if is_real else forgetful_disk() as disk, target_on(disk, bug) as target:
            ledger = Ledger()
            for _ in range(CONTROLLED_MAX):
                if not report.violations:
                    _cut_often(report, target, disk, ledger, 1)
    except CannotRun:
        if is_real:
            return control(bug, is_real=False)
        raise
    return report


def real_disk() -> AbstractContextManager[MortalDisk]:
    """An ext4 that writes nothing back on its own account for as long as an attack takes."""
    return ext4(256, "loop,commit=600,noauto_da_alloc")


def _attack(report: Report, kind: str, disk: MortalDisk, cuts: int) -> None:
    """Cut the power so often; then let a last life fire what is due."""
    ledger = Ledger()
    with target_on(disk) as target:
        _cut_often(report, target, disk, ledger, cuts)
        target.start()
        wait_until_past(max(held["expiresAt"] for held in ledger.soon()))
        eventually(lambda: target.overdue() == 0)
        target.stop()
        report.violations += [*violations(target.database), *ledger.lost(target)]
    report.figures[f"{kind}: cuts"] = cuts
    report.figures[f"{kind}: acknowledged"] = len(ledger.acknowledged)
    report.figures[f"{kind}: said to have expired"] = len(ledger.announced)
    report.figures[f"{kind}: unanswered at a cut"] = len(ledger.unanswered)
    report.figures[f"{kind}: refused in agony"] = len(ledger.refused)
    report.figures[f"{kind}: told in agony"] = ledger.said_while_closed


def _cut_often(report: Report, target: Target, disk: MortalDisk, ledger: Ledger, cuts: int) -> None:
    for _ in range(cuts):
        target.start()
        ledger.is_closed = False
        with Traffic(target, ledger) as traffic:
            traffic.wait_for(random.randint(100, 1000))
            threading.Event().wait(random.uniform(0, 0.02))  # between two answers as well
            _end(target, disk, ledger)
        disk.revive()
        if damage := violations(target.database):
            report.violations += damage
            return
        report.violations += [*ledger.lost(target), *ledger.untrue(target)]
        ledger.forget(target)


def _end(target: Target, disk: MortalDisk, ledger: Ledger) -> None:
    """Disk and process go; where the disk goes first, what was said before is what counts."""
    if disk.agony_s:
        ledger.take_announcements(target)
        ledger.is_closed = True
    disk.cut()
    if target.exit_status(disk.agony_s) is None:
        target.end()
    if not disk.agony_s:
        ledger.take_announcements(target)


HARNESS = Harness(
    name="power-cut",
    promise="0 acknowledged holds lost over 50 power cuts, and the file is whole",
    run=run,
    short=CUTS_MIN / CUTS,
    controls={
        "answer before commit": partial(control, "answer-before-commit", is_real=False),
        "commit without sync, ext4": partial(control, "commit-without-sync", is_real=True),
        "commit without sync, forgetful": partial(control, "commit-without-sync", is_real=False),
    },
)
