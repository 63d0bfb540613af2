"""100,000 holds that ran out while nobody served them: a start fires them all, asked or not.

Once nobody calls; the same again while a bystander reads, who must hardly notice.
"""

import time
from functools import partial

from tests.process.server import eventually, wall_ms
from tests.support.invariants import violations
from tests.torture.probe import Probe
from tests.torture.report import Harness, Report
from tests.torture.scratch import Neighbours, allowed, resident_mib, scratch
from tests.torture.seeding import seed
from tests.torture.target import Target

OVERDUE = 100_000
FIRED_SECONDS_MAX = 10.0
GET_P99_MS_MAX = 100.0
_CONTROL_SECONDS_MAX = 3.0
_READS_PER_SECOND = 50
_IS_DONE = "SELECT NOT EXISTS (SELECT 1 FROM reservation WHERE alarm_dispatch_at IS NOT NULL)"
_LEFT = "SELECT count(*) FROM reservation WHERE alarm_dispatch_at IS NOT NULL"
_TRIGGERS = """SELECT type, "trigger", count(*) FROM event GROUP BY 1, 2 ORDER BY 1"""


def run(scale: float, *, bug: str | None = None) -> Report:
    """Both starts."""
    report = Report()
    _start(report, scale, "unasked", bug, is_read=False)
    if bug is None:
        _start(report, scale, "while read", bug, is_read=True)
    return report


def _start(report: Report, scale: float, name: str, bug: str | None, *, is_read: bool) -> None:
    count = round(OVERDUE * scale)
    seconds_max = allowed(FIRED_SECONDS_MAX, scale) if bug is None else _CONTROL_SECONDS_MAX
    with scratch(bug=bug) as target:
        seed(target.database, _overdue(count))
        began = time.monotonic()
        target.start()
        report.figures[f"{name}: started after s"] = round(time.monotonic() - began, 2)
        before_mib = resident_mib(target)
        with Neighbours(target) as neighbours:
            if is_read:
                _read_meanwhile(target, report, scale, began)
            else:
                _wait(target, report, name, began, seconds_max)
        report.figures[f"{name}: cores used by others"] = neighbours.cores
        report.figures[f"{name}: memory MiB"] = f"{before_mib} -> {resident_mib(target)}"
        fired = [("expired", "alarm", count), ("held", "request", count)]
        report.require(target.query(_TRIGGERS) == fired, f"{name}: {target.query(_TRIGGERS)}")
        target.stop()
        report.violations += violations(target.database)


def _overdue(count: int) -> list[tuple[str, int]]:
    now = wall_ms()
    return [(f"overdue-{number:06}", now - 60_000 + number % 50_000) for number in range(count)]


def _read_meanwhile(target: Target, report: Report, scale: float, began: float) -> None:
    with Probe(target.port, "/reservations/overdue-000007", _READS_PER_SECOND) as probe:
        _wait(target, report, "while read", began, allowed(FIRED_SECONDS_MAX, scale))
    report.figures["reads answered"] = probe.answers
    report.figures["read p50, p99, worst ms"] = probe.percentiles
    bound = allowed(GET_P99_MS_MAX, scale)
    report.require(probe.p99_ms <= bound, f"reads took {probe.p99_ms} ms (p99)")
    report.require(not probe.failures, f"reads failed: {probe.failures}")


def _wait(target: Target, report: Report, name: str, began: float, seconds_max: float) -> None:
    try:
        eventually(lambda: target.query(_IS_DONE) == [(1,)], 2 * seconds_max)
    except AssertionError:
        report.violations.append(f"{name}: {target.query(_LEFT)[0][0]} overdue holds never fired")
    seconds = round(time.monotonic() - began, 2)
    report.figures[f"{name}: all fired after s"] = seconds
    report.require(seconds <= seconds_max, f"{name}: all fired only after {seconds} s")


HARNESS = Harness(
    name="overdue",
    promise="100,000 overdue at start fire within 10 s, unasked; reads stay under 100 ms (p99)",
    run=run,
    controls={"forget-alarms-at-start": partial(run, 0.002, bug="forget-alarms-at-start")},
)
