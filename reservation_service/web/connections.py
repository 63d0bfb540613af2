"""The open connections: how many, which of them are idle, and which one has to go.

At the limit the longest idle connection makes room for a new one, so that clients which connect
and say nothing cannot lock others out. One that does not get a whole request head across in
`IDLE_SECONDS_MAX` is closed as well.
"""

import asyncio
import itertools
from collections.abc import Callable

from aiohttp import web

from reservation_service.clock import monotonic_s

IDLE_SECONDS_MAX = 20.0
"""How long a connection may go without a request; longer than a kept-alive one is kept."""

_LOOK_SECONDS = 1.0


class Connections:
    """Counts and closes connections of one server; `limit` is how many may be open at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._makes_room = False
        self._idle_since: dict[web.RequestHandler, float] = {}

    def admit(self, server: web.Server) -> Callable[[], web.RequestHandler]:
        """The protocol factory to listen with: lets a connection in, and then makes room."""
        loop = asyncio.get_running_loop()

        def connect() -> web.RequestHandler:
            connection = server()
            self._idle_since[connection] = monotonic_s()
            if not self._makes_room:
                self._makes_room = True  # soon: a crowd comes in one pass, and is open in the next
                loop.call_soon(loop.call_soon, self._make_room, server)
            return connection

        return connect

    def begin(self, connection: web.RequestHandler) -> None:
        """A request has come in."""
        self._idle_since.pop(connection, None)

    def end(self, connection: web.RequestHandler) -> None:
        """The request was answered."""
        self._idle_since[connection] = monotonic_s()

    async def watch(self) -> None:
        """Close what has been idle for too long, until cancelled."""
        while True:
            slept_from = monotonic_s()
            await asyncio.sleep(_LOOK_SECONDS)
            self._forget_the_gone(slept_from)
            if monotonic_s() - slept_from < 2 * _LOOK_SECONDS:
                self._close_the_silent()  # after a standstill, what they sent is read first

    def _forget_the_gone(self, before: float) -> None:
        """Without a transport are those that are gone, and for a moment those that arrive."""
        gone = [
            connection
            for connection, since in self._idle_since.items()
            if connection.transport is None and since < before
        ]
        for connection in gone:
            del self._idle_since[connection]

    def _close_the_silent(self) -> None:
        too_long_ago = monotonic_s() - IDLE_SECONDS_MAX
        silent = itertools.takewhile(lambda idle: idle[1] <= too_long_ago, self._idle_since.items())
        for connection, _ in list(silent):
            self._drop(connection)

    def _make_room(self, server: web.Server) -> None:
        """Close the longest idle beyond the limit; those that are closed have no transport."""
        self._makes_room = False
        too_many = sum(one.transport is not None for one in server.connections) - self._limit
        if too_many > 0:
            open_ones = (one for one in self._idle_since if one.transport is not None)
            for connection in list(itertools.islice(open_ones, too_many)):
                self._drop(connection)

    def _drop(self, connection: web.RequestHandler) -> None:
        del self._idle_since[connection]
        connection.force_close()
