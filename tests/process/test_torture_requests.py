"""Hostile requests, crowds and overload for a while; `make torture` takes longer."""

import pytest

from tests.torture import crowds, hostile_requests, overload
from tests.torture.report import Report

pytestmark = pytest.mark.timeout(180)


def check(report: Report) -> None:
    assert report.violations == [], report.figures


def test_hostile_requests_get_a_clear_answer_and_leave_no_forged_line() -> None:
    check(hostile_requests.run(0.05))


def test_crowds_of_idle_and_slow_clients_are_not_noticed_by_others() -> None:
    check(crowds.run(0.05))


def test_five_times_too_much_is_refused_at_once_and_then_all_is_normal() -> None:
    check(overload.run(0.05, bottlenecks=[overload.QUEUE]))
