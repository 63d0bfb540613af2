"""What the store contract needs of an engine under test.

A second engine joins by one class like `SqliteUnderTest` and its name in the `engine` fixture.
"""

import asyncio
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from reservation_service.clock import Clock
from reservation_service.events import EventLog
from reservation_service.reservation import Expire, Hold, Outcome, Trigger
from reservation_service.storage.grouped_store import GroupedStore
from reservation_service.storage.sqlite_engine import SqliteEngine
from reservation_service.storage.sqlite_start import Recovery, Reloaded
from reservation_service.store import Claim, Claimed, Result, Retry, Store, StoreMessage
from tests.support.waiting import bounded

LEASE_MS = 10_000
MAX_HOLD_MS = 7_200_000
RECOVERY = Recovery(first_ms=2_000, cap_ms=60_000, seed=0)

Row = dict[str, Any]
"""The columns of one reservation by name."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """One row of the event table; `data` is decoded."""

    reservation: str
    generation: int
    type: str
    at: int
    trigger: str
    data: Any = None


class Opened(Protocol):
    """An open database: the store port, and the engine's batch function below it."""

    @property
    def store(self) -> Store: ...
    @property
    def log(self) -> EventLog: ...
    @property
    def reloaded(self) -> Reloaded: ...
    async def write(self, *messages: StoreMessage) -> Sequence[Result]:
        """One batch in one transaction."""


class EngineUnderTest(Protocol):
    """One database of an engine, looked at and prepared from outside."""

    async def open(self, clock: Clock) -> Opened:
        """Start a new epoch on it, closing what was open."""

    async def close(self) -> None: ...

    def row(self, reservation_id: str) -> Row | None: ...

    def rows(self) -> list[Row]: ...

    def events(self, reservation_id: str | None = None) -> list[EventRow]:
        """In the order in which they were recorded."""

    def plant(self, **columns: object) -> None:
        """Insert a row as it is."""

    def record(self, **columns: object) -> None:
        """Insert an event as it is."""

    def uncommitted(self, reservation_id: str) -> AbstractContextManager[None]:
        """Within, a transaction is open that has recorded an event and is rolled back."""

    def refuse_events_of(self, reservation_id: str) -> None:
        """From now on recording an event of this reservation fails."""

    def refuse_occurrences_of(self, event_id: str) -> None:
        """From now on recording that this planned event happens fails."""

    def plans(self) -> list[tuple[str, str, int]]:
        """What is planned, silent or not: reservation, event and next time."""


class OpenedSqlite:
    def __init__(self, engine: SqliteEngine, reloaded: Reloaded) -> None:
        self.engine = engine
        self.log = engine
        self.reloaded = reloaded
        self.next_due: list[int | None] = []
        self.store = GroupedStore(
            engine.write,
            engine.read,
            engine.find,
            engine.schedules,
            batch_max=512,
            queue_max=10_000,
        )
        self.store.on_commit(self.next_due.append)
        self._running = asyncio.create_task(self.store.run())

    async def write(self, *messages: StoreMessage) -> Sequence[Result]:
        results, _ = await self.engine.write(messages)
        return results

    async def close(self) -> None:
        self.store.close()
        await bounded(self._running, "the store to drain")
        await self.engine.close()


