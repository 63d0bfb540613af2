"""The store contract: many planned events of a reservation on its one alarm slot."""

import pytest

from reservation_service.errors import MessageFailed
from reservation_service.reservation import (
    EVENTS_MAX,
    Confirm,
    Expire,
    Extend,
    Fire,
    Hold,
    Plan,
    PlanVerdict,
    Release,
    Trigger,
)
from reservation_service.store import ScheduleQuery
from tests.contract.bookings import ALICE, BOB, STATES, row_in, told
from tests.contract.engines import (
    MAX_HOLD_MS,
    EngineUnderTest,
    Opened,
    claim,
    fail,
    hold,
    told_of_alarm,
)
from tests.contract.schedules import (
    SECOND,
    alarm,
    cancel,
    claim_one,
    due,
    events_of,
    fired,
    plan,
    shown,
    slot,
)
from tests.support.clock import START, FakeClock

DEADLINE = START + 60 * SECOND


@pytest.fixture
async def held(opened: Opened) -> Opened:
    """`seat-1` is held for a minute by anybody."""
    await hold(opened, "seat-1", ttl_ms=60 * SECOND)
    return opened


async def test_the_slot_is_the_earliest_of_the_deadline_and_the_planned_events(
    engine: EngineUnderTest, held: Opened
) -> None:
    await plan(held, "later", DEADLINE + 1)
    assert slot(engine) == (DEADLINE, DEADLINE, 0, None)
    await plan(held, "soon", START + 20)
    await plan(held, "sooner", START + 10)
    assert slot(engine) == (START + 10, START + 10, 0, None)
    await cancel(held, "sooner")
    assert slot(engine) == (START + 20, START + 20, 0, None)
    await cancel(held, "soon")
    assert slot(engine) == (DEADLINE, DEADLINE, 0, None)


async def test_a_plan_is_told_apart_as_new_replaced_or_the_same(held: Opened) -> None:
    verdicts = [
        (await plan(held, "call", START + 10, data='{"a":1}')).plan,
        (await plan(held, "call", START + 10, data='{"a":1}')).plan,
        (await plan(held, "call", START + 10, data='{"a":2}')).plan,
        (await plan(held, "call", START + 11, data='{"a":2}')).plan,
        (await plan(held, "call", START + 11, SECOND, data='{"a":2}')).plan,
        (await plan(held, "other", START + 11)).plan,
    ]
    new, same, replaced = PlanVerdict.NEW, PlanVerdict.SAME, PlanVerdict.REPLACED
    assert verdicts == [new, same, replaced, replaced, replaced, new]
    assert await shown(held) == [("call", START + 11), ("other", START + 11)]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("holder", [ALICE, BOB], ids=["its holder", "a stranger"])
async def test_only_the_holder_plans_and_only_on_what_is_live(
    engine: EngineUnderTest, clock: FakeClock, state: str, holder: bytes
) -> None:
    engine.plant(**row_in(state))
    opened = await engine.open(clock)
    outcome = await plan(opened, "call", START + 10, holder=holder)
    may = holder == ALICE and state in {"held", "confirmed"}
    assert outcome.changed is may
    assert (outcome.plan is PlanVerdict.NEW) is may
    assert outcome.is_own is (holder == ALICE)
    schedule = await opened.store.schedule(ScheduleQuery("seat-1", holder))
    assert ([event.event_id for event in schedule.events] == ["call"]) is may
    assert schedule.is_own is (holder == ALICE)


async def test_a_plan_for_another_generation_is_refused(held: Opened) -> None:
    assert (await plan(held, "call", START + 10, generation=2)).plan is None
    assert (await plan(held, "call", START + 10, generation=1)).plan is PlanVerdict.NEW


async def test_a_plan_on_a_name_that_was_never_held_is_refused(opened: Opened) -> None:
    assert (await plan(opened, "call", START + 10)).plan is None
    assert await shown(opened) == []


async def test_a_reservation_has_at_most_100_planned_events(
    engine: EngineUnderTest, held: Opened
) -> None:
    for number in range(EVENTS_MAX):
        assert (await plan(held, f"event-{number}", START + number + 1)).changed
    before = slot(engine)
    full = await plan(held, "one-more", START)
    assert (full.plan, full.changed, slot(engine)) == (PlanVerdict.FULL, False, before)
    assert (await plan(held, "event-7", START)).plan is PlanVerdict.REPLACED
    await cancel(held, "event-7")
    assert (await plan(held, "one-more", START)).plan is PlanVerdict.NEW


