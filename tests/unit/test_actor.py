"""Actors: one message at a time per ID and in order, different IDs in parallel."""

import asyncio
import gc
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import pytest

from reservation_service.actor import ReservationActor, ReservationNamespace
from reservation_service.errors import MessageFailed, StorageFull
from reservation_service.refusals import AlreadyConfirmed, AlreadyHeld, HoldExpired, NotYourHold
from reservation_service.reservation import (
    ANONYMOUS,
    AlarmInfo,
    Confirm,
    Expire,
    Extend,
    Fire,
    Hold,
    HoldLimits,
    Message,
    Outcome,
    PlannedEvent,
    Release,
    Reservation,
    Schedule,
    Status,
    Trigger,
)
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
from tests.support.gates import Gate
from tests.support.waiting import bounded


def row(reservation_id: str, status: Status = Status.HELD) -> Reservation:
    return Reservation(reservation_id, status, 1, 0, 1, None, None, None, 0, 1, 0, False)


LIMITS = HoldLimits(max_hold_ms=7_200_000, max_per_holder=20)
HOLDER = b"h" * 32


def outcome_of(changed: bool, reservation: Reservation, *, is_own: bool = True) -> Outcome:
    return Outcome(changed, is_own, 0, reservation)


def a_hold(reservation_id: str, ttl_ms: int, holder: bytes = ANONYMOUS) -> Hold:
    """The message that a call of `hold` is expected to become."""
    return Hold(reservation_id, ttl_ms, LIMITS.max_hold_ms, LIMITS.max_per_holder, holder)


class Memory:
    """A store that only remembers what it was told, behind a gate for each ID."""

    def __init__(self) -> None:
        self.begun: list[Message] = []
        self.ended: list[Message] = []
        self.read_ids: list[str] = []
        self.queries: list[ScheduleQuery] = []
        self.planned: list[PlannedEvent] = []
        self.gates: dict[str, Gate] = {}
        self.outcomes: dict[str, Outcome | Exception] = {}
        self.usual: dict[type, Outcome] = {}
        self.before_the_end: Callable[[], object] = lambda: None

    async def apply(self, message: Message) -> Outcome:
        self.begun.append(message)
        if gate := self.gates.get(message.id):
            await gate.enter()
        self.before_the_end()
        self.ended.append(message)
        usual = self.usual.get(type(message), outcome_of(True, row(message.id)))
        outcome = self.outcomes.get(message.id, usual)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def read(self, reservation_id: str) -> Reservation:
        self.read_ids.append(reservation_id)
        return row(reservation_id)

    async def claim(self, claim: Claim) -> list[Claimed]:
        raise NotImplementedError

    async def find(self, query: Query) -> Page:
        raise NotImplementedError

    async def schedule(self, query: ScheduleQuery) -> Schedule:
        self.queries.append(query)
        return Schedule(row(query.reservation_id), is_own=True, events=self.planned)

    async def purge(self, purge: Purge) -> Purged:
        raise NotImplementedError

    async def settle(self, retry: Retry) -> Reservation:
        raise NotImplementedError

    def block(self, reservation_id: str) -> Gate:
        gate = self.gates[reservation_id] = Gate(lambda _: True)
        return gate


@pytest.fixture
def store() -> Memory:
    return Memory()


@pytest.fixture
def namespace(store: Memory) -> ReservationNamespace:
    return ReservationNamespace(store, LIMITS)


async def test_one_id_handles_one_message_at_a_time_in_the_order_of_arrival(
    store: Memory, namespace: ReservationNamespace
) -> None:
    gate = store.block("seat-1")
    turns = [
        asyncio.create_task(namespace.get_by_name("seat-1").hold(ttl_ms, ANONYMOUS))
        for ttl_ms in range(1, 6)
    ]
    await gate.reached()
    assert store.begun == [a_hold("seat-1", 1)]
    gate.open()
    await bounded(asyncio.gather(*turns), "all turns")
    assert store.ended == [a_hold("seat-1", ttl_ms) for ttl_ms in range(1, 6)]


