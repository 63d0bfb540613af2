"""The schedule of one reservation: plan an event, cancel it, show what is planned.

The holder is in the body where there is one, else in the header `Reservation-Holder`.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from aiohttp import web

from reservation_service.actor import ReservationActor, ReservationNamespace
from reservation_service.reservation import ANONYMOUS, Plan, PlanVerdict
from reservation_service.web.answers import Answer
from reservation_service.web.api import (
    RESERVATION,
    ApiLimits,
    checked_id,
    digest_of,
)
from reservation_service.web.bodies import read_body
from reservation_service.web.calls import PlanBody
from reservation_service.web.fields import HOLDER_MAX
from reservation_service.web.guard import caller_of
from reservation_service.web.problems import BadRequest
from reservation_service.web.views import render_event, render_outcome, render_schedule

HOLDER_HEADER = "Reservation-Holder"
DATA_BYTES_MAX = 2_048

_EVENT = f"{RESERVATION}/schedule/{{eventId:[^/]+}}"
# half of a surrogate pair is what bytes that are no UTF-8 become in a header
_HOLDER = re.compile(rf"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{{1,{HOLDER_MAX}}}")


class Schedules:
    """The handlers of the schedule calls, over one namespace of actors."""

    def __init__(self, namespace: ReservationNamespace, limits: ApiLimits) -> None:
        self._namespace = namespace
        self._stuck_after = limits.stuck_after

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application's router."""
        return [
            web.get(f"{RESERVATION}/schedule", self.show),
            web.put(_EVENT, self.plan),
            web.delete(_EVENT, self.cancel),
        ]

    async def plan(self, request: web.Request) -> Answer:
        """201 for a new event, 200 for one that is replaced, or stands as it is asked for."""
        actor = self._actor(request)
        event_id = _event_id(request)
        body = await read_body(request, PlanBody)
        event = Plan(
            checked_id(request.match_info["id"]),
            event_id,
            body.run_at,
            body.repeat_ms,
            _data(body.data),
            digest_of(body.holder),
            body.generation or None,
            caller_of(request).is_operator,
        )
        outcome = await actor.plan(event)
        shown = render_event(event_id, event.run_at, event.repeat_ms, event.data)
        return Answer(shown, status=201 if outcome.plan is PlanVerdict.NEW else 200)

    async def show(self, request: web.Request) -> Answer:
        schedule = await self._actor(request).schedule(
            _holder(request), operator=caller_of(request).is_operator
        )
        return Answer(render_schedule(schedule.events))

    async def cancel(self, request: web.Request) -> Answer:
        actor = self._actor(request)
        outcome = await actor.cancel(
            _event_id(request), _holder(request), operator=caller_of(request).is_operator
        )
        return Answer(render_outcome(outcome, self._stuck_after))

    def _actor(self, request: web.Request) -> ReservationActor:
        return self._namespace.get_by_name(checked_id(request.match_info["id"]))


def _event_id(request: web.Request) -> str:
    return checked_id(request.match_info["eventId"], "event")


def _data(value: Any) -> str | None:
    """The client's own JSON as text, None for null."""
    if value is None:
        return None
    try:
        text = msgspec.json.encode(value)
    except (ValueError, RecursionError):
        text = b" " * (DATA_BYTES_MAX + 1)
    if len(text) > DATA_BYTES_MAX:
        sentence = f"data must be at most {DATA_BYTES_MAX} bytes of JSON."
        raise BadRequest("invalid-field", sentence)
    return text.decode()


def _holder(request: web.Request) -> bytes:
    """The digest of the header's holder; without the header it is anybody anonymous."""
    given: Sequence[str] = request.headers.getall(HOLDER_HEADER, [])
    if not given:
        return ANONYMOUS
    if len(given) > 1:
        raise BadRequest("invalid-field", f"Give {HOLDER_HEADER} once.")
    if not _HOLDER.fullmatch(given[0]):
        raise BadRequest(
            "invalid-field",
            f"{HOLDER_HEADER} must be a string of 1 through {HOLDER_MAX} characters "
            "without control characters.",
        )
    return digest_of(given[0])
