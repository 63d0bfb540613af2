"""The log of events: of all reservations, of some, of one; in pages, or as a stream by Accept.

A page and a stream of the same question tell the same events. The position to go on from is
`nextAfter` of a page, and the id of a stream's frame, which comes back as Last-Event-ID.
"""

from collections.abc import Mapping

from aiohttp import hdrs, web

from reservation_service.feed import LATEST, Feed
from reservation_service.web.answers import Answer
from reservation_service.web.api import checked_id
from reservation_service.web.fields import TIMESTAMP_MAX, page_limit, refuse_unknown
from reservation_service.web.guard import require_operator
from reservation_service.web.problems import BadRequest
from reservation_service.web.streams import Streams
from reservation_service.web.views import render_events

NAMES_MAX = 200
"""Reservations that one question may be about."""

_STREAM = "text/event-stream"
_POSITION_DIGITS_MAX = len(str(TIMESTAMP_MAX))


class Events:
    """The handlers of both questions."""

    def __init__(self, feed: Feed, streams: Streams) -> None:
        self._feed = feed
        self._streams = streams

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application's router."""
        return [
            web.get("/events", self.read),
            web.get("/reservations/{id:[^/]+}/events", self.read_one),
        ]

    async def read(self, request: web.Request) -> web.StreamResponse:
        """Events of all, or of the reservations that are named."""
        names = request.query.getall("reservation", [])
        if len(names) > NAMES_MAX:
            raise BadRequest("invalid-field", f"Ask for at most {NAMES_MAX} reservations.")
        chosen = frozenset(checked_id(name) for name in names)
        if not chosen:
            require_operator(request)
        return await self._answer(request, chosen or None, ("reservation",))

    async def read_one(self, request: web.Request) -> web.StreamResponse:
        """Events of one reservation."""
        return await self._answer(request, frozenset([checked_id(request.match_info["id"])]), ())

    async def _answer(
        self, request: web.Request, names: frozenset[str] | None, known: tuple[str, ...]
    ) -> web.StreamResponse:
        query = request.query
        if _is_stream(request):
            refuse_unknown(query, (*known, "after"))
            return await self._streams.stream(request, names, _resumed(request))
        refuse_unknown(query, (*known, "after", "limit"))
        _refuse_repeated(request, "limit")
        page, is_reset = await self._feed.read(names, _after(request), page_limit(query))
        return Answer(render_events(page.items, page.next, is_reset=is_reset))


def _is_stream(request: web.Request) -> bool:
    """A HEAD of a stream would never end; it gets the head of a page."""
    accepted = request.headers.getall(hdrs.ACCEPT, [])
    kinds = [kind.partition(";")[0].strip().lower() for kind in ",".join(accepted).split(",")]
    return _STREAM in kinds and request.method == hdrs.METH_GET


def _resumed(request: web.Request) -> int | None:
    """Where a stream begins: a reader that comes again knows better than its address."""
    after = _after(request)
    text = request.headers.get("Last-Event-ID")
    if text is None:
        return after
    return _position(text, "Last-Event-ID must be the id of an event.")


def _after(request: web.Request) -> int | None:
    _refuse_repeated(request, "after")
    query: Mapping[str, str] = request.query
    if "after" not in query:
        return None
    if query["after"] == "latest":
        return LATEST
    return _position(query["after"], "after must be the seq of an event, 0, or latest.")


def _position(text: str, sentence: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= _POSITION_DIGITS_MAX:
        position = int(text)
        if position <= TIMESTAMP_MAX:
            return position
    raise BadRequest("invalid-field", sentence)


def _refuse_repeated(request: web.Request, name: str) -> None:
    if len(request.query.getall(name, [])) > 1:
        raise BadRequest("invalid-field", f"Give {name} once.")
