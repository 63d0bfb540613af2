"""What stands around every route: errors as problems, headers, a limit on requests.

Every answer, refusals included, carries `Server-Time` (epoch ms), so that a countdown needs no
browser clock, `Cache-Control: no-store`, and what keeps a browser from making more of it than it
is. Beyond the limit a request is refused at once and unread. A bug is answered without its stack
trace. Each request has an ID, its own or one from here, that its answer and its log lines repeat.
"""

import itertools
import re
import secrets
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from aiohttp import web

from reservation_service.clock import Clock, monotonic_s
from reservation_service.correlation import REQUEST_ID, REQUEST_ID_HEADER
from reservation_service.errors import MessageFailed, Overloaded, ServiceError
from reservation_service.web.answers import Answer, finish
from reservation_service.web.bodies import WAITING_FOR_CLIENT
from reservation_service.web.connections import Connections
from reservation_service.web.problems import BadRequest, problem, problem_of, problem_of_http
from reservation_service.web.routing import Handler, Routing
from reservation_service.web.streams import STREAMING

Observe = Callable[..., None]
CountRequest = Callable[[str, int, float], None]
"""Route, status, seconds."""


class Surroundings:
    """What stands around the whole application. `requests_max` may be in flight at once.

    It is no middleware: aiohttp would put two more calls around each request for one.
    """

    def __init__(  # noqa: PLR0913 - the composition root hands in each port once
        self,
        clock: Clock,
        observe: Observe,
        connections: Connections,
        count: CountRequest,
        *,
        requests_max: int,
        stuck_after: int,
    ) -> None:
        self._clock = clock
        self._observe = observe
        self._connections = connections
        self._count = count
        self._request_numbers = itertools.count(1)
        self._requests_max = requests_max
        self._stuck_after = stuck_after
        self._in_flight = 0

    def build_app(self, routes: Sequence[web.RouteDef], body_bytes_max: int) -> web.Application:
        """An application that answers `routes`, and everything else with a problem."""
        app = web.Application(client_max_size=body_bytes_max)
        app[WAITING_FOR_CLIENT] = self._wait_for_client
        app[STREAMING] = self._stream
        app.add_routes(routes)
        return app

    def surround(self, app: web.Application, handle: Handler) -> Handler:
        """What to serve for `handle`, which is how `app` handles a request."""
        return partial(self._surround, Routing(app, handle))

    async def _surround(self, routing: Routing, request: web.Request) -> web.StreamResponse:
        began = monotonic_s()
        self._identify(request)
        self._enter(request)
        try:
            if self._in_flight > self._requests_max:
                await routing.route_only(request)
                response: web.StreamResponse = problem_of(Overloaded(), self._stuck_after)
            else:
                response = await routing.find(request)(request)
        except ConnectionError:
            raise  # nobody is there to be answered
        except Exception as error:  # noqa: BLE001 - a bug is answered like any failure
            response = self._problem(request, error)
        finally:
            self._leave(request)
        finish(response, self._clock.now())
        self._count(routing.name_of(request), response.status, monotonic_s() - began)
        return response

    def finish(self, response: web.StreamResponse) -> None:
        """Give an answer the headers that all have."""
        finish(response, self._clock.now())

    def _identify(self, request: web.Request) -> None:
        """The request's ID, from now on that of every line that is logged for it."""
        given = request.headers.get(REQUEST_ID_HEADER, "")
        is_good = _REQUEST_ID.fullmatch(given)
        REQUEST_ID.set(given if is_good else f"{_PROCESS}-{next(self._request_numbers):x}")

    def _enter(self, request: web.Request) -> None:
        self._in_flight += 1
        self._connections.begin(request.protocol)

    def _leave(self, request: web.Request) -> None:
        self._in_flight -= 1
        self._connections.end(request.protocol)

    @contextmanager
    def _wait_for_client(self, request: web.Request) -> Iterator[None]:
        """One that has sent half a body takes nobody's place: it is idle, and not in flight."""
        self._leave(request)
        try:
            yield
        finally:
            self._enter(request)
        if self._in_flight > self._requests_max:
            raise Overloaded

    @contextmanager
    def _stream(self) -> Iterator[None]:
        """An open stream is not in flight: it would take somebody's place for ever."""
        self._in_flight -= 1
        try:
            yield
        finally:
            self._in_flight += 1

    def _problem(self, request: web.Request, error: Exception) -> Answer:
        if isinstance(error, BadRequest):
            return problem(error.code, str(error), headers=error.headers)
        if isinstance(error, web.HTTPException):
            return problem_of_http(error)
        if isinstance(error, ServiceError) and not isinstance(error, MessageFailed):
            return problem_of(error, self._stuck_after)
        self._observe("request-failed", path=request.path, error=_told(error))
        return problem_of(ServiceError(), self._stuck_after)


_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_PROCESS = secrets.token_hex(4)


def _told(error: Exception) -> str:
    """A bug as a log may have it: its kind and place. Its message may repeat a client's secrets.

    What the database says of a message names constraints and no values.
    """
    if isinstance(error, MessageFailed):
        return repr(error.__cause__ or error)
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(_OURS)]
    return f"{type(error).__name__} at {Path(ours[-1].filename).name}:{ours[-1].lineno}"


_OURS = Path(__file__).parents[1]


def tombstone_routes() -> list[web.RouteDef]:
    """What a destroyed namespace answers: 410 to every path and method."""

    async def gone(_request: web.Request) -> Answer:
        return Answer(b'{"status":"cleanup"}', status=410)

    return [web.route("*", "/{path:.*}", gone)]