async def test_requests_alarms_and_replays_of_one_id_take_turns(
    store: Memory, namespace: ReservationNamespace
) -> None:
    gate = store.block("seat-1")
    actor = namespace.get_by_name("seat-1")
    turns = [
        asyncio.ensure_future(turn)
        for turn in (
            actor.hold(1, ANONYMOUS),
            actor.alarm(AlarmInfo(1, 0)),
            actor.process_expiry(7),
        )
    ]
    await gate.reached()
    gate.open()
    await bounded(asyncio.gather(*turns), "all turns")
    assert store.ended == [
        a_hold("seat-1", 1),
        Expire("seat-1", Trigger.ALARM, None),
        Expire("seat-1", Trigger.REPLAY, 7),
    ]


async def test_a_busy_id_keeps_no_other_waiting(
    store: Memory, namespace: ReservationNamespace
) -> None:
    gate = store.block("seat-1")
    busy = asyncio.create_task(namespace.get_by_name("seat-1").hold(1, ANONYMOUS))
    await gate.reached()
    held = await bounded(namespace.get_by_name("seat-2").hold(1, ANONYMOUS), "the other ID")
    assert held.reservation_id == "seat-2"
    assert not busy.done()
    gate.open()
    await bounded(busy, "the busy one")


async def test_reading_waits_for_no_turn(store: Memory, namespace: ReservationNamespace) -> None:
    gate = store.block("seat-1")
    busy = asyncio.create_task(namespace.get_by_name("seat-1").hold(1, ANONYMOUS))
    await gate.reached()
    assert (await bounded(namespace.get_by_name("seat-1").status(), "a read")).status == "held"
    gate.open()
    await bounded(busy, "the busy one")


async def test_a_caller_who_gives_up_hands_the_turn_on(
    store: Memory, namespace: ReservationNamespace
) -> None:
    gate = store.block("seat-1")
    gone = asyncio.create_task(namespace.get_by_name("seat-1").hold(1, ANONYMOUS))
    await gate.reached()
    following = asyncio.create_task(namespace.get_by_name("seat-1").hold(2, ANONYMOUS))
    gone.cancel()
    gate.open()
    await bounded(following, "the next turn")
    assert store.ended == [a_hold("seat-1", 2)]


async def test_a_failed_turn_hands_the_turn_on(
    store: Memory, namespace: ReservationNamespace
) -> None:
    store.outcomes["seat-1"] = StorageFull()
    with pytest.raises(StorageFull):
        await namespace.get_by_name("seat-1").hold(1, ANONYMOUS)
    del store.outcomes["seat-1"]
    await bounded(namespace.get_by_name("seat-1").hold(2, ANONYMOUS), "the next turn")


async def test_a_caller_who_gives_up_just_when_its_turn_has_come_hands_it_on(
    store: Memory, namespace: ReservationNamespace
) -> None:
    gate = store.block("seat-1")
    first, gone, last = (
        asyncio.create_task(namespace.get_by_name("seat-1").hold(ttl_ms, ANONYMOUS))
        for ttl_ms in (1, 2, 3)
    )
    await gate.reached()
    store.before_the_end = lambda: asyncio.get_running_loop().call_soon(gone.cancel)
    gate.open()
    await bounded(asyncio.gather(first, last), "the others' turns")
    assert gone.cancelled()
    assert store.ended == [a_hold("seat-1", 1), a_hold("seat-1", 3)]


OTHER, THIRD = b"o" * 32, b"t" * 32


async def queued(
    store: Memory, namespace: ReservationNamespace, *calls: Callable[[ReservationActor], Any]
) -> list[asyncio.Future[Any]]:
    """Calls of one actor that all wait behind an alarm, which is over when this returns."""
    gate = store.block("seat-1")
    actor = namespace.get_by_name("seat-1")
    alarm = asyncio.create_task(actor.process_expiry())
    await gate.reached()
    turns = [asyncio.ensure_future(call(actor)) for call in calls]
    await asyncio.sleep(0)
    gate.open()
    await bounded(alarm, "the alarm")
    return turns


def holds(ttl_ms: int, holder: bytes) -> Callable[[ReservationActor], Any]:
    return lambda actor: actor.hold(ttl_ms, holder)


