"""The alarm clock against a store in the test's hand: claim, dispatch, settle, pause."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from reservation_service import alarms
from reservation_service.actor import ReservationNamespace
from reservation_service.alarms import BEGIN_MAX, AlarmClock, AlarmLimits
from reservation_service.errors import (
    MessageFailed,
    OutcomeUnknown,
    ServiceError,
    StorageFull,
    StorageUnavailable,
)
from reservation_service.reservation import (
    Fire,
    HoldLimits,
    Message,
    Outcome,
    PlannedEvent,
    Reservation,
    Schedule,
    Status,
)
from reservation_service.retry import RetryPolicy
from reservation_service.store import (
    Claim,
    Claimed,
    Page,
    Purge,
    Purged,
    Query,
    Retry,
    ScheduleQuery,
)
from tests.support.clock import START, FakeClock
from tests.support.gates import Gate
from tests.support.recorder import Recorder
from tests.support.waiting import Signal, bounded
from tests.support.waker import HandWaker

LIMITS = AlarmLimits(
    lease_ms=10_000, attempt_timeout_ms=5_000, claim_max=100, in_flight_max=100, stuck_after=6
)


def row(reservation_id: str, *, attempts: int = 1, is_running: bool = True) -> Reservation:
    return Reservation(
        reservation_id=reservation_id,
        status=Status.HELD,
        generation=1,
        created_at=START - 60_000,
        expires_at=START,
        expired_at=None,
        confirmed_at=None,
        released_at=None,
        expiration_count=0,
        alarm_at=START,
        alarm_attempts=attempts,
        alarm_running=is_running,
    )


def outcome_of(changed: bool, reservation: Reservation) -> Outcome:
    return Outcome(changed, is_own=True, now=START, reservation=reservation)


class Shelf:
    """A store port that hands out what the test has put there, and fails where it is told to."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._changed = Signal()
        self._due: list[Reservation] = []
        self.claims: list[Claim] = []
        self.applied: list[str] = []
        self.settled: list[Retry] = []
        self.gates: dict[str, Gate] = {}
        self.outcomes: dict[str, Outcome | Exception] = {}
        self.planned: dict[str, list[PlannedEvent]] = {}
        self.fired: dict[int, Outcome | Exception] = {}
        self.refusal: ServiceError | None = None
        self.refused: list[str] = []
        self.begun_before: list[int] = []
        self.claim_failure: ServiceError | None = None
        self.settle_failure: ServiceError | None = None

    def put(self, *rows: Reservation) -> None:
        self._due += rows

    def block(self, reservation_id: str) -> Gate:
        gate = self.gates[reservation_id] = Gate(lambda _: True)
        return gate

    async def claim(self, claim: Claim) -> list[Claimed]:
        self.claims.append(claim)
        self.begun_before.append(len(self.applied))
        self._changed.notify()
        if self.claim_failure is not None:
            raise self.claim_failure
        free = [
            one
            for one in self._due
            if one.reservation_id not in claim.running or not one.alarm_running
        ]
        taken = free[: claim.limit]
        self._due = [one for one in self._due if one not in taken]
        return [self._claimed(one) for one in taken]

    def _claimed(self, row: Reservation) -> Claimed:
        assert row.alarm_at is not None
        return Claimed(
            row.reservation_id,
            row.generation,
            row.alarm_at,
            row.alarm_attempts,
            len(self.claims),
            self._clock.now(),
        )

    def apply(self, message: Message) -> asyncio.Future[Outcome]:
        """A future like that of the group commit: it has ended as soon as it is cancelled."""
        if self.refusal is not None:
            self.refused.append(message.id)
            self._changed.notify()
            raise self.refusal
        self.applied.append(message.id)
        self._changed.notify()
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        working = asyncio.create_task(self._work(message, answer))
        answer.add_done_callback(lambda _: working.cancel())
        return answer

    async def _work(self, message: Message, answer: asyncio.Future[Outcome]) -> None:
        try:
            outcome = await self._outcome(message)
        except Exception as error:  # noqa: BLE001 - whatever the test has put there
            answer.set_exception(error)
        else:
            answer.set_result(outcome)

    async def _outcome(self, message: Message) -> Outcome:
        if gate := self.gates.get(message.id):
            await gate.enter()
        if isinstance(message, Fire):
            outcome: Outcome | Exception | None = self.fired[message.key]
        else:
            outcome = self.outcomes.get(message.id)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome or outcome_of(True, row(message.id, is_running=False))

    async def settle(self, retry: Retry) -> Reservation:
        if self.settle_failure is not None:
            raise self.settle_failure
        self.settled.append(retry)
        self._changed.notify()
        return row(retry.id)

    async def read(self, reservation_id: str) -> Reservation:
        raise NotImplementedError

    async def find(self, query: Query) -> Page:
        raise NotImplementedError

    async def schedule(self, query: ScheduleQuery) -> Schedule:
        assert query.is_due_only
        name = query.reservation_id
        return Schedule(row(name), is_own=False, events=self.planned.get(name, []))

    async def purge(self, purge: Purge) -> Purged:
        raise NotImplementedError

    async def has_claimed(self, times: int) -> None:
        await self._changed.until(
            lambda: len(self.claims) >= times, f"{times} claims, there are {len(self.claims)}"
        )

    async def has_applied(self, *ids: str) -> None:
        await self._changed.until(
            lambda: sorted(self.applied) == sorted(ids),
            lambda: f"attempts at {ids}, there were {self.applied}",
        )

    async def has_refused(self, *ids: str) -> None:
        await self._changed.until(
            lambda: self.refused == [*ids], lambda: f"refused {ids}, there were {self.refused}"
        )

    async def has_settled(self, count: int = 1) -> list[Retry]:
        await self._changed.until(
            lambda: len(self.settled) >= count, lambda: f"{count} settles, not {self.settled}"
        )
        return self.settled


