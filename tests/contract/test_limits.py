"""The store contract: how many holds a holder may have is exact, whatever meets in a batch."""

import random
from pathlib import Path

import pytest

from reservation_service.reservation import (
    ANONYMOUS,
    Confirm,
    Expire,
    Extend,
    Outcome,
    Release,
    Reservation,
    Trigger,
)
from reservation_service.store import StoreMessage
from tests.contract.bookings import ALICE, BOB, TTL_MS, hold_of, names, row_in, told
from tests.contract.engines import EngineUnderTest, Opened
from tests.support.clock import START, FakeClock

CAROL = b"c" * 32


def admitted(outcomes: list[Outcome]) -> list[str]:
    return [one.reservation.reservation_id for one in outcomes if one.changed]


@pytest.mark.parametrize("limit", [1, 2, 5, 19, 20])
async def test_of_20_holds_of_one_holder_in_one_batch_the_first_are_admitted(
    engine: EngineUnderTest, opened: Opened, limit: int
) -> None:
    asked = [f"seat-{number:02}" for number in range(20)]
    outcomes = await told(opened, *(hold_of(name, ALICE, limit=limit) for name in asked))
    assert admitted(outcomes) == asked[:limit]
    assert names(engine.rows()) == asked[:limit]
    refused = [one for one in outcomes if not one.changed]
    assert {one.limited_until for one in refused} <= {START + TTL_MS}
    assert {one.limited_until for one in outcomes if one.changed} == {None}


async def test_no_limit_admits_all_and_nobody_is_a_holder_without_limit(
    engine: EngineUnderTest, opened: Opened
) -> None:
    outcomes = await told(
        opened,
        *(hold_of(f"a-{number:02}", ALICE, limit=0) for number in range(30)),
        *(hold_of(f"n-{number:02}", ANONYMOUS, limit=1) for number in range(30)),
    )
    assert len(admitted(outcomes)) == 60


async def test_renewals_refusals_and_other_holders_do_not_count(
    engine: EngineUnderTest, opened: Opened
) -> None:
    engine.plant(**row_in("held", "mine-1"))
    engine.plant(**row_in("held", "bobs-1", BOB))
    engine.plant(**row_in("confirmed", "sold-1"))
    engine.plant(**row_in("held", "free-0", ANONYMOUS))
    engine.plant(**row_in("overdue", "over-1", BOB))
    asked = [
        *("new-0", "mine-1", "bobs-1", "sold-1", "free-0", "new-1", "over-1", "new-2", "new-3")
    ]
    batch = [hold_of(name, ALICE, limit=4) for name in asked]
    batch[1:1] = [hold_of(f"other-{number}", BOB, limit=3) for number in range(4)]
    outcomes = await told(opened, *batch)
    assert admitted(outcomes) == ["new-0", "other-0", "other-1", "mine-1", "new-1", "over-1"]
    limited = [one.reservation.reservation_id for one in outcomes if one.limited_until]
    assert limited == ["other-2", "other-3", "new-2", "new-3"]


async def test_only_live_holds_of_the_holder_count(engine: EngineUnderTest, opened: Opened) -> None:
    for state in ("overdue", "expired", "released", "confirmed"):
        engine.plant(**row_in(state, state))
    engine.plant(**row_in("held", "live"))
    engine.plant(
        **row_in(
            "held", "last-ms", expires_at=START + 1, alarm_at=START + 1, alarm_dispatch_at=START + 1
        )
    )
    outcomes = await told(opened, *(hold_of(f"new-{n}", ALICE, limit=4) for n in range(3)))
    assert admitted(outcomes) == ["new-0", "new-1"]
    assert outcomes[2].limited_until == START + 1


async def test_a_hold_beyond_the_limit_leaves_no_trace(
    engine: EngineUnderTest, opened: Opened
) -> None:
    engine.plant(**row_in("held", "live"))
    engine.plant(**row_in("released", "seat-1", BOB))
    before = engine.rows(), engine.events()
    outcomes = await told(
        opened, hold_of("seat-1", ALICE, limit=1), hold_of("seat-2", ALICE, limit=1)
    )
    assert admitted(outcomes) == []
    assert (engine.rows(), engine.events()) == before


async def test_a_takeover_beyond_the_limit_records_the_end_of_the_overdue_hold_alone(
    engine: EngineUnderTest, opened: Opened
) -> None:
    engine.plant(**row_in("held", "live"))
    engine.plant(**row_in("overdue", "seat-1", BOB))
    (outcome,) = await told(opened, hold_of("seat-1", ALICE, limit=1))
    assert (outcome.changed, outcome.limited_until) == (False, START + TTL_MS)
    assert [(e.type, e.trigger) for e in engine.events()] == [("expired", "request")]
    row = engine.row("seat-1")
    assert row is not None
    assert (row["status"], row["holder"], row["generation"]) == ("expired", BOB, 3)


