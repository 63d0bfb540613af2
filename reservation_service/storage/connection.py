"""SQLite connections: how they are opened, used from asyncio, and what their errors mean.

One connection writes and checkpoints, one reads. Both are aiosqlite's, with one addition: a
function can be run on the connection's own thread, so that a whole transaction is one hop.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

import aiosqlite

from reservation_service.errors import (
    DatabaseUnusable,
    MessageFailed,
    OutcomeUnknown,
    ServiceError,
    StartupError,
    StorageFull,
    StorageUnavailable,
)

APPLICATION_ID = 0x52535631
"""`RSV1` in the database's header tells our files from others'."""

SQLITE_MIN = (3, 38, 0)
"""The first release with `->>` built in."""

_BUSY_TIMEOUT_S = 1.0
_CACHE_KIB = 16_384
_STATEMENTS_MAX = 256
_WAL_BYTES_KEPT_MAX = 64 * 1024 * 1024

_TROUBLE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
}
_UNUSABLE = {
    sqlite3.SQLITE_CORRUPT,  # also SQLite's word for EIO while reading: nobody can tell them apart
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
}

P = ParamSpec("P")
T = TypeVar("T")


class Connection(aiosqlite.Connection):
    """An aiosqlite connection that can run a function on its thread."""

    async def run(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kw: P.kwargs,
    ) -> T:
        """Call `function(connection, …)` on its thread; cancelling does not stop it."""
        result: T = await self._execute(function, self._conn, *args, **kw)  # type: ignore[no-untyped-call]
        return result

    async def run_with(
        self,
        function: Callable[[sqlite3.Connection, sqlite3.Connection], T],
        idle: "Connection",
    ) -> T:
        """Call `function(connection, other)` on this one's thread, while the other is `idle`.

        Cancelled, it ends when the function has: the other one is in use until then.
        """
        work = self.run(function, idle._conn)  # noqa: SLF001 - another one of ours
        running = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    async def close(self) -> None:
        """Close, and see the thread's last answer come, cancelled meanwhile or not."""
        closing = asyncio.ensure_future(super().close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing
            raise


async def open_writer(database: Path) -> Connection:
    """The only connection that writes; it creates the file, private to its owner."""
    return await _open(f"file:{quote(str(database))}?mode=rwc")


async def open_reader(database: Path) -> Connection:
    """A read-only connection beside the writer."""
    return await _open(_to_read(database))


def connect_to_read(database: Path) -> sqlite3.Connection:
    """A plain read-only connection, for another process than the service."""
    return _connect(_to_read(database))


def _to_read(database: Path) -> str:
    return f"file:{quote(str(database))}?mode=ro"


async def _open(uri: str) -> Connection:
    """Leaves no thread behind when it fails or is cancelled."""
    opened = _connect(uri)
    connection = Connection(lambda: opened, iter_chunk_size=64)
    starting = asyncio.ensure_future(connection)
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await starting
        await connection.close()
        raise
    return connection


def make_durable(connection: sqlite3.Connection) -> None:
    """WAL, and every COMMIT synced; set after the file is known to be ours. Raises StartupError."""
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StartupError(f"The database cannot use a write-ahead log here (it says {mode!r}).")
    for pragma in (
        "synchronous = FULL",
        f"cache_size = -{_CACHE_KIB}",
        f"journal_size_limit = {_WAL_BYTES_KEPT_MAX}",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(
        uri,
        uri=True,
        isolation_level=None,
        timeout=_BUSY_TIMEOUT_S,
        cached_statements=_STATEMENTS_MAX,
        check_same_thread=False,
    )


def require_sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    """Raises StartupError when the SQLite library is too old."""
    if version < SQLITE_MIN:
        needed, found = (".".join(map(str, v)) for v in (SQLITE_MIN, version))
        raise StartupError(f"SQLite {needed} or newer is needed; this Python has {found}.")


def failure_before_commit(error: sqlite3.Error) -> ServiceError:
    """What an error means while the transaction can still be rolled back."""
    code = _primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return StorageFull()
    if _extended_code(error) == sqlite3.SQLITE_IOERR_FSYNC:
        return OutcomeUnknown()
    if code in _UNUSABLE:
        return DatabaseUnusable()
    if code in _TROUBLE:
        return StorageUnavailable()
    return MessageFailed()


def failure_of_commit(error: sqlite3.Error) -> ServiceError:
    """What an error of COMMIT itself means: only FULL and BUSY surely changed nothing."""
    code = _primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return StorageFull()
    if code == sqlite3.SQLITE_BUSY:
        return StorageUnavailable()
    return OutcomeUnknown()


def _primary_code(error: sqlite3.Error) -> int:
    return _extended_code(error) & 0xFF


def _extended_code(error: sqlite3.Error) -> int:
    code: Any = getattr(error, "sqlite_errorcode", None)
    return code if isinstance(code, int) else sqlite3.SQLITE_ERROR
