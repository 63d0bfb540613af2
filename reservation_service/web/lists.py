"""Many reservations in one call: a seat map by name, and the operator's list."""

import asyncio
import base64
import binascii

import msgspec
from aiohttp import web

from reservation_service.actor import ReservationNamespace
from reservation_service.reservation import Status
from reservation_service.store import Place, Query, Store
from reservation_service.web.answers import Answer
from reservation_service.web.api import ApiLimits, checked_id
from reservation_service.web.fields import TIMESTAMP_MAX, page_limit, refuse_unknown
from reservation_service.web.guard import require_operator
from reservation_service.web.problems import BadRequest
from reservation_service.web.views import render_items, render_page

NAMES_MAX = 200
"""Reservations that one seat map may ask for."""

_KNOWN = ("status", "idPrefix", "limit", "cursor")
STATUSES = tuple(status for status in Status if status is not Status.MISSING)


class Lists:
    """`GET /reservations`: with `id` the named ones, otherwise a page of all."""

    def __init__(self, namespace: ReservationNamespace, store: Store, limits: ApiLimits) -> None:
        self._namespace = namespace
        self._store = store
        self._stuck_after = limits.stuck_after

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application's router."""
        return [web.get("/reservations", self.read)]

    async def read(self, request: web.Request) -> Answer:
        if "id" in request.query:
            return await self._named(request)
        require_operator(request)
        return await self._page(request)

    async def _named(self, request: web.Request) -> Answer:
        """One item per ID, in the order asked for, missing ones included."""
        refuse_unknown(request.query, ("id",))
        names = request.query.getall("id")
        if len(names) > NAMES_MAX:
            raise BadRequest("invalid-field", f"Ask for at most {NAMES_MAX} IDs in one call.")
        actors = [self._namespace.get_by_name(checked_id(name)) for name in names]
        rows = await asyncio.gather(*[actor.status() for actor in actors])
        return Answer(render_items(rows, self._stuck_after))

    async def _page(self, request: web.Request) -> Answer:
        """A page in the order of deadline and ID; it may be short, the cursor tells the end."""
        refuse_unknown(request.query, _KNOWN)
        page = await self._store.find(_query(request))
        cursor = _cursor(page.next) if page.next else None
        return Answer(render_page(page.items, cursor, self._stuck_after))


def _query(request: web.Request) -> Query:
    for name in _KNOWN:
        if len(request.query.getall(name, [])) > 1:
            raise BadRequest("invalid-field", f"Give {name} once.")
    given = request.query
    return Query(
        limit=page_limit(given),
        status=_status(given["status"]) if "status" in given else None,
        id_prefix=_id_prefix(given.get("idPrefix", "")),
        after=_place(given["cursor"]) if "cursor" in given else None,
    )


def _status(text: str) -> Status:
    if text not in STATUSES:
        raise BadRequest("invalid-field", f"status must be one of {', '.join(STATUSES)}.")
    return Status(text)


def _id_prefix(text: str) -> str:
    if not all(character in "abcdefghijklmnopqrstuvwxyz0123456789-" for character in text):
        raise BadRequest("invalid-field", "idPrefix must be lowercase letters, digits, or hyphens.")
    return text


def _cursor(place: Place) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _place(cursor: str) -> Place:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        place = msgspec.json.decode(base64.b64decode(padded, b"-_", validate=True), type=Place)
    except (binascii.Error, ValueError):
        place = None
    if place is None or not 0 <= place.expires_at <= TIMESTAMP_MAX:
        raise BadRequest("invalid-field", "cursor must be a nextCursor of this list.")
    return place
