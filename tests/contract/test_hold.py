"""The store contract: what a Hold does, by the state of the row that it meets."""

import pytest

from reservation_service.reservation import Status
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
    ring,
)
from tests.support.clock import START, FakeClock


async def test_a_first_hold_sets_the_deadline_and_the_slot_together(
    engine: EngineUnderTest, opened: Opened
) -> None:
    outcome = await hold(opened, "seat-1", ttl_ms=5_000)
    assert outcome.changed
    assert engine.row("seat-1") == planted(
        "seat-1",
        created_at=START,
        expires_at=START + 5_000,
        alarm_at=START + 5_000,
        alarm_dispatch_at=START + 5_000,
        batch=(engine.row("seat-1") or {})["batch"],
    )
    assert engine.events() == [EventRow("seat-1", 1, "held", START, "request")]


async def test_the_outcome_is_the_row_as_committed(engine: EngineUnderTest, opened: Opened) -> None:
    outcome = await hold(opened, "seat-1")
    assert await opened.store.read("seat-1") == outcome.reservation
    row = engine.row("seat-1")
    assert row is not None
    assert (outcome.reservation.status, outcome.reservation.expires_at) == (
        row["status"],
        row["expires_at"],
    )


async def test_an_anonymous_hold_resets_a_live_one(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=60_000)
    clock.advance(1_000)
    outcome = await hold(opened, "seat-1", ttl_ms=5_000)
    assert outcome.changed
    row = outcome.reservation
    assert (row.generation, row.created_at) == (2, START + 1_000)
    assert (row.expires_at, row.alarm_at) == (START + 6_000, START + 6_000)
    assert [(e.generation, e.type) for e in engine.events()] == [(1, "held"), (2, "held")]


async def test_a_reset_takes_the_slot_from_an_attempt_at_work(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    engine.plant(**planted("seat-1", expires_at=START + 60_000))
    assert len(await claim(opened)) == 1
    await hold(opened, "seat-1", ttl_ms=5_000)
    row = engine.row("seat-1")
    assert row is not None
    assert (row["alarm_at"], row["alarm_dispatch_at"]) == (START + 5_000, START + 5_000)
    assert (row["alarm_attempts"], row["alarm_claim"]) == (0, None)


async def test_a_hold_of_an_overdue_one_first_records_that_it_expired(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    outcome = await hold(opened, "seat-1", ttl_ms=7_000)
    assert outcome.changed
    assert outcome.reservation.status is Status.HELD
    assert (outcome.reservation.generation, outcome.reservation.expiration_count) == (2, 0)
    assert outcome.reservation.expired_at is None
    now = START + 5_000
    assert engine.events() == [
        EventRow("seat-1", 1, "held", START, "request"),
        EventRow("seat-1", 1, "expired", now, "request"),
        EventRow("seat-1", 2, "held", now, "request"),
    ]


async def test_a_hold_one_millisecond_before_the_deadline_takes_over_nothing(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(4_999)
    await hold(opened, "seat-1")
    assert [event.type for event in engine.events()] == ["held", "held"]


async def test_a_hold_of_an_expired_one_begins_the_next_generation(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    await ring(opened, "seat-1")
    row = (await hold(opened, "seat-1")).reservation
    assert (row.status, row.generation) == (Status.HELD, 2)
    assert (row.expired_at, row.expiration_count) == (None, 0)
    assert [(e.generation, e.type, e.trigger) for e in engine.events()] == [
        (1, "held", "request"),
        (1, "expired", "alarm"),
        (2, "held", "request"),
    ]


async def test_a_confirmed_one_cannot_be_held(engine: EngineUnderTest, opened: Opened) -> None:
    engine.plant(**planted("seat-1", **CONFIRMED))
    before = engine.row("seat-1")
    outcome = await hold(opened, "seat-1")
    assert not outcome.changed
    assert outcome.reservation.status is Status.CONFIRMED
    assert outcome.reservation.confirmed_at == 5_000
    assert engine.row("seat-1") == before
    assert engine.events() == []


@pytest.mark.parametrize("ended", [RELEASED, EXPIRED], ids=["released", "expired"])
async def test_what_has_ended_can_be_held_anew(
    engine: EngineUnderTest, opened: Opened, ended: Row
) -> None:
    engine.plant(**planted("seat-1", generation=7, **ended))
    row = (await hold(opened, "seat-1")).reservation
    assert (row.status, row.generation) == (Status.HELD, 8)
    assert (row.released_at, row.expired_at, row.expiration_count) == (None, None, 0)
    assert [(e.generation, e.type) for e in engine.events()] == [(8, "held")]


async def test_somebody_elses_live_hold_is_left_alone(
    engine: EngineUnderTest, opened: Opened
) -> None:
    engine.plant(
        **planted(
            "seat-1",
            holder=b"h" * 32,
            expires_at=START + 1,
            alarm_at=START + 1,
            alarm_dispatch_at=START + 1,
        )
    )
    before = engine.row("seat-1")
    assert not (await hold(opened, "seat-1")).changed
    assert engine.row("seat-1") == before


async def test_somebody_elses_overdue_hold_is_taken_over(
    engine: EngineUnderTest, opened: Opened
) -> None:
    engine.plant(**planted("seat-1", holder=b"h" * 32))
    assert (await hold(opened, "seat-1")).changed
    row = engine.row("seat-1")
    assert row is not None
    assert row["holder"] == b""
    assert [(e.type, e.trigger) for e in engine.events()] == [
        ("expired", "request"),
        ("held", "request"),
    ]


async def test_reading_an_unknown_name_makes_no_row(
    engine: EngineUnderTest, opened: Opened
) -> None:
    row = await opened.store.read("seat-1")
    assert (row.status, row.generation, row.expiration_count) == (Status.MISSING, 0, 0)
    assert (row.created_at, row.expires_at, row.alarm_at) == (None, None, None)
    assert engine.rows() == []
