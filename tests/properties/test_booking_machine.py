"""Any order of calls, alarms, failures and restarts: the service answers as the contract says.

The real service over real HTTP against an oracle that was written from the contract alone.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reservation_service.store import Claim
from tests.properties.booking_oracle import Oracle, Said, Seat
from tests.support.clock import FakeClock
from tests.support.gates import Gate
from tests.support.harness import Answer, ServiceHarness
from tests.support.invariants import violations
from tests.support.recorder import Recorder
from tests.support.rows import history
from tests.support.scratch import scratch_directory

T = TypeVar("T")

NAMES = [f"seat-{number}" for number in range(3)]
SETTINGS: dict[str, object] = {
    "ttl_seconds_max": 60,
    "max_hold_seconds": 100,
    "max_holds_per_holder": 2,
}
RETRY_CAP_MS = 60_000
STEPS_HELD_BACK_MAX = 6
RESTARTS_MAX = 2

names = st.sampled_from(NAMES)
HOLDERS = [None, "alice-4711", "bob-0815"]
callers = st.sampled_from(["the row's", "the row's", *HOLDERS])
ttls = st.sampled_from([5, 30, 60])
given_generations = st.sampled_from(["none", "none", "the row's", "another"])
around = st.sampled_from([-1, 0, 1])


def is_claim(message: object) -> bool:
    return isinstance(message, Claim)


def said(answer: Answer) -> Said:
    if answer.status >= 400:
        return answer.status, answer.json["code"]
    return answer.status, answer.json.get("changed")


class Bookings(RuleBasedStateMachine):
    """One service, its oracle, and time in Hypothesis's hand."""

    def __init__(self) -> None:
        super().__init__()
        self._opened = ExitStack()
        directory = self._opened.enter_context(scratch_directory())
        self._runner = self._opened.enter_context(asyncio.Runner())
        self.clock = FakeClock()
        self.oracle = Oracle(NAMES, cap_ms=100_000, limit=2)
        self.service = ServiceHarness(
            directory / "reservations.db", self.clock, Recorder(), reservations=SETTINGS
        )
        self.gate: Gate | None = None
        self.steps_left = self.restarts = 0
        self.planted: set[str] = set()
        self.run(self.service.start())
        self.poison = self.service.poison

    @initialize(caller=st.sampled_from(HOLDERS))
    def begin_with_a_hold(self, caller: str | None) -> None:
        self.hold(NAMES[0], caller, 5)

    def teardown(self) -> None:
        try:
            if self.gate is not None:
                self.let_alarms_go()
            assert violations(self.service.database) == []
        finally:
            self.run(self.service.close())
            self._opened.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    @rule(name=names, caller=callers, ttl=ttls)
    def hold(self, name: str, caller: str | None, ttl: int) -> None:
        holder = self.holder(name, caller)
        expected = self.oracle.hold(name, holder, ttl * 1_000, self.clock.now())
        self.call(name, "", expected, holder, ttlSeconds=ttl)

    @rule(name=names, caller=callers, ttl=ttls, given=given_generations)
    def extend(self, name: str, caller: str | None, ttl: int, given: str) -> None:
        holder = self.holder(name, caller)
        generation = self.generation(name, given)
        now = self.clock.now()
        expected = self.oracle.extend(name, holder, generation, ttl * 1_000, now)
        self.call(name, "/extend", expected, holder, generation=generation, ttlSeconds=ttl)

    @rule(name=names, caller=callers, given=given_generations, late=st.booleans())
    def confirm(self, name: str, caller: str | None, given: str, late: bool) -> None:
        holder = self.holder(name, caller)
        generation = self.generation(name, given)
        now = self.clock.now()
        expected = self.oracle.confirm(name, holder, generation, late=late, now=now)
        self.call(name, "/confirm", expected, holder, generation=generation, ifStillFree=late)

    @rule(name=names, caller=callers, given=given_generations)
    def release(self, name: str, caller: str | None, given: str) -> None:
        holder = self.holder(name, caller)
        generation = self.generation(name, given)
        expected = self.oracle.release(name, holder, generation, self.clock.now())
        self.call(name, "/release", expected, holder, generation=generation)

    @rule(name=names, offset_ms=around)
    def replay(self, name: str, offset_ms: int) -> None:
        at = (self.oracle.seats[name].expires_at or self.clock.now()) + offset_ms
        self.call(name, "/replay-alarm", self.oracle.replay(name, at), None, now=at)

    @rule(ms=st.sampled_from([1, 999, 5_000, 30_000]))
    def let_time_pass(self, ms: int) -> None:
        self.clock.advance(ms)
        self.settle()

    @rule(name=names, offset_ms=around)
    def go_to_a_deadline(self, name: str, offset_ms: int) -> None:
        seat = self.oracle.seats[name]
        if seat.state == "held":
            self.clock.advance(max(0, seat.expires_at + offset_ms - self.clock.now()))
            self.settle()

    @precondition(lambda self: self.gate is None)
    @rule(is_counted=st.booleans())
    def hold_alarms_back(self, is_counted: bool) -> None:
        """Before they are counted, or between the count and the effect."""
        gates = self.service.gates
        self.gate = gates.ring() if is_counted else gates.before(is_claim)
        self.steps_left = STEPS_HELD_BACK_MAX

    @precondition(lambda self: self.gate is not None)
    @rule()
    def let_alarms_go(self) -> None:
        assert self.gate is not None
        self.gate.open()
        self.gate = None
        self.settle()

    @precondition(lambda self: self.gate is None)
    @rule(
        name=names,
        offset_ms=around,
        is_counted=st.booleans(),
        call=st.sampled_from(["hold", "extend", "confirm", "confirm late", "release"]),
    )
    def race_the_alarm(self, name: str, offset_ms: int, is_counted: bool, call: str) -> None:
        """Its holder calls around the deadline, and the alarm comes behind."""
        self.hold_alarms_back(is_counted)
        self.go_to_a_deadline(name, offset_ms)
        mine, generation = "the row's", "the row's"
        if call == "hold":
            self.hold(name, mine, 5)
        elif call == "extend":
            self.extend(name, mine, 60, generation)
        elif call == "release":
            self.release(name, mine, generation)
        else:
            self.confirm(name, mine, generation, late=call == "confirm late")
        self.let_alarms_go()

    @rule(name=names)
    def let_alarms_fail(self, name: str) -> None:
        self.poison.plant(name)
        self.planted.add(name)

    @precondition(lambda self: self.planted and self.gate is None)
    @rule()
    def heal_alarms(self) -> None:
        """Each is tried again within the longest wait, and tells by itself when that was."""
        since = self.clock.now()
        self.poison.heal(*self.planted)
        self.clock.advance(RETRY_CAP_MS)
        self.run(self.service.quiet())
        healed, self.planted = self.planted, set()
        for name in healed:
            self.adopt_expiry(name, since)
        self.settle()

    @precondition(lambda self: self.restarts < RESTARTS_MAX)
    @rule(is_crash=st.booleans())
    def restart(self, is_crash: bool) -> None:
        self.restarts += 1
        if is_crash or self.gate is not None:
            self.run(self.service.crash())
        else:
            self.run(self.service.stop())
        self.gate = None
        self.run(self.service.start())
        self.settle()

    @invariant()
    def nothing_is_held_back_for_long(self) -> None:
        """A gate has an end in real time, as every wait has."""
        self.steps_left -= 1
        if self.gate is not None and self.steps_left == 0:
            self.let_alarms_go()

    @invariant()
    def everything_is_as_the_oracle_says(self) -> None:
        asked = "&".join(f"id={name}" for name in NAMES)
        shown = self.run(self.service.get(f"/reservations?{asked}")).json["items"]
        for name, document in zip(NAMES, shown, strict=True):
            assert summary(document) == expected_summary(self.oracle.seats[name]), name
            recorded = history(self.service.database, name)
            happened = [event for event in recorded if event[1] != "alarm-failed"]
            assert happened == self.oracle.seats[name].log, name

    def call(
        self, name: str, verb: str, expected: Said, holder: str | None, **fields: object
    ) -> None:
        document = {key: value for key, value in fields.items() if value not in (None, False)}
        if holder is not None:
            document["holder"] = holder
        answer = self.run(self.service.post(f"/reservations/{name}{verb}", document))
        assert said(answer) == expected, answer.body
        shown = answer.json.get("reservation") if answer.status >= 400 else answer.json
        if shown is not None:
            assert summary(shown) == expected_summary(self.oracle.seats[name])

    def settle(self) -> None:
        """Let every alarm ring that is due and neither held back nor failing."""
        if self.gate is not None:
            return
        self.run(self.service.quiet())
        now = self.clock.now()
        for name, seat in self.oracle.seats.items():
            if seat.is_overdue(now) and name not in self.planted:
                seat.expire(now, "alarm")

    def adopt_expiry(self, name: str, since: int) -> None:
        seat = self.oracle.seats[name]
        if seat.is_overdue(self.clock.now()):
            document = self.run(self.service.status(name))
            assert document["status"] == "expired"
            assert max(since, seat.expires_at) <= document["expiredAt"] <= self.clock.now()
            seat.expire(document["expiredAt"], "alarm")

    def holder(self, name: str, caller: str | None) -> str | None:
        return self.oracle.seats[name].holder if caller == "the row's" else caller

    def generation(self, name: str, given: str) -> int | None:
        known = self.oracle.seats[name].generation
        return {"none": None, "the row's": known or 1, "another": known + 1}[given]


def summary(document: dict[str, Any]) -> tuple[object, ...]:
    fields = ("status", "generation", "createdAt", "expiresAt", "alarmAt", "expirationCount")
    times = ("expiredAt", "confirmedAt", "releasedAt")
    return tuple(document[field] for field in (*fields, *times))


def expected_summary(seat: Seat) -> tuple[object, ...]:
    expires_at = None if seat.state == "missing" else seat.expires_at
    return (
        seat.state,
        seat.generation,
        seat.created_at,
        expires_at,
        expires_at if seat.state == "held" else None,
        int(seat.expired_at is not None),
        seat.expired_at,
        seat.confirmed_at,
        seat.released_at,
    )


TestBookings = Bookings.TestCase
TestBookings.settings = settings(
    # no shrinking: it starts services for minutes, and the test has one
    phases=[Phase.reuse, Phase.generate],
    max_examples=14,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
