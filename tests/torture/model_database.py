"""The transition function of the model: the product's own transaction, on real SQLite.

A state's tables are put into an empty database, one batch runs, and what is there afterwards is
read back. The clock stands where the state says.
"""

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from reservation_service.errors import ServiceError
from reservation_service.storage import sqlite, sqlite_schedule, sqlite_start
from reservation_service.storage.migrations import load_migrations, migrate
from reservation_service.storage.sqlite_messages import create_message_table
from reservation_service.store import Result, ScheduleQuery, StoreMessage
from tests.support.clock import FakeClock
from tests.torture.model_tables import Event, Planned, Recovery, Rejection, Row, Tables

BATCH = 1 << 20
"""The number of every batch that does not claim: no row of a state has it."""

_COLUMNS = ", ".join(Row._fields)
_PUT_ROW = f"""
INSERT INTO reservation ({_COLUMNS}, batch, changed_by)
VALUES ({", ".join("?" * len(Row._fields))}, 0, 'request')
"""
_PUT_REJECTION = "INSERT INTO confirm_rejection VALUES (?, ?, ?, ?)"
_ROWS = f"SELECT {_COLUMNS} FROM reservation ORDER BY id"
_REJECTIONS = "SELECT reservation, generation, holder, code FROM confirm_rejection ORDER BY 1, 2, 3"
_PUT_PLAN = """
INSERT INTO schedule (id, reservation, event_id, generation, run_at, first_at, repeat_ms, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_PUT_LAST_KEY = "INSERT INTO sqlite_sequence (name, seq) VALUES ('schedule', ?)"
_PLANS = """
SELECT id, reservation, event_id, generation, run_at, first_at, repeat_ms, data
FROM schedule ORDER BY id
"""
_LAST_KEY = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'schedule'"
_EVENTS = """
SELECT reservation, generation, type, at, "trigger", data, planned FROM event ORDER BY seq
"""
_EMPTY = (
    "DELETE FROM reservation",
    "DELETE FROM confirm_rejection",
    "DELETE FROM event",
    "DELETE FROM schedule",
)


class Committed(NamedTuple):
    """What one batch left behind and answered; `failure` when it was refused as a whole."""

    tables: Tables
    events: tuple[Event, ...]
    results: tuple[Result, ...] = ()
    next_due_at: int | None = None
    failure: str = ""


class Database:
    """One connection, used for every transition. `weaken` takes the schema's own defence away."""

    def __init__(self, *, weaken: bool = False) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        migrate(self._connection, load_migrations("sqlite"))
        create_message_table(self._connection)
        if weaken:
            self._connection.execute("PRAGMA ignore_check_constraints = ON")
            self._connection.execute("DROP INDEX event_expired_once")
            self._connection.execute("DROP INDEX event_fired_once")
        self._clock = FakeClock(0)
        self._transaction = sqlite.BatchTransaction(self._clock, None, epoch=0)
        self.transitions = 0

    def close(self) -> None:
        self._connection.close()

    def commit(
        self, tables: Tables, messages: Sequence[StoreMessage], now: int, batch: int = BATCH
    ) -> Committed:
        """Run one batch whose number is `batch`; a claim in it has that token."""
        self._put(tables, now)
        self._transaction._batch = batch - 1
        try:
            results, next_due_at = self._transaction(self._connection, messages)
        except ServiceError as error:
            return Committed(tables, (), failure=repr(error.__cause__ or error))
        return self._take()._replace(results=tuple(results), next_due_at=next_due_at)

    def due(self, tables: Tables, reservation_id: str, now: int) -> list[tuple[int, int]]:
        """What a handler is told to fire."""
        self._put(tables, now)
        query = ScheduleQuery(reservation_id, is_due_only=True)
        (schedule,) = sqlite_schedule.read_schedules(self._connection, [query], now)
        return [(event.key, event.run_at) for event in schedule.events]

    def start(self, tables: Tables, now: int, recovery: Recovery) -> Committed:
        """What a new process does before it serves."""
        self._put(tables, now)
        seed = 0
        given = sqlite_start.Recovery(recovery.first_ms, recovery.cap_ms, seed)
        try:
            reloaded = sqlite_start.begin_epoch(self._connection, self._clock, given)
        except sqlite3.Error as error:
            return Committed(tables, (), failure=repr(error))
        return self._take()._replace(next_due_at=reloaded.next_due_at)

    def _put(self, tables: Tables, now: int) -> None:
        self.transitions += 1
        for statement in _EMPTY:
            self._connection.execute(statement)
        self._connection.executemany(_PUT_ROW, tables.rows)
        self._connection.executemany(_PUT_REJECTION, tables.rejections)
        self._connection.executemany(_PUT_PLAN, tables.plans)
        self._connection.execute("DELETE FROM sqlite_sequence WHERE name = 'schedule'")
        self._connection.execute(_PUT_LAST_KEY, [tables.last_key])
        self._clock.step(now - self._clock.now())

    def _take(self) -> Committed:
        execute = self._connection.execute
        rows = tuple(Row(*row) for row in execute(_ROWS))
        rejections = tuple(Rejection(*row) for row in execute(_REJECTIONS))
        plans = tuple(Planned(*row) for row in execute(_PLANS))
        ((last_key,),) = execute(_LAST_KEY)
        events = tuple(
            Event._make((*row, _decoded(data), planned)) for *row, data, planned in execute(_EVENTS)
        )
        return Committed(Tables(rows, rejections, plans, last_key), events)


def _decoded(data: str | None) -> Any:
    return None if data is None else json.loads(data)