class Bench:
    """An alarm clock with everything around it in the test's hand."""

    def __init__(self, limits: AlarmLimits, kind: type[Shelf]) -> None:
        self.clock = FakeClock()
        self.store = kind(self.clock)
        self.waker = HandWaker(self.clock)
        self.recorder = Recorder()
        self.namespace = ReservationNamespace(self.store, HoldLimits(7_200_000, 20))
        self.alarm_clock = AlarmClock(
            self.store,
            self.namespace,
            self.waker,
            self.clock,
            policy=RetryPolicy(2_000, 60_000, lambda: 0.0),
            limits=limits,
            observe=self.recorder.observe,
        )
        self.complaints: list[str] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.complaints.append(str(context))
        )
        self.task = asyncio.create_task(self.alarm_clock.run())

    def wake(self, soon_due_at: int | None = None) -> None:
        self.waker.tick(soon_due_at)

    def commit(self) -> None:
        """Somebody's transaction went through."""
        self.alarm_clock.expect(None)

    def leaves_nothing(self) -> None:
        """Nothing is at work any more, and nobody's turn or time is still counted."""
        assert self.alarm_clock._claimed == {}
        assert self.alarm_clock._attempts == {}
        assert not any(self.alarm_clock._patience._groups)
        assert self.namespace._turns._waiting == {}
        assert self.complaints == []

    async def seen(self, outcome: str, *ids: str) -> None:
        for one in ids:
            await self.recorder.seen("reservation-alarm", reservation_id=one, outcome=outcome)


@asynccontextmanager
async def bench(limits: AlarmLimits = LIMITS, kind: type[Shelf] = Shelf) -> AsyncIterator[Bench]:
    made = Bench(limits, kind)
    await made.waker.asleep()
    yield made
    made.task.cancel()
    await bounded(asyncio.wait([made.task]), "the alarm clock to end")
    made.leaves_nothing()


def limits(**changed: int) -> AlarmLimits:
    defaults = {name: getattr(LIMITS, name) for name in LIMITS.__slots__}
    return AlarmLimits(**(defaults | changed))


async def test_what_is_due_at_start_is_dispatched_without_being_woken() -> None:
    made = Bench(LIMITS, Shelf)
    made.store.put(row("seat-1"))
    await made.seen("ok", "seat-1")
    made.task.cancel()
    await bounded(asyncio.wait([made.task]), "the alarm clock to end")


