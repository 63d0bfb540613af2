"""A commit's sync or write fails: nobody knows what is on the disk, so nobody is promised it.

Those whose commit failed are told that the outcome is unknown, and the process ends. The disk then
loses what was not synced, as it may, and the next life must find the store whole: everything
acknowledged is there, everything unknown is there or not. A checkpoint that fails harms nobody.
"""

import errno
import random
import time
from functools import partial
from typing import NamedTuple

from tests.process.server import eventually
from tests.support.invariants import violations
from tests.torture.forgetful import ForgetfulDisk, forgetful_disk
from tests.torture.report import Harness, Report
from tests.torture.target import Target, target_on
from tests.torture.traffic import LATE_S, Ledger, Traffic

ROUNDS = 10
EXIT_SECONDS_MAX = 5.0


class Fault(NamedTuple):
    """A call that fails for the files with a suffix; a fatal one must end the process."""

    call: str
    suffix: str
    once: bool = True
    is_fatal: bool = True


FAULTS = {
    "log not synced": Fault("sync", "-wal"),
    "log not written": Fault("write", "-wal"),
    "nothing synced any more": Fault("sync", "", once=False),
    "checkpoint not synced": Fault("sync", ".db", is_fatal=False),
    "checkpoint not written": Fault("write", ".db", is_fatal=False),
}


def run(scale: float, bug: str | None = None) -> Report:
    """Let each fault meet a loaded server so many times."""
    report, ledger = Report(), Ledger()
    faults = [(name, f) for name, f in FAULTS.items() if bug is None or f.is_fatal]
    with forgetful_disk() as disk, target_on(disk, bug) as target:
        for name, fault in faults * max(1, round(ROUNDS * scale)):
            report.count(name)
            _fail_once(report, target, disk, ledger, fault)
            disk.heal()
            disk.revive()
            report.violations += violations(target.database) or _untruths(target, ledger)
            if report.violations:
                break
    report.figures["acknowledged"] = len(ledger.acknowledged)
    report.figures["answered that nobody knows"] = ledger.refusals()["outcome-unknown"]
    report.figures["unanswered"] = len(ledger.unanswered)
    return report


def _fail_once(
    report: Report, target: Target, disk: ForgetfulDisk, ledger: Ledger, fault: Fault
) -> None:
    """One life that ends by the fault, or by force some time later."""
    target.start()
    unknown = ledger.refusals()["outcome-unknown"]
    with Traffic(target, ledger, ttl_seconds=[LATE_S]) as traffic:
        traffic.wait_for(random.randint(50, 500))
        disk.fail(fault.call, errno.EIO, fault.suffix, once=fault.once)
        if fault.is_fatal:
            _check_exit(report, target, fault)
            told = ledger.refusals()["outcome-unknown"] > unknown
            report.require(told, f"nobody was told of a failed {fault.call}")
        else:
            eventually(lambda: not disk.is_failing())
            traffic.wait_for(traffic.acknowledged + 100)
            report.require(target.is_running, f"a failed {fault.call} of a checkpoint was fatal")
    target.end()


def _check_exit(report: Report, target: Target, fault: Fault) -> None:
    began = time.monotonic()
    status = target.exit_status(EXIT_SECONDS_MAX)
    report.require(status == 1, f"after a failed {fault.call} the exit status is {status}")
    report.worst("exit after, s at most", round(time.monotonic() - began, 2))


def _untruths(target: Target, ledger: Ledger) -> list[str]:
    strange = ledger.refusals().keys() - {"outcome-unknown"}
    unclear = [
        refusal
        for refusal in ledger.refused
        if (refusal.status, refusal.document.get("outcome")) != (503, "unknown")
    ]
    return [
        *ledger.lost(target),
        *ledger.untrue(target),
        *(f"a failed commit was answered by {code}" for code in strange),
        *(f"not a clear answer: {refusal}" for refusal in unclear),
    ]


HARNESS = Harness(
    name="failed-sync",
    promise="a failed sync is answered by 503 outcome unknown, then exit 1; the store is whole",
    run=run,
    controls={
        "a failed sync is survived": partial(run, 0, "survive-a-failed-sync"),
        "answer before commit": partial(run, 0, "answer-before-commit"),
    },
)
