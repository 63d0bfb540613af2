"""What each call is for, what it takes and what it may answer: the part of OpenAPI that is ours.

Bodies and answers are the types that validate and encode. Every route that is served has its entry;
what a key, a rate or an overload may answer is the same for all and stands in `openapi`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from reservation_service.web.api import ApiLimits
from reservation_service.web.calls import (
    ConfirmBody,
    ExtendBody,
    HoldBody,
    PlanBody,
    ReleaseBody,
    ReplayBody,
    bounded_ttl,
)
from reservation_service.web.fields import (
    HOLDER_MAX,
    ID_PATTERN,
    ID_SENTENCE,
    PAGE_DEFAULT,
    PAGE_MAX,
    TIMESTAMP_MAX,
    Body,
)
from reservation_service.web.health import Alive, Ready
from reservation_service.web.lists import NAMES_MAX, STATUSES
from reservation_service.web.schedules import HOLDER_HEADER
from reservation_service.web.views import (
    EventPageView,
    ItemsView,
    OutcomeView,
    PageView,
    PlannedEventView,
    ReservationView,
    ScheduleView,
)
from reservation_service.web.whoami import Identity

Json = dict[str, Any]

ID_SCHEMA: Json = {"type": "string", "pattern": f"^{ID_PATTERN}$", "examples": ["seat-12"]}

_OF_THE_BODY = (
    *("unsupported-media-type", "body-too-large", "body-too-slow", "invalid-body"),
    *("unknown-field", "invalid-field"),
)
_OF_THE_STORE = ("storage-unavailable", "outcome-unknown", "storage-full")
_OF_ALL = ("invalid-id", *_OF_THE_BODY, *_OF_THE_STORE)
_OF_THE_HOLD = ("not-your-hold", "generation-mismatch")
_HOLDER = {"holder": "128-random-bits"}
_OVER = ("no-hold", "hold-expired", "hold-released")


class Description(Struct):
    """Which service this is."""

    service: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One call. `errors` are codes; `example` is what is sent or, without a body, nothing.

    Without any type of `answers` the answer is plain text.
    """

    summary: str
    answers: tuple[type[Struct], ...]
    description: str = ""
    body: type[Body] | None = None
    rules: Json = field(default_factory=dict)
    """What the body's schema has to say besides its type."""
    example: Json | None = None
    parameters: tuple[Json, ...] = ()
    is_streamed: bool = False
    """Whether it may be answered by server-sent events, too."""
    makes_a_hold: bool = False
    makes_an_event: bool = False
    errors: tuple[str, ...] = ()


def operations(limits: ApiLimits) -> Mapping[str, Operation]:
    """Every call by method and path."""
    return _ABOUT | _READING | _FEED | _holding(limits) | _ENDING | _PLANNING


def _query(name: str, description: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "description": description, "schema": schema}