async def test_a_commit_with_an_earlier_alarm_moves_the_waker() -> None:
    async with bench() as made:
        made.alarm_clock.expect(START + 500)
        assert made.waker.armed_at == START + 500
        made.store.put(row("seat-1"))
        made.clock.advance(500)
        await made.seen("ok", "seat-1")


async def test_woken_early_it_looks_at_once_and_then_waits_in_the_store() -> None:
    async with bench() as made:
        made.store.put(row("seat-1"))
        made.wake(START + 2)
        await made.seen("ok", "seat-1")
        await made.waker.asleep()
        assert [claim.not_before for claim in made.store.claims[1:]] == [None, START + 2]
        made.wake()
        await made.store.has_claimed(4)
        assert made.store.claims[3].not_before is None


@pytest.mark.parametrize(("next_due_at", "armed_meanwhile"), [(2, None), (1, 1), (3, 3)])
async def test_nobody_is_woken_for_what_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, next_due_at: int, armed_meanwhile: int | None
) -> None:
    async with bench() as made:
        claim_of_store, armed = made.store.claim, list[int | None]()

        async def claim(claim: Claim) -> list[Claimed]:
            found = await claim_of_store(claim)
            made.alarm_clock.expect(START + next_due_at)
            armed.append(made.waker.armed_at and made.waker.armed_at - START)
            return found

        monkeypatch.setattr(made.store, "claim", claim)
        made.wake(START + 2)
        await made.store.has_claimed(3)
        await made.waker.asleep()
        assert armed == [armed_meanwhile, next_due_at]


async def test_it_claims_until_nothing_is_due() -> None:
    async with bench(limits(claim_max=2)) as made:
        made.store.put(*(row(f"seat-{number}") for number in range(5)))
        made.wake()
        await made.seen("ok", *(f"seat-{number}" for number in range(5)))
        await made.waker.asleep()
        assert [claim.limit for claim in made.store.claims] == [2, 2, 2, 2]


async def test_the_store_is_asked_for_more_before_what_it_gave_begins() -> None:
    async with bench(limits(claim_max=2)) as made:
        made.store.put(*(row(f"seat-{number}") for number in range(4)))
        made.wake()
        await made.store.has_claimed(3)
        assert made.store.begun_before[2] == 0
        assert made.store.claims[2].running == ["seat-0", "seat-1"]  # at work, begun or not
        await made.seen("ok", *(f"seat-{number}" for number in range(4)))


async def test_others_have_their_turn_while_many_begin() -> None:
    count = 3 * BEGIN_MAX
    async with bench(limits(claim_max=count, in_flight_max=count)) as made:
        made.store.put(*(row(f"seat-{number}") for number in range(count)))
        made.wake()
        seen = set()
        while len(made.store.applied) < count:
            seen.add(len(made.store.applied))
            await asyncio.sleep(0)
        assert seen >= {BEGIN_MAX, 2 * BEGIN_MAX}


class Ready(Shelf):
    """A store whose answers are there at once, as those of a batch that was committed."""

    def apply(self, message: Message) -> asyncio.Future[Outcome]:
        self.applied.append(message.id)
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        answer.set_result(outcome_of(True, row(message.id, is_running=False)))
        return answer


async def test_an_alarm_that_is_over_with_its_expiry_makes_no_task() -> None:
    async with bench(kind=Ready) as made:
        tasks: list[str] = []

        def count(loop: Any, coroutine: Any, **options: Any) -> Any:
            tasks.append(coroutine.__qualname__)
            return asyncio.Task(coroutine, loop=loop, **options)

        asyncio.get_running_loop().set_task_factory(count)
        ids = [f"seat-{number}" for number in range(50)]
        made.store.put(*map(row, ids))
        made.wake()
        await made.seen("ok", *ids)
        asyncio.get_running_loop().set_task_factory(None)
        assert made.store.applied == ids
        assert [name for name in tasks if name.startswith("AlarmClock._attempt")] == []
        assert len(tasks) < len(ids)


