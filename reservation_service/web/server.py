"""The HTTP server around the routes: errors as problems, `Server-Time`, bounds, access lines.

Every answer, refusals included, carries `Server-Time` (epoch ms), so that a countdown needs no
browser clock, and `Cache-Control: no-store`. A bug is answered without its stack trace.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from reservation_service.clock import Clock
from reservation_service.errors import MessageFailed, ServiceError
from reservation_service.web.problems import BadRequest, problem, problem_of, problem_of_http

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Observe = Callable[..., None]

KEEPALIVE_SECONDS = 15.0
"""How long an idle connection is kept."""

SHUTDOWN_SECONDS = 2.0
"""How long a stop waits for requests that have begun, half-sent ones among them."""


def build_app(
    routes: Sequence[web.RouteDef], clock: Clock, observe: Observe, body_bytes_max: int
) -> web.Application:
    """An application that answers `routes`, and everything else with a problem."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await _answer(request, handler, observe)
        response.headers["Server-Time"] = str(clock.now())
        response.headers["Cache-Control"] = "no-store"
        return response

    app = web.Application(middlewares=[answer], client_max_size=body_bytes_max)
    app.add_routes(routes)
    return app


def build_tombstone(clock: Clock, observe: Observe) -> web.Application:
    """What a destroyed namespace answers: 410 to every path and method."""

    async def gone(_request: web.Request) -> web.Response:
        return web.json_response({"status": "cleanup"}, status=410)

    return build_app([web.route("*", "/{path:.*}", gone)], clock, observe, body_bytes_max=0)


async def _answer(request: web.Request, handler: Handler, observe: Observe) -> web.StreamResponse:
    try:
        return await handler(request)
    except BadRequest as error:
        return problem(error.code, str(error))
    except ServiceError as error:
        if isinstance(error, MessageFailed):
            observe("request-failed", path=request.path, error=repr(error.__cause__))
        return problem_of(error)
    except web.HTTPException as error:
        return problem_of_http(error)
    except ConnectionError:
        raise  # nobody is there to be answered
    except Exception as error:  # noqa: BLE001 - a bug is answered like any failure
        observe("request-failed", path=request.path, error=repr(error))
        return problem_of(ServiceError())


async def start_server(
    app: web.Application, host: str, port: int, observe: Observe, *, access_log: bool
) -> tuple[web.AppRunner, int]:
    """Listen; the runner, whose `cleanup` stops it, and the port. Raises OSError."""
    runner = web.AppRunner(
        app,
        access_log_class=_AccessLog,
        access_log=observe if access_log else None,
        logger=_library_logger(observe),
        keepalive_timeout=KEEPALIVE_SECONDS,
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=1024)
        await site.start()
    except BaseException:
        await runner.cleanup()
        raise
    return runner, runner.addresses[0][1]


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
