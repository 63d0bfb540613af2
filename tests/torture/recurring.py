"""1,000 recurring events on 100 reservations, and kill -9 while they are planned and while they
happen: none is lost, none happens twice, and none drifts.

What clients were told and what the log has of each event must be one chain: from the planned time,
period by period, with as many left out as each occurrence says it has missed.
"""

import json
import random
from collections import defaultdict
from functools import partial
from typing import Any, NamedTuple

from tests.process.server import Server, wait_until_past, wall_ms
from tests.support.invariants import violations
from tests.torture.report import Harness, Report
from tests.torture.scratch import allowed, scratch
from tests.torture.target import Target

RESERVATIONS, EVENTS_EACH = 100, 10
KILLS = 20
LATE_MS_MAX = 2000
HOLD_SECONDS = 3600
_PERIODS_MS = (1000, 1500, 2300)
_FIRST_WITHIN_MS = 2000
_LIFE_MS_MAX = 3000
_KILLED_AFTER = (0.2, 0.45, 0.7, 0.95)
"""Which parts of the events are planned when the process is killed."""
_HAPPENED = """
SELECT reservation, at, data FROM event WHERE type = 'scheduled-event' ORDER BY seq
"""
_PLANNED = "SELECT reservation, event_id, first_at, run_at, repeat_ms FROM schedule"


class Name(NamedTuple):
    """One event of one reservation."""

    reservation: str
    event: str


class Asked(NamedTuple):
    """What a client was told is planned."""

    run_at: int
    repeat_ms: int


def run(scale: float, *, bug: str | None = None) -> Report:
    """Plan under kills, let it happen under kills, let it come to rest, and follow each chain."""
    report = Report()
    with scratch(bug=bug) as target:
        asked = _plan_everything(target, report, max(3, round(RESERVATIONS * scale)))
        for _ in range(max(2, round(KILLS * scale))):
            wait_until_past(wall_ms() + random.randrange(_LIFE_MS_MAX))
            target.kill()
            report.count("kills while they happen")
            target.start()
        wait_until_past(wall_ms() + max(_PERIODS_MS) + LATE_MS_MAX)
        target.kill()
        _check(target, report, asked, allowed(LATE_MS_MAX, scale))
        report.violations += violations(target.database)
    return report


def _plan_everything(target: Target, report: Report, reservations: int) -> dict[Name, Asked]:
    """What was answered before a kill must be there after it."""
    asked: dict[Name, Asked] = {}
    names = [f"seat-{number:03}" for number in range(reservations)]
    target.start()
    for name in names:
        target.hold(name, HOLD_SECONDS)
    everything = [Name(name, f"event-{number}") for name in names for number in range(EVENTS_EACH)]
    kill_at = {round(len(everything) * part) for part in _KILLED_AFTER}
    for number, event in enumerate(everything):
        if number in kill_at:
            target.kill()
            report.count("kills while they are planned")
            target.start()
        run_at = wall_ms() + random.randrange(_FIRST_WITHIN_MS)
        asked[event] = Asked(run_at, random.choice(_PERIODS_MS))
        _plan_twice(target, event, asked[event])
    report.figures["events"] = len(asked)
    return asked


def _plan_twice(target: Server, name: Name, asked: Asked) -> None:
    """A call may be repeated, also when the event has happened in between."""
    path = f"/reservations/{name.reservation}/schedule/{name.event}"
    body = {"runAt": asked.run_at, "repeatMs": asked.repeat_ms}
    statuses = [target.call("PUT", path, body).status for _ in range(2)]
    assert statuses == [201, 200], statuses


def _check(target: Target, report: Report, asked: dict[Name, Asked], late_ms_max: float) -> None:
    planned = {
        Name(reservation, event): (first_at, run_at, repeat_ms)
        for reservation, event, first_at, run_at, repeat_ms in target.query(_PLANNED)
    }
    happened: dict[Name, list[tuple[int, Any]]] = defaultdict(list)
    for reservation, at, data in target.query(_HAPPENED):
        told = json.loads(data)
        happened[Name(reservation, told["eventId"])].append((at, told))
    now = wall_ms()
    for name, (run_at, repeat_ms) in asked.items():
        if name not in planned:
            report.count("lost")
            report.violations.append(f"{name} was planned and is lost")
            continue
        following = _follow(report, name, Asked(run_at, repeat_ms), happened[name])
        first_at, next_at, _ = planned[name]
        report.require(first_at == run_at, f"{name} was planned for {run_at}, not {first_at}")
        report.require(next_at == following, f"{name} is planned for {next_at}, not {following}")
        in_time = next_at > now - late_ms_max
        report.require(in_time, f"{name} of {next_at} has not happened at {now}")
    report.figures["occurrences"] = sum(map(len, happened.values()))


def _follow(report: Report, name: Name, asked: Asked, happened: list[tuple[int, Any]]) -> int:
    """Along the chain of what has happened; when the event is to happen next."""
    following = asked.run_at
    for at, told in happened:
        report.count("missed periods told", told["missed"])
        report.require(
            told["scheduledTime"] == following,
            f"{name} happened for {told['scheduledTime']}, not for {following}",
        )
        report.require(at >= following, f"{name} of {following} happened early, at {at}")
        following = told["scheduledTime"] + asked.repeat_ms * (told["missed"] + 1)
    return following


HARNESS = Harness(
    name="recurring",
    promise="1,000 recurring events over kill -9: none lost, none twice, none adrift",
    run=run,
    controls={
        bug: partial(run, 0.03, bug=bug)
        for bug in ("drift-from-the-plan", "lose-what-repeats", "forget-what-is-next")
    },
    short=0.05,
)
