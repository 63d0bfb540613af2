"""docs/lifecycle.md, run line by line: what it says of a state, the SQLite engine does."""

import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from reservation_service.reservation import Expire, Hold, Trigger
from reservation_service.storage.sqlite_engine import Recovery, SqliteEngine
from reservation_service.store import Claim, Retry, StoreMessage
from tests.support.clock import FakeClock

LIFECYCLE = (Path(__file__).parents[1] / "docs" / "lifecycle.md").read_text()
ID = "the-one"
TTL_MS, MAX_HOLD_MS, LEASE_MS, DELAY_MS = 60_000, 7_200_000, 10_000, 2_000
T = TypeVar("T")


def table(first_column: str) -> list[list[str]]:
    """The rows of the table whose heading starts with this column."""
    _, _, rest = LIFECYCLE.partition(f"\n| {first_column} |")
    lines = rest.split("\n\n", maxsplit=1)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


class Arrow(NamedTuple):
    """One line of a diagram."""

    origin: str
    target: str
    label: str


def diagram(number: int) -> list[Arrow]:
    drawing = LIFECYCLE.split("```mermaid\n")[number].split("```")[0]
    arrows = re.findall(r"^ *(\S+) --> (\S+): (.+)$", drawing, re.MULTILINE)
    return [Arrow(*arrow) for arrow in arrows]


class Row(NamedTuple):
    """The columns that the lifecycle speaks of; of a missing row all are empty."""

    status: str = "missing"
    generation: int = 0
    expiries: int = 0
    expires_at: int | None = None
    alarm_at: int | None = None
    dispatch_at: int | None = None
    attempts: int = 0
    claim: int | None = None

    @property
    def slot(self) -> tuple[int | None, ...]:
        return self.alarm_at, self.dispatch_at, self.attempts, self.claim


