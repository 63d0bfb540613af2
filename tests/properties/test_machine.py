"""Random stories, told to the real service and to an oracle, which must agree after every step.

Holds, replays, time, failing and healing alarms, a full disk, stops, crashes and crashes in the
middle of attempts, in any order. After each step every name is read over HTTP, the rows and the
log are compared, and every invariant is checked on the file.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from reservation_service.errors import StorageFull
from reservation_service.reservation import Expire, Trigger
from reservation_service.store import Claim
from tests.properties.oracle import Oracle
from tests.support.clock import START, FakeClock
from tests.support.gates import Gate
from tests.support.harness import ServiceHarness
from tests.support.invariants import violations
from tests.support.recorder import Recorder
from tests.support.rows import events, rows
from tests.support.scratch import scratch_directory

T = TypeVar("T")

NAMES = ["seat-1", "seat-2", "seat-3"]

names = st.sampled_from(NAMES)
seconds = st.sampled_from([5, 6, 7, 60, 3_600])
times = st.sampled_from([0, 1, 999, 2_000, 4_999, 5_000, 7_000, 60_000, 3_600_000])
offsets = st.sampled_from([-3_600_000, -1, 0, 1, 60_000])


def is_alarm(message: object) -> bool:
    return isinstance(message, Expire) and message.trigger is Trigger.ALARM


def is_claim(message: object) -> bool:
    return isinstance(message, Claim)


class Story(RuleBasedStateMachine):
    """One database through its life, and the oracle beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        directory = self.resources.enter_context(scratch_directory())
        self.loop = self.resources.enter_context(asyncio.Runner())
        self.clock = FakeClock()
        self.service = ServiceHarness(directory / "story.db", self.clock, Recorder())
        self.oracle = Oracle(NAMES, START)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run(work)

    @initialize()
    def begin(self) -> None:
        self.do(self.service.start())
        self.poison = self.service.poison

    def teardown(self) -> None:
        try:
            self.do(self.service.close())
        finally:
            self.resources.close()

    # The rules: each tells the service and then the oracle.

    @rule(name=names, ttl_seconds=seconds)
    def hold(self, name: str, ttl_seconds: int) -> None:
        self.do(self.service.hold(name, ttl_seconds))
        self.oracle.hold(name, ttl_seconds * 1_000)

    @rule(ttl_seconds=seconds)
    def hold_all_at_once(self, ttl_seconds: int) -> None:
        async def together() -> None:
            await asyncio.gather(*(self.service.hold(name, ttl_seconds) for name in NAMES))

        self.do(together())
        for name in NAMES:
            self.oracle.hold(name, ttl_seconds * 1_000)

    @rule(name=names, offset_ms=offsets)
    def replay(self, name: str, offset_ms: int) -> None:
        now = (self.oracle.names[name].expires_at or START) + offset_ms
        answer = self.do(self.service.replay(name, now))
        assert answer["changed"] is self.oracle.replay(name, now)

    @rule(ms=times)
    def let_time_pass(self, ms: int) -> None:
        self.do(self.service.advance(ms))
        self.oracle.now += ms
        self.oracle.ring()

    @precondition(lambda self: self.oracle.next_try() is not None)
    @rule(early_ms=st.sampled_from([0, 0, 1]))
    def let_the_next_alarm_come(self, early_ms: int) -> None:
        self.let_time_pass(self._until_next(early_ms))

    @rule()
    def look_into_the_table(self) -> None:
        self.do(self.service.look())
        self.oracle.ring()

    @rule(name=names)
    def plant_a_failure(self, name: str) -> None:
        self.poison.plant(name)
        self.oracle.names[name].is_poisoned = True

    @rule()
    def heal_all(self) -> None:
        self.poison.heal(*NAMES)
        for one in self.oracle.names.values():
            one.is_poisoned = False

    @rule(ms=times)
    def fill_the_disk_for_a_while(self, ms: int) -> None:
        async def live_through_it() -> None:
            with self.service.gates.failing(StorageFull()):
                self.clock.advance(ms)
                answer = await self.service.post("/reservations/seat-1", {"ttlSeconds": 5})
                assert answer.status == 507
                self.service.waker.tick()
                await self.service.waker.asleep()
            await self.service.look()

        self.do(live_through_it())
        self.oracle.now += ms
        self.oracle.ring()

    @rule(dark_ms=times, is_graceful=st.booleans())
    def restart(self, dark_ms: int, is_graceful: bool) -> None:
        self.do(self.service.stop() if is_graceful else self.service.crash())
        self._go_on(dark_ms)

    @precondition(lambda self: self.oracle.next_try() is not None)
    @rule(dark_ms=times, is_dispatched=st.booleans())
    def crash_in_attempts(self, dark_ms: int, is_dispatched: bool) -> None:
        """Claimed and counted, perhaps handed to the actors, and then nothing."""
        self.oracle.now += (wait_ms := self._until_next())
        gates = self.service.gates
        if is_dispatched:
            self._crash_at(gates.before(is_alarm), wait_ms, count=len(self.oracle.due()))
        else:
            self._crash_at(gates.after(is_claim), wait_ms)
        self.oracle.cut_short()
        self._go_on(dark_ms)

    @precondition(lambda self: self.oracle.next_try() is not None)
    @rule(dark_ms=times)
    def crash_after_the_effects(self, dark_ms: int) -> None:
        """Committed, and nobody has heard of it."""
        self.heal_all()
        self.oracle.now += (wait_ms := self._until_next())
        gate = self.service.gates.after(is_alarm)
        self._crash_at(gate, wait_ms, count=len(self.oracle.due()))
        self.oracle.ring()
        self._go_on(dark_ms)

    # What must be true after every step.

    @invariant()
    def both_agree_and_no_invariant_is_broken(self) -> None:
        for name in NAMES:
            assert self.do(self.service.status(name)) == self.oracle.document(name)
        assert self._next_tries() == {
            name: one.slot.next_try if one.slot else None
            for name, one in self.oracle.names.items()
            if one.status != "missing"
        }
        assert self._histories() == {name: one.events for name, one in self.oracle.names.items()}
        assert violations(self.service.database) == []

    def _next_tries(self) -> dict[str, int | None]:
        return {row["id"]: row["alarm_dispatch_at"] for row in rows(self.service.database)}

    def _histories(self) -> dict[str, list[tuple[int, str, str, int]]]:
        """A replay brings a time of its own, so when it was recorded tells nothing."""
        told: dict[str, list[tuple[int, str, str, int]]] = {name: [] for name in NAMES}
        for event in events(self.service.database):
            at = event["at"] if event["trigger"] != "replay" else 0
            told[event["reservation"]].append(
                (event["generation"], event["type"], event["trigger"], at)
            )
        return told

    def _until_next(self, early_ms: int = 0) -> int:
        next_try = self.oracle.next_try()
        assert next_try is not None
        return max(0, next_try - early_ms - self.oracle.now)

    def _crash_at(self, gate: Gate, wait_ms: int, count: int = 1) -> None:
        async def crash() -> None:
            self.clock.advance(wait_ms)
            self.service.waker.tick()
            await gate.reached(count)
            await self.service.crash()

        self.do(crash())

    def _go_on(self, dark_ms: int) -> None:
        """Start after a while."""
        self.clock.advance(dark_ms)
        self.oracle.now += dark_ms
        waiting = self.oracle.start_again()
        self.do(self.service.start())
        self.do(self.service.quiet())
        for name, allowed in waiting.items():
            slot = self.oracle.names[name].slot
            next_try = self._next_tries()[name]
            assert slot is not None
            assert next_try is not None
            assert next_try in allowed
            slot.next_try = next_try
        self.oracle.ring()


def run(story: type[Story], examples: int) -> None:
    run_state_machine_as_test(
        story,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],  # thirty steps can be read, and shrinking takes minutes
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_the_service_and_the_oracle_tell_the_same_story() -> None:
    run(Story, examples=15)


class ForgetfulStory(Story):
    """The control: its oracle believes that a crash forgets how often an alarm was tried."""

    @rule()
    def restart_and_forget(self) -> None:
        self.restart(dark_ms=0, is_graceful=False)
        for one in self.oracle.names.values():
            if one.slot is not None:
                one.slot.attempts = 0


class HastyStory(Story):
    """The control: its oracle believes that a hold is over a millisecond before its deadline."""

    def __init__(self) -> None:
        super().__init__()
        is_over = self.oracle._is_over
        self.oracle._is_over = lambda one, now: is_over(one, now + 1)  # type: ignore[method-assign]


@pytest.mark.system  # it tests a test
@pytest.mark.parametrize("story", [ForgetfulStory, HastyStory])
def test_a_story_that_is_told_differently_is_found(story: type[Story]) -> None:
    with pytest.raises(AssertionError):
        run(story, examples=40)
