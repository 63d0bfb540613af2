"""The bodies of the calls of one reservation. What is unset was not sent; null is not the same."""

from typing import Any

from msgspec import UNSET, UnsetType, defstruct

from reservation_service.web.fields import Body, Flag, Generation, Holder, Timestamp, ttl_between


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


def bounded_ttl(kind: type[Any], least: int, most: int) -> type[Any]:
    """The same kind of body, where `ttlSeconds` has these bounds."""
    ttl = ("ttl_seconds", ttl_between(least, most))
    return defstruct(kind.__name__, [ttl], bases=(kind,), kw_only=True)
