"""The store contract: a batch is one transaction, and does what its messages would do singly."""

import asyncio
import random
from collections.abc import Sequence

import msgspec
import pytest

from reservation_service.errors import MessageFailed
from reservation_service.reservation import Expire, Hold, Outcome, Release, Trigger
from reservation_service.store import Claim, Claimed, Result, Retry, StoreMessage
from tests.contract.conftest import NewEngine
from tests.contract.engines import (
    CONFIRMED,
    LEASE_MS,
    MAX_HOLD_MS,
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
)
from tests.support.clock import START, FakeClock
from tests.support.waiting import bounded

HOLDER = b"h" * 32


class TickingClock(FakeClock):
    """A millisecond passes at every look."""

    def now(self) -> int:
        self._now += 1
        return self._now


async def test_results_come_in_the_order_of_the_messages(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    engine.plant(**planted("seat-3"))
    results = await opened.write(
        Hold("seat-1", 5_000, MAX_HOLD_MS),
        Expire("seat-9", Trigger.REPLAY, START),
        Expire("seat-3", Trigger.ALARM),
        Hold("seat-2", 5_000, MAX_HOLD_MS),
    )
    assert [
        (one.reservation.reservation_id, one.reservation.status, one.changed)
        for one in results
        if isinstance(one, Outcome)
    ] == [
        ("seat-1", "held", True),
        ("seat-9", "missing", False),
        ("seat-3", "expired", True),
        ("seat-2", "held", True),
    ]


async def test_a_batch_has_one_time(engine: EngineUnderTest) -> None:
    opened = await engine.open(TickingClock())
    await opened.write(*(Hold(f"seat-{number}", 5_000, MAX_HOLD_MS) for number in range(50)))
    assert len({row["created_at"] for row in engine.rows()}) == 1
    assert {event.at for event in engine.events()} == {row["created_at"] for row in engine.rows()}


async def test_time_is_read_when_the_transaction_begins_not_when_the_message_came(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    waiting = asyncio.create_task(hold(opened, "seat-1"))
    clock.advance(70)
    outcome = await bounded(waiting, "the hold")
    assert outcome.reservation.created_at == START + 70


async def test_one_failing_message_fails_alone(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    engine.refuse_events_of("seat-13")
    outcomes = await bounded(
        asyncio.gather(
            *(hold(opened, f"seat-{number}") for number in range(30)), return_exceptions=True
        ),
        "all holds",
    )
    failed = [number for number, outcome in enumerate(outcomes) if not isinstance(outcome, Outcome)]
    assert failed == [13]
    assert isinstance(outcomes[13], MessageFailed)
    assert {row["id"] for row in engine.rows()} == {f"seat-{n}" for n in range(30) if n != 13}


async def test_a_failed_batch_leaves_nothing(engine: EngineUnderTest, opened: Opened) -> None:
    engine.refuse_events_of("seat-2")
    with pytest.raises(MessageFailed):
        await opened.write(Hold("seat-1", 5_000, MAX_HOLD_MS), Hold("seat-2", 5_000, MAX_HOLD_MS))
    assert (engine.rows(), engine.events()) == ([], [])
    await opened.write(Hold("seat-1", 5_000, MAX_HOLD_MS))
    assert [event.type for event in engine.events()] == ["held"]


async def test_an_unchanged_row_of_a_busy_batch_is_told_as_unchanged(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    engine.plant(**planted("seat-1", **CONFIRMED))
    results = await opened.write(
        Hold("seat-1", 5_000, MAX_HOLD_MS), Hold("seat-2", 5_000, MAX_HOLD_MS)
    )
    assert [one.changed for one in results if isinstance(one, Outcome)] == [False, True]


async def test_a_limit_that_ends_in_the_same_batch_is_still_told_as_the_limit(
    opened: Opened, clock: FakeClock
) -> None:
    await opened.write(Hold("seat-1", 5_000, MAX_HOLD_MS, 1, HOLDER))
    refused, released = await opened.write(
        Hold("seat-2", 5_000, MAX_HOLD_MS, 1, HOLDER), Release("seat-1", HOLDER)
    )
    assert isinstance(refused, Outcome)
    assert isinstance(released, Outcome)
    assert (refused.changed, refused.limited_until) == (False, clock.now())
    assert released.changed


async def test_readers_see_what_was_committed_and_nothing_else(
    engine: EngineUnderTest, opened: Opened
) -> None:
    names = [f"seat-{number}" for number in range(20)]
    await bounded(asyncio.gather(*(hold(opened, name) for name in names)), "all holds")
    asked = [*names, "seat-99", "seat-1", "seat-1"]
    rows = await bounded(asyncio.gather(*(opened.store.read(name) for name in asked)), "all reads")
    assert [row.reservation_id for row in rows] == asked
    assert [row.status for row in rows] == ["held"] * 20 + ["missing", "held", "held"]


NAMES = [f"seat-{number}" for number in range(8)]


class Twin:
    """One of two databases that are told the same: in batches, or message by message."""

    def __init__(self, engine: EngineUnderTest, *, is_set_based: bool) -> None:
        self.engine = engine
        self._is_set_based = is_set_based
        self._standing: dict[str, Claimed] = {}

    async def start(self, clock: FakeClock) -> None:
        self._opened = await self.engine.open(clock)
        for name, ended in (("seat-6", CONFIRMED), ("seat-7", RELEASED)):
            self.engine.plant(**planted(name, **ended))

    async def tell(self, batch: Sequence[StoreMessage | str]) -> list[tuple[object, ...]]:
        """Results without what differs by nature: tokens, numbers of batches."""
        messages = [self._retry(one) if isinstance(one, str) else one for one in batch]
        if self._is_set_based:
            results = list(await self._opened.write(*messages))
        else:
            singly = [(await self._opened.write(message))[0] for message in messages]
            results = [await self._after_all(one) for one in singly]
        return [self._remember(one) for one in results]

    async def _after_all(self, result: Result) -> Result:
        """An outcome shows the row as committed, with what the rest of its batch did to it."""
        if not isinstance(result, Outcome):
            return result
        row = await self._opened.store.read(result.reservation.reservation_id)
        return msgspec.structs.replace(result, reservation=row)

    def _retry(self, name: str) -> Retry:
        """A settle of whatever claim of this name was seen last, standing or not."""
        claimed = self._standing.get(name)
        token, seen = (claimed.claim, claimed.claimed_at) if claimed else (1, 0)
        return Retry(name, token, 2_000, seen, record=True)

    def _remember(self, result: Result) -> tuple[object, ...]:
        if isinstance(result, Outcome):
            return result.changed, result.reservation
        assert isinstance(result, list)
        self._standing |= {one.id: one for one in result}
        return tuple(sorted((one.id, one.info.retry_count, one.claimed_at) for one in result))

    def state(self) -> tuple[list[Row], dict[str, list[EventRow]]]:
        rows = [
            row | {"batch": None, "alarm_claim": row["alarm_claim"] is not None}
            for row in self.engine.rows()
        ]
        return rows, {name: self.engine.events(name) for name in NAMES}


def some_batch(chance: random.Random, now: int) -> list[StoreMessage | str]:
    """Messages of the lab, one for each name at most, as a batch has them; a claim is last."""
    batch: list[StoreMessage | str] = []
    for name in chance.sample(NAMES, chance.randint(1, len(NAMES))):
        match chance.randrange(9):
            case 0 | 1:
                batch.append(Hold(name, chance.choice([1_000, 5_000, 60_000]), MAX_HOLD_MS))
            case 2:
                batch.append(Expire(name, Trigger.ALARM))
            case 3:
                batch.append(Expire(name, Trigger.REPLAY, now + chance.randint(-9_000, 9_000)))
            case _:
                batch.append(name)
    if chance.random() < 0.8:
        batch.append(Claim(limit=100, lease_ms=LEASE_MS, running=chance.sample(NAMES, 1)))
    return batch


@pytest.mark.parametrize("seed", range(4))
async def test_a_batch_does_what_its_messages_do_one_by_one(
    engine: EngineUnderTest, new_engine: NewEngine, clock: FakeClock, seed: int
) -> None:
    together = Twin(engine, is_set_based=True)
    singly = Twin(new_engine("twin"), is_set_based=False)
    await together.start(clock)
    await singly.start(clock)
    chance = random.Random(seed)
    for _ in range(30):
        batch = some_batch(chance, clock.now())
        assert await together.tell(batch) == await singly.tell(batch), batch
        assert together.state() == singly.state(), batch
        clock.advance(chance.choice([0, 1, 999, 1_000, 5_000, 11_000]))
    kinds = {event.type for event in engine.events()}
    assert kinds == {"held", "expired", "alarm-failed"}


async def test_the_twins_would_notice_a_difference(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    twin = Twin(engine, is_set_based=True)
    before = twin.state()
    await hold(opened, "seat-1")
    assert twin.state() != before


async def test_a_commit_tells_when_the_next_alarm_is_due(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    heads: list[int | None] = opened.next_due  # type: ignore[attr-defined]
    await hold(opened, "seat-1", ttl_ms=9_000)
    await hold(opened, "seat-2", ttl_ms=5_000)
    await replay(opened, "seat-2", now=START + 5_000)
    clock.advance(9_000)
    await claim(opened)
    await ring(opened, "seat-1")
    assert heads == [
        START + 9_000,
        START + 5_000,
        START + 9_000,
        START + 9_000 + LEASE_MS,
        None,
    ]
