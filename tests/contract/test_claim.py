"""The store contract: claims count and lease, and only a standing claim settles."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from reservation_service.reservation import Expire, Trigger
from reservation_service.store import Claim, Claimed
from tests.contract.engines import (
    CONFIRMED,
    LEASE_MS,
    EngineUnderTest,
    EventRow,
    Opened,
    Row,
    claim,
    fail,
    hold,
    planted,
    replay,
    ring,
)
from tests.support.clock import START, FakeClock

DEADLINE = START + 5_000


def slot(engine: EngineUnderTest, reservation_id: str = "seat-1") -> Row:
    row = engine.row(reservation_id)
    assert row is not None
    return {name: row[name] for name in ("alarm_at", "alarm_dispatch_at", "alarm_attempts")} | {
        "is_claimed": row["alarm_claim"] is not None
    }


def ids(claimed: Sequence[Claimed]) -> list[str]:
    return [one.id for one in claimed]


async def one_claim(opened: Opened) -> Claimed:
    (claimed,) = await claim(opened)
    return claimed


async def test_nothing_is_due_a_millisecond_early(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(4_999)
    before = engine.row("seat-1")
    assert await claim(opened) == []
    assert engine.row("seat-1") == before
    clock.advance(1)
    assert ids(await claim(opened)) == ["seat-1"]


async def test_a_claim_counts_the_attempt_and_leases_it(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_070)
    claimed = await one_claim(opened)
    assert (claimed.id, claimed.generation) == ("seat-1", 1)
    assert (claimed.attempts, claimed.claimed_at) == (1, DEADLINE + 70)
    assert (claimed.info.scheduled_time, claimed.info.retry_count) == (DEADLINE, 0)
    assert slot(engine) == {
        "alarm_at": DEADLINE,
        "alarm_dispatch_at": DEADLINE + 70 + LEASE_MS,
        "alarm_attempts": 1,
        "is_claimed": True,
    }


async def test_a_leased_alarm_is_nobody_elses(opened: Opened, clock: FakeClock) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    await claim(opened)
    clock.advance(LEASE_MS - 1)
    assert await claim(opened) == []


async def test_an_attempt_that_never_came_back_is_claimed_again_after_its_lease(
    opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    first = await one_claim(opened)
    clock.advance(LEASE_MS)
    second = await one_claim(opened)
    assert (first.info.retry_count, second.info.retry_count) == (0, 1)
    assert second.info.is_retry
    assert second.info.scheduled_time == DEADLINE


async def test_an_attempt_still_at_work_is_left_out(opened: Opened, clock: FakeClock) -> None:
    for name in ("seat-1", "seat-2"):
        await hold(opened, name, ttl_ms=5_000)
    clock.advance(5_000)
    await claim(opened)
    clock.advance(LEASE_MS)
    assert ids(await claim(opened, running=["seat-1"])) == ["seat-2"]
    assert ids(await claim(opened)) == ["seat-1"]


async def test_an_alarm_set_anew_waits_for_no_attempt_at_the_old_one(
    opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    await claim(opened)
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    assert ids(await claim(opened, running=["seat-1"])) == ["seat-1"]


async def test_the_longest_due_come_first_and_no_more_than_asked_for(
    opened: Opened, clock: FakeClock
) -> None:
    for number in (3, 1, 4, 2, 5):
        await hold(opened, f"seat-{number}", ttl_ms=number * 1_000)
    clock.advance(4_000)
    assert ids(await claim(opened, limit=2)) == ["seat-1", "seat-2"]
    assert ids(await claim(opened, limit=100)) == ["seat-3", "seat-4"]
    assert await claim(opened) == []


async def test_a_token_is_never_used_twice_not_even_across_starts(
    engine: EngineUnderTest, clock: FakeClock
) -> None:
    tokens = []
    for _ in range(3):
        opened = await engine.open(clock)
        for _ in range(3):
            await hold(opened, "seat-1", ttl_ms=5_000)
            clock.advance(5_000)
            tokens.append((await one_claim(opened)).claim)
    assert len(set(tokens)) == len(tokens) == 9


async def test_a_failed_attempt_waits_for_its_delay_and_keeps_its_count(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    claimed = await one_claim(opened)
    clock.advance(30)
    await fail(opened, claimed, delay_ms=2_000)
    assert slot(engine) == {
        "alarm_at": DEADLINE,
        "alarm_dispatch_at": DEADLINE + 30 + 2_000,
        "alarm_attempts": 1,
        "is_claimed": False,
    }
    clock.advance(1_999)
    assert await claim(opened) == []
    clock.advance(1)
    assert (await one_claim(opened)).info.retry_count == 1


async def test_a_retry_is_never_planned_before_the_alarm_itself(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    claimed = await one_claim(opened)
    clock.step(-60_000)
    await fail(opened, claimed, delay_ms=2_000)
    assert slot(engine)["alarm_dispatch_at"] == DEADLINE


async def test_a_deadline_that_was_not_tried_yet_is_not_delayed_by_a_failure(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    engine.plant(
        **planted(
            "seat-1",
            expires_at=START + 3_000,
            alarm_at=START,
            alarm_dispatch_at=START,
        )
    )
    claimed = await one_claim(opened)
    await fail(opened, claimed, delay_ms=60_000)
    assert slot(engine)["alarm_dispatch_at"] == START + 3_000


async def test_a_deadline_that_was_tried_waits_for_the_whole_delay(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    await fail(opened, await one_claim(opened), delay_ms=60_000)
    assert slot(engine)["alarm_dispatch_at"] == DEADLINE + 60_000


async def test_a_failure_is_recorded_when_that_is_asked_for(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    await fail(opened, await one_claim(opened))
    clock.advance(2_010)
    await fail(opened, await one_claim(opened))
    recorded = [event for event in engine.events() if event.type == "alarm-failed"]
    assert recorded == [
        EventRow("seat-1", 1, "alarm-failed", at, "alarm", data)
        for at, data in [
            (DEADLINE, failure(retry_count=0, lateness=0)),
            (DEADLINE + 2_010, failure(retry_count=1, lateness=2_010)),
        ]
    ]


def failure(retry_count: int, lateness: int) -> dict[str, object]:
    return {
        "scheduledTime": DEADLINE,
        "retryCount": retry_count,
        "isRetry": retry_count > 0,
        "lateness": lateness,
        "outcome": "failed",
    }


async def test_a_failure_is_not_recorded_when_that_is_not_asked_for(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    await fail(opened, await one_claim(opened), record=False)
    assert [event.type for event in engine.events()] == ["held"]
    assert not slot(engine)["is_claimed"]


@pytest.mark.parametrize("meanwhile", ["held anew", "expired", "replayed", "claimed again"])
async def test_a_claim_that_does_not_stand_any_more_settles_and_records_nothing(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock, meanwhile: str
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    old = await one_claim(opened)
    if meanwhile == "held anew":
        await hold(opened, "seat-1", ttl_ms=5_000)
    elif meanwhile == "expired":
        await ring(opened, "seat-1")
    elif meanwhile == "replayed":
        await replay(opened, "seat-1", now=DEADLINE)
    else:
        clock.advance(LEASE_MS)
        await claim(opened)
    before, events = engine.row("seat-1"), engine.events()
    await fail(opened, old)
    assert (engine.row("seat-1"), engine.events()) == (before, events)


async def test_settling_an_unknown_name_is_harmless(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await hold(opened, "seat-1", ttl_ms=5_000)
    clock.advance(5_000)
    claimed = await one_claim(opened)
    await fail(opened, replace(claimed, id="seat-9"))
    assert slot(engine)["is_claimed"]
    assert engine.row("seat-9") is None


async def test_a_claim_sees_what_its_own_batch_did(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    for name in ("seat-1", "seat-2"):
        await hold(opened, name, ttl_ms=5_000)
    clock.advance(5_000)
    _, claimed = await opened.write(
        Expire("seat-1", Trigger.ALARM), Claim(limit=10, lease_ms=LEASE_MS, running=[])
    )
    assert isinstance(claimed, list)
    assert ids(claimed) == ["seat-2"]


async def test_an_alarm_of_a_confirmed_one_is_claimed_as_well(
    engine: EngineUnderTest, opened: Opened
) -> None:
    alarm = {"alarm_at": START, "alarm_dispatch_at": START}
    engine.plant(**planted("seat-1", **CONFIRMED | alarm))
    assert ids(await claim(opened)) == ["seat-1"]


async def test_nothing_planned_is_never_claimed(engine: EngineUnderTest, opened: Opened) -> None:
    engine.plant(**planted("seat-1", **CONFIRMED))
    assert await claim(opened) == []