async def test_an_alarm_waits_for_the_turn_of_its_reservation() -> None:
    async with bench() as made:
        gate = made.store.block("seat-1")
        holding = asyncio.create_task(made.namespace.get_by_name("seat-1").hold(1, b""))
        await gate.reached()
        made.store.put(row("seat-1"))
        made.wake()
        await made.waker.asleep()
        assert made.store.applied == ["seat-1"]
        gate.open()
        await made.seen("ok", "seat-1")
        assert made.store.applied == ["seat-1", "seat-1"]
        await bounded(holding, "the hold")


async def test_a_stop_while_many_begin_waits_for_those_that_have() -> None:
    made = Bench(limits(claim_max=2 * BEGIN_MAX, in_flight_max=2 * BEGIN_MAX), Shelf)
    await made.waker.asleep()
    gate = made.store.block("seat-0")
    made.store.put(*(row(f"seat-{number}") for number in range(2 * BEGIN_MAX)))
    made.wake()
    await gate.reached()
    made.task.cancel()
    gate.open()
    await bounded(asyncio.wait([made.task]), "the alarm clock to end")
    assert "seat-0" in made.store.applied
    assert len(made.recorder.of("reservation-alarm")) == len(made.store.applied) >= BEGIN_MAX
    assert made.complaints == []


async def test_a_claim_leases_for_as_long_as_it_is_configured() -> None:
    async with bench(limits(lease_ms=7_777)) as made:
        assert made.store.claims[0].lease_ms == 7_777


async def test_no_more_attempts_run_than_there_is_room_for() -> None:
    async with bench(limits(in_flight_max=2)) as made:
        gates = {number: made.store.block(f"seat-{number}") for number in range(4)}
        made.store.put(*(row(f"seat-{number}") for number in range(4)))
        made.wake()
        await made.store.has_applied("seat-0", "seat-1")
        gates[1].open()
        await made.store.has_applied("seat-0", "seat-1", "seat-2")
        gates[0].open()
        gates[2].open()
        gates[3].open()
        await made.seen("ok", "seat-0", "seat-1", "seat-2", "seat-3")


async def test_a_slow_attempt_keeps_no_later_alarm_waiting() -> None:
    async with bench() as made:
        gate = made.store.block("slow")
        made.store.put(row("slow"))
        made.wake()
        await gate.reached()
        made.store.put(row("seat-1"), row("seat-2"))
        made.wake()
        await made.seen("ok", "seat-1", "seat-2")
        assert made.recorder.of("reservation-alarm", reservation_id="slow") == []
        gate.open()
        await made.seen("ok", "slow")


async def test_an_attempt_that_takes_too_long_has_failed() -> None:
    async with bench(limits(attempt_timeout_ms=10)) as made:
        made.store.block("slow")
        made.store.put(row("slow"))
        made.wake()
        await made.seen("timed-out", "slow")
        (retry,) = await made.store.has_settled()
        assert retry.delay_ms == 2_000


BY_HAND_MS = 600_000
"""A time-out whose steps come from the test alone: those of the clock are a minute apart."""


async def an_expiry_that_leaves_an_event(made: Bench) -> Gate:
    """An expiry at work, behind a gate; an event is due after it."""
    gate = made.store.block("seat-1")
    made.store.outcomes["seat-1"] = outcome_of(False, row("seat-1"))
    made.store.planned["seat-1"] = due(1)
    made.store.put(row("seat-1"))
    made.wake()
    await gate.reached()
    return gate


async def test_an_expiry_and_what_it_left_to_do_share_one_time_out() -> None:
    async with bench(limits(attempt_timeout_ms=BY_HAND_MS)) as made:
        patience = made.alarm_clock._patience
        expiring = await an_expiry_that_leaves_an_event(made)
        for _ in range(patience._STEPS - 1):
            patience._step()
        firing = made.store.block("seat-1")
        expiring.open()
        await firing.reached()
        assert made.recorder.of("reservation-alarm") == []
        patience._step()
        await made.seen("timed-out", "seat-1")
        await made.store.has_settled()


