"""The store contract: one conditional expiry, whoever asks for it and however often."""

import pytest

from reservation_service.errors import MessageFailed
from reservation_service.reservation import Expire, Status, Trigger
from tests.contract.engines import (
    CONFIRMED,
    EXPIRED,
    RELEASED,
    EngineUnderTest,
    EventRow,
    Opened,
    Row,
    claim,
    hold,
    planted,
    replay,
    ring,
    told_of_alarm,
)
from tests.support.clock import START, FakeClock

DEADLINE = START + 5_000


async def test_an_alarm_at_the_deadline_expires_the_hold_and_clears_the_slot(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    await claim(opened)
    outcome = await ring(opened, "seat-1")
    assert outcome.changed
    assert outcome.reservation.status is Status.EXPIRED
    assert (outcome.reservation.expired_at, outcome.reservation.expiration_count) == (DEADLINE, 1)
    row = engine.row("seat-1")
    assert row is not None
    assert (row["alarm_at"], row["alarm_dispatch_at"]) == (None, None)
    assert (row["alarm_attempts"], row["alarm_claim"]) == (0, None)
    data = told_of_alarm(DEADLINE)
    assert engine.events()[1:] == [EventRow("seat-1", 1, "expired", DEADLINE, "alarm", data)]


@pytest.mark.parametrize(("retry_count", "is_retry"), [(0, False), (1, True), (7, True)])
async def test_an_expiry_says_how_late_and_how_often_tried_its_alarm_was(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock, retry_count: int, is_retry: bool
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_700)
    await opened.store.apply(Expire("seat-1", Trigger.ALARM, retry_count=retry_count))
    assert engine.events()[-1].data == told_of_alarm(
        DEADLINE, lateness=700, retryCount=retry_count, isRetry=is_retry
    )


async def test_an_expiry_by_a_replay_says_nothing_of_an_alarm(
    engine: EngineUnderTest, opened: Opened
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    await replay(opened, "seat-1", DEADLINE)
    assert engine.events()[-1].data is None


async def test_nothing_expires_a_millisecond_early(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(4_999)
    before = engine.row("seat-1")
    assert not (await ring(opened, "seat-1")).changed
    assert engine.row("seat-1") == before
    assert len(engine.events()) == 1


async def test_an_alarm_that_runs_twice_has_one_effect(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    assert (await ring(opened, "seat-1")).changed
    clock.advance(700)
    again = await ring(opened, "seat-1")
    assert not again.changed
    assert (again.reservation.expired_at, again.reservation.expiration_count) == (DEADLINE, 1)
    assert [event.type for event in engine.events()] == ["held", "expired"]


async def test_a_replay_expires_by_the_time_that_it_brings(
    engine: EngineUnderTest, opened: Opened
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    outcome = await replay(opened, "seat-1", now=DEADLINE + 7)
    assert outcome.changed
    assert outcome.reservation.expired_at == DEADLINE + 7
    assert outcome.reservation.alarm_at is None
    assert [(e.type, e.trigger) for e in engine.events()] == [
        ("held", "request"),
        ("expired", "replay"),
    ]


async def test_a_replay_before_the_deadline_changes_nothing_however_late_it_is(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(60_000)
    outcome = await replay(opened, "seat-1", now=DEADLINE - 1)
    assert not outcome.changed
    assert outcome.reservation.status is Status.HELD
    assert len(engine.events()) == 1


async def test_a_second_replay_changes_nothing(engine: EngineUnderTest, opened: Opened) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    first = await replay(opened, "seat-1", now=DEADLINE)
    second = await replay(opened, "seat-1", now=DEADLINE + 1)
    assert (first.changed, second.changed) == (True, False)
    assert second.reservation == first.reservation
    assert [event.type for event in engine.events()] == ["held", "expired"]


@pytest.mark.parametrize(
    "ended", [CONFIRMED, RELEASED, EXPIRED], ids=["confirmed", "released", "expired"]
)
async def test_only_a_held_one_expires(engine: EngineUnderTest, opened: Opened, ended: Row) -> None:
    engine.plant(**planted("seat-1", **ended))
    before = engine.row("seat-1")
    assert not (await ring(opened, "seat-1")).changed
    assert not (await replay(opened, "seat-1", now=START)).changed
    assert engine.row("seat-1") == before
    assert engine.events() == []


async def test_an_unknown_name_does_not_expire(engine: EngineUnderTest, opened: Opened) -> None:
    outcome = await replay(opened, "seat-1", now=START)
    assert not outcome.changed
    assert outcome.reservation.status is Status.MISSING
    assert engine.rows() == []


async def test_a_stale_alarm_does_not_end_the_next_hold(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    await hold(opened, "seat-1", ttl_ms=5_000)
    outcome = await ring(opened, "seat-1")
    assert not outcome.changed
    assert outcome.reservation.status is Status.HELD


async def test_every_generation_expires_once(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    for _ in range(3):
        await hold(opened, "seat-1", ttl_ms=5_000)
        clock.advance(5_000)
        assert (await ring(opened, "seat-1")).changed
    assert [(e.generation, e.type) for e in engine.events()] == [
        (1, "held"),
        (1, "expired"),
        (2, "held"),
        (2, "expired"),
        (3, "held"),
        (3, "expired"),
    ]


async def test_a_change_and_its_event_are_one(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    before = engine.row("seat-1")
    engine.refuse_events_of("seat-1")
    with pytest.raises(MessageFailed):
        await ring(opened, "seat-1")
    with pytest.raises(MessageFailed):
        await hold(opened, "seat-1")
    assert engine.row("seat-1") == before


async def test_a_hold_whose_event_cannot_be_recorded_leaves_no_row(
    engine: EngineUnderTest, opened: Opened
) -> None:
    engine.refuse_events_of("seat-1")
    with pytest.raises(MessageFailed):
        await hold(opened, "seat-1")
    assert engine.rows() == []
