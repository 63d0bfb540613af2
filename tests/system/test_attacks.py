"""Attacks that need root, libfaketime or time, and a control of each attack.

`make torture` runs all the controls; here is the first of each, for the sake of time.
"""

from collections.abc import Callable
from itertools import islice

import pytest

from tests.torture import (
    crowds,
    damage,
    hang_ups,
    hostile_requests,
    kills,
    overdue,
    overload,
    poisoned,
    recurring,
    second_process,
    standstill,
    stops,
    wall_clock,
)
from tests.torture.report import Report
from tests.torture.scratch import allowed

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

CONTROLS = [
    pytest.param(control, id=f"{module.HARNESS.name}: {bug}")
    for module in (
        crowds,
        damage,
        hang_ups,
        hostile_requests,
        kills,
        overdue,
        overload,
        poisoned,
        recurring,
        second_process,
        standstill,
        stops,
        wall_clock,
    )
    for bug, control in islice(module.HARNESS.controls.items(), 1)
]


def test_a_stepped_wall_clock_moves_no_deadline_and_is_told() -> None:
    report = wall_clock.run(wall_clock.HARNESS.short)
    assert report.violations == [], report.figures


def test_a_file_system_that_becomes_read_only_ends_the_process_clearly_and_soon() -> None:
    report = Report()
    damage.damage_file_system(report, allowed(damage.EXIT_SECONDS_MAX, 0.1))
    assert report.violations == [], report.figures


def test_a_failing_alarm_keeps_slot_and_count_over_kills_between_its_attempts() -> None:
    report = Report()
    poisoned.kill_between_attempts(report, 2, None)
    assert report.violations == [], report.figures


def test_more_requests_in_flight_than_allowed_are_refused_at_once() -> None:
    report = overload.run(0.05, bottlenecks=[overload.IN_FLIGHT])
    assert report.violations == [], report.figures


@pytest.mark.parametrize("control", CONTROLS)
def test_a_planted_bug_is_caught(control: Callable[[], Report]) -> None:
    assert control().violations != []
