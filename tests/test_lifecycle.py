"""docs/lifecycle.md, run line by line: what it says of a state, the SQLite engine does."""

import ast
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from reservation_service.errors import ServiceError
from reservation_service.refusals import (
    Refused,
    why_not_cancelled,
    why_not_confirmed,
    why_not_extended,
    why_not_held,
    why_not_planned,
    why_not_released,
)
from reservation_service.reservation import (
    ANONYMOUS,
    EVENTS_MAX,
    Cancel,
    Confirm,
    Expire,
    Extend,
    Fire,
    Hold,
    Message,
    Outcome,
    Plan,
    Release,
    Trigger,
)
from reservation_service.storage.sqlite_engine import SqliteEngine
from reservation_service.storage.sqlite_start import Recovery
from reservation_service.store import Claim, Result, Retry, StoreMessage
from reservation_service.web.problems import STATUS_BY_CODE
from tests.support.clock import START, FakeClock

ROOT = Path(__file__).parents[1]
WEB = ROOT / "reservation_service" / "web"
LIFECYCLE = (ROOT / "docs" / "lifecycle.md").read_text()
ID = "the-one"
HOLDER, STRANGER = b"h" * 32, b"s" * 32
TTL_MS, MAX_HOLD_MS, LEASE_MS, DELAY_MS = 60_000, 7_200_000, 10_000, 2_000
EVENT_AT, PACE_MS = START + 30_000, 7_000
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

    async def write(self, message: Message) -> Outcome:
        (outcome,) = await self._write(message)
        assert isinstance(outcome, Outcome)
        return outcome

    async def settle(self, retry: Retry) -> None:
        await self._write(retry)

    async def hold(self) -> None:
        await self.write(Hold(ID, TTL_MS, MAX_HOLD_MS))

    async def claim(self) -> None:
        await self._write(Claim(1, LEASE_MS, []))

    async def row(self) -> Row:
        rows = await self._run(
            "SELECT status, generation, expiration_count, expires_at,"
            " alarm_at, alarm_dispatch_at, alarm_attempts, alarm_claim FROM reservation"
            f" WHERE id = '{ID}'"
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

    async def _write(self, message: StoreMessage) -> list[Result]:
        assert self._engine is not None
        results, _ = await self._engine.write([message])
        return results

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


async def bring_into(state: str, bench: Bench) -> None:
    """The state of the first column; where a slot is set, an attempt runs on it."""
    if state == "missing":
        return
    holder = ANONYMOUS if state == "held, anonymous" else HOLDER
    await bench.write(Hold(ID, TTL_MS, MAX_HOLD_MS, holder=holder))
    status, _, more = state.partition(", ")
    if more.startswith(("planned", "due")):
        await bench.write(plan(PACE_MS if "again" in more else None))
    bench.clock.advance(1)
    await bench.change("alarm_attempts = 1, alarm_claim = 1")
    if more == "over":
        await bench.pass_to((await bench.row()).expires_at)
    elif status == "expired":
        await bench.write(Expire(ID, Trigger.REPLAY, (await bench.row()).expires_at))
    elif status == "confirmed":
        await bench.write(Confirm(ID, HOLDER))
    elif status == "released":
        await bench.write(Release(ID, HOLDER))
    if more.startswith("due"):
        await bench.pass_to(EVENT_AT)


def plan(repeat_ms: int | None = None, name: str = "call", holder: bytes = HOLDER) -> Plan:
    return Plan(ID, name, EVENT_AT, repeat_ms, holder=holder)


async def message_of(text: str, bench: Bench) -> Message:
    deadline = (await bench.row()).expires_at or bench.clock.now()
    what, is_free, _ = text.partition(", if still free")
    what, is_strange, _ = what.partition(" by a stranger")
    holder, if_still_free = STRANGER if is_strange else HOLDER, bool(is_free)
    if what == "Hold, one too many":
        await bench.write(Hold("another", TTL_MS, MAX_HOLD_MS, 1, HOLDER))
    if what == "Plan, as it stands":
        await bench.write(plan())
    if what == "Plan, one too many":
        for number in range(EVENTS_MAX):
            await bench.write(plan(name=f"event-{number}"))
    messages: dict[str, Message] = {
        "Hold": Hold(ID, TTL_MS, MAX_HOLD_MS, 1, holder),
        "Hold, one too many": Hold(ID, TTL_MS, MAX_HOLD_MS, 1, holder),
        "Hold, at the limit": Hold(ID, TTL_MS, TTL_MS, 1, holder),
        "Hold by anybody anonymous": Hold(ID, TTL_MS, MAX_HOLD_MS, 1, ANONYMOUS),
        "Extend": Extend(ID, TTL_MS, MAX_HOLD_MS, holder),
        "Extend, to no later": Extend(ID, TTL_MS - 1, MAX_HOLD_MS, holder),
        "Extend, at the limit": Extend(ID, TTL_MS, TTL_MS, holder),
        "Extend of another generation": Extend(ID, TTL_MS, MAX_HOLD_MS, holder, 2),
        "Confirm": Confirm(ID, holder, None, if_still_free),
        "Confirm of another generation": Confirm(ID, holder, 2),
        "Release": Release(ID, holder),
        "Release by the operator": Release(ID, STRANGER, None, operator=True),
        "Release of another generation": Release(ID, holder, 2),
        "Plan": plan(holder=holder),
        "Plan, beyond the deadline": Plan(ID, "call", deadline + 1, holder=holder),
        "Plan, as it stands": plan(),
        "Plan, one too many": plan(),
        "Plan of another generation": Plan(ID, "call", EVENT_AT, holder=holder, generation=2),
        "Cancel": Cancel(ID, "call", holder),
        "Fire": Fire(ID, 1, EVENT_AT),
        "Expire by alarm": Expire(ID, Trigger.ALARM),
        "Expire by replay, earlier than the deadline": Expire(ID, Trigger.REPLAY, deadline - 1),
        "Expire by replay, at the deadline": Expire(ID, Trigger.REPLAY, deadline),
    }
    return messages[what]


def answer(message: Message, outcome: Outcome) -> str:
    """What the caller is told, as in the last column."""
    if outcome.changed:
        return "done"
    refused: Refused | None = None
    match message:
        case Hold():
            refused = why_not_held(outcome)
        case Extend():
            refused = why_not_extended(message, outcome)
        case Confirm():
            refused = why_not_confirmed(message, outcome)
        case Release():
            refused = why_not_released(message, outcome)
        case Plan():
            refused = why_not_planned(message, outcome)
        case Cancel():
            refused = why_not_cancelled(message, outcome)
    return f"`{refused.code}`" if refused else "unchanged"


def expected(cell: str, before: T, derive: Callable[[str], T]) -> T:
    return before if cell == "same" else derive(cell)


@pytest.mark.parametrize("line", table("from"), ids=lambda line: f"{line[0]} - {line[1]}")
async def test_a_transition_is_what_the_lifecycle_says(line: list[str], bench: Bench) -> None:
    origin, text, target, slot, generation, count, events, answered = line
    await bring_into(origin, bench)
    message = await message_of(text, bench)
    before, recorded = await bench.row(), len(await bench.events())

    outcome = await bench.write(message)

    after, deadline = await bench.row(), bench.clock.now() + TTL_MS
    slots: dict[str, tuple[int | None, ...]] = {
        "empty": Row().slot,
        "planned": (deadline, deadline, 0, None),
        "planned anew": (deadline, deadline, 0, None),
        "the deadline": (after.expires_at, after.expires_at, 0, None),
        "the event": (EVENT_AT, EVENT_AT, 0, None),
        "the next": (EVENT_AT + PACE_MS, EVENT_AT + PACE_MS, 0, None),
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
    assert answer(message, outcome) == answered


def test_the_diagram_shows_the_transitions_of_the_table() -> None:
    drawn = {(arrow.origin.replace("[*]", "missing"), arrow.target) for arrow in diagram(1)}
    changed = {(line[0].partition(",")[0], line[2]) for line in table("from") if line[-1] == "done"}
    assert drawn == changed


async def bring_the_slot_into(slot: str, label: str, bench: Bench) -> None:
    """On its deadline, or on an event where the arrow is about one."""
    await bench.hold()
    if label.startswith(("Plan", "Cancel", "Fire")):
        await bench.write(Plan(ID, "call", EVENT_AT))
    if "another one due" in label:
        await bench.write(Plan(ID, "another", EVENT_AT + 1))
        await bench.pass_to(EVENT_AT + 1)
    if slot == "empty":
        await act("Expire by replay", bench)
    if slot in ("leased", "backoff"):
        await act("claim", bench)
    if slot == "backoff":
        await act("retry", bench)


async def act(label: str, bench: Bench) -> None:
    """What the label of an arrow says."""
    row = await bench.row()
    messages: dict[str, Message] = {
        "Hold": Hold(ID, TTL_MS, MAX_HOLD_MS),
        "Hold, anew": Hold(ID, TTL_MS, MAX_HOLD_MS),
        "Extend": Extend(ID, 2 * TTL_MS, MAX_HOLD_MS),
        "Confirm": Confirm(ID),
        "Confirm, if still free": Confirm(ID, if_still_free=True),
        "Release": Release(ID),
        "Expire": Expire(ID, Trigger.ALARM),
        "Expire by replay": Expire(ID, Trigger.REPLAY, row.expires_at),
        "Plan, earlier": Plan(ID, "another", EVENT_AT - 1),
        "Plan, later": Plan(ID, "another", EVENT_AT + 1),
        "Fire": Fire(ID, 1, EVENT_AT),
        "Fire, with another one due": Fire(ID, 1, EVENT_AT),
        "Cancel": Cancel(ID, "call"),
    }
    match label:
        case "claim" | "claim after the lease":
            await bench.pass_to(row.dispatch_at)
            await bench.claim()
        case "retry":
            assert row.claim is not None
            await bench.settle(Retry(ID, row.claim, DELAY_MS, bench.clock.now(), record=True))
        case "restart":
            await bench.stop()
            await bench.start()
        case _:
            await bench.write(messages[label])


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
    await bring_the_slot_into(arrow.origin, arrow.label, bench)
    await act(arrow.label, bench)
    assert slot_of(await bench.row(), bench.clock.now()) == [arrow.target]


def kinds(kind: type[ServiceError] = ServiceError) -> Iterator[type[ServiceError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from kinds(narrower)


def literals() -> set[str]:
    """Every string that stands in the code of the API."""
    trees = (ast.parse(path.read_text()) for path in WEB.glob("*.py"))
    constants = (
        node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)
    )
    return {node.value for node in constants if isinstance(node.value, str)}


def sentences(code: str) -> set[str]:
    """What an answer with this code may say, where that does not differ from case to case."""
    return {kind.sentence for kind in kinds() if kind.code == code} or literals()


def test_every_refusal_is_in_the_table_as_it_is_answered() -> None:
    lines = {
        code.strip("`"): (status, said, advice) for code, status, said, advice in table("code")
    }
    assert {code: status for code, (status, _, _) in lines.items()} == {
        code: str(int(status)) for code, status in STATUS_BY_CODE.items()
    }
    for code, (_, said, advice) in lines.items():
        assert said.startswith("*") or said in sentences(code), code
        assert advice.endswith("."), code


def test_the_transitions_show_every_refusal_of_a_row() -> None:
    shown = {line[-1].strip("`") for line in table("from")} - {"done", "unchanged"}
    assert shown == {kind.code for kind in Refused.__subclasses__()}
