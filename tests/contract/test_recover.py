"""The store contract: what a start makes of the attempts that the process before left behind."""

import pytest

from reservation_service.reservation import Hold
from reservation_service.storage.sqlite_start import COUNTED_MAX
from tests.contract.engines import (
    LEASE_MS,
    MAX_HOLD_MS,
    RECOVERY,
    EngineUnderTest,
    Opened,
    Row,
    claim,
    fail,
    hold,
    planted,
)
from tests.support.clock import START, FakeClock

DEADLINE = START + 5_000


async def cut_short(opened: Opened, clock: FakeClock, attempts: int) -> None:
    """seat-1's alarm is at work for the `attempts`-th time."""
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    for attempt in range(attempts):
        if attempt:
            clock.advance(LEASE_MS)
        assert len(await claim(opened)) == 1


def row(engine: EngineUnderTest) -> Row:
    found = engine.row("seat-1")
    assert found is not None
    return found


async def test_a_first_attempt_that_was_cut_short_runs_again_at_once(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await cut_short(opened, clock, attempts=1)
    reopened = await engine.open(clock)
    assert row(engine)["alarm_dispatch_at"] == DEADLINE
    (claimed,) = await claim(reopened)
    assert (claimed.info.retry_count, claimed.info.scheduled_time) == (1, DEADLINE)


@pytest.mark.parametrize("attempts", [2, 3, 6])
async def test_one_that_was_cut_short_again_waits_so_that_it_cannot_spin(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock, attempts: int
) -> None:
    await cut_short(opened, clock, attempts)
    reopened = await engine.open(clock)
    first = RECOVERY.first_ms
    wait = row(engine)["alarm_dispatch_at"] - clock.now()
    assert first <= wait < 2 * first
    assert await claim(reopened) == []
    clock.advance(2 * first)
    (claimed,) = await claim(reopened)
    assert claimed.info.retry_count == attempts


async def test_those_that_were_cut_short_together_do_not_come_back_together(
    engine: EngineUnderTest, clock: FakeClock
) -> None:
    for number in range(20):
        engine.plant(
            **planted(
                f"seat-{number}",
                alarm_dispatch_at=START + LEASE_MS,
                alarm_attempts=2,
                alarm_claim=1,
            )
        )
    await engine.open(clock)
    assert len({found["alarm_dispatch_at"] for found in engine.rows()}) > 10


async def test_no_claim_survives_a_start(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await cut_short(opened, clock, attempts=1)
    reopened = await engine.open(clock)
    assert reopened.reloaded.claims_voided == 1
    assert row(engine)["alarm_claim"] is None
    assert (await engine.open(clock)).reloaded.claims_voided == 0


async def test_a_claim_of_the_process_before_settles_nothing(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    (old,) = await claim(opened)
    reopened = await engine.open(clock)
    await claim(reopened)
    before = row(engine)
    await fail(reopened, old)
    assert row(engine) == before


async def test_a_backoff_is_kept_over_a_start(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    (claimed,) = await claim(opened)
    await fail(opened, claimed, delay_ms=16_000)
    before = row(engine)
    clock.advance(3_000)
    reopened = await engine.open(clock)
    assert row(engine) == before
    assert reopened.reloaded.claims_voided == 0
    assert reopened.reloaded.next_due_at == DEADLINE + 16_000


async def test_a_backoff_is_no_longer_than_the_cap_after_the_clock_was_set_back(
    engine: EngineUnderTest, clock: FakeClock
) -> None:
    engine.plant(**planted("seat-1", alarm_dispatch_at=START + 3_600_000, alarm_attempts=9))
    await engine.open(clock)
    assert row(engine)["alarm_dispatch_at"] == START + RECOVERY.cap_ms


@pytest.mark.parametrize("left", ["cut short", "cut short again", "backing off"])
async def test_a_clock_set_back_makes_no_alarm_ring_before_its_time(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock, left: str
) -> None:
    await cut_short(opened, clock, attempts=2 if left == "cut short again" else 1)
    if left == "backing off":
        clock.advance(LEASE_MS)
        (claimed,) = await claim(opened)
        await fail(opened, claimed)
    clock.step(-3_600_000)
    await engine.open(clock)
    assert row(engine)["alarm_dispatch_at"] == DEADLINE


async def test_an_alarm_that_was_never_tried_is_not_touched(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    before = row(engine)
    clock.step(-3_600_000)
    await engine.open(clock)
    assert row(engine) == before


async def test_a_start_moves_no_deadline_and_records_nothing(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await cut_short(opened, clock, attempts=2)
    before, events = row(engine), engine.events()
    clock.advance(1_000_000)
    await engine.open(clock)
    for column in ("created_at", "expires_at", "alarm_at", "alarm_attempts", "generation", "batch"):
        assert row(engine)[column] == before[column]
    assert engine.events() == events


async def test_a_start_tells_what_it_found(engine: EngineUnderTest, clock: FakeClock) -> None:
    later = {"expires_at": START + 9, "alarm_at": START + 9, "alarm_dispatch_at": START + 9}
    engine.plant(**planted("overdue-1"))
    engine.plant(**planted("overdue-2"))
    now = {"expires_at": START, "alarm_at": START, "alarm_dispatch_at": START}
    engine.plant(**planted("due-now", **now))
    engine.plant(**planted("later", **later))
    reloaded = (await engine.open(clock)).reloaded
    assert (reloaded.overdue, reloaded.claims_voided) == (3, 0)
    assert reloaded.next_due_at == 6_000
    assert not reloaded.is_destroyed


async def test_an_empty_database_has_nothing_due(opened: Opened) -> None:
    assert (opened.reloaded.overdue, opened.reloaded.next_due_at) == (0, None)


async def test_counting_the_overdue_has_a_limit(engine: EngineUnderTest, clock: FakeClock) -> None:
    opened = await engine.open(clock)
    await opened.write(
        *(Hold(f"seat-{number}", 5_000, MAX_HOLD_MS) for number in range(COUNTED_MAX + 5))
    )
    clock.advance(5_000)
    assert (await engine.open(clock)).reloaded.overdue == COUNTED_MAX
