"""An open SQLite database: the lock, one connection that writes, one that reads.

Opening is O(1) in the number of reservations: the file's origin, its schema version, the head of
the due index, and the claims that a dead process left behind.
"""

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

from reservation_service.clock import Clock
from reservation_service.errors import DatabaseUnusable, StartupError, StorageUnavailable
from reservation_service.events import EventPage, EventQuery
from reservation_service.reservation import Reservation, Schedule
from reservation_service.storage import (
    sqlite,
    sqlite_alarms,
    sqlite_events,
    sqlite_reads,
    sqlite_schedule,
    sqlite_tally,
    sqlite_upkeep,
)
from reservation_service.storage.connection import (
    Connection,
    failure_before_commit,
    make_durable,
    open_reader,
    open_writer,
    require_sqlite,
)
from reservation_service.storage.lock import DatabaseLock
from reservation_service.storage.migrations import check_origin, load_migrations, migrate
from reservation_service.storage.sqlite_messages import create_message_table
from reservation_service.storage.sqlite_tally import Tally
from reservation_service.store import Page, Query, Result, ScheduleQuery, StoreMessage

P = ParamSpec("P")
T = TypeVar("T")

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
    """What a start found: alarms overdue (counted up to a limit), claims voided, the next due."""

    overdue: int
    claims_voided: int
    next_due_at: int | None
    is_destroyed: bool
    epoch: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """Alarms that are due and those that are stuck, each counted up to a limit.

    `oldest_due_at` is the head of the due index, due or not; None when nothing is planned.
    """

    overdue: int
    stuck: int
    oldest_due_at: int | None


class SqliteEngine:
    """Exclusive use of one database file, until `close`."""

    def __init__(self, database: Path, lock: DatabaseLock, writer: Connection) -> None:
        self.database = database
        self._lock = lock
        self._writer = writer
        self._reader: Connection | None = None
        self._clock: Clock | None = None
        self._transaction: sqlite.BatchTransaction | None = None
        self._cut = sqlite_upkeep.WalCutter(database)

    @classmethod
    async def open(cls, database: Path) -> Self:
        """Take the lock and open the file, creating it where it is missing. Raises StartupError."""
        require_sqlite()
        path = _resolve(database)
        lock = DatabaseLock(path)
        try:
            _create_private(path)
            writer = await open_writer(path)
        except (OSError, sqlite3.Error) as error:
            lock.release()
            raise _cannot_open(path, error) from error
        return cls(path, lock, writer)

    async def migrate(self) -> list[str]:
        """Bring the file up to date; the migrations applied. Raises StartupError."""
        try:
            return await self._writer.run(_prepare)
        except sqlite3.Error as error:
            raise StartupError(f"Cannot use the database {self.database}: {error}.") from error

    async def start(self, clock: Clock, recovery: Recovery) -> Reloaded:
        """Begin a new epoch: the claims of the process before are void. Raises StartupError."""
        try:
            reloaded = await self._writer.run(_begin_epoch, clock, recovery)
            await self._writer.run(_prepare_batches)
            self._reader = await open_reader(self.database)
        except sqlite3.Error as error:
            raise StartupError(f"Cannot use the database {self.database}: {error}.") from error
        self._clock = clock
        self._transaction = sqlite.BatchTransaction(clock, self.database, reloaded.epoch)
        return reloaded

    async def write(self, messages: Sequence[StoreMessage]) -> tuple[list[Result], int | None]:
        """One batch, one transaction, one hop."""
        assert self._transaction is not None
        return await self._writer.run(self._transaction, messages)

    async def read(self, ids: Sequence[str]) -> list[Reservation]:
        """The committed rows of these IDs, in one hop."""
        assert self._reader is not None
        return await self._reader.run(sqlite_reads.read_rows, ids)

    async def find(self, query: Query) -> Page:
        """One page of a list, in one hop."""
        assert self._reader is not None
        return await self._reader.run(sqlite_reads.find_rows, query)

    async def read_events(self, query: EventQuery) -> EventPage:
        """A page of the log, in one hop."""
        assert self._reader is not None
        return await self._reader.run(sqlite_events.read_events, query)

    async def schedules(self, queries: Sequence[ScheduleQuery]) -> list[Schedule]:
        """What is planned on these reservations, in one hop."""
        assert self._reader is not None
        assert self._clock is not None
        return await self._reader.run(sqlite_schedule.read_schedules, queries, self._clock.now())

    async def backlog(self, now: int, stuck_after: int) -> Backlog:
        """How far behind the alarms are, in one hop; the same effort however many wait."""
        assert self._reader is not None
        return await self._reader.run(_backlog, now, stuck_after)

    async def tally(self) -> Tally:
        """What was committed since the start, in one hop."""
        return await self._writer.run(_tally)

    async def count_planned(self) -> int:
        """How many alarms were planned when the tally began.

        The count goes on behind the traffic, on a connection of its own, over what was committed
        when it began. Raises StorageTrouble when it cannot be read.
        """
        try:
            reader = await open_reader(self.database)
            try:
                since = await self._writer.run_with(sqlite_tally.begin_count, reader)
                return await reader.run(sqlite_tally.count_planned) - since
            finally:
                await reader.interrupt()
                await reader.close()
        except sqlite3.Error as error:
            raise StorageUnavailable from error

    async def optimize(self) -> None:
        """Bring the planner's statistics up to date. Raises a ServiceError."""
        await self._keep_up(sqlite_upkeep.optimize)

    async def cut_wal(self, now: int) -> int:
        """Empty the write-ahead log, if it is not in use; the bytes that it had."""
        return await self._keep_up(self._cut, now)

    async def _keep_up(
        self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kw: P.kwargs
    ) -> T:
        try:
            return await self._writer.run(work, *args, **kw)
        except (sqlite3.Error, OSError) as error:
            raise StorageUnavailable from error

    async def destroy(self, clock: Clock) -> int:
        """Delete everything in one transaction and leave a tombstone; the reservations deleted."""
        return await self._writer.run(_destroy, clock)

    async def check_integrity(self) -> None:
        """Look at every page, on a connection of its own. Raises DatabaseUnusable on a finding."""
        try:
            finding = await self._find_damage()
        except sqlite3.Error as error:
            raise DatabaseUnusable from error
        if finding != "ok":
            raise DatabaseUnusable from ValueError(finding)

    async def _find_damage(self) -> str:
        connection = await open_reader(self.database)
        try:
            return await connection.run(_quick_check)
        finally:
            await connection.interrupt()
            await connection.close()

    async def close(self) -> None:
        """Close the reader first, then the writer, which checkpoints; then let others in."""
        try:
            if self._reader is not None:
                await self._reader.close()
            await self._writer.close()
        finally:
            self._lock.release()


