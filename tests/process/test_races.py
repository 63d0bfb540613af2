"""Races against a real process: one winner, always, and the one that was in time."""

import pytest

from tests.process.server import Server
from tests.support.invariants import violations
from tests.torture.races import (
    HOLDERS,
    KINDS,
    SEATS_AT_ONCE,
    race_alarms,
    scramble,
    scramble_for_many,
)
from tests.torture.report import Report

SCRAMBLES = 10
RACES = 60


@pytest.fixture
def report() -> Report:
    return Report()


def test_of_64_holders_of_one_seat_one_gets_it_and_the_others_change_nothing(
    server: Server, report: Report
) -> None:
    scramble(server.start(), SCRAMBLES, report)
    assert report.violations == []
    assert report.figures == {
        "one seat: scrambles": SCRAMBLES,
        "one seat: 201": SCRAMBLES,
        "one seat: 409 already-held": SCRAMBLES * (HOLDERS - 1),
    }
    held = server.query("SELECT count(*) FROM event WHERE type = 'held'")
    assert held == [(SCRAMBLES,)]
    server.stop()
    assert violations(server.database) == []


def test_many_holders_of_many_seats_get_each_of_them_once(server: Server, report: Report) -> None:
    scramble_for_many(server.start(), 2, report)
    assert report.violations == []
    assert report.figures["many seats: 201"] == 2 * SEATS_AT_ONCE
    assert server.query("SELECT status, count(*) FROM reservation GROUP BY 1") == [
        ("confirmed", 2 * SEATS_AT_ONCE)
    ]
    server.stop()
    assert violations(server.database) == []


def test_of_a_call_and_its_alarm_at_the_deadline_exactly_one_wins(
    server: Server, report: Report
) -> None:
    kinds = ["confirm"] * RACES + [kind for kind in KINDS for _ in range(RACES // 6)]
    race_alarms(server.start(), kinds, report)
    assert report.violations == []
    assert (report.figures["confirm: both"], report.figures["confirm: neither"]) == (0, 0)
    server.stop()
    assert violations(server.database) == []
