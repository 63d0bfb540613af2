"""The REST routes: parse, ask the actor, render.

Order of the checks: path and method (the router), ID, then the body. GET changes nothing.
"""

import re
from dataclasses import dataclass

import msgspec
from aiohttp import web

from reservation_service.actor import ReservationActor, ReservationNamespace
from reservation_service.web.bodies import TIMESTAMP_MAX, IntegerField, read_integer
from reservation_service.web.problems import BadRequest
from reservation_service.web.views import render, render_outcome

_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{1,38}[a-z0-9])")
_RESERVATION = "/reservations/{id:[^/]+}"  # any text: a bad ID is told as one
_MS_PER_SECOND = 1000


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """What the API lets callers ask for; `replay_alarm` opens the test door."""

    service_name: str
    ttl_seconds_min: int
    ttl_seconds_max: int
    stuck_after: int
    replay_alarm: bool


class Api:
    """The handlers of the lab's calls, over one namespace of actors."""

    def __init__(self, namespace: ReservationNamespace, limits: ApiLimits) -> None:
        self._namespace = namespace
        self._limits = limits
        least, most = limits.ttl_seconds_min, limits.ttl_seconds_max
        self._ttl = IntegerField(
            "ttlSeconds", least, most, f"ttlSeconds must be an integer from {least} through {most}."
        )
        self._now = IntegerField(
            "now", 1, TIMESTAMP_MAX, "now must be a positive integer timestamp."
        )

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application's router."""
        routes = [
            web.get("/", self.describe),
            web.get(_RESERVATION, self.read),
            web.post(_RESERVATION, self.hold),
        ]
        if self._limits.replay_alarm:
            routes.append(web.post(f"{_RESERVATION}/replay-alarm", self.replay_alarm))
        return routes

    async def describe(self, _request: web.Request) -> web.Response:
        return _json(msgspec.json.encode({"service": self._limits.service_name}))

    async def read(self, request: web.Request) -> web.Response:
        reservation = await self._actor(request).status()
        return _json(render(reservation, self._limits.stuck_after))

    async def hold(self, request: web.Request) -> web.Response:
        actor = self._actor(request)
        ttl_seconds = await read_integer(request, self._ttl)
        reservation = await actor.hold(ttl_seconds * _MS_PER_SECOND)
        response = _json(render(reservation, self._limits.stuck_after), status=201)
        response.headers["Location"] = f"/reservations/{reservation.reservation_id}"
        return response

    async def replay_alarm(self, request: web.Request) -> web.Response:
        """The test door: the method that the alarm calls, with an explicit time."""
        actor = self._actor(request)
        now = await read_integer(request, self._now)
        outcome = await actor.process_expiry(now)
        return _json(render_outcome(outcome, self._limits.stuck_after))

    def _actor(self, request: web.Request) -> ReservationActor:
        reservation_id = request.match_info["id"]
        if not _ID.fullmatch(reservation_id):
            raise BadRequest(
                "invalid-id",
                "Use a lowercase reservation ID containing 3-40 letters, digits, or hyphens.",
            )
        return self._namespace.get_by_name(reservation_id)


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