def _resolve(database: Path) -> Path:
    path = Path(os.path.realpath(database))
    try:
        if not path.parent.is_dir():
            raise StartupError(f"The directory {path.parent} does not exist; create it first.")
        if path.exists() and not path.is_file():
            raise StartupError(f"{path} is not a file; choose another database.")
    except OSError as error:
        raise _cannot_open(path, error) from error
    return path


def _cannot_open(path: Path, error: OSError | sqlite3.Error) -> StartupError:
    reason = error.strerror if isinstance(error, OSError) else error
    return StartupError(f"Cannot open the database {path}: {reason}.")


def _create_private(path: Path) -> None:
    """Reservations are nobody else's business; SQLite gives its other files the same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _prepare(connection: sqlite3.Connection) -> list[str]:
    migrations = load_migrations("sqlite")
    check_origin(connection, len(migrations))
    make_durable(connection)
    return migrate(connection, migrations)


def _prepare_batches(connection: sqlite3.Connection) -> None:
    """Temporary tables, in memory: a full disk must keep nothing from being counted or tried."""
    connection.execute("PRAGMA temp_store = MEMORY")
    create_message_table(connection)
    sqlite_tally.begin_tally(connection)


def _begin_epoch(connection: sqlite3.Connection, clock: Clock, recovery: Recovery) -> Reloaded:
    connection.execute("BEGIN IMMEDIATE")
    try:
        now = {"now": clock.now()}
        epoch, is_destroyed = connection.execute(sqlite.START_EPOCH).fetchone()
        claims_voided = _value(connection, sqlite_alarms.COUNT_CLAIMED)
        connection.execute(
            sqlite_alarms.RECOVER,
            now | {"first_ms": recovery.first_ms, "cap_ms": recovery.cap_ms, "seed": recovery.seed},
        )
        overdue = _value(connection, sqlite_alarms.COUNT_OVERDUE, now | {"limit": COUNTED_MAX})
        next_due_at = _value(connection, sqlite_alarms.NEXT_DUE, now | {"running": "[]"})
        connection.execute("COMMIT")
    except BaseException:
        sqlite.roll_back(connection)
        raise
    return Reloaded(overdue or 0, claims_voided or 0, next_due_at, bool(is_destroyed), epoch)


def _backlog(connection: sqlite3.Connection, now: int, stuck_after: int) -> Backlog:
    values = {"now": now, "stuck_after": stuck_after, "limit": COUNTED_MAX}
    try:
        return Backlog(
            _value(connection, sqlite_alarms.COUNT_OVERDUE, values) or 0,
            _value(connection, sqlite_alarms.COUNT_STUCK, values) or 0,
            _value(connection, sqlite_alarms.OLDEST_DUE),
        )
    except sqlite3.Error as error:
        raise failure_before_commit(error) from error


def _tally(connection: sqlite3.Connection) -> Tally:
    try:
        return sqlite_tally.read_tally(connection)
    except sqlite3.Error as error:
        raise failure_before_commit(error) from error


def _destroy(connection: sqlite3.Connection, clock: Clock) -> int:
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


def _quick_check(connection: sqlite3.Connection) -> str:
    finding: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    return finding


def _value(
    connection: sqlite3.Connection, sql: str, values: Mapping[str, object] | None = None
) -> int | None:
    value: int | None = connection.execute(sql, values or {}).fetchone()[0]
    return value