async def test_whose_hold_the_row_just_committed_refuses_needs_no_turn(
    store: Memory, namespace: ReservationNamespace
) -> None:
    store.usual[Expire] = outcome_of(False, row("seat-1", Status.MISSING))
    holding, *others = await queued(
        store, namespace, holds(1, HOLDER), holds(2, OTHER), holds(3, OTHER), holds(4, ANONYMOUS)
    )
    held = await bounded(holding, "the hold")
    for other in others:
        with pytest.raises(AlreadyHeld) as refusal:
            await bounded(other, "the refusal")
        assert refusal.value.reservation == held
    assert store.ended[1:] == [a_hold("seat-1", 1, HOLDER)]
    assert names_remembered(namespace, store) == set()


@pytest.mark.parametrize(
    ("outcome", "waits"),
    [
        (outcome_of(True, row("seat-1")), HOLDER),
        (Outcome(False, False, 0, row("seat-1"), other_holder=OTHER.hex().upper()), OTHER),
        (Outcome(False, False, 0, row("seat-1")), ANONYMOUS),
        (outcome_of(False, row("seat-1", Status.EXPIRED)), OTHER),
        (Outcome(True, True, now=1, reservation=row("seat-1")), OTHER),
    ],
    ids=["its own", "its own, told to another", "anybody's", "over", "at its deadline"],
)
async def test_what_the_row_does_not_refuse_takes_its_turn(
    store: Memory, namespace: ReservationNamespace, outcome: Outcome, waits: bytes
) -> None:
    store.usual = {Expire: outcome_of(False, row("seat-1", Status.MISSING)), Hold: outcome}
    turns = await queued(store, namespace, holds(1, HOLDER), holds(2, waits))
    await bounded(asyncio.gather(*turns, return_exceptions=True), "both turns")
    assert store.ended[1:] == [a_hold("seat-1", 1, HOLDER), a_hold("seat-1", 2, waits)]


async def test_nobody_is_refused_past_a_call_that_may_change_the_row(
    store: Memory, namespace: ReservationNamespace
) -> None:
    store.usual = {
        Expire: outcome_of(False, row("seat-1", Status.MISSING)),
        Release: outcome_of(True, row("seat-1", Status.RELEASED)),
    }
    turns = await queued(
        store,
        namespace,
        holds(1, HOLDER),
        lambda actor: actor.release(HOLDER, None, operator=False),
        holds(2, OTHER),
    )
    await bounded(asyncio.gather(*turns), "all turns")
    assert [type(message) for message in store.ended[1:]] == [Hold, Release, Hold]


async def test_who_comes_while_a_turn_is_at_work_is_not_refused_by_it(
    store: Memory, namespace: ReservationNamespace
) -> None:
    gate = store.block("seat-1")
    actor = namespace.get_by_name("seat-1")
    first = asyncio.create_task(actor.hold(1, HOLDER))
    await gate.reached()
    late = asyncio.create_task(actor.hold(2, OTHER))
    await asyncio.sleep(0)
    gate.open()
    await bounded(asyncio.gather(first, late), "both turns")
    assert store.ended == [a_hold("seat-1", 1, HOLDER), a_hold("seat-1", 2, OTHER)]


async def test_a_caller_who_gives_up_just_when_it_is_refused_takes_nobodys_turn(
    store: Memory, namespace: ReservationNamespace
) -> None:
    store.usual[Expire] = outcome_of(False, row("seat-1", Status.MISSING))
    calls: list[asyncio.Future[Any]] = []

    def give_up() -> None:
        calls[1].cancel()

    def give_up_once_refused() -> None:
        if len(store.begun) == len([Expire, Hold]):
            asyncio.get_running_loop().call_soon(give_up)

    store.before_the_end = give_up_once_refused
    calls += await queued(store, namespace, holds(1, HOLDER), holds(2, OTHER), holds(3, HOLDER))
    first, refused, last = calls
    await bounded(asyncio.gather(first, last), "the others' turns")
    assert refused.cancelled()
    assert store.ended[1:] == [a_hold("seat-1", 1, HOLDER), a_hold("seat-1", 3, HOLDER)]