async def test_an_expiry_that_ends_as_its_time_does_leaves_no_time_for_more() -> None:
    async with bench(limits(attempt_timeout_ms=BY_HAND_MS)) as made:
        patience = made.alarm_clock._patience
        await an_expiry_that_leaves_an_event(made)
        expiry = next(iter(made.alarm_clock._attempts.values()))
        expiry.set_result(made.store.outcomes["seat-1"])
        for _ in range(patience._STEPS):
            patience._step()
        await made.seen("timed-out", "seat-1")
        assert made.store.applied == ["seat-1"]
        await made.store.has_settled()


async def test_a_standstill_of_the_process_makes_no_attempt_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench(limits(attempt_timeout_ms=3_000)) as made:
        gate = made.store.block("under-way")
        made.store.put(row("under-way"))
        made.wake()
        await gate.reached()
        loop = asyncio.get_running_loop()
        stood_still_until = loop.time() + 4
        monkeypatch.setattr(loop, "time", lambda: stood_still_until)
        for _ in range(3):  # every timer that is due has run
            await asyncio.sleep(0)
        monkeypatch.undo()
        gate.open()
        await made.seen("ok", "under-way")
        assert made.store.settled == []


async def test_an_attempt_at_work_beyond_its_lease_is_not_claimed_again() -> None:
    async with bench() as made:
        gate = made.store.block("slow")
        made.store.put(row("slow"))
        made.wake()
        await gate.reached()
        made.clock.advance(LIMITS.lease_ms)
        made.wake()
        await made.waker.asleep()
        assert made.store.claims[-1].running == ["slow"]
        gate.open()
        await made.seen("ok", "slow")
        made.wake()
        await made.waker.asleep()
        assert made.store.claims[-1].running == []


async def test_a_new_alarm_of_an_id_whose_old_attempt_still_settles_is_no_trouble() -> None:
    async with bench() as made:
        made.store.outcomes["seat-1"] = MessageFailed()
        made.store.settle_failure = StorageUnavailable()
        made.store.put(row("seat-1"))
        made.wake()
        await made.seen("failed", "seat-1")
        made.store.outcomes.clear()
        made.store.put(row("seat-1", is_running=False))
        made.store.settle_failure = None
        made.wake()
        await made.seen("ok", "seat-1")
        made.wake()
        await made.store.has_settled()


async def test_an_effect_that_moved_the_slot_is_not_settled() -> None:
    async with bench() as made:
        made.store.put(row("seat-1"))
        made.wake()
        await made.seen("ok", "seat-1")
        await made.waker.asleep()
    assert made.store.settled == []


async def test_an_attempt_that_found_nothing_to_do_is_settled() -> None:
    async with bench() as made:
        made.store.outcomes["seat-1"] = outcome_of(False, row("seat-1", is_running=True))
        made.store.put(row("seat-1"))
        made.wake()
        await made.seen("nothing-due", "seat-1")
        (retry,) = await made.store.has_settled()
        assert (retry.id, retry.record) == ("seat-1", False)


async def test_an_attempt_whose_slot_is_another_ones_by_now_is_not_settled() -> None:
    async with bench() as made:
        made.store.outcomes["seat-1"] = outcome_of(False, row("seat-1", is_running=False))
        made.store.put(row("seat-1"))
        made.wake()
        await made.seen("nothing-due", "seat-1")
        await made.waker.asleep()
    assert made.store.settled == []


@pytest.mark.parametrize("failure", [MessageFailed(), ZeroDivisionError("a bug in the handler")])
async def test_a_failed_attempt_is_settled_with_its_claim_and_a_delay(failure: Exception) -> None:
    async with bench() as made:
        made.store.outcomes["seat-1"] = failure
        made.store.put(row("seat-1", attempts=3))
        made.clock.advance(70)
        made.wake()
        await made.seen("failed", "seat-1")
        (retry,) = await made.store.has_settled()
    assert retry == Retry("seat-1", claim=2, delay_ms=8_000, seen=made.clock.now(), record=True)


async def test_an_attempt_reports_itself_once_with_all_its_fields() -> None:
    async with bench() as made:
        made.store.put(row("seat-1", attempts=3))
        made.clock.advance(70)
        made.wake()
        assert await made.recorder.seen("reservation-alarm") == [
            {
                "reservation_id": "seat-1",
                "is_retry": True,
                "retry_count": 2,
                "outcome": "ok",
                "lateness_ms": 70,
            }
        ]


