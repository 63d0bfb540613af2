"""Attacks for a while that may take their time, however busy the machine is.

`make torture` takes longer.
"""

import pytest

from tests.torture import damage, followers, hang_ups, kills, poisoned, recurring, second_process
from tests.torture.damage import Damage
from tests.torture.report import Report
from tests.torture.scratch import allowed

pytestmark = pytest.mark.timeout(180)


def check(report: Report) -> None:
    assert report.violations == [], report.figures


def test_kill_9_at_random_moments_loses_nothing_and_fires_nothing_early_or_twice() -> None:
    check(kills.run(0.015))


def test_second_processes_refuse_and_leave_the_first_unharmed() -> None:
    check(second_process.run(0.1))


def test_who_follows_the_feed_over_kill_9_sees_every_event_once_and_in_order() -> None:
    check(followers.run(followers.HARNESS.short))


def test_no_recurring_event_is_lost_doubled_or_adrift_over_kill_9() -> None:
    check(recurring.run(recurring.HARNESS.short))


def test_an_attempt_that_is_killed_was_counted_before_it_began() -> None:
    report = Report()
    poisoned.kill_inside_attempts(report, 2, None)
    check(report)


def test_clients_that_hang_up_by_the_thousand_leave_nothing_behind() -> None:
    check(hang_ups.run(0.03))


@pytest.mark.parametrize("done", damage.DAMAGES, ids=lambda done: done.name)
def test_damage_that_is_met_ends_the_process_clearly_and_soon(done: Damage) -> None:
    report = damage.damage_files(Report(), [done], allowed(damage.EXIT_SECONDS_MAX, 0.1))
    assert report.violations == [], report.figures