class Bench:
    """One engine, one reservation, a clock in the test's hand."""

    def __init__(self, database: Path, clock: FakeClock) -> None:
        self.clock = clock
        self._database = database
        self._engine: SqliteEngine | None = None

    async def start(self) -> None:
        self._engine = await SqliteEngine.open(self._database)
        await self._engine.migrate()
        await self._engine.start(self.clock, Recovery(DELAY_MS, 60_000, 0))

    async def stop(self) -> None:
        assert self._engine is not None
        await self._engine.close()

    async def write(self, message: StoreMessage) -> None:
        assert self._engine is not None
        await self._engine.write([message])

    async def hold(self) -> None:
        await self.write(Hold(ID, TTL_MS, MAX_HOLD_MS))

    async def claim(self) -> None:
        await self.write(Claim(1, LEASE_MS, []))

    async def row(self) -> Row:
        rows = await self._run(
            "SELECT status, generation, expiration_count, expires_at,"
            " alarm_at, alarm_dispatch_at, alarm_attempts, alarm_claim FROM reservation"
        )
        return Row(*rows[0]) if rows else Row()

    async def events(self) -> list[str]:
        rows = await self._run("""SELECT type, "trigger" FROM event ORDER BY seq""")
        return [f"`{kind}` by {trigger}" for kind, trigger in rows]

    async def change(self, columns: str) -> None:
        await self._run(f"UPDATE reservation SET {columns}")

    async def pass_to(self, at_ms: int | None) -> None:
        assert at_ms is not None
        self.clock.advance(max(0, at_ms - self.clock.now()))

    async def _run(self, sql: str) -> list[tuple[Any, ...]]:
        assert self._engine is not None

        def run(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return connection.execute(sql).fetchall()

        return await self._engine._writer.run(run)


@pytest.fixture
async def bench(database: Path, clock: FakeClock) -> AsyncIterator[Bench]:
    bench = Bench(database, clock)
    await bench.start()
    yield bench
    await bench.stop()


NO_SLOT = "alarm_at = NULL, alarm_dispatch_at = NULL, alarm_attempts = 0, alarm_claim = NULL"


async def bring_into(state: str, bench: Bench) -> None:
    """The state of the first column; where a slot is set, an attempt runs on it."""
    if state == "missing":
        return
    await bench.hold()
    await bench.change("alarm_attempts = 1, alarm_claim = 1")
    if state == "held, over":
        await bench.pass_to((await bench.row()).expires_at)
    elif state == "expired":
        await bench.write(Expire(ID, Trigger.REPLAY, (await bench.row()).expires_at))
    elif state == "confirmed":
        await bench.change("status = 'confirmed', confirmed_at = 1")
    elif state == "released":
        await bench.change(f"status = 'released', released_at = 1, {NO_SLOT}")


async def message_of(text: str, bench: Bench) -> StoreMessage:
    deadline = (await bench.row()).expires_at or bench.clock.now()
    messages: dict[str, StoreMessage] = {
        "Hold": Hold(ID, TTL_MS, MAX_HOLD_MS),
        "Expire by alarm": Expire(ID, Trigger.ALARM),
        "Expire by replay, earlier than the deadline": Expire(ID, Trigger.REPLAY, deadline - 1),
        "Expire by replay, at the deadline": Expire(ID, Trigger.REPLAY, deadline),
    }
    return messages[text]


def expected(cell: str, before: T, derive: Callable[[str], T]) -> T:
    return before if cell == "same" else derive(cell)


@pytest.mark.parametrize("line", table("from"), ids=lambda line: f"{line[0]} - {line[1]}")
async def test_a_transition_is_what_the_lifecycle_says(line: list[str], bench: Bench) -> None:
    origin, message, target, slot, generation, count, events = line
    await bring_into(origin, bench)
    before, recorded = await bench.row(), len(await bench.events())

    await bench.write(await message_of(message, bench))

    after, deadline = await bench.row(), bench.clock.now() + TTL_MS
    slots: dict[str, tuple[int | None, ...]] = {
        "empty": Row().slot,
        "planned": (deadline, deadline, 0, None),
        "planned anew": (deadline, deadline, 0, None),
    }
    assert after.status == target
    assert after.slot == expected(slot, before.slot, slots.__getitem__)
    assert after.generation == expected(
        generation,
        before.generation,
        lambda cell: before.generation + 1 if cell == "+ 1" else int(cell),
    )
    assert after.expiries == expected(count, before.expiries, int)
    assert ", ".join((await bench.events())[recorded:]) == events.replace("none", "")


def test_the_diagram_shows_the_transitions_of_the_table() -> None:
    drawn = {
        (arrow.origin.replace("[*]", "missing"), arrow.target)
        for arrow in diagram(1)
        if arrow.label != "later"
    }
    changed = {
        (line[0].removesuffix(", over"), line[2]) for line in table("from") if line[-1] != "none"
    }
    assert drawn == changed


async def bring_the_slot_into(slot: str, bench: Bench) -> None:
    await bench.hold()
    if slot == "empty":
        await act("Expire by replay", bench)
    if slot in ("leased", "backoff"):
        await act("claim", bench)
    if slot == "backoff":
        await act("retry", bench)


async def act(label: str, bench: Bench) -> None:
    """What the label of an arrow says."""
    row = await bench.row()
    match label:
        case "Hold" | "Hold, anew":
            await bench.hold()
        case "claim" | "claim after the lease":
            await bench.pass_to(row.dispatch_at)
            await bench.claim()
        case "Expire":
            await bench.write(Expire(ID, Trigger.ALARM))
        case "Expire by replay":
            await bench.write(Expire(ID, Trigger.REPLAY, row.expires_at))
        case "retry":
            assert row.claim is not None
            await bench.write(Retry(ID, row.claim, DELAY_MS, bench.clock.now(), record=True))
        case "restart":
            await bench.stop()
            await bench.start()
        case _:
            pytest.fail(f"nobody knows what {label!r} is")


def slot_of(row: Row, now: int) -> list[str]:
    """The names in the slot table that fit this row."""
    fits: dict[str, Callable[[Any], bool]] = {
        "NULL": lambda value: value is None,
        "set": lambda value: value is not None,
        "= alarm_at": lambda value: value == row.alarm_at,
        "now + lease": lambda value: value == now + LEASE_MS,
        "now + delay": lambda value: value is not None and value <= now + DELAY_MS,
        "0": lambda value: value == 0,
        ">= 1": lambda value: value >= 1,
        "a token": lambda value: value is not None,
    }
    return [
        name
        for name, *cells in table("slot")
        if all(fits[cell](value) for cell, value in zip(cells, row.slot, strict=True))
    ]


@pytest.mark.parametrize("arrow", diagram(2), ids=lambda a: f"{a.origin} - {a.label}")
async def test_a_slot_is_what_the_lifecycle_says(arrow: Arrow, bench: Bench) -> None:
    await bring_the_slot_into(arrow.origin, bench)
    await act(arrow.label, bench)
    assert slot_of(await bench.row(), bench.clock.now()) == [arrow.target]