async def test_the_first_attempt_is_no_retry() -> None:
    async with bench() as made:
        made.store.put(row("seat-1", attempts=1))
        made.wake()
        (event,) = await made.recorder.seen("reservation-alarm")
        assert (event["is_retry"], event["retry_count"]) == (False, 0)


async def test_a_failed_attempt_tells_the_cause() -> None:
    async with bench() as made:
        failure = MessageFailed()
        failure.__cause__ = ValueError("planted")
        made.store.outcomes["seat-1"] = failure
        made.store.put(row("seat-1"))
        made.wake()
        (event,) = await made.recorder.seen("reservation-alarm", outcome="failed")
        assert event["error"] == "planted"


@pytest.mark.parametrize(
    ("attempts", "is_told", "is_recorded"),
    [(5, False, True), (6, True, True), (7, False, False), (600, False, False)],
)
async def test_a_stuck_alarm_is_told_exactly_at_the_threshold(
    attempts: int, is_told: bool, is_recorded: bool
) -> None:
    async with bench() as made:
        made.store.outcomes["seat-1"] = MessageFailed()
        made.store.put(row("seat-1", attempts=attempts))
        made.wake()
        (retry,) = await made.store.has_settled()
        await made.waker.asleep()
    told = made.recorder.of("alarm-stuck", reservation_id="seat-1", failures=attempts)
    assert bool(told) is is_told
    assert retry.record is is_recorded


async def test_a_failing_alarm_delays_no_other() -> None:
    async with bench() as made:
        made.store.outcomes["poison"] = MessageFailed()
        made.store.put(row("poison"), row("seat-1"), row("seat-2"))
        made.wake()
        await made.seen("failed", "poison")
        await made.seen("ok", "seat-1", "seat-2")


async def test_trouble_of_the_store_is_no_failed_attempt_and_ends() -> None:
    async with bench() as made:
        made.store.outcomes["seat-1"] = StorageFull()
        made.store.put(row("seat-1"))
        made.wake()
        await made.recorder.seen("dispatch-paused", reason="storage-full")
        made.wake()
        await made.store.has_applied("seat-1", "seat-1")
        del made.store.outcomes["seat-1"]
        made.wake()
        await made.seen("ok", "seat-1")
        assert made.store.settled == []
        made.commit()
        await made.recorder.seen("dispatch-resumed")
    assert len(made.recorder.of("reservation-alarm")) == 1
    assert len(made.recorder.of("dispatch-paused")) == 1
    assert len(made.recorder.of("dispatch-resumed")) == 1


@pytest.mark.parametrize("trouble", [StorageUnavailable(), MessageFailed(), OutcomeUnknown()])
async def test_a_store_that_takes_nothing_ends_no_dispatcher(trouble: ServiceError) -> None:
    async with bench() as made:
        made.store.refusal = trouble
        made.store.put(row("seat-1"))
        made.wake()
        await made.store.has_refused("seat-1", "seat-1")  # its expiry, and the attempt's own
        made.store.refusal = None
        made.store.put(row("seat-2"))
        made.wake()
        await made.seen("ok", "seat-2")
        made.wake()
        if isinstance(trouble, MessageFailed):
            await made.seen("failed", "seat-1")
        elif not trouble.fatal:
            await made.seen("ok", "seat-1")


async def test_a_commit_of_somebody_else_ends_the_pause_at_once() -> None:
    async with bench() as made:
        made.store.outcomes["seat-1"] = StorageUnavailable()
        made.store.put(row("seat-1"))
        made.wake()
        await made.recorder.seen("dispatch-paused")
        del made.store.outcomes["seat-1"]
        made.commit()
        await made.seen("ok", "seat-1")


