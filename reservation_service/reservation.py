"""What a reservation is: its record, its states, the messages it understands, their outcomes.

No await, no I/O and no clock here. Times are epoch milliseconds of service time.
"""

from enum import StrEnum

from msgspec import Struct

from reservation_service.errors import ServiceError


class Status(StrEnum):
    """`missing` is a name that was never held; the other four are the states of a row."""

    MISSING = "missing"
    HELD = "held"
    CONFIRMED = "confirmed"
    RELEASED = "released"
    EXPIRED = "expired"


class Trigger(StrEnum):
    """Who made a change: a front end's request, the alarm, or the replay of an alarm."""

    REQUEST = "request"
    ALARM = "alarm"
    REPLAY = "replay"


class Reservation(Struct, frozen=True, array_like=True, gc=False):
    """One committed row. A missing one has generation 0, counts 0 and no times."""

    reservation_id: str
    status: Status
    generation: int
    created_at: int | None
    expires_at: int | None
    expired_at: int | None
    confirmed_at: int | None
    released_at: int | None
    expiration_count: int
    alarm_at: int | None
    alarm_attempts: int
    alarm_running: bool

    @property
    def alarm_retry_count(self) -> int:
        """How many attempts at the planned alarm came before the last one."""
        return max(0, self.alarm_attempts - 1)

    def is_alarm_stuck(self, stuck_after: int) -> bool:
        """True when the planned alarm has failed `stuck_after` times or more."""
        failures = self.alarm_attempts - self.alarm_running
        return self.alarm_at is not None and failures >= stuck_after


class Hold(Struct, frozen=True):
    """Hold the thing for `ttl_ms` from the transaction's own time."""

    id: str
    ttl_ms: int
    trigger: Trigger = Trigger.REQUEST


class Expire(Struct, frozen=True):
    """Expire the hold if it is over at `now`, or at the transaction's own time when None."""

    id: str
    trigger: Trigger
    now: int | None = None


Message = Hold | Expire


class Outcome(Struct, frozen=True, array_like=True, gc=False):
    """What one message did: whether it changed the row, and the row as committed."""

    changed: bool
    reservation: Reservation


class AlarmInfo(Struct, frozen=True):
    """What a handler is told: when its alarm was due, and how often it was tried before."""

    scheduled_time: int
    retry_count: int

    @property
    def is_retry(self) -> bool:
        return self.retry_count > 0


class Refused(ServiceError):
    """The message met a row in a state that does not allow it; `reservation` is that row."""

    def __init__(self, sentence: str, reservation: Reservation) -> None:
        super().__init__(sentence)
        self.reservation = reservation


class AlreadyConfirmed(Refused):
    """A hold was asked for, and the thing is taken for good."""

    code = "already-confirmed"


def hold_refusal(reservation: Reservation) -> Refused:
    """Why a Hold that changed nothing was refused, from the row that refused it."""
    assert reservation.status is Status.CONFIRMED, reservation
    return AlreadyConfirmed("This reservation is confirmed; choose another.", reservation)