async def test_every_user_of_a_name_meets_at_the_same_actor(
    store: Memory, namespace: ReservationNamespace
) -> None:
    gate = store.block("seat-1")
    first = namespace.get_by_name("seat-1")
    busy = asyncio.create_task(first.hold(1, ANONYMOUS))
    await gate.reached()
    waiting = asyncio.create_task(namespace.get_by_name("seat-1").hold(2, ANONYMOUS))
    await asyncio.sleep(0)
    assert store.begun == [a_hold("seat-1", 1)]
    gate.open()
    await bounded(asyncio.gather(busy, waiting), "both turns")


def names_remembered(namespace: ReservationNamespace, store: Memory) -> set[str]:
    """Every reservation ID that can be reached from the namespace, the store left out."""
    seen, names, todo = {id(store)}, set(), [namespace.__dict__]
    while todo:
        found: object = todo.pop()
        if id(found) in seen or isinstance(found, type | ModuleType | FunctionType):
            continue
        seen.add(id(found))
        if isinstance(found, str) and found.startswith("seat-"):
            names.add(found)
        todo += gc.get_referents(found)
        if isinstance(found, dict):
            todo += found  # its keys, when they are strings, are no referents
    return names


async def test_actors_vanish_when_nobody_uses_them(
    store: Memory, namespace: ReservationNamespace
) -> None:
    gate = store.block("seat-0")
    busy = asyncio.create_task(namespace.get_by_name("seat-0").hold(1, ANONYMOUS))
    await gate.reached()
    for number in range(1, 100):
        await namespace.get_by_name(f"seat-{number}").hold(1, ANONYMOUS)
    assert names_remembered(namespace, store) == {"seat-0"}
    gate.open()
    await bounded(busy, "the busy one")
    assert names_remembered(namespace, store) == set()


async def test_the_alarm_and_its_replay_are_the_same_message_but_for_what_it_is_told(
    store: Memory, namespace: ReservationNamespace
) -> None:
    actor = namespace.get_by_name("seat-1")
    await actor.alarm(AlarmInfo(scheduled_time=5, retry_count=3))
    await actor.process_expiry(5)
    assert store.ended == [
        Expire("seat-1", Trigger.ALARM, None, retry_count=3),
        Expire("seat-1", Trigger.REPLAY, 5),
    ]


async def test_an_expiry_that_has_begun_is_the_first_step_of_its_alarm(
    store: Memory, namespace: ReservationNamespace
) -> None:
    store.outcomes["seat-1"] = Outcome(False, False, 1, row("seat-1"))
    store.planned = [PlannedEvent(7, "event-7", 1, None, None)]
    actor, ended = namespace.get_by_name("seat-1"), list[object]()
    expiry = actor.begin_expiry(2, ended.append)
    assert expiry is not None
    await actor.alarm(AlarmInfo(1, 2), expiry)
    assert ended == [expiry]
    assert store.ended == [
        Expire("seat-1", Trigger.ALARM, None, retry_count=2),
        Fire("seat-1", 7, 1, retry_count=2),
    ]


async def test_an_expiry_that_has_begun_is_a_turn_like_any_other(
    store: Memory, namespace: ReservationNamespace
) -> None:
    gate, ended = store.block("seat-1"), list[object]()
    actor = namespace.get_by_name("seat-1")
    expiry = actor.begin_expiry(0, ended.append)
    holding = asyncio.ensure_future(actor.hold(1, ANONYMOUS))
    await gate.reached()
    await asyncio.sleep(0)
    assert actor.begin_expiry(1, ended.append) is None
    assert store.begun == [Expire("seat-1", Trigger.ALARM)]
    gate.open()
    await bounded(holding, "the hold")
    assert store.ended == [Expire("seat-1", Trigger.ALARM), a_hold("seat-1", 1)]
    assert ended == [expiry]
    assert names_remembered(namespace, store) == set()


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_an_expiry_that_comes_to_nothing_leaves_the_turn_to_the_next(
    store: Memory, namespace: ReservationNamespace, is_cancelled: bool
) -> None:
    gate, ended = store.block("seat-1"), list[object]()
    store.outcomes["seat-1"] = MessageFailed()
    actor = namespace.get_by_name("seat-1")
    expiry = actor.begin_expiry(0, ended.append)
    assert expiry is not None
    holding = asyncio.ensure_future(actor.hold(1, ANONYMOUS))
    await gate.reached()
    if is_cancelled:
        expiry.cancel()
        await bounded(asyncio.wait([expiry]), "the expiry to be given up")
    store.gates.clear()
    gate.open()
    with pytest.raises(asyncio.CancelledError if is_cancelled else MessageFailed):
        await bounded(expiry, "the expiry")
    with pytest.raises(MessageFailed):
        await bounded(holding, "the hold")
    assert ended == [expiry]
    assert names_remembered(namespace, store) == set()


