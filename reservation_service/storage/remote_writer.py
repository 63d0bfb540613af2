"""The connection that writes, in a process of its own.

A thread would take turns with the event loop, since both need the interpreter's lock; a process
works beside it on another core.
"""

import asyncio
import os
import signal
import socket
import sqlite3
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from reservation_service.errors import DatabaseUnusable, OutcomeUnknown, StartupError
from reservation_service.storage import calls
from reservation_service.storage.calls import (
    SIGNALS_IGNORED,
    Answer,
    Call,
    pack_call,
    take_answer,
)

P = ParamSpec("P")
T = TypeVar("T")

_BUFFER_BYTES = 65_536

_ROOT = Path(__file__).parents[2]

COMMAND = (sys.executable, "-P", "-m", "reservation_service.storage.writer_process")
"""The program of the process; its socket and the database are added. It does not look into the
current directory, where files may have the names of modules."""


class RemoteWriter(asyncio.BufferedProtocol):
    """Runs functions on the connection of the writer's process. Implements `Writer`.

    Functions are those of a module, and they, their arguments and what they return can be pickled.
    """

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._received = bytearray()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._ended = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, database: Path, lock: int) -> Self:
        """Start the process, which opens the database and shares the lock file.

        Raises sqlite3.Error or OSError when it cannot, StartupError when it does not begin.
        """
        writer = cls()
        opened = writer._expect()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                await asyncio.get_running_loop().create_connection(lambda: writer, sock=ours)
                await writer._start(theirs.fileno(), database, lock)
            await opened
        except BaseException as error:
            opened.cancel()
            ours.close() if writer._transport is None else await writer._end()
            if isinstance(error, OutcomeUnknown):
                raise StartupError("The writer's process ended before it had begun.") from error
            raise
        return writer

    async def run(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kw: P.kwargs,
    ) -> T:
        """Call `function(connection, …)` there; cancelling does not stop it.

        Raises what it raises, OutcomeUnknown when the process ended meanwhile, and
        DatabaseUnusable when it had before.
        """
        if self._ended.is_set():
            raise DatabaseUnusable from _gone()
        assert self._transport is not None
        self._transport.write(pack_call(Call(function, args, kw)))
        result: T = await self._expect()
        return result

    async def keep(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T]
    ) -> Callable[Concatenate[sqlite3.Connection, P], T]:
        kept: Callable[Concatenate[sqlite3.Connection, P], T] = await self.run(calls.keep, function)
        return kept

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def lost(self) -> None:
        await self._ended.wait()
        raise DatabaseUnusable from _gone()

    async def close(self) -> None:
        """Close the connection, and see the process end; one that hangs may be left by cancelling.

        It ends by itself then, and shares the lock until it does.
        """
        if not self._ended.is_set():
            await self.run(_close)
        await self._end()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received += self._buffer[:nbytes]
        while (answer := take_answer(self._received)) is not None:
            self._give(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()
        while self._waiting:
            self._give(Answer(None, OutcomeUnknown(), exc or _gone()))

    def _expect(self) -> "asyncio.Future[Any]":
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        return answer

    def _give(self, answer: Answer) -> None:
        waiting = self._waiting.popleft()
        if waiting.done():  # the caller was cancelled meanwhile
            return
        if answer.error is None:
            waiting.set_result(answer.value)
        else:
            answer.error.__cause__ = answer.cause
            waiting.set_exception(answer.error)

    async def _start(self, link: int, database: Path, lock: int) -> None:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS_IGNORED)  # until it ignores them
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(*COMMAND, str(link), str(database)),
                env=_environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(link, lock),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    async def _end(self) -> None:
        """Hang up: the process ends when it sees that."""
        assert self._transport is not None
        self._transport.close()
        if self._process is not None:
            await self._process.wait()
        await self._ended.wait()


def _environment() -> dict[str, str]:
    """As here; a package that is not installed is found where this one is."""
    if _ROOT.is_relative_to(sys.prefix):
        return dict(os.environ)
    given = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": f"{_ROOT}{os.pathsep}{given}" if given else str(_ROOT)}


def _close(connection: sqlite3.Connection) -> None:
    connection.close()


def _gone() -> Exception:
    return ConnectionResetError("the writer's process ended")
