"""The calls of one reservation: parse, ask the actor, render.

Order of the checks: path and method (the router), key (`guard`), ID, then the body. GET changes
nothing.
"""

import hashlib
import re
from dataclasses import dataclass

import msgspec
from aiohttp import web
from msgspec import UnsetType

from reservation_service.actor import ReservationActor, ReservationNamespace
from reservation_service.reservation import ANONYMOUS, Outcome
from reservation_service.web.answers import Answer
from reservation_service.web.bodies import read_body
from reservation_service.web.calls import (
    ConfirmBody,
    ExtendBody,
    HoldBody,
    ReleaseBody,
    ReplayBody,
    bounded_ttl,
)
from reservation_service.web.fields import ID_PATTERN, ID_SENTENCE
from reservation_service.web.guard import caller_of
from reservation_service.web.problems import BadRequest
from reservation_service.web.views import render, render_outcome

_ID = re.compile(ID_PATTERN)
RESERVATION = "/reservations/{id:[^/]+}"  # any text: a bad ID is told as one
_MS_PER_SECOND = 1000


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """What the API lets callers ask for; `replay_alarm` opens the test door."""

    service_name: str
    ttl_seconds_min: int
    ttl_seconds_max: int
    stuck_after: int
    replay_alarm: bool
    require_holder: bool


class Api:
    """The handlers of one reservation's calls, over one namespace of actors."""

    def __init__(self, namespace: ReservationNamespace, limits: ApiLimits) -> None:
        self._namespace = namespace
        self._limits = limits
        least, most = limits.ttl_seconds_min, limits.ttl_seconds_max
        self._hold_body: type[HoldBody] = bounded_ttl(HoldBody, least, most)
        self._extend_body: type[ExtendBody] = bounded_ttl(ExtendBody, least, most)

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application's router."""
        routes = [
            web.get("/", self.describe),
            web.get(RESERVATION, self.read),
            web.post(RESERVATION, self.hold),
            web.post(f"{RESERVATION}/extend", self.extend),
            web.post(f"{RESERVATION}/confirm", self.confirm),
            web.post(f"{RESERVATION}/release", self.release),
        ]
        if self._limits.replay_alarm:
            routes.append(web.post(f"{RESERVATION}/replay-alarm", self.replay_alarm))
        return routes

    async def describe(self, _request: web.Request) -> Answer:
        return Answer(msgspec.json.encode({"service": self._limits.service_name}))

    async def read(self, request: web.Request) -> Answer:
        reservation = await self._actor(request).status()
        return Answer(render(reservation, self._limits.stuck_after))

    async def hold(self, request: web.Request) -> Answer:
        actor = self._actor(request)
        body = await read_body(request, self._hold_body)
        holder = digest_of(body.holder)
        if self._limits.require_holder and holder == ANONYMOUS:
            raise BadRequest("invalid-field", "holder is required: a string that only you know.")
        reservation = await actor.hold(body.ttl_seconds * _MS_PER_SECOND, holder)
        location = {"Location": f"/reservations/{reservation.reservation_id}"}
        shown = render(reservation, self._limits.stuck_after)
        return Answer(shown, status=201, headers=location)

    async def extend(self, request: web.Request) -> Answer:
        actor = self._actor(request)
        body = await read_body(request, self._extend_body)
        ttl_ms = body.ttl_seconds * _MS_PER_SECOND
        generation = body.generation or None
        return self._answer(await actor.extend(ttl_ms, digest_of(body.holder), generation))

    async def confirm(self, request: web.Request) -> Answer:
        actor = self._actor(request)
        body = await read_body(request, ConfirmBody, may_be_empty=True)
        holder, generation = digest_of(body.holder), body.generation or None
        if_still_free = bool(body.if_still_free)
        if if_still_free and holder == ANONYMOUS and generation is None:
            raise BadRequest(
                "invalid-field",
                "ifStillFree without a holder needs the generation: anonymous clients share one.",
            )
        outcome = await actor.confirm(holder, generation, if_still_free=if_still_free)
        return self._answer(outcome)

    async def release(self, request: web.Request) -> Answer:
        actor = self._actor(request)
        body = await read_body(request, ReleaseBody, may_be_empty=True)
        holder, generation = digest_of(body.holder), body.generation or None
        operator = caller_of(request).is_operator
        return self._answer(await actor.release(holder, generation, operator=operator))

    async def replay_alarm(self, request: web.Request) -> Answer:
        """The test door: the message that the alarm sends, with an explicit time."""
        actor = self._actor(request)
        body = await read_body(request, ReplayBody)
        return self._answer(await actor.process_expiry(body.now))

    def _actor(self, request: web.Request) -> ReservationActor:
        return self._namespace.get_by_name(checked_id(request.match_info["id"]))

    def _answer(self, outcome: Outcome) -> Answer:
        return Answer(render_outcome(outcome, self._limits.stuck_after))


def checked_id(text: str, what: str = "reservation") -> str:
    """The ID of a reservation, or of what belongs to one. Raises BadRequest."""
    if not _ID.fullmatch(text):
        raise BadRequest("invalid-id", ID_SENTENCE.replace("reservation", what))
    return text


def digest_of(holder: str | UnsetType) -> bytes:
    """The holder is a secret: beyond this point there is only its SHA-256."""
    return hashlib.sha256(holder.encode()).digest() if holder else ANONYMOUS
