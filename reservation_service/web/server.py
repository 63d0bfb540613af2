"""The listening HTTP server: from a socket to the application, with an access line per answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Protocol

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from reservation_service.correlation import REQUEST_ID_HEADER
from reservation_service.errors import ServiceError
from reservation_service.web.connections import Connections
from reservation_service.web.problems import problem, problem_of

Observe = Callable[..., None]
Handle = Callable[[Any], Awaitable[web.StreamResponse]]

KEEPALIVE_SECONDS = 15.0
"""How long an idle connection is kept."""

SHUTDOWN_SECONDS = 2.0
"""How long a stop waits for requests that have begun, half-sent ones among them."""

SHUTDOWN_AFTER_FAILURE_SECONDS = 0.5
"""The same when the process ends on its own: nothing can be promised to anybody any more."""

REQUEST_LINE_BYTES_MAX = 16_384
"""Room for 200 of the longest IDs; aiohttp's own 8,190 bytes end at 185 of them."""

NOT_HTTP = "This is no proper HTTP request."

BACKLOG = 1024
"""How many connections may wait to be let in, and are let in at once."""


class Surrounding(Protocol):
    """What stands around an application."""

    def surround(self, app: web.Application, handle: Handle) -> Handle:
        """What to serve for `handle`, which is how `app` handles a request."""

    def finish(self, response: web.StreamResponse) -> None:
        """Give an answer the headers that all have."""


class HttpServer:
    """Serves `app` from `start` to `stop`, on `port`, also when any free one was asked for."""

    def __init__(
        self,
        app: web.Application,
        connections: Connections,
        observe: Observe,
        surroundings: Surrounding,
        *,
        access_log: bool,
    ) -> None:
        self._connections = connections
        self._app = app
        self._runner = web.AppRunner(app)
        self._surroundings = surroundings
        self._options = {
            "access_log_class": _AccessLog,
            "access_log": observe if access_log else None,
            "logger": _library_logger(observe),
            "keepalive_timeout": KEEPALIVE_SECONDS,
            "max_line_size": REQUEST_LINE_BYTES_MAX,
        }
        self._server: _Server | None = None
        self._listener: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError when that address cannot be had; then nothing stays open."""
        await self._runner.setup()
        assert self._runner.server is not None
        self._server = _Server(self._app, self._runner.server, self._surroundings, self._options)
        connect = self._connections.admit(self._server)
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
        assert self._server is not None
        self._listener.close()
        self._watch.cancel()
        self._server.pre_shutdown()
        await self._runner.shutdown()  # streams end, which nobody could wait for
        await self._server.shutdown(
            SHUTDOWN_AFTER_FAILURE_SECONDS if has_failed else SHUTDOWN_SECONDS
        )
        await self._runner.cleanup()


class _Server(web.Server):
    """The application's own server, but for what it answers where there is no request at all."""

    def __init__(
        self,
        app: web.Application,
        server: web.Server,
        surroundings: Surrounding,
        options: dict[str, Any],
    ) -> None:
        handle = surroundings.surround(app, server.request_handler)
        super().__init__(handle, request_factory=server.request_factory, **options)
        self.finish = surroundings.finish

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    """Answers what is no HTTP with a problem; aiohttp's own answer repeats the bytes it met."""

    __slots__ = ("_finish",)

    def __init__(self, server: _Server, **options: Any) -> None:
        super().__init__(server, **options)
        self._finish = server.finish

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        super().handle_error(request, status, exc, message)  # logs it, or raises if it is too late
        is_ours = status >= HTTPStatus.INTERNAL_SERVER_ERROR
        answer = problem_of(ServiceError(), 0) if is_ours else problem("not-http", NOT_HTTP)
        answer.force_close()
        self._finish(answer)
        return answer


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
            request_id=response.headers.get(REQUEST_ID_HEADER),
        )


def _library_logger(observe: Observe) -> logging.Logger:
    """A logger of our own for what aiohttp has to say, warnings and worse, as events."""

    class Forward(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            cause = record.exc_info[1] if record.exc_info else None
            observe("http-error", message=str(record.msg), error=cause and type(cause).__name__)

    logger = logging.Logger("reservation_service.web", logging.WARNING)  # noqa: LOG001 - not global
    logger.addHandler(Forward())
    return logger