async def test_plans_of_many_reservations_share_a_batch(
    engine: EngineUnderTest, opened: Opened
) -> None:
    names = [f"seat-{number}" for number in range(5)]
    for name in names:
        await hold(opened, name, ttl_ms=60 * SECOND)
    await opened.write(*[Expire(name, Trigger.REPLAY, DEADLINE) for name in names[3:]])
    outcomes = await told(opened, *[Plan(name, "call", START + 10) for name in names])
    assert [outcome.changed for outcome in outcomes] == [True] * 3 + [False] * 2
    assert [await shown(opened, name) for name in names] == [[("call", START + 10)]] * 3 + [[]] * 2


async def test_only_its_holder_cancels_an_event(engine: EngineUnderTest, clock: FakeClock) -> None:
    engine.plant(**row_in("held"))
    opened = await engine.open(clock)
    await plan(opened, "call", START + 10, holder=ALICE)
    assert not (await cancel(opened, "call", BOB)).changed
    assert not (await cancel(opened, "other", ALICE)).changed
    assert slot(engine)[0] == START + 10
    assert (await cancel(opened, "call", ALICE)).changed
    assert not (await cancel(opened, "call", ALICE)).changed


async def test_what_is_due_fires_in_planned_order_and_the_slot_is_set_to_the_next(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    await plan(held, "third", START + 30)
    await plan(held, "first", START + 10)
    await plan(held, "second", START + 20)
    await plan(held, "later", START + 40)
    clock.advance(30)
    await claim_one(held)
    assert (await alarm(held)).changed
    assert fired(engine) == [("first", START + 10), ("second", START + 20), ("third", START + 30)]
    assert slot(engine) == (START + 40, START + 40, 0, None)
    assert await shown(held) == [("later", START + 40)]


async def test_what_happened_says_what_was_planned_and_how_late_it_was(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    await plan(held, "call", START + 10, data='{"to":["a",1.5,null]}')
    clock.advance(17)
    await alarm(held, retry_count=2)
    (event,) = events_of(engine)
    assert (event.generation, event.at, event.trigger) == (1, START + 17, "alarm")
    assert event.data == told_of_alarm(START + 10, lateness=7, retryCount=2, isRetry=True) | {
        "eventId": "call",
        "data": {"to": ["a", 1.5, None]},
        "missed": 0,
    }


async def test_an_occurrence_is_recorded_once_however_often_it_is_handled(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    await plan(held, "once", START + 10)
    await plan(held, "again", START + 10, 5 * SECOND)
    clock.advance(10)
    messages = [Fire("seat-1", event.key, event.run_at) for event in await due(held)]
    changed = [(await held.store.apply(fire)).changed for fire in [*messages, *messages]]
    assert changed == [True, True, False, False]
    clock.advance(5 * SECOND)
    assert [(await held.store.apply(fire)).changed for fire in messages] == [False, False]
    assert fired(engine) == [("once", START + 10), ("again", START + 10)]


async def test_a_recurring_event_keeps_its_pace_and_says_what_it_missed(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    await plan(held, "tick", START + 100, SECOND)
    for at, missed, following in ((100, 0, 1_100), (1_107, 0, 2_100), (7_099, 4, 7_100)):
        clock.step(START + at - clock.now())
        await alarm(held)
        assert events_of(engine)[-1].data["missed"] == missed
        assert slot(engine)[:2] == (START + following, START + following)
    assert fired(engine) == [("tick", START + at) for at in (100, 1_100, 2_100)]


async def test_a_time_in_the_past_is_due_at_once(engine: EngineUnderTest, held: Opened) -> None:
    await plan(held, "long-ago", 1)
    assert slot(engine) == (1, 1, 0, None)
    await claim_one(held)
    await alarm(held)
    assert fired(engine) == [("long-ago", 1)]
    assert slot(engine) == (DEADLINE, DEADLINE, 0, None)


async def test_a_repeated_plan_of_a_recurring_event_finds_its_work_done(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    await plan(held, "tick", START + 100, SECOND)
    clock.advance(100)
    await alarm(held)
    assert (await plan(held, "tick", START + 100, SECOND)).plan is PlanVerdict.SAME
    assert await shown(held) == [("tick", START + 1_100)]
    assert fired(engine) == [("tick", START + 100)]


async def test_a_poison_event_stops_neither_its_siblings_nor_the_expiry(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    await plan(held, "poison", START + 10)
    await plan(held, "good", START + 20)
    engine.refuse_occurrences_of("poison")
    clock.advance(20)
    claimed = await claim_one(held)
    with pytest.raises(MessageFailed):
        await alarm(held)
    assert fired(engine) == [("good", START + 20)]
    assert slot(engine)[0] == START + 10
    await fail(held, claimed, delay_ms=1_000_000)
    assert slot(engine) == (START + 10, DEADLINE, 1, None)
    clock.advance(60 * SECOND)
    assert [one.id for one in await claim(held)] == ["seat-1"]
    assert (await alarm(held)).changed
    assert engine.events("seat-1")[-1].type == "expired"
    assert slot(engine) == (None, None, 0, None)


async def test_an_attempt_goes_on_to_the_next_due_event_with_its_claim(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    await plan(held, "first", START + 10)
    await plan(held, "second", START + 20)
    clock.advance(20)
    claimed = await claim_one(held)
    first, second = await due(held)
    leased_until = slot(engine)[1]
    await held.store.apply(Fire("seat-1", first.key, first.run_at))
    assert slot(engine) == (START + 20, leased_until, 1, claimed.claim)
    assert await claim(held, running=["seat-1"]) == []
    await held.store.apply(Fire("seat-1", second.key, second.run_at))
    assert slot(engine) == (DEADLINE, DEADLINE, 0, None)


async def test_an_event_planned_during_a_failing_attempt_stands(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    await plan(held, "poison", START + 10)
    clock.advance(10)
    claimed = await claim_one(held)
    await plan(held, "earlier", START + 5)
    assert slot(engine) == (START + 5, START + 5, 0, None)
    await fail(held, claimed)
    assert slot(engine) == (START + 5, START + 5, 0, None)


async def test_an_event_planned_behind_a_failing_one_does_not_wait_for_its_backoff(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    await plan(held, "poison", START + 10)
    clock.advance(10)
    await fail(held, await claim_one(held), delay_ms=20 * SECOND)
    await plan(held, "behind", START + 5 * SECOND)
    assert slot(engine) == (START + 10, START + 5 * SECOND, 1, None)


async def test_an_event_planned_anew_at_the_slots_own_time_is_a_new_alarm(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    await plan(held, "call", START + 10)
    clock.advance(10)
    claimed = await claim_one(held)
    await plan(held, "call", START + 10, data='"mended"')
    assert slot(engine) == (START + 10, START + 10, 0, None)
    await fail(held, claimed)
    assert slot(engine) == (START + 10, START + 10, 0, None)


async def test_what_falls_due_during_a_failing_attempt_does_not_wait_for_its_backoff(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    await plan(held, "poison", START + 10)
    await plan(held, "next", START + 500)
    clock.advance(10)
    claimed = await claim_one(held)
    clock.advance(100)
    await fail(held, claimed, delay_ms=2_000)
    assert slot(engine) == (START + 10, START + 500, 1, None)


async def test_a_replaced_event_is_not_fired_by_its_old_number(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    await plan(held, "call", START + 10)
    clock.advance(10)
    (old,) = await due(held)
    await plan(held, "call", START + 10, data='"new"')
    assert not (await held.store.apply(Fire("seat-1", old.key, old.run_at))).changed
    assert fired(engine) == []


@pytest.mark.parametrize("ending", ["expired", "released"])
async def test_an_ending_silences_what_was_planned(
    engine: EngineUnderTest, held: Opened, clock: FakeClock, ending: str
) -> None:
    await plan(held, "call", START + 10)
    await plan(held, "later", START + 20)
    clock.advance(10)
    (event,) = await due(held)
    if ending == "released":
        await held.store.apply(Release("seat-1"))
    else:
        await held.store.apply(Expire("seat-1", Trigger.REPLAY, DEADLINE))
    assert slot(engine) == (None, None, 0, None)
    clock.advance(10)
    assert await shown(held) == []
    assert await due(held) == []
    assert not (await held.store.apply(Fire("seat-1", event.key, event.run_at))).changed
    assert fired(engine) == []


async def test_nothing_fires_on_a_hold_that_is_over(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    await plan(held, "call", START + 10)
    clock.advance(10)
    (event,) = await due(held)
    clock.advance(60 * SECOND)
    assert await shown(held) == []
    assert not (await held.store.apply(Fire("seat-1", event.key, event.run_at))).changed
    await alarm(held)
    assert [one.type for one in engine.events("seat-1")] == ["held", "expired"]


async def test_a_confirmation_keeps_what_is_planned_beyond_the_deadline(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    days_ahead = START + 5 * 86_400_000
    await plan(held, "reminder", days_ahead)
    await held.store.apply(Confirm("seat-1"))
    assert slot(engine) == (days_ahead, days_ahead, 0, None)
    clock.step(days_ahead - clock.now())
    assert [one.id for one in await claim(held)] == ["seat-1"]
    await alarm(held)
    assert fired(engine) == [("reminder", days_ahead)]
    assert slot(engine) == (None, None, 0, None)


async def test_a_late_confirmation_takes_up_what_was_missed_and_fires_it_once(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    await plan(held, "tick", DEADLINE + SECOND, SECOND)
    await plan(held, "call", DEADLINE + 2 * SECOND)
    clock.step(DEADLINE - clock.now())
    await alarm(held)
    clock.advance(10 * SECOND)
    await held.store.apply(Confirm("seat-1", if_still_free=True))
    assert slot(engine)[:2] == (DEADLINE + SECOND, DEADLINE + SECOND)
    await alarm(held)
    await alarm(held)
    assert fired(engine) == [("tick", DEADLINE + SECOND), ("call", DEADLINE + 2 * SECOND)]
    assert events_of(engine)[0].data["missed"] == 9
    assert await shown(held) == [("tick", DEADLINE + 11 * SECOND)]


async def test_an_extension_leaves_the_slot_at_an_earlier_event(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    await plan(held, "poison", START + 10)
    clock.advance(10)
    await fail(held, await claim_one(held))
    before = slot(engine)
    await held.store.apply(Extend("seat-1", 120 * SECOND, MAX_HOLD_MS))
    assert slot(engine) == before


async def test_an_extension_sets_the_slot_to_an_event_behind_the_old_deadline(
    engine: EngineUnderTest, held: Opened
) -> None:
    await plan(held, "call", DEADLINE + SECOND)
    await held.store.apply(Extend("seat-1", 120 * SECOND, MAX_HOLD_MS))
    assert slot(engine)[:2] == (DEADLINE + SECOND, DEADLINE + SECOND)


async def test_a_renewal_keeps_what_is_planned(engine: EngineUnderTest, opened: Opened) -> None:
    named = Hold("seat-1", 60 * SECOND, MAX_HOLD_MS, holder=ALICE)
    await opened.store.apply(named)
    await plan(opened, "call", START + 10, holder=ALICE)
    await opened.store.apply(named)
    assert slot(engine)[0] == START + 10


@pytest.mark.parametrize("before", ["held", "expired", "released", "overdue"])
async def test_the_next_hold_begins_with_nothing_planned(
    engine: EngineUnderTest, held: Opened, clock: FakeClock, before: str
) -> None:
    await plan(held, "call", START + 10)
    if before == "expired":
        await held.store.apply(Expire("seat-1", Trigger.REPLAY, DEADLINE))
    if before == "released":
        await held.store.apply(Release("seat-1"))
    if before == "overdue":
        clock.step(DEADLINE - clock.now())
    await hold(held, "seat-1", ttl_ms=60 * SECOND)
    assert slot(engine)[0] == clock.now() + 60 * SECOND
    assert await shown(held) == []
    assert engine.plans() == []
    assert (await plan(held, "call", clock.now() + 10)).plan is PlanVerdict.NEW


async def test_a_new_hold_leaves_others_plans_alone(engine: EngineUnderTest, held: Opened) -> None:
    await hold(held, "seat-2", ttl_ms=60 * SECOND)
    await plan(held, "call", START + 10)
    await plan(held, "call", START + 10, name="seat-2")
    await hold(held, "seat-2", ttl_ms=60 * SECOND)
    assert engine.plans() == [("seat-1", "call", START + 10)]


async def test_a_restart_keeps_what_is_planned_and_the_count(
    engine: EngineUnderTest, held: Opened, clock: FakeClock
) -> None:
    await plan(held, "call", START + 10)
    clock.advance(10)
    await claim_one(held)
    opened = await engine.open(clock)
    assert slot(engine) == (START + 10, START + 10, 1, None)
    assert (await claim_one(opened)).info.retry_count == 1
    await alarm(opened)
    assert fired(engine) == [("call", START + 10)]