_LIMIT = _query(
    "limit",
    "How many at most.",
    {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": PAGE_DEFAULT},
)


_ABOUT = {
    "GET /": Operation("Which service this is", (Description,)),
    "GET /whoami": Operation(
        "Whether a key is good, and for what",
        (Identity,),
        "Without a key it says that nobody is authenticated, and what everybody may do.",
        errors=("unknown-key",),
    ),
    "GET /healthz": Operation("Whether the process lives", (Alive,)),
    "GET /readyz": Operation(
        "Whether calls may be sent here",
        (Ready,),
        "It can commit, the dispatcher looks, and no alarm is far behind. "
        "Otherwise, and from the beginning of a stop on, it says in `checks` what is wrong.",
        errors=("not-ready",),
    ),
    "GET /metrics": Operation(
        "Metrics for Prometheus", (), "In its text format; for keys with the scope `operate`."
    ),
}

_READING = {
    "GET /reservations/{id}": Operation(
        "Read one reservation",
        (ReservationView,),
        "A name always exists: what was never held is `missing`. Reading changes nothing.",
        errors=("invalid-id", "storage-unavailable"),
    ),
    "GET /reservations": Operation(
        "A seat map, or a list of all",
        (ItemsView, PageView),
        "With `id`: the reservations of these names, and no other parameter may be there. Without: "
        "a page of all in the order of their deadlines, for keys with the scope `operate`; go on "
        "with `nextCursor` as `cursor` until it is null.",
        parameters=(
            _query(
                "id",
                f"A name; may be repeated up to {NAMES_MAX} times.",
                {"type": "array", "items": ID_SCHEMA, "minItems": 1, "maxItems": NAMES_MAX},
            ),
            _query("status", "Only these.", {"type": "string", "enum": [*STATUSES]}),
            _query(
                "idPrefix", "How the name begins.", {"type": "string", "pattern": "^[a-z0-9-]*$"}
            ),
            _LIMIT,
            _query("cursor", "A `nextCursor` of this list.", {"type": "string"}),
        ),
        errors=("invalid-id", "invalid-field", "unknown-field", "storage-unavailable"),
    ),
}

_SEQ: Json = {"type": "integer", "minimum": 0, "maximum": TIMESTAMP_MAX}
_POSITION: Json = {"anyOf": [_SEQ, {"const": "latest"}]}

_FEED = {
    name: Operation(
        summary,
        (EventPageView,),
        f"{whose}Go on with `nextAfter` as `after`. By `Accept: text/event-stream` it is a stream "
        "that goes on with what happens next; a reader that comes again says where by its "
        "`Last-Event-ID`. A reset says that what was asked for is gone with the log's oldest.",
        parameters=(*parameters, _query("after", "Only what came later.", _POSITION), _LIMIT),
        is_streamed=True,
        errors=(
            *("invalid-id", "invalid-field", "unknown-field"),
            *("storage-unavailable", "too-many-readers"),
        ),
    )
    for name, summary, whose, parameters in (
        ("GET /reservations/{id}/events", "What happened to one reservation", "", ()),
        (
            "GET /events",
            "What happened to all reservations, or to some",
            "Without `reservation`: of all, for keys with the scope `operate`. ",
            (
                _query(
                    "reservation",
                    f"A name; may be repeated up to {NAMES_MAX} times.",
                    {"type": "array", "items": ID_SCHEMA, "minItems": 1, "maxItems": NAMES_MAX},
                ),
            ),
        ),
    )
}


def _holding(limits: ApiLimits) -> dict[str, Operation]:
    least, most = limits.ttl_seconds_min, limits.ttl_seconds_max
    return {
        "POST /reservations/{id}": Operation(
            "Hold a reservation",
            (ReservationView,),
            "Again by the same holder: renew the hold. It frees itself at `expiresAt`.",
            bounded_ttl(HoldBody, least, most),
            rules={"required": ["ttlSeconds", "holder"]} if limits.require_holder else {},
            example={"ttlSeconds": least} | _HOLDER,
            makes_a_hold=True,
            errors=(*_OF_ALL, "already-held", "already-confirmed", "too-many-holds"),
        ),
        "POST /reservations/{id}/extend": Operation(
            "Move the deadline to later",
            (OutcomeView,),
            "To so many seconds from now, never back, and no further than the cap.",
            bounded_ttl(ExtendBody, least, most),
            example={"ttlSeconds": most} | _HOLDER,
            errors=(*_OF_ALL, *_OF_THE_HOLD, *_OVER, "already-confirmed", "extension-limit"),
        ),
    }


_STILL_FREE_FOR_WHOM: Json = {
    "if": {"properties": {"ifStillFree": {"const": True}}, "required": ["ifStillFree"]},
    "then": {"anyOf": [{"required": ["holder"]}, {"required": ["generation"]}]},
}

_ENDING = {
    "POST /reservations/{id}/confirm": Operation(
        "Keep the reservation for good",
        (OutcomeView,),
        "For your own server, once it was paid. `ifStillFree` is for payments that come late. "
        "An empty body, declared as JSON, is the same as `{}`.",
        ConfirmBody,
        rules=_STILL_FREE_FOR_WHOM,
        example=_HOLDER | {"ifStillFree": True},
        errors=(*_OF_ALL, *_OF_THE_HOLD, *_OVER, "taken"),
    ),
    "POST /reservations/{id}/release": Operation(
        "Give the hold up",
        (OutcomeView,),
        "What is confirmed is released by a key with the scope `operate` alone. "
        "An empty body, declared as JSON, is the same as `{}`.",
        ReleaseBody,
        example=_HOLDER,
        errors=(*_OF_ALL, *_OF_THE_HOLD, "already-confirmed"),
    ),
    "POST /reservations/{id}/replay-alarm": Operation(
        "Run the alarm with a time of your choice",
        (OutcomeView,),
        "The door for tests and rehearsals: the same method that the alarm calls.",
        ReplayBody,
        example={"now": 1_795_971_630_000},
        errors=_OF_ALL,
    ),
}

_OF_THE_SCHEDULE = (
    "Yours; with the scope `operate`: anybody's. `holder` is a header where no body is."
)

_HOLDER_HEADER: Json = {
    "name": HOLDER_HEADER,
    "in": "header",
    "description": "The holder, where it is not anonymous.",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": HOLDER_MAX,
        # no control characters, and no space at an end, which HTTP would take away
        "pattern": r"^[^\x00-\x20\x7f-\x9f]([^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\x9f])?$",
    },
}

_PLANNING = {
    "GET /reservations/{id}/schedule": Operation(
        "What is planned on a reservation",
        (ScheduleView,),
        _OF_THE_SCHEDULE,
        parameters=(_HOLDER_HEADER,),
        errors=("invalid-id", "invalid-field", "not-your-hold", "storage-unavailable"),
    ),
    "PUT /reservations/{id}/schedule/{eventId}": Operation(
        "Plan an event, or plan it anew",
        (PlannedEventView,),
        "On what is held or confirmed: at `runAt`, and with `repeatMs` again and again. "
        + _OF_THE_SCHEDULE,
        PlanBody,
        example={"runAt": 1_795_971_630_000, "repeatMs": 60_000, "data": {"to": "desk"}} | _HOLDER,
        makes_an_event=True,
        errors=(*_OF_ALL, *_OF_THE_HOLD, *_OVER, "too-many-events"),
    ),
    "DELETE /reservations/{id}/schedule/{eventId}": Operation(
        "Take an event off the schedule",
        (OutcomeView,),
        _OF_THE_SCHEDULE,
        parameters=(_HOLDER_HEADER,),
        errors=("invalid-id", "invalid-field", "not-your-hold", "no-event", *_OF_THE_STORE),
    ),
}


def path_parameters(path: str) -> list[Json]:
    """Those of a path, in their order."""
    return [_IN_PATH[name] for name in re.findall(r"{(\w+)}", path) if name in _IN_PATH]


_IN_PATH: Mapping[str, Json] = {
    name: {
        "name": name,
        "in": "path",
        "required": True,
        "description": sentence,
        "schema": ID_SCHEMA,
    }
    for name, sentence in (
        ("id", ID_SENTENCE),
        ("eventId", ID_SENTENCE.replace("reservation", "event")),
    )
}