SEATS = [f"seat-{number}" for number in range(14)]
HOLDERS = [ANONYMOUS, ALICE, BOB, CAROL]
LIMIT = 3
ORDER = (Expire, type(hold_of("x")), Extend, Confirm, Release)


def some_batch(chance: random.Random, now: int) -> list[StoreMessage]:
    """Messages of every kind a request can make, one for each name at most."""
    batch: list[StoreMessage] = []
    for name in chance.sample(SEATS, chance.randint(1, len(SEATS))):
        holder = chance.choice(HOLDERS)
        generation = chance.choice([None, None, None, 1, 2])
        ttl_ms = chance.choice([1_000, 5_000, 20_000])
        match chance.randrange(12):
            case 0 | 1 | 2 | 3:
                batch.append(hold_of(name, holder, ttl_ms, LIMIT))
            case 4:
                batch.append(Expire(name, Trigger.REPLAY, now + chance.randint(-9_000, 9_000)))
            case 5:
                batch.append(Expire(name, Trigger.ALARM))
            case 6 | 7 | 8:
                batch.append(Extend(name, 2 * ttl_ms, 30_000, holder, None))
            case 9:
                batch.append(Confirm(name, holder, generation, chance.random() < 0.5))
            case _:
                operator = chance.random() < 0.3
                batch.append(Release(name, holder, generation, operator))
    return batch


def in_order(batch: list[StoreMessage]) -> list[StoreMessage]:
    """One by one means: kind by kind, each in the order of the messages."""
    return sorted(batch, key=lambda message: ORDER.index(type(message)))


Essence = tuple[bool, bool, int, Reservation, bool]
"""What an outcome says, but for when a limit ends: others of the batch may end it earlier."""


class Twin:
    """One of two databases that are told the same."""

    def __init__(self, engine: EngineUnderTest, opened: Opened) -> None:
        self.engine = engine
        self.opened = opened

    async def together(self, batch: list[StoreMessage]) -> dict[str, Essence]:
        outcomes = await told(self.opened, *batch)
        return {one.reservation.reservation_id: _essence(one) for one in outcomes}

    async def singly(self, batch: list[StoreMessage]) -> dict[str, Essence]:
        said: dict[str, Essence] = {}
        for message in in_order(batch):
            (one,) = await told(self.opened, message)
            said[one.reservation.reservation_id] = _essence(one)
        return said

    def state(self) -> tuple[list[object], dict[str, object]]:
        rows: list[object] = [row | {"batch": None} for row in self.engine.rows()]
        return rows, {name: self.engine.events(name) for name in SEATS}


def _essence(one: Outcome) -> Essence:
    return one.changed, one.is_own, one.now, one.reservation, one.limited_until is not None


@pytest.mark.parametrize("seed", range(6))
async def test_a_batch_of_all_kinds_does_what_its_messages_do_one_by_one(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock, scratch: Path, seed: int
) -> None:
    (scratch / "twin").mkdir()
    other = type(engine)(scratch / "twin")  # type: ignore[call-arg]
    together, singly = Twin(engine, opened), Twin(other, await other.open(clock))
    chance = random.Random(seed)
    limited = 0
    for _ in range(60):
        batch = some_batch(chance, clock.now())
        said = await together.together(batch)
        assert said == await singly.singly(batch), batch
        assert together.state() == singly.state(), batch
        limited += sum(one[-1] for one in said.values())
        for holder in HOLDERS[1:]:
            assert live(engine, holder, clock.now()) <= LIMIT
        clock.advance(chance.choice([0, 1, 999, 1_000, 1_001, 4_000]))
    await other.close()
    assert limited > 0, "the limit was never met"
    assert {event.type for event in engine.events()} == {
        *("held", "renewed", "extended", "expired", "confirmed", "released", "confirm-rejected")
    }


def live(engine: EngineUnderTest, holder: bytes, now: int) -> int:
    return sum(
        row["holder"] == holder and row["status"] == "held" and row["expires_at"] > now
        for row in engine.rows()
    )


async def test_the_twins_would_notice_another_order(
    engine: EngineUnderTest, opened: Opened
) -> None:
    engine.plant(**row_in("held", "live"))
    batch: list[StoreMessage] = [Release("live", ALICE), hold_of("seat-1", ALICE, limit=1)]
    assert in_order(batch) == batch[::-1]
    said = await Twin(engine, opened).singly(batch)
    assert said["seat-1"][0] is False
    assert (await told(opened, batch[1]))[0].changed
