"""Alarms overdue by the thousand, and alarms that cannot succeed; `make torture` takes longer."""

import pytest

from tests.torture import overdue, poisoned
from tests.torture.report import Report

pytestmark = pytest.mark.timeout(180)


def check(report: Report) -> None:
    assert report.violations == [], report.figures


def test_thousands_overdue_at_start_fire_unasked_and_reads_go_on() -> None:
    check(overdue.run(0.03))


def test_one_poisoned_alarm_in_a_thousand_delays_nobody_and_goes_on_failing() -> None:
    report = Report()
    poisoned.one_among_many(report, 0.1, None)
    check(report)
