"""The open connections: how many, which of them are idle, and which one has to go.

At the limit the longest idle connection makes room for a new one, so that clients which connect
and say nothing cannot lock others out. One that does not get a whole request head across in
`IDLE_SECONDS_MAX` is closed as well.
"""

import asyncio
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
        self._idle_since: dict[web.RequestHandler, float] = {}

    def admit(self, server: web.Server) -> Callable[[], web.RequestHandler]:
        """The protocol factory to listen with: makes room, then lets the new connection in."""

        def connect() -> web.RequestHandler:
            if len(server.connections) >= self._limit:
                self._close_longest_idle()
            connection = server()
            self._idle_since[connection] = monotonic_s()
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
            await asyncio.sleep(_LOOK_SECONDS)
            now = monotonic_s()
            while self._idle_since:
                connection, since = next(iter(self._idle_since.items()))
                is_gone = connection.transport is None and now - since > _LOOK_SECONDS
                if now - since <= IDLE_SECONDS_MAX and not is_gone:
                    break
                self._drop(connection)

    def _close_longest_idle(self) -> None:
        """The first one is the longest idle; those that are gone already free no room."""
        while self._idle_since:
            connection = next(iter(self._idle_since))
            was_open = connection.transport is not None
            self._drop(connection)
            if was_open:
                return

    def _drop(self, connection: web.RequestHandler) -> None:
        del self._idle_since[connection]
        connection.force_close()
