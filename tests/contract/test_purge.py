"""The store contract: what is old is removed in small steps, and nothing that is still told of."""

from typing import Any

import pytest

from reservation_service.errors import StorageUnavailable
from reservation_service.housekeeping import BATCH_MAX, Housekeeping
from reservation_service.reservation import ANONYMOUS, Confirm, Plan, Release
from reservation_service.store import Claim, Place, Purge, Purged
from tests.contract.bookings import (
    ALICE,
    BOB,
    TTL_MS,
    hold_of,
    names,
    purged,
    row_in,
    told,
)
from tests.contract.engines import LEASE_MS, EngineUnderTest, Opened, ring
from tests.support.clock import START, FakeClock
from tests.support.recorder import Recorder

DAY_MS = 86_400_000
ALL_EVENTS = ALL_ROWS = START + DAY_MS


def purge(limit: int = 100, events: int = ALL_EVENTS, reservations: int = ALL_ROWS) -> Purge:
    return Purge(limit, events, reservations)


async def test_what_has_ended_goes_and_what_has_not_stays(
    engine: EngineUnderTest, opened: Opened
) -> None:
    for state in ("held", "overdue", "expired", "released", "confirmed"):
        engine.plant(**row_in(state, state))
    assert (await purged(opened, purge()))[:2] == (0, 2)
    assert names(engine.rows()) == ["confirmed", "held", "overdue"]


async def test_an_ended_one_stays_to_the_very_millisecond(
    engine: EngineUnderTest, opened: Opened
) -> None:
    engine.plant(**row_in("expired", "expired"))
    engine.plant(**row_in("released", "released", expires_at=START - 1, created_at=START - 2))
    assert (await purged(opened, purge(reservations=START)))[:2] == (0, 0)
    assert (await purged(opened, purge(reservations=START + 1)))[:2] == (0, 2)


