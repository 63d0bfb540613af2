"""Processes killed, stopped, halted and doubled for a while; `make torture` takes longer."""

import pytest

from tests.torture import kills, second_process, standstill, stops
from tests.torture.report import Report

pytestmark = pytest.mark.timeout(180)


def check(report: Report) -> None:
    assert report.violations == [], report.figures


def test_kill_9_at_random_moments_loses_nothing_and_fires_nothing_early_or_twice() -> None:
    check(kills.run(0.015))


def test_sigterm_under_load_ends_in_time_and_keeps_what_was_acknowledged() -> None:
    check(stops.run(0.1))


def test_what_fell_due_while_the_process_stood_still_fires_once_and_soon() -> None:
    check(standstill.run(0.1))  # longer than an attempt may take


def test_second_processes_refuse_and_leave_the_first_unharmed() -> None:
    check(second_process.run(0.1))
