"""What a start does with the file, and what ends it for good: each one function of the writer.

A start is O(1) in the number of reservations: the file's origin, its schema version, the head of
the due index, and the claims that a dead process left behind.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from reservation_service.clock import Clock
from reservation_service.storage import sqlite, sqlite_alarms
from reservation_service.storage.migrations import check_origin, load_migrations, migrate
from reservation_service.storage.sqlite_files import make_durable
from reservation_service.storage.sqlite_messages import create_message_table
from reservation_service.storage.sqlite_tally import LAST_EVENT

COUNTED_MAX = 1000
"""Counting stops here, so that a start takes the same time whatever waited."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """How attempts that a dead process left are planned anew; milliseconds, and a jitter seed."""

    first_ms: int
    cap_ms: int
    seed: int


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What a start found: alarms overdue (counted up to a limit), claims voided, the next due.

    `last_event` is the last of the log, 0 when it is empty.
    """

    overdue: int
    claims_voided: int
    next_due_at: int | None
    is_destroyed: bool
    epoch: int
    last_event: int


def prepare(connection: sqlite3.Connection) -> list[str]:
    """Bring the file up to date; the migrations applied. Raises StartupError."""
    migrations = load_migrations("sqlite")
    check_origin(connection, len(migrations))
    make_durable(connection)
    return migrate(connection, migrations)


def prepare_batches(connection: sqlite3.Connection) -> None:
    """A temporary table, in memory: a full disk must keep nothing from being tried."""
    connection.execute("PRAGMA temp_store = MEMORY")
    create_message_table(connection)


def begin_epoch(connection: sqlite3.Connection, clock: Clock, recovery: Recovery) -> Reloaded:
    """The claims of the process before are void, and what it left is planned anew."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        now = {"now": clock.now()}
        epoch, is_destroyed = connection.execute(sqlite.START_EPOCH).fetchone()
        claims_voided = single_value(connection, sqlite_alarms.COUNT_CLAIMED)
        connection.execute(
            sqlite_alarms.RECOVER,
            now | {"first_ms": recovery.first_ms, "cap_ms": recovery.cap_ms, "seed": recovery.seed},
        )
        overdue = single_value(
            connection, sqlite_alarms.COUNT_OVERDUE, now | {"limit": COUNTED_MAX}
        )
        next_due_at = single_value(connection, sqlite_alarms.NEXT_DUE, now | {"running": "[]"})
        (last_event,) = connection.execute(LAST_EVENT).fetchone()
        connection.execute("COMMIT")
    except BaseException:
        sqlite.roll_back(connection)
        raise
    return Reloaded(
        overdue or 0, claims_voided or 0, next_due_at, bool(is_destroyed), epoch, last_event
    )


def destroy(connection: sqlite3.Connection, clock: Clock) -> int:
    """Delete everything in one transaction and leave a tombstone; the reservations deleted."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        deleted = connection.execute("DELETE FROM reservation").rowcount
        connection.execute("DELETE FROM event")
        connection.execute("DELETE FROM confirm_rejection")
        connection.execute("DELETE FROM schedule")
        connection.execute("UPDATE namespace SET destroyed_at = ?", [clock.now()])
        connection.execute("COMMIT")
    except BaseException:
        sqlite.roll_back(connection)
        raise
    return deleted


def single_value(
    connection: sqlite3.Connection, sql: str, values: Mapping[str, object] | None = None
) -> int | None:
    """The one value that a statement returns."""
    value: int | None = connection.execute(sql, values or {}).fetchone()[0]
    return value
