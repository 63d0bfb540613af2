"""Any order of plans, bookings, failures and crashes: what is planned happens, once and on time.

The real service over real HTTP against two oracles that were written from the contract alone.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reservation_service.reservation import Fire
from tests.http.schedules import as_holder, happened, path
from tests.properties.booking_oracle import Oracle, Said
from tests.properties.schedule_oracle import ScheduleOracle
from tests.support.clock import FakeClock
from tests.support.harness import Answer, ServiceHarness
from tests.support.invariants import violations
from tests.support.recorder import Recorder
from tests.support.scratch import scratch_directory

T = TypeVar("T")

NAMES = ["seat-1", "seat-2"]
EVENTS = [f"event-{number}" for number in range(4)]
HOLDERS = [None, "alice-4711", "bob-0815"]
SETTINGS: dict[str, object] = {"ttl_seconds_max": 60, "max_hold_seconds": 100}
CRASHES_MAX = 2

names = st.sampled_from(NAMES)
event_ids = st.sampled_from(EVENTS)
callers = st.sampled_from(["the row's", "the row's", "the row's", *HOLDERS])
ttls = st.sampled_from([5, 30, 60])
delays = st.sampled_from([-1_000_000, -1, 0, 1, 999, 5_000, 12_000, 59_999, 60_000, 200_000])
periods = st.sampled_from([None, None, 1_000, 1_001, 7_000])
data = st.sampled_from([None, {"n": 1}, "text"])


def is_fire(message: object) -> bool:
    return isinstance(message, Fire)


def said(answer: Answer) -> Said:
    if answer.status >= 400:
        return answer.status, answer.json["code"]
    return answer.status, answer.json.get("changed")


class Schedules(RuleBasedStateMachine):
    """One service, its oracles, and time in Hypothesis's hand."""

    def __init__(self) -> None:
        super().__init__()
        self._opened = ExitStack()
        directory = self._opened.enter_context(scratch_directory())
        self._runner = self._opened.enter_context(asyncio.Runner())
        self.clock = FakeClock()
        self.bookings = Oracle(NAMES, cap_ms=100_000, limit=20)
        self.schedules = ScheduleOracle(self.bookings)
        self.service = ServiceHarness(
            directory / "reservations.db", self.clock, Recorder(), reservations=SETTINGS
        )
        self.failing: set[str] = set()
        self.crashes = 0
        self.run(self.service.start())
        self.poison = self.service.poison

    @initialize(caller=st.sampled_from(HOLDERS))
    def begin_with_a_hold(self, caller: str | None) -> None:
        self.hold(NAMES[0], caller, 60)

    def teardown(self) -> None:
        try:
            assert violations(self.service.database) == []
        finally:
            self.run(self.service.close())
            self._opened.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    @rule(name=names, caller=callers, ttl=ttls)
    def hold(self, name: str, caller: str | None, ttl: int) -> None:
        holder = self.holder(name, caller)
        expected = self.bookings.hold(name, holder, ttl * 1_000, self.clock.now())
        self.post(name, "", expected, holder, ttlSeconds=ttl)

    @rule(name=names, ttl=ttls)
    def extend(self, name: str, ttl: int) -> None:
        holder, now = self.holder(name, "the row's"), self.clock.now()
        expected = self.bookings.extend(name, holder, None, ttl * 1_000, now)
        self.post(name, "/extend", expected, holder, ttlSeconds=ttl)

    @rule(name=names, late=st.booleans())
    def confirm(self, name: str, late: bool) -> None:
        seat = self.bookings.seats[name]
        given, now = seat.generation or 1, self.clock.now()
        expected = self.bookings.confirm(name, seat.holder, given, late=late, now=now)
        self.post(name, "/confirm", expected, seat.holder, generation=given, ifStillFree=late)

    @rule(name=names)
    def release(self, name: str) -> None:
        holder = self.holder(name, "the row's")
        expected = self.bookings.release(name, holder, None, self.clock.now())
        self.post(name, "/release", expected, holder)

    @rule(
        name=names, caller=callers, event_id=event_ids, delay=delays, period=periods, content=data
    )
    def plan(
        self,
        *,
        name: str,
        caller: str | None,
        event_id: str,
        delay: int,
        period: int | None,
        content: object,
    ) -> None:
        holder, now = self.holder(name, caller), self.clock.now()
        asked = (now + delay, period, content)
        expected = self.schedules.plan(name, holder, event_id, asked, now)
        document = {"runAt": asked[0], "repeatMs": period, "data": content}
        if holder is not None:
            document["holder"] = holder
        answer = self.run(self.service.request("PUT", path(event_id, name), json=document))
        assert said(answer) == expected, answer.body
        self.settle()

    @rule(name=names, caller=callers, event_id=event_ids)
    def cancel(self, name: str, caller: str | None, event_id: str) -> None:
        holder = self.holder(name, caller)
        expected = self.schedules.cancel(name, holder, event_id)
        headers = as_holder(holder)
        answer = self.run(self.service.request("DELETE", path(event_id, name), headers=headers))
        assert said(answer) == expected, answer.body
        self.settle()

    @rule(ms=st.sampled_from([1, 999, 5_000, 30_000]))
    def let_time_pass(self, ms: int) -> None:
        self.clock.advance(ms)
        self.settle()

    @rule(offset_ms=st.sampled_from([-1, 0, 0, 1]))
    def go_to_the_next_event(self, offset_ms: int) -> None:
        for at in self.schedules.next_times(self.clock.now())[:1]:
            self.clock.advance(max(0, at + offset_ms - self.clock.now()))
            self.settle()

    @precondition(lambda self: not self.failing)
    @rule(event_id=event_ids)
    def let_an_event_fail(self, event_id: str) -> None:
        """It stops neither its siblings nor the expiry, for as long as it fails."""
        self.poison.plant(event_id)
        self.failing.add(event_id)

    @precondition(lambda self: self.failing)
    @rule()
    def take_failing_events_away(self) -> None:
        for event_id in self.failing:
            for name in NAMES:
                self.cancel(name, "the row's", event_id)
        self.poison.heal(*self.failing)
        self.failing.clear()

    @precondition(lambda self: self.crashes < CRASHES_MAX and not self.failing)
    @rule(is_committed=st.booleans(), down_ms=st.sampled_from([0, 1, 5_000]))
    def crash_while_an_event_is_fired(self, is_committed: bool, down_ms: int) -> None:
        """Before it is, or when it is and nobody knows it yet."""
        times = self.schedules.next_times(self.clock.now())
        if not times:
            return
        self.crashes += 1
        gates = self.service.gates
        gate = gates.after(is_fire) if is_committed else gates.before(is_fire)
        self.clock.advance(times[0] - self.clock.now())
        self.run(gate.reached())
        self.run(self.service.crash())
        if is_committed:
            self.adopt_what_was_committed()
        self.clock.advance(down_ms)
        self.run(self.service.start())
        self.settle()

    @invariant()
    def everything_is_as_the_oracles_say(self) -> None:
        for name in NAMES:
            holder = self.holder(name, "the row's")
            answer = self.run(
                self.service.request("GET", path(None, name), headers=as_holder(holder))
            )
            shown = [(item["eventId"], item["runAt"]) for item in answer.json["items"]]
            assert shown == self.schedules.shown(name, self.clock.now()), name
            status = self.run(self.service.status(name))
            assert status["status"] == self.bookings.seats[name].state
            assert status["alarmAt"] == self.schedules.alarm_at(name), name
            assert self.recorded(name) == self.schedules.happened(name), name

    def recorded(self, name: str) -> list[tuple[str, int, int, object]]:
        return [
            (one["eventId"], one["scheduledTime"], one["missed"], one["data"])
            for one in happened(self.service, name)
        ]

    def adopt_what_was_committed(self) -> None:
        """Of what was due, the crash let through whatever its first transactions had in them."""
        now = self.clock.now()
        for name in NAMES:
            recorded = self.recorded(name)
            done = {one[0] for one in recorded[len(self.schedules.happened(name)) :]}
            self.schedules.ring(name, now, failing=set(EVENTS) - done)
            assert self.schedules.happened(name) == recorded

    def post(
        self, name: str, verb: str, expected: Said, holder: str | None, **fields: object
    ) -> None:
        document = {key: value for key, value in fields.items() if value not in (None, False)}
        if holder is not None:
            document["holder"] = holder
        answer = self.run(self.service.post(f"/reservations/{name}{verb}", document))
        assert said(answer) == expected, answer.body
        self.settle()

    def settle(self) -> None:
        """Let every alarm ring that is due."""
        self.run(self.service.quiet())
        now = self.clock.now()
        for name, seat in self.bookings.seats.items():
            if seat.is_overdue(now):
                seat.expire(now, "alarm")
            self.schedules.ring(name, now, self.failing)

    def holder(self, name: str, caller: str | None) -> str | None:
        return self.bookings.seats[name].holder if caller == "the row's" else caller


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(
    # no shrinking: it starts services for minutes, and the test has one
    phases=[Phase.reuse, Phase.generate],
    max_examples=14,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