class SqliteUnderTest:
    """Implements `EngineUnderTest` on a file."""

    def __init__(self, directory: Path) -> None:
        self.database = directory / "contract.db"
        self._opened: OpenedSqlite | None = None

    async def open(self, clock: Clock) -> OpenedSqlite:
        await self.close()
        engine = await SqliteEngine.open(self.database)
        try:
            await engine.migrate()
            reloaded = await engine.start(clock, RECOVERY)
        except BaseException:
            await engine.close()
            raise
        self._opened = OpenedSqlite(engine, reloaded)
        return self._opened

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    def row(self, reservation_id: str) -> Row | None:
        return next((row for row in self.rows() if row["id"] == reservation_id), None)

    def rows(self) -> list[Row]:
        return [dict(row) for row in self._query("SELECT * FROM reservation ORDER BY id")]

    def events(self, reservation_id: str | None = None) -> list[EventRow]:
        found = self._query(
            """SELECT reservation, generation, type, at, "trigger", data FROM event
               WHERE coalesce(reservation = ?, 1) ORDER BY seq""",
            reservation_id,
        )
        return [
            EventRow(name, generation, kind, at, trigger, json.loads(data or "null"))
            for name, generation, kind, at, trigger, data in found
        ]

    def plant(self, **columns: object) -> None:
        self._insert("reservation", columns)

    def record(self, **columns: object) -> None:
        self._insert("event", columns)

    @contextmanager
    def uncommitted(self, reservation_id: str) -> Iterator[None]:
        with closing(sqlite3.connect(self.database, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                """INSERT INTO event (reservation, generation, type, at, "trigger")
                   VALUES (?, 1, 'held', 1, 'request')""",
                [reservation_id],
            )
            yield
            connection.execute("ROLLBACK")

    def refuse_events_of(self, reservation_id: str) -> None:
        self._query(
            f"""CREATE TRIGGER refuse BEFORE INSERT ON event
                WHEN NEW.reservation = '{reservation_id}'
                BEGIN SELECT RAISE(ABORT, 'planted'); END"""
        )

    def refuse_occurrences_of(self, event_id: str) -> None:
        self._query(
            f"""CREATE TRIGGER refuse BEFORE INSERT ON event
                WHEN NEW.data->>'eventId' = '{event_id}'
                BEGIN SELECT RAISE(ABORT, 'planted'); END"""
        )

    def plans(self) -> list[tuple[str, str, int]]:
        found = self._query("SELECT reservation, event_id, run_at FROM schedule ORDER BY 1, 2")
        return [(name, event_id, run_at) for name, event_id, run_at in found]

    def _insert(self, table: str, columns: dict[str, object]) -> None:
        names = ", ".join(f'"{name}"' for name in columns)
        marks = ", ".join("?" * len(columns))
        self._query(f"INSERT INTO {table} ({names}) VALUES ({marks})", *columns.values())

    def _query(self, sql: str, *values: object) -> list[sqlite3.Row]:
        with closing(sqlite3.connect(self.database)) as connection, connection:
            connection.row_factory = sqlite3.Row
            return connection.execute(sql, values).fetchall()


def planted(reservation_id: str, **changed: object) -> Row:
    """The columns of a hold from 1,000 to 6,000, with some of them changed."""
    return {
        "id": reservation_id,
        "status": "held",
        "holder": b"",
        "generation": 1,
        "created_at": 1_000,
        "expires_at": 6_000,
        "expired_at": None,
        "confirmed_at": None,
        "released_at": None,
        "expiration_count": 0,
        "alarm_at": 6_000,
        "alarm_dispatch_at": 6_000,
        "alarm_attempts": 0,
        "alarm_claim": None,
        "batch": 0,
        "changed_by": "request",
    } | changed


def told_of_alarm(scheduled_at: int, **changed: object) -> dict[str, object]:
    """What the event of an alarm's effect says of the alarm: in time and at the first attempt."""
    return {
        "scheduledTime": scheduled_at,
        "retryCount": 0,
        "isRetry": False,
        "lateness": 0,
        "outcome": "ok",
    } | changed


NOTHING_PLANNED: Row = {"alarm_at": None, "alarm_dispatch_at": None}
CONFIRMED: Row = NOTHING_PLANNED | {"status": "confirmed", "confirmed_at": 5_000}
RELEASED: Row = NOTHING_PLANNED | {"status": "released", "released_at": 5_000}
EXPIRED: Row = NOTHING_PLANNED | {
    "status": "expired",
    "expired_at": 6_000,
    "expiration_count": 1,
    "changed_by": "alarm",
}


async def hold(opened: Opened, reservation_id: str, ttl_ms: int = 5_000) -> Outcome:
    return await opened.store.apply(Hold(reservation_id, ttl_ms, MAX_HOLD_MS))


async def ring(opened: Opened, reservation_id: str) -> Outcome:
    return await opened.store.apply(Expire(reservation_id, Trigger.ALARM))


async def replay(opened: Opened, reservation_id: str, now: int) -> Outcome:
    return await opened.store.apply(Expire(reservation_id, Trigger.REPLAY, now))


async def claim(opened: Opened, limit: int = 100, running: Sequence[str] = ()) -> list[Claimed]:
    return await opened.store.claim(Claim(limit, LEASE_MS, list(running)))


async def fail(
    opened: Opened, claimed: Claimed, delay_ms: int = 2_000, *, record: bool = True
) -> None:
    """Settle an attempt that failed."""
    await opened.store.settle(
        Retry(claimed.id, claimed.claim, delay_ms, claimed.claimed_at, record)
    )