async def test_waiting_for_a_store_in_trouble_takes_nothing_of_the_time_of_an_attempt() -> None:
    async with bench() as made:
        made.store.outcomes["seat-1"] = StorageUnavailable()
        made.store.put(row("seat-1"))
        made.wake()
        await made.recorder.seen("dispatch-paused")
        for _ in range(made.alarm_clock._patience._STEPS):
            made.alarm_clock._patience._step()
        del made.store.outcomes["seat-1"]
        made.commit()
        await made.seen("ok", "seat-1")


async def test_a_claim_that_meets_trouble_is_tried_again_at_the_next_look() -> None:
    async with bench() as made:
        made.store.claim_failure = StorageFull()
        made.store.put(row("seat-1"))
        made.wake()
        await made.recorder.seen("dispatch-paused", reason="storage-full")
        await made.waker.asleep()
        made.store.claim_failure = None
        made.wake()
        await made.seen("ok", "seat-1")


async def test_a_settle_that_meets_trouble_is_tried_again() -> None:
    async with bench() as made:
        made.store.outcomes["seat-1"] = MessageFailed()
        made.store.settle_failure = StorageFull()
        made.store.put(row("seat-1"))
        made.wake()
        await made.recorder.seen("dispatch-paused", reason="storage-full")
        made.store.settle_failure = None
        made.wake()
        await made.store.has_settled()
    assert len(made.recorder.of("reservation-alarm")) == 1


async def test_trouble_with_no_room_left_does_not_stop_the_clock() -> None:
    async with bench(limits(in_flight_max=2)) as made:
        for number in range(3):
            made.store.outcomes[f"seat-{number}"] = StorageFull()
            made.store.put(row(f"seat-{number}"))
        made.wake()
        await made.recorder.seen("dispatch-paused", reason="storage-full")
        assert made.store.applied == ["seat-0", "seat-1"]
        made.store.outcomes.clear()
        made.wake()
        await made.seen("ok", "seat-0", "seat-1", "seat-2")


async def test_a_settle_that_fails_is_told_and_left_to_the_lease() -> None:
    async with bench() as made:
        made.store.outcomes["seat-1"] = MessageFailed()
        made.store.settle_failure = MessageFailed()
        made.store.put(row("seat-1"))
        made.wake()
        await made.recorder.seen("settle-failed", reservation_id="seat-1")


async def test_a_dispatcher_that_cannot_claim_ends() -> None:
    async with bench() as made:
        made.store.claim_failure = OutcomeUnknown()
        made.wake()
        await bounded(asyncio.wait([made.task]), "the alarm clock to end")
        assert isinstance(made.task.exception(), OutcomeUnknown)


async def test_an_attempt_that_meets_the_end_of_the_store_reports_no_failure() -> None:
    async with bench() as made:
        made.store.outcomes["seat-1"] = OutcomeUnknown()
        made.store.put(row("seat-1"))
        made.wake()
        await made.store.has_applied("seat-1")
        await made.waker.asleep()
    assert made.recorder.of("reservation-alarm") == []
    assert made.store.settled == []


async def test_a_stop_lets_attempts_at_work_end() -> None:
    async with bench() as made:
        gate = made.store.block("seat-1")
        made.store.put(row("seat-1"))
        made.wake()
        await gate.reached()
        made.task.cancel()
        gate.open()
        await made.seen("ok", "seat-1")


async def test_a_stop_waits_for_no_attempt_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarms, "_DRAIN_S", 0.01)
    async with bench() as made:
        gate = made.store.block("slow")
        made.store.put(row("slow"))
        made.wake()
        await gate.reached()
        made.task.cancel()
        await bounded(asyncio.wait([made.task]), "the alarm clock to end")
    assert made.recorder.of("reservation-alarm") == []
    assert made.store.settled == []


async def test_an_alarm_that_is_not_due_any_more_is_told_and_not_settled() -> None:
    async with bench() as made:
        later = replace(row("seat-1", is_running=False), alarm_at=START + 1)
        made.store.outcomes["seat-1"] = outcome_of(False, later)
        made.store.put(row("seat-1"))
        made.wake()
        await made.seen("nothing-due", "seat-1")
        await made.waker.asleep()
        assert made.store.settled == []


