"""An open SQLite database: the lock, and connections that write, read and count."""

import os
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from reservation_service.clock import Clock
from reservation_service.errors import (
    DatabaseUnusable,
    ServiceError,
    StartupError,
    StorageUnavailable,
)
from reservation_service.events import EventPage, EventQuery
from reservation_service.reservation import Reservation, Schedule
from reservation_service.storage import (
    sqlite,
    sqlite_alarms,
    sqlite_events,
    sqlite_reads,
    sqlite_schedule,
    sqlite_start,
    sqlite_upkeep,
)
from reservation_service.storage.connection import Connection, Writer, open_reader, open_writer
from reservation_service.storage.lock import DatabaseLock
from reservation_service.storage.log_tally import LogTally
from reservation_service.storage.packed import Batch, PackedTransaction, pack, unpack
from reservation_service.storage.remote_writer import RemoteWriter
from reservation_service.storage.sqlite_errors import failure_before_commit
from reservation_service.storage.sqlite_files import require_sqlite
from reservation_service.storage.sqlite_start import (
    COUNTED_MAX,
    Recovery,
    Reloaded,
    single_value,
)
from reservation_service.storage.sqlite_tally import Tally
from reservation_service.store import Page, Query, ScheduleQuery, StoreMessage

BATCHES_AT_ONCE_MAX = 2
"""A writer's process has the next batch before it has answered the last, and never waits for the
event loop: 64 connections hold 8 % more, and a burst of 20,000 alarms drains 15 % faster."""

P = ParamSpec("P")
T = TypeVar("T")

WriteBatch = Callable[[Sequence[StoreMessage]], Awaitable[Batch]]
EmptyWal = Callable[[sqlite3.Connection, int], int]


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

    def __init__(self, database: Path, lock: DatabaseLock, writer: Writer) -> None:
        self.database = database
        self._lock = lock
        self._writer = writer
        self._tally: LogTally | None = None
        self._reader: Connection | None = None
        self._clock: Clock | None = None
        self._write: WriteBatch | None = None
        self._empty_wal: EmptyWal | None = None

    @classmethod
    async def open(cls, database: Path, *, own_process: bool = False) -> Self:
        """Take the lock and open the file, creating it where it is missing. Raises StartupError.

        The connection that writes is on a thread, or in a process of its own.
        """
        require_sqlite()
        path = _resolve(database)
        lock = await DatabaseLock.take(path)
        try:
            _create_private(path)
            writer: Writer = (
                await RemoteWriter.open(path, lock.file) if own_process else await open_writer(path)
            )
        except (OSError, sqlite3.Error) as error:
            lock.release()
            raise _cannot_open(path, error) from error
        except BaseException:
            lock.release()
            raise
        return cls(path, lock, writer)

    async def migrate(self) -> list[str]:
        """Bring the file up to date; the migrations applied. Raises StartupError."""
        try:
            return await self._writer.run(sqlite_start.prepare)
        except (sqlite3.Error, ServiceError) as error:
            raise StartupError(f"Cannot use the database {self.database}: {error}.") from error

    async def start(self, clock: Clock, recovery: Recovery) -> Reloaded:
        """Begin a new epoch: the claims of the process before are void. Raises StartupError."""
        try:
            reloaded = await self._writer.run(sqlite_start.begin_epoch, clock, recovery)
            await self._writer.run(sqlite_start.prepare_batches)
            if not reloaded.is_destroyed:
                await self._writer.run(sqlite_start.reserve_log, self.database)
            self._reader = await open_reader(self.database)
            self._write = await self._prepare_to_write(
                sqlite.BatchTransaction(clock, self.database, reloaded.epoch)
            )
            self._empty_wal = await self._writer.keep(sqlite_upkeep.WalEmptier())
        except (sqlite3.Error, OSError, ServiceError) as error:
            raise StartupError(f"Cannot use the database {self.database}: {error}.") from error
        self._clock = clock
        self._tally = LogTally(self.database, reloaded.last_event)
        return reloaded

    async def write(self, messages: Sequence[StoreMessage]) -> Batch:
        """One batch, one transaction, one hop; nothing is committed after a fatal error."""
        assert self._write is not None
        return await self._write(messages)

    async def _prepare_to_write(self, transaction: sqlite.BatchTransaction) -> WriteBatch:
        writer = self._writer
        if not isinstance(writer, RemoteWriter):
            run: Any = writer.run
            return partial(run, transaction)
        remote = await writer.keep(PackedTransaction(transaction))

        async def write(messages: Sequence[StoreMessage]) -> Batch:
            return unpack(await writer.run(remote, pack(messages)), messages)

        return write

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
        """What is planned, and what was committed since the start; counted behind the traffic.

        Raises StorageUnavailable when it cannot be read.
        """
        assert self._tally is not None
        return await self._tally.count()

    async def optimize(self) -> None:
        """Bring the planner's statistics up to date. Raises a ServiceError."""
        await self._keep_up(sqlite_upkeep.optimize)

    async def empty_wal(self, now: int) -> int:
        """Empty the write-ahead log, if it is not in use; the bytes that it had."""
        assert self._empty_wal is not None
        return await self._keep_up(self._empty_wal, now)

    async def _keep_up(
        self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kw: P.kwargs
    ) -> T:
        try:
            return await self._writer.run(work, *args, **kw)
        except (sqlite3.Error, OSError) as error:
            raise StorageUnavailable from error

    async def destroy(self, clock: Clock) -> int:
        """Delete everything in one transaction and leave a tombstone; the reservations deleted."""
        return await self._writer.run(sqlite_start.destroy, clock)

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
            connection.give_up()
            await connection.close()

    @property
    def writer_pid(self) -> int | None:
        """The process that writes, None when it is this one."""
        return self._writer.pid

    async def watch(self) -> None:
        """Raise a fatal ServiceError when the writer has ended on its own; else wait for ever."""
        await self._writer.lost()

    async def close(self) -> None:
        """Close what reads first, then the writer, which checkpoints; then let others in."""
        try:
            if self._tally is not None:
                await self._tally.close()
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


def _backlog(connection: sqlite3.Connection, now: int, stuck_after: int) -> Backlog:
    values = {"now": now, "stuck_after": stuck_after, "limit": COUNTED_MAX}
    try:
        return Backlog(
            single_value(connection, sqlite_alarms.COUNT_OVERDUE, values) or 0,
            single_value(connection, sqlite_alarms.COUNT_STUCK, values) or 0,
            single_value(connection, sqlite_alarms.OLDEST_DUE),
        )
    except sqlite3.Error as error:
        raise failure_before_commit(error) from error


def _quick_check(connection: sqlite3.Connection) -> str:
    finding: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    return finding