async def test_a_row_stays_while_any_event_of_it_is_left(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await opened.store.apply(hold_of("seat-1", ALICE))
    clock.advance(1_000)
    await opened.store.apply(Release("seat-1", ALICE))
    held_at, released_at = START, START + 1_000
    assert (await purged(opened, purge(events=held_at)))[:2] == (0, 0)
    assert (await purged(opened, purge(events=released_at)))[:2] == (1, 0)
    assert names(engine.rows()) == ["seat-1"]
    assert (await purged(opened, purge(events=released_at + 1)))[:2] == (1, 1)
    assert (engine.rows(), engine.events()) == ([], [])


async def test_a_name_that_is_forgotten_begins_again_with_its_first_generation(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    for _ in range(2):
        assert (await opened.store.apply(hold_of("seat-1", ALICE))).reservation.generation == 1
        clock.advance(TTL_MS)
        assert (await ring(opened, "seat-1")).changed
        assert not (await opened.store.apply(Confirm("seat-1", ALICE))).changed
        events, reservations, _ = await purged(opened, purge())
        assert (events, reservations) == (3, 1)
    assert engine.events() == []


async def test_what_was_planned_goes_with_its_row_and_not_earlier(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    for name in ("seat-1", "seat-2"):
        await opened.store.apply(hold_of(name, ALICE))
        await opened.store.apply(Plan(name, "call", START + TTL_MS + 1, holder=ALICE))
    await opened.store.apply(Confirm("seat-2", ALICE))
    clock.advance(TTL_MS)
    await ring(opened, "seat-1")
    assert (await purged(opened, purge(reservations=START + TTL_MS)))[1] == 0
    assert [name for name, *_ in engine.plans()] == ["seat-1", "seat-2"]
    assert (await purged(opened, purge()))[1] == 1
    assert [name for name, *_ in engine.plans()] == ["seat-2"]


async def test_a_name_with_events_left_goes_on_with_its_next_generation(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await opened.store.apply(hold_of("seat-1", ALICE))
    clock.advance(TTL_MS)
    await ring(opened, "seat-1")
    await purged(opened, purge(events=START + TTL_MS))
    assert (await opened.store.apply(hold_of("seat-1", ALICE))).reservation.generation == 2
    clock.advance(TTL_MS)
    assert (await ring(opened, "seat-1")).changed


async def test_rejected_payments_are_remembered_as_long_as_their_row(
    engine: EngineUnderTest, opened: Opened
) -> None:
    engine.plant(**row_in("expired", "seat-1"))
    for _ in range(2):
        await told(opened, Confirm("seat-1", ALICE))
    assert [event.type for event in engine.events()] == ["confirm-rejected"]
    assert (await purged(opened, purge(reservations=START)))[:2] == (1, 0)
    await told(opened, Confirm("seat-1", ALICE))
    assert engine.events() == [], "the row is still there, so the rejection is still known"
    assert (await purged(opened, purge()))[:2] == (0, 1)
    engine.plant(**row_in("expired", "seat-1"))
    await told(opened, Confirm("seat-1", ALICE))
    assert [event.type for event in engine.events()] == ["confirm-rejected"]


async def test_a_confirmed_one_stays_until_it_is_released(
    engine: EngineUnderTest, opened: Opened
) -> None:
    engine.plant(**row_in("confirmed"))
    engine.plant(**row_in("confirmed", "late", expired_at=START, expiration_count=1))
    assert (await purged(opened, purge()))[:2] == (0, 0)
    await told(opened, Release("seat-1", ALICE, None, operator=True))
    assert (await purged(opened, purge(events=START, reservations=START)))[:2] == (0, 0)
    assert (await purged(opened, purge(reservations=START + 2 * DAY_MS)))[:2] == (1, 1)
    assert names(engine.rows()) == ["late"]


async def test_each_step_is_bounded_and_all_of_them_remove_everything(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    seats = [f"seat-{number:02}" for number in range(25)]
    await told(opened, *(hold_of(name, ANONYMOUS, TTL_MS) for name in seats))
    await told(opened, *(Release(name) for name in seats))
    following: Purge | None = purge(limit=10)
    steps: list[Purged] = []
    while following is not None:
        left = len(engine.events()) + len(engine.rows())
        steps.append(await opened.store.purge(following))
        gone = left - len(engine.events()) - len(engine.rows())
        assert gone == steps[-1].events + steps[-1].reservations <= 10
        following = steps[-1].next
    assert [step.events for step in steps] == [10, 10, 10, 10, 10, 0, 0, 0]
    assert [step.reservations for step in steps] == [0, 0, 0, 0, 0, 10, 10, 5]
    assert (engine.rows(), engine.events()) == ([], [])


async def test_rows_that_must_stay_do_not_stand_in_the_way_of_others(
    engine: EngineUnderTest, opened: Opened
) -> None:
    for number in range(30):
        engine.plant(**row_in("confirmed", f"a-{number:02}", expires_at=START))
    engine.plant(**row_in("expired", "z-99"))
    _, reservations, steps = await purged(opened, purge(limit=10))
    assert (reservations, steps) == (1, 4)


async def test_a_step_looks_from_its_place_on_even_when_that_row_is_gone(
    engine: EngineUnderTest, opened: Opened
) -> None:
    for number in range(4):
        engine.plant(**row_in("expired", f"seat-{number}"))
    after = Place(START, "seat-1")
    done = await opened.store.purge(Purge(10, 0, ALL_ROWS, after))
    assert (done.reservations, done.next) == (2, None)
    assert names(engine.rows()) == ["seat-0", "seat-1"]


async def test_an_alarm_is_claimed_in_the_very_batch_of_a_purge(
    engine: EngineUnderTest, opened: Opened
) -> None:
    engine.plant(**row_in("overdue", "due"))
    for number in range(20):
        engine.plant(**row_in("expired", f"old-{number:02}"))
    step, claimed, outcome = await opened.write(
        purge(limit=10, events=0), Claim(10, LEASE_MS, []), hold_of("new", BOB)
    )
    assert isinstance(step, Purged)
    assert step.reservations >= 9
    assert [one.id for one in claimed] == ["due"]  # type: ignore[union-attr]
    assert outcome.changed  # type: ignore[union-attr]


async def test_what_is_held_anew_in_the_batch_of_a_purge_stays(
    engine: EngineUnderTest, opened: Opened
) -> None:
    engine.plant(**row_in("released", "seat-1"))
    engine.plant(**row_in("released", "seat-2"))
    outcome, step = await opened.write(hold_of("seat-1", BOB), purge(events=0))
    assert outcome.reservation.generation == 4  # type: ignore[union-attr]
    assert step.reservations == 1  # type: ignore[union-attr]
    assert names(engine.rows()) == ["seat-1"]


def housekeeping(opened: Opened, clock: FakeClock, recorder: Recorder) -> Housekeeping:
    return Housekeeping(
        opened.store,
        clock,
        recorder.observe,
        reservations_kept_ms=30 * DAY_MS,
        events_kept_ms=30 * DAY_MS,
    )


async def test_housekeeping_keeps_everything_until_it_is_old_enough(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock, recorder: Recorder
) -> None:
    count = BATCH_MAX + 5
    await told(opened, *(hold_of(f"seat-{number}", ALICE) for number in range(count)))
    clock.advance(TTL_MS)
    for number in range(count):
        await ring(opened, f"seat-{number}")
    keeper = housekeeping(opened, clock, recorder)
    clock.advance(30 * DAY_MS)
    await keeper.purge()
    assert recorder.of("purged") == [{"events": count, "reservations": 0}]
    assert len(engine.rows()) == count
    clock.advance(1)
    await keeper.purge()
    assert recorder.of("purged")[1:] == [{"events": count, "reservations": count}]
    assert (engine.rows(), engine.events()) == ([], [])


async def test_housekeeping_leaves_a_store_in_trouble_for_the_next_time(
    opened: Opened, clock: FakeClock, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_purge: Any) -> Purged:
        raise StorageUnavailable

    keeper = housekeeping(opened, clock, recorder)
    with monkeypatch.context() as patched:
        patched.setattr(opened.store, "purge", fail)
        await keeper.purge()
    assert recorder.of("purge-failed") == [{"reason": "storage-unavailable"}]
    await keeper.purge()
    assert len(recorder.of("purge-failed")) == 1
