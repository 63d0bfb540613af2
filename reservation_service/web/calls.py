"""The bodies of the calls of one reservation. What is unset was not sent; null is not the same."""

from typing import Annotated, Any

from msgspec import UNSET, UnsetType, defstruct

from reservation_service.web.fields import (
    TIMESTAMP_MAX,
    Body,
    Flag,
    Generation,
    Holder,
    Timestamp,
    field_meta,
    ttl_between,
)

REPEAT_MS_MIN = 1_000

_RunAt = Annotated[
    int,
    field_meta(
        "runAt must be a positive integer timestamp.",
        ge=1,
        le=TIMESTAMP_MAX,
        examples=[1_795_971_630_000],
    ),
]
_RepeatMs = Annotated[
    int,
    field_meta(
        f"repeatMs must be an integer from {REPEAT_MS_MIN}.",
        ge=REPEAT_MS_MIN,
        le=TIMESTAMP_MAX,
        examples=[60_000],
    ),
]


class HoldBody(Body):
    """Hold a reservation, or renew one's own hold."""

    ttl_seconds: int
    holder: Holder | UnsetType = UNSET


class ExtendBody(Body):
    """Move the deadline to so many seconds from now."""

    ttl_seconds: int
    holder: Holder | UnsetType = UNSET
    generation: Generation | UnsetType = UNSET


class ConfirmBody(Body):
    """Keep the reservation for good."""

    holder: Holder | UnsetType = UNSET
    generation: Generation | UnsetType = UNSET
    if_still_free: Flag | UnsetType = UNSET


class ReleaseBody(Body):
    """Give the hold up."""

    holder: Holder | UnsetType = UNSET
    generation: Generation | UnsetType = UNSET


class ReplayBody(Body):
    """Run the alarm with this time."""

    now: Timestamp


class PlanBody(Body):
    """Plan an event: at `runAt`, and with `repeatMs` again and again; `data` is any JSON."""

    run_at: _RunAt
    repeat_ms: _RepeatMs | None = None
    data: Any = None
    holder: Holder | UnsetType = UNSET
    generation: Generation | UnsetType = UNSET


def bounded_ttl(kind: type[Any], least: int, most: int) -> type[Any]:
    """The same kind of body, where `ttlSeconds` has these bounds."""
    ttl = ("ttl_seconds", ttl_between(least, most))
    return defstruct(kind.__name__, [ttl], bases=(kind,), kw_only=True)