async def test_an_alarm_with_nothing_due_does_not_look_into_the_schedule(
    store: Memory, namespace: ReservationNamespace
) -> None:
    store.outcomes["seat-1"] = outcome_of(False, row("seat-1"))
    await namespace.get_by_name("seat-1").alarm(AlarmInfo(5, 0))
    assert store.queries == []


async def test_an_alarm_expires_first_and_then_fires_what_is_due_in_order(
    store: Memory, namespace: ReservationNamespace
) -> None:
    store.outcomes["seat-1"] = Outcome(False, False, 1, row("seat-1"))
    store.planned = [PlannedEvent(key, f"event-{key}", 1, None, None) for key in (7, 3)]
    await namespace.get_by_name("seat-1").alarm(AlarmInfo(1, 2))
    assert store.queries == [ScheduleQuery("seat-1", is_due_only=True)]
    assert store.ended == [
        Expire("seat-1", Trigger.ALARM, None, retry_count=2),
        Fire("seat-1", 7, 1, retry_count=2),
        Fire("seat-1", 3, 1, retry_count=2),
    ]


async def test_a_hold_of_a_confirmed_one_is_refused(
    store: Memory, namespace: ReservationNamespace
) -> None:
    store.outcomes["seat-1"] = outcome_of(False, row("seat-1", Status.CONFIRMED))
    with pytest.raises(AlreadyConfirmed) as refusal:
        await namespace.get_by_name("seat-1").hold(1, ANONYMOUS)
    assert refusal.value.reservation.status is Status.CONFIRMED


async def test_a_hold_of_somebody_elses_one_is_refused(
    store: Memory, namespace: ReservationNamespace
) -> None:
    store.outcomes["seat-1"] = outcome_of(False, row("seat-1"), is_own=False)
    with pytest.raises(AlreadyHeld) as refusal:
        await namespace.get_by_name("seat-1").hold(1, HOLDER)
    assert refusal.value.retry_after_s == 1


async def test_every_call_of_a_holder_becomes_one_message(
    store: Memory, namespace: ReservationNamespace
) -> None:
    actor = namespace.get_by_name("seat-1")
    await actor.hold(1, HOLDER)
    await actor.extend(2, HOLDER, 3)
    await actor.confirm(HOLDER, 4, if_still_free=True)
    await actor.release(HOLDER, 5, operator=True)
    assert store.ended == [
        a_hold("seat-1", 1, HOLDER),
        Extend("seat-1", 2, LIMITS.max_hold_ms, HOLDER, 3),
        Confirm("seat-1", HOLDER, 4, if_still_free=True),
        Release("seat-1", HOLDER, 5, operator=True),
    ]


async def test_a_repeated_call_that_finds_its_work_done_is_no_refusal(
    store: Memory, namespace: ReservationNamespace
) -> None:
    actor = namespace.get_by_name("seat-1")
    store.outcomes["seat-1"] = outcome_of(False, row("seat-1", Status.CONFIRMED))
    assert not (await actor.confirm(HOLDER, None, if_still_free=False)).changed
    store.outcomes["seat-1"] = outcome_of(False, row("seat-1", Status.RELEASED))
    assert not (await actor.release(HOLDER, None, operator=False)).changed


async def test_what_changed_nothing_for_a_reason_is_refused(
    store: Memory, namespace: ReservationNamespace
) -> None:
    actor = namespace.get_by_name("seat-1")
    store.outcomes["seat-1"] = outcome_of(False, row("seat-1", Status.EXPIRED))
    with pytest.raises(HoldExpired):
        await actor.extend(1, HOLDER, None)
    store.outcomes["seat-1"] = outcome_of(False, row("seat-1"), is_own=False)
    with pytest.raises(NotYourHold):
        await actor.release(HOLDER, None, operator=False)
