"""Processes stopped and halted for a while; `make torture` takes longer."""

import pytest

from tests.torture import standstill, stops
from tests.torture.report import Report

pytestmark = pytest.mark.timeout(180)


def check(report: Report) -> None:
    assert report.violations == [], report.figures


def test_sigterm_under_load_ends_in_time_and_keeps_what_was_acknowledged() -> None:
    check(stops.run(0.1))


def test_what_fell_due_while_the_process_stood_still_fires_once_and_soon() -> None:
    check(standstill.run(0.1))  # longer than an attempt may take