async def test_a_claim_that_stands_is_settled_though_nothing_is_due() -> None:
    async with bench() as made:
        made.store.outcomes["seat-1"] = outcome_of(
            False, replace(row("seat-1"), alarm_at=START + 1)
        )
        made.store.put(row("seat-1"))
        made.wake()
        await made.seen("nothing-due", "seat-1")
        (retry,) = await made.store.has_settled()
        assert not retry.record


async def test_a_stop_waits_for_what_an_expiry_that_has_just_ended_leaves_to_do() -> None:
    async with bench() as made:
        gate = made.store.block("seat-1")
        made.store.planned["seat-1"] = due(1)
        made.store.fired = {1: outcome_of(True, row("seat-1", is_running=False))}
        made.store.put(row("seat-1"))
        made.wake()
        await gate.reached()
        made.store.gates.clear()
        made.task.cancel()
        (expiry,) = made.alarm_clock._attempts.values()
        expiry.set_result(outcome_of(False, row("seat-1")))
        await bounded(asyncio.wait([made.task]), "the alarm clock to end")
        assert made.store.applied == ["seat-1", "seat-1"]
    assert len(made.recorder.of("reservation-alarm", outcome="ok")) == 1


@pytest.mark.parametrize("passes", range(5))
async def test_a_stop_waits_for_no_attempt_that_begins_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    monkeypatch.setattr(alarms, "_DRAIN_S", 0)
    async with bench() as made:
        gate = made.store.block("seat-1")
        made.store.put(row("seat-1"))
        made.wake()
        await gate.reached()
        (expiry,) = made.alarm_clock._attempts.values()
        made.task.cancel()
        for _ in range(passes):
            await asyncio.sleep(0)
        if not expiry.done():
            expiry.set_exception(StorageFull())  # which an attempt would wait out
        await bounded(asyncio.wait([made.task]), "the alarm clock to end")
    assert made.recorder.of("reservation-alarm") == []


def due(*keys: int) -> list[PlannedEvent]:
    return [PlannedEvent(key, f"event-{key}", START, None, None) for key in keys]


async def test_an_alarm_whose_events_have_moved_the_slot_is_not_settled() -> None:
    async with bench() as at:
        at.store.outcomes["seat-1"] = outcome_of(False, row("seat-1"))
        at.store.planned["seat-1"] = due(1, 2)
        at.store.fired = {
            1: outcome_of(True, row("seat-1")),
            2: outcome_of(True, row("seat-1", is_running=False)),
        }
        at.store.put(row("seat-1"))
        at.wake()
        await at.seen("ok", "seat-1")
        assert at.store.settled == []


async def test_what_is_due_is_fired_though_the_claim_is_gone() -> None:
    async with bench() as at:
        at.store.outcomes["seat-1"] = outcome_of(False, row("seat-1", is_running=False))
        at.store.planned["seat-1"] = due(1)
        at.store.fired = {1: outcome_of(True, row("seat-1", is_running=False))}
        at.store.put(row("seat-1"))
        at.wake()
        await at.seen("ok", "seat-1")
        assert at.store.applied == ["seat-1", "seat-1"]


async def test_an_alarm_that_leaves_its_claim_is_settled_without_a_failure() -> None:
    async with bench() as at:
        at.store.outcomes["seat-1"] = outcome_of(False, row("seat-1"))
        at.store.planned["seat-1"] = due(1)
        at.store.fired = {1: outcome_of(True, row("seat-1"))}
        at.store.put(row("seat-1"))
        at.wake()
        await at.seen("ok", "seat-1")
        (retry,) = await at.store.has_settled()
        assert not retry.record


async def test_an_event_that_fails_stops_no_other_and_fails_the_attempt() -> None:
    async with bench() as at:
        at.store.outcomes["seat-1"] = outcome_of(False, row("seat-1"))
        at.store.planned["seat-1"] = due(1, 2, 3)
        at.store.fired = {
            1: outcome_of(True, row("seat-1")),
            2: MessageFailed(),
            3: outcome_of(True, row("seat-1")),
        }
        at.store.put(row("seat-1"))
        at.wake()
        await at.seen("failed", "seat-1")
        (retry,) = await at.store.has_settled()
        assert (retry.record, len(at.store.applied)) == (True, 4)
