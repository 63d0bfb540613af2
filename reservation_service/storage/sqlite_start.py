"""What a start does with the file, and what ends it for good: each one function of the writer.

A start is O(1) in the number of reservations: the file's origin, its schema version, the head of
the due index, and the claims that a dead process left behind. The write-ahead log gets its room.
"""

import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage

from reservation_service.clock import Clock
from reservation_service.storage import sqlite, sqlite_alarms
from reservation_service.storage.migrations import check_origin, load_migrations, migrate
from reservation_service.storage.sqlite_files import CACHE_SIZE, WAL_PAGES, make_durable, wal_of
from reservation_service.storage.sqlite_messages import create_message_table
from reservation_service.storage.sqlite_tally import LAST_EVENT
from reservation_service.storage.sqlite_upkeep import cut_wal, page_bytes, touch

COUNTED_MAX = 1000
"""Counting stops here, so that a start takes the same time whatever waited."""

LOG_PAGES = WAL_PAGES
"""How long a start makes the log: it begins anew when it has so many."""

_FREE_MIN = 10
"""Times what is reserved."""

_FEW_PAGES = 10
"""The cache meanwhile: what is beyond is written at once."""


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


def reserve_log(connection: sqlite3.Connection, database: Path) -> None:
    """Let the write-ahead log be as long as it will be: a file that grows is synced more slowly.

    Where the disk has little space, that is left for what is to come. Raises sqlite3.Error or
    OSError when the database cannot be used.
    """
    log, size = wal_of(database), LOG_PAGES * page_bytes(connection)
    if log.exists() and log.stat().st_size >= size:
        return
    if disk_usage(database.parent).free < _FREE_MIN * size:
        return
    connection.execute(f"PRAGMA cache_size = {_FEW_PAGES}")
    try:
        if not cut_wal(connection):
            return
        _write_and_roll_back(connection, size)
    except sqlite3.OperationalError:  # a quota, perhaps: what was taken of it is given back
        with suppress(sqlite3.OperationalError):
            cut_wal(connection)
        return
    finally:
        connection.execute(f"PRAGMA cache_size = {CACHE_SIZE}")
    touch(connection)  # which syncs it, before anybody has to wait for that


def _write_and_roll_back(connection: sqlite3.Connection, size: int) -> None:
    """What is too much for the cache is written into the log, and is left there."""
    in_cache = _FEW_PAGES * page_bytes(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute("CREATE TABLE room (bytes)")
        connection.execute("INSERT INTO room VALUES (zeroblob(?))", [size + in_cache])
    finally:
        sqlite.roll_back(connection)


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
