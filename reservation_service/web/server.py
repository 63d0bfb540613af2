"""The listening HTTP server: from a socket to the application, with an access line per answer."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from reservation_service.web.connections import Connections

Observe = Callable[..., None]

KEEPALIVE_SECONDS = 15.0
"""How long an idle connection is kept."""

SHUTDOWN_SECONDS = 2.0
"""How long a stop waits for requests that have begun, half-sent ones among them."""

SHUTDOWN_AFTER_FAILURE_SECONDS = 0.5
"""The same when the process ends on its own: nothing can be promised to anybody any more."""

REQUEST_LINE_BYTES_MAX = 16_384
"""Room for 200 of the longest IDs; aiohttp's own 8,190 bytes end at 185 of them."""

BACKLOG = 1024
"""How many connections may wait to be let in, and are let in at once."""


class HttpServer:
    """Serves `app` from `start` to `stop`, on `port`, also when any free one was asked for."""

    def __init__(
        self, app: web.Application, connections: Connections, observe: Observe, *, access_log: bool
    ) -> None:
        self._connections = connections
        self._runner = web.AppRunner(
            app,
            access_log_class=_AccessLog,
            access_log=observe if access_log else None,
            logger=_library_logger(observe),
            keepalive_timeout=KEEPALIVE_SECONDS,
            max_line_size=REQUEST_LINE_BYTES_MAX,
        )
        self._listener: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError when that address cannot be had; then nothing stays open."""
        await self._runner.setup()
        assert self._runner.server is not None
        connect = self._connections.admit(self._runner.server)
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(connect, host, port, backlog=BACKLOG)
        except BaseException:
            await self._runner.cleanup()
            raise
        self.port = self._listener.sockets[0].getsockname()[1]
        self._watch = asyncio.create_task(self._connections.watch())

    async def stop(self, *, has_failed: bool) -> None:
        """Accept nothing more, answer what has begun, close; whatever clients do, soon."""
        assert self._listener is not None
        assert self._watch is not None
        assert self._runner.server is not None
        self._listener.close()
        self._watch.cancel()
        self._runner.server.pre_shutdown()
        await self._runner.shutdown()  # streams end, which nobody could wait for
        await self._runner.server.shutdown(
            SHUTDOWN_AFTER_FAILURE_SECONDS if has_failed else SHUTDOWN_SECONDS
        )
        await self._runner.cleanup()


class _AccessLog(AbstractAccessLogger):
    """One `request` event per answer; `logger` is the observe function."""

    logger: Any

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        self.logger(
            "request",
            method=request.method,
            path=request.path,
            status=response.status,
            duration_ms=round(time * 1000, 2),
        )


def _library_logger(observe: Observe) -> logging.Logger:
    """A logger of our own for what aiohttp has to say, warnings and worse, as events."""

    class Forward(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            cause = record.exc_info[1] if record.exc_info else None
            observe("http-error", message=record.getMessage(), error=repr(cause))

    logger = logging.Logger("reservation_service.web", logging.WARNING)  # noqa: LOG001 - not global
    logger.addHandler(Forward())
    return logger
