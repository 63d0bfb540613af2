"""SIGSTOP: a process that stood still for a minute fires all that fell due within 2 s, once.

Holds run out all the time: before, while it stands still, and at the very moment of the stop,
when some of their attempts are under way.
"""

import signal
import time
from functools import partial

from tests.process.server import eventually, wall_ms
from tests.support.invariants import violations
from tests.torture.report import Harness, Report
from tests.torture.scratch import Neighbours, allowed, scratch
from tests.torture.seeding import seed
from tests.torture.target import Target

STANDSTILL_SECONDS = 60.0
FIRED_SECONDS_MAX = 2.0
_DUE_PER_SECOND = 50
_BURST = 3000
_BURST_BEGINS = (
    "SELECT EXISTS (SELECT 1 FROM reservation WHERE id > 'b' AND id < 'c' AND status = 'expired')"
)
_IN_FLIGHT = "SELECT count(*) FROM reservation WHERE alarm_claim IS NOT NULL"
_START_MS = 2000
_MOVING_MS = 1000


def run(scale: float, *, bug: str | None = None) -> Report:
    """Let it stand still for a minute, or as much of one as `scale` says."""
    report = Report()
    with scratch(bug=bug) as target:
        _stand_still(target, report, scale)
    return report


def _stand_still(target: Target, report: Report, scale: float) -> None:
    still_ms = round(STANDSTILL_SECONDS * 1000 * scale)
    begins = wall_ms() + _START_MS
    steady = (_MOVING_MS + still_ms) * _DUE_PER_SECOND // 1000
    deadlines = [(f"due-{n:06}", begins + n * 1000 // _DUE_PER_SECOND) for n in range(steady)]
    deadlines += [(f"burst-{n:06}", begins + _MOVING_MS) for n in range(_BURST)]
    seed(target.database, deadlines)
    target.start()
    try:
        eventually(lambda: target.query(_BURST_BEGINS) == [(1,)])
    except AssertionError:
        report.violations.append("nothing fires at all")
        return
    target.send(signal.SIGSTOP)
    in_flight = target.query(_IN_FLIGHT)[0][0]
    goes_on_at = begins + _MOVING_MS + still_ms
    eventually(lambda: wall_ms() > goes_on_at, 2 * STANDSTILL_SECONDS)
    left = target.overdue()
    target.send(signal.SIGCONT)
    seconds = _seconds_until_fired(target, report, scale)
    report.figures["in flight at the stop"] = in_flight
    report.figures["due when it goes on"] = left
    report.figures["all fired after s"] = seconds
    _check(target, report, len(deadlines))


def _seconds_until_fired(target: Target, report: Report, scale: float) -> float:
    began, bound = time.monotonic(), allowed(FIRED_SECONDS_MAX, scale)
    with Neighbours(target) as neighbours:
        try:
            eventually(lambda: target.overdue() == 0, bound + 2)
        except AssertionError:
            report.violations.append(f"{target.overdue()} holds are over and do not expire")
        seconds = round(time.monotonic() - began, 2)
    report.figures["cores used by others"] = neighbours.cores
    report.require(seconds <= bound, f"all fired only {seconds} s after it went on")
    return seconds


def _check(target: Target, report: Report, count: int) -> None:
    fired = target.query("SELECT count(*) FROM event WHERE type = 'expired'")[0][0]
    report.require(fired == count, f"{fired} of {count} fired")
    failed = target.query("SELECT count(*) FROM event WHERE type = 'alarm-failed'")[0][0]
    report.figures["attempts that failed"] = failed
    late = len(target.seen("reservation-alarm", outcome="timed-out"))
    report.require(late == 0, f"{late} attempts timed out because nothing moved")
    target.stop()
    report.violations += violations(target.database)


HARNESS = Harness(
    name="standstill",
    promise="a process stopped for 60 s fires all that fell due within 2 s after it goes on, once",
    run=run,
    controls={"drop-what-is-late": partial(run, 0.05, bug="drop-what-is-late")},
    short=0.1,
)
