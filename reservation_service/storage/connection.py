"""aiosqlite's connections, with one addition: a function can be run on the connection's own thread.

So a whole transaction is one hop, and one transaction's reads are, too.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import aiosqlite

from reservation_service.storage.sqlite_files import connect_to_read, connect_to_write

P = ParamSpec("P")
T = TypeVar("T")


class Writer(Protocol):
    """The one connection that writes, wherever it is."""

    async def run(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kw: P.kwargs,
    ) -> T:
        """Call `function(connection, …)` where the connection is; cancelling does not stop it."""

    async def keep(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T]
    ) -> Callable[Concatenate[sqlite3.Connection, P], T]:
        """What to `run` for a function that remembers something from one call to the next."""

    @property
    def pid(self) -> int | None:
        """The process that has the connection, None when it is this one."""

    async def lost(self) -> None:
        """Raise a fatal ServiceError when the writer has ended on its own; else wait for ever."""

    async def close(self) -> None:
        """Close the connection; to repeat it is an error."""


STEPS_BETWEEN_LOOKS = 100_000
"""Instructions of SQLite, about a millisecond; then a statement sees whether it is still wanted."""


class Connection(aiosqlite.Connection):
    """An aiosqlite connection that can run a function on its thread. Implements `Writer`."""

    is_given_up = False

    async def run(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kw: P.kwargs,
    ) -> T:
        """Call `function(connection, …)` on its thread; cancelling does not stop it."""
        result: T = await self._execute(function, self._conn, *args, **kw)  # type: ignore[no-untyped-call]
        return result

    async def keep(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T]
    ) -> Callable[Concatenate[sqlite3.Connection, P], T]:
        return function

    @property
    def pid(self) -> None:
        return None

    async def lost(self) -> None:
        await asyncio.Event().wait()

    def give_up(self) -> None:
        """For a reader: end what it does, soon, though it may be between two statements.

        An interruption would miss it there.
        """
        self.is_given_up = True

    async def close(self) -> None:
        """Close, and see the thread's last answer come, cancelled meanwhile or not."""
        closing = asyncio.ensure_future(super().close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing
            raise


async def open_writer(database: Path) -> Connection:
    """The only connection that writes, on a thread of this process."""
    return await _open(connect_to_write(database))


async def open_reader(database: Path) -> Connection:
    """A read-only connection beside the writer, which can be given up."""
    opened = connect_to_read(database)
    reader = await _open(opened)
    opened.set_progress_handler(lambda: reader.is_given_up, STEPS_BETWEEN_LOOKS)
    return reader


async def _open(opened: sqlite3.Connection) -> Connection:
    """Leaves no thread behind when it fails or is cancelled."""
    connection = Connection(lambda: opened, iter_chunk_size=64)
    starting = asyncio.ensure_future(connection)
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await starting
        await connection.close()
        raise
    return connection
