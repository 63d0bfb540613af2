"""Why a message that changed nothing was refused, and when that is no refusal at all. Pure.

The order is part of the contract: holder, then generation, then state, then deadline. A repeated
message that finds its work done is no refusal: it is answered with `changed` false.
"""

from reservation_service.errors import ServiceError
from reservation_service.reservation import (
    EVENTS_MAX,
    Cancel,
    Confirm,
    Extend,
    Outcome,
    Plan,
    PlanVerdict,
    Release,
    Reservation,
    Status,
)

_MS_PER_SECOND = 1000


class Refused(ServiceError):
    """The message met a row in a state that does not allow it; `reservation` is that row."""

    def __init__(self, reservation: Reservation) -> None:
        super().__init__()
        self.reservation = reservation


class AlreadyConfirmed(Refused):
    """The thing is taken for good."""

    code = "already-confirmed"
    sentence = "This reservation is confirmed; choose another."


class AlreadyHeld(Refused):
    """Somebody else holds the thing; `retry_after_s` is what is left of it."""

    code = "already-held"
    sentence = "Somebody else holds this reservation; choose another or try again later."

    def __init__(self, reservation: Reservation, now: int) -> None:
        super().__init__(reservation)
        self.retry_after_s = _seconds(reservation.expires_at, now)


class TooManyHolds(Refused):
    """The holder has as many holds as one may have; `retry_after_s` is when the first ends."""

    code = "too-many-holds"
    sentence = "This holder has too many holds; release one or wait until one ends."

    def __init__(self, reservation: Reservation, until: int, now: int) -> None:
        super().__init__(reservation)
        self.retry_after_s = _seconds(until, now)


class NoHold(Refused):
    """The name was never held."""

    code = "no-hold"
    sentence = "There is no hold of this reservation; hold it first."


class NotYourHold(Refused):
    """The row belongs to another holder."""

    code = "not-your-hold"
    sentence = "This hold belongs to somebody else; send the holder that it was made with."


class GenerationMismatch(Refused):
    """The thing was held anew since the caller looked."""

    code = "generation-mismatch"
    sentence = "This reservation was held anew since; read it again."


class HoldExpired(Refused):
    """The hold's time is over."""

    code = "hold-expired"
    sentence = "This hold has expired; hold the reservation again."


class HoldReleased(Refused):
    """The hold was given up."""

    code = "hold-released"
    sentence = "This hold was released; hold the reservation again."


class ExtensionLimit(Refused):
    """The hold lasts as long as any hold may."""

    code = "extension-limit"
    sentence = "This hold cannot be extended any further; confirm or release it."


class Taken(Refused):
    """A late confirmation found that somebody else has the thing."""

    code = "taken"
    sentence = "Somebody else has taken this reservation; refund the payment."


class TooManyEvents(Refused):
    """As much is planned on the reservation as may be."""

    code = "too-many-events"
    sentence = f"This reservation has {EVENTS_MAX} planned events; delete one first."


class NoEvent(Refused):
    """No event of this name is planned."""

    code = "no-event"
    sentence = "No event with this ID is planned; it has happened, or was never there."


def why_not_held(outcome: Outcome) -> Refused:
    """Why a Hold changed nothing."""
    row, now = outcome.reservation, outcome.now
    if outcome.limited_until is not None:
        return TooManyHolds(row, outcome.limited_until, now)
    if row.status is Status.CONFIRMED:
        return AlreadyConfirmed(row)
    assert row.status is Status.HELD
    return AlreadyHeld(row, now)


def why_not_extended(message: Extend, outcome: Outcome) -> Refused | None:
    """Why an Extend changed nothing; None when the deadline was late enough already."""
    row, now = outcome.reservation, outcome.now
    if refused := _why_not_owned(message, outcome) or _why_over(row, now):
        return refused
    if row.status is Status.CONFIRMED:
        return AlreadyConfirmed(row)
    assert row.expires_at is not None
    return ExtensionLimit(row) if now + message.ttl_ms > row.expires_at else None


def why_not_confirmed(message: Confirm, outcome: Outcome) -> Refused | None:
    """Why a Confirm changed nothing; None when it is confirmed already."""
    row, now = outcome.reservation, outcome.now
    is_late_stranger = message.if_still_free and not outcome.is_own
    if is_late_stranger and (row.is_live(now) or row.status is Status.CONFIRMED):
        return Taken(row)
    return _why_not_owned(message, outcome) or _why_over(row, now)


def why_not_released(message: Release, outcome: Outcome) -> Refused | None:
    """Why a Release changed nothing; None when nothing is held any more."""
    row = outcome.reservation
    if row.status is Status.MISSING:
        return None
    if refused := _why_not_owned(message, outcome):
        return refused
    return AlreadyConfirmed(row) if row.status is Status.CONFIRMED else None


def why_not_planned(message: Plan, outcome: Outcome) -> Refused | None:
    """Why a Plan changed nothing; None when it stands as it was asked for already."""
    row = outcome.reservation
    if refused := _why_not_owned(message, outcome) or _why_over(row, outcome.now):
        return refused
    return TooManyEvents(row) if outcome.plan is PlanVerdict.FULL else None


def why_not_cancelled(message: Cancel, outcome: Outcome) -> Refused:
    """Why a Cancel changed nothing; a repeated one is told that there is no such event."""
    row = outcome.reservation
    is_allowed = outcome.is_own or message.operator
    is_strange = row.status is not Status.MISSING and not is_allowed
    return NotYourHold(row) if is_strange else NoEvent(row)


def _why_not_owned(message: Extend | Confirm | Release | Plan, outcome: Outcome) -> Refused | None:
    row = outcome.reservation
    if row.status is Status.MISSING:
        return NoHold(row)
    if not (outcome.is_own or (isinstance(message, Plan) and message.operator)):
        return NotYourHold(row)
    if message.generation not in {None, row.generation}:
        return GenerationMismatch(row)
    return None


def _why_over(row: Reservation, now: int) -> Refused | None:
    if row.status is Status.RELEASED:
        return HoldReleased(row)
    if row.status is Status.EXPIRED or (row.status is Status.HELD and not row.is_live(now)):
        return HoldExpired(row)
    return None


def _seconds(until: int | None, now: int) -> int:
    """Whole seconds from now, rounded up, at least 1: nobody should come back too early."""
    return max(1, -(-((until or now) - now) // _MS_PER_SECOND))
