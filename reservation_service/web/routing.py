"""Which handler a request is for: by a table, where that is certain, else by aiohttp's router.

Nearly all requests are for one reservation, with nothing in their paths that would have to be
decoded. aiohttp tries patterns, as it must; that is a twentieth of a hold.
"""

import re
from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web
from aiohttp.web_urldispatcher import AbstractRoute, UrlMappingMatchInfo

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

UNROUTED = "none"
"""The name of what no route was found for."""

_RESERVATION = re.compile(r"/reservations/([a-z0-9-]+)(/[a-z-]+)?")
_PATTERN = re.compile(r"/reservations/\{id\}(/[a-z-]+)?")


class Routing:
    """The routes of `app`, which has all of them by now; `handle` is how it handles a request."""

    def __init__(self, app: web.Application, handle: Handler) -> None:
        assert not app.middlewares, "they would be walked around"
        self._app = app
        self._handle = handle
        routes = [route for resource in app.router.resources() for route in resource]
        self._names = {route: f"{route.method} {_canonical(route)}" for route in routes}
        self._shortcuts: dict[tuple[str, str | None], AbstractRoute] = {}
        for route in routes:
            assert not _RESERVATION.fullmatch(_canonical(route)), "it would never be found"
            if match := _PATTERN.fullmatch(_canonical(route)):
                self._shortcuts.setdefault((route.method, match[1]), route)

    def find(self, request: web.Request) -> Handler:
        """What to call with the request, which knows its route from now on or from then on."""
        match = _RESERVATION.fullmatch(request.raw_path)
        if match is None or hdrs.EXPECT in request.headers:
            return self._handle
        reservation_id, call = match.groups()
        route = self._shortcuts.get((request.method, call))
        if route is None:
            return self._handle
        self._set(request, UrlMappingMatchInfo({"id": reservation_id}, route))
        handler: Handler = route.handler
        return handler

    async def route_only(self, request: web.Request) -> None:
        """Find the route and call nothing: hooks look for it."""
        self._set(request, await self._app.router.resolve(request))

    def name_of(self, request: web.Request) -> str:
        """Method and pattern: there are as many as routes, however many paths are called."""
        return self._names.get(request.match_info.route, UNROUTED)

    def _set(self, request: web.Request, match: UrlMappingMatchInfo) -> None:
        match.add_app(self._app)
        match.freeze()
        request._match_info = match  # noqa: SLF001 - only the application itself has a way to set it


def _canonical(route: AbstractRoute) -> str:
    return "" if route.resource is None else route.resource.canonical
