"""The schedule of one reservation: plan an event, cancel it, show what is planned.

The holder is in the body where there is one, else in the header `Reservation-Holder`.
"""

from collections.abc import Sequence

from aiohttp import web

from reservation_service.actor import ReservationActor, ReservationNamespace
from reservation_service.reservation import Plan, PlanVerdict
from reservation_service.web.api import (
    GENERATION,
    RESERVATION,
    ApiLimits,
    checked_id,
    digest_of,
    json_response,
)
from reservation_service.web.bodies import read_object
from reservation_service.web.fields import (
    TIMESTAMP_MAX,
    Document,
    HolderField,
    IntegerField,
    JsonField,
)
from reservation_service.web.problems import BadRequest
from reservation_service.web.views import render_event, render_outcome, render_schedule

HOLDER_HEADER = "Reservation-Holder"
REPEAT_MS_MIN = 1_000
DATA_BYTES_MAX = 2_048

_EVENT = f"{RESERVATION}/schedule/{{event_id:[^/]+}}"
_FIELDS = ("runAt", "repeatMs", "data", "holder", "generation")
_RUN_AT = IntegerField("runAt", 1, TIMESTAMP_MAX, "runAt must be a positive integer timestamp.")
_REPEAT_MS = IntegerField(
    "repeatMs", REPEAT_MS_MIN, TIMESTAMP_MAX, f"repeatMs must be an integer from {REPEAT_MS_MIN}."
)
_DATA = JsonField("data", DATA_BYTES_MAX)
_HOLDER = HolderField(HOLDER_HEADER)


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

    async def plan(self, request: web.Request) -> web.Response:
        """201 for a new event, 200 for one that is replaced, or stands as it is asked for."""
        actor = self._actor(request)
        event_id = _event_id(request)
        body = await read_object(request, _FIELDS)
        event = Plan(
            checked_id(request.match_info["id"]),
            event_id,
            _RUN_AT.read(body),
            _repeat_ms(body),
            _DATA.read(body),
            digest_of(body),
            GENERATION.read(body),
        )
        outcome = await actor.plan(event)
        shown = render_event(event_id, event.run_at, event.repeat_ms, event.data)
        return json_response(shown, status=201 if outcome.plan is PlanVerdict.NEW else 200)

    async def show(self, request: web.Request) -> web.Response:
        schedule = await self._actor(request).schedule(_holder(request))
        return json_response(render_schedule(schedule.events))

    async def cancel(self, request: web.Request) -> web.Response:
        actor = self._actor(request)
        outcome = await actor.cancel(_event_id(request), _holder(request))
        return json_response(render_outcome(outcome, self._stuck_after))

    def _actor(self, request: web.Request) -> ReservationActor:
        return self._namespace.get_by_name(checked_id(request.match_info["id"]))


def _event_id(request: web.Request) -> str:
    return checked_id(request.match_info["event_id"], "event")


def _repeat_ms(body: Document) -> int | None:
    return None if body.get("repeatMs") is None else _REPEAT_MS.read(body)


def _holder(request: web.Request) -> bytes:
    """The digest of the header's holder; without the header it is anybody anonymous."""
    given: Sequence[str] = request.headers.getall(HOLDER_HEADER, [])
    if len(given) > 1:
        raise BadRequest("invalid-field", f"Give {HOLDER_HEADER} once.")
    return digest_of({HOLDER_HEADER: given[0]} if given else {}, _HOLDER)
