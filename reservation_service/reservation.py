"""What a reservation is: its record, its states, the messages it understands, their outcomes.

No await, no I/O and no clock here. Times are epoch milliseconds of service time. Why a refused
message was refused is in `refusals`.
"""

from enum import StrEnum

from msgspec import Struct

ANONYMOUS = b""
"""The holder that everybody is who does not name one; a named one is a SHA-256 of 32 bytes."""


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

    def is_live(self, now: int) -> bool:
        """Held and before its deadline; at the deadline it is over, whatever its alarm did."""
        return self.status is Status.HELD and now < (self.expires_at or 0)

    def is_alarm_stuck(self, stuck_after: int) -> bool:
        """True when the planned alarm has failed `stuck_after` times or more."""
        failures = self.alarm_attempts - self.alarm_running
        return self.alarm_at is not None and failures >= stuck_after


class HoldLimits(Struct, frozen=True):
    """How long one hold may last in all, and how many a named holder may have (0: any number)."""

    max_hold_ms: int
    max_per_holder: int


class Hold(Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Hold the thing for `ttl_ms` from the transaction's own time, or renew one's own hold."""

    id: str
    ttl_ms: int
    max_hold_ms: int
    max_per_holder: int = 0
    holder: bytes = ANONYMOUS
    trigger: Trigger = Trigger.REQUEST


class Expire(Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Expire the hold if it is over at `now`, or at the transaction's own time when None.

    `retry_count` is the alarm's, for the record.
    """

    id: str
    trigger: Trigger
    now: int | None = None
    retry_count: int = 0


class Extend(Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Move the deadline to `ttl_ms` from now, never back, at most `max_hold_ms` after the start."""

    id: str
    ttl_ms: int
    max_hold_ms: int
    holder: bytes = ANONYMOUS
    generation: int | None = None


class Confirm(Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Keep the thing for good; with `if_still_free` also late, while nobody has taken it."""

    id: str
    holder: bytes = ANONYMOUS
    generation: int | None = None
    if_still_free: bool = False


class Release(Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Give the hold up; an operator may also give up what was confirmed."""

    id: str
    holder: bytes = ANONYMOUS
    generation: int | None = None
    operator: bool = False


EVENTS_MAX = 100
"""Planned events of one reservation."""


class Plan(Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Plan an event on what is held or confirmed, or replace the one of this name.

    It is to happen at `run_at`, which may be over already, and with `repeat_ms` again and again.
    `data` is JSON text of the client's own. An operator may do so on anybody's.
    """

    id: str
    event_id: str
    run_at: int
    repeat_ms: int | None = None
    data: str | None = None
    holder: bytes = ANONYMOUS
    generation: int | None = None
    operator: bool = False


class Cancel(Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Take a planned event off the schedule, an operator off anybody's."""

    id: str
    event_id: str
    holder: bytes = ANONYMOUS
    operator: bool = False


class Fire(Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Record one occurrence of a planned event, if it is still to come, and plan the next.

    `key` is the plan's own number, never used twice; `retry_count` is the alarm's.
    """

    id: str
    key: int
    run_at: int
    retry_count: int = 0


Message = Hold | Expire | Extend | Confirm | Release | Plan | Cancel | Fire


class PlanVerdict(StrEnum):
    """What a Plan came to: same is one that stands as it is asked for already."""

    NEW = "new"
    REPLACED = "replaced"
    SAME = "same"
    FULL = "full"


class PlannedEvent(Struct, frozen=True, array_like=True, gc=False):
    """One event of a schedule and its next occurrence; `data` is JSON text."""

    key: int
    event_id: str
    run_at: int
    repeat_ms: int | None
    data: str | None


class Schedule(Struct, frozen=True):
    """What is planned on a reservation, in the order in which it is to happen.

    What was planned on a hold that is over is not on it.
    """

    reservation: Reservation
    is_own: bool
    events: list[PlannedEvent]


class Outcome(Struct, frozen=True, array_like=True, gc=False):
    """What one message did: whether it changed the row, and the row as committed.

    `is_own` tells whether the message came from the row's holder, `now` is the transaction's
    time. `limited_until` is set when the holder has too many holds: when the first of them ends.
    `plan` is a Plan's own verdict; None when the row's state, holder or generation forbade it.
    `other_holder` is the digest, in hexadecimal, of the row's holder when that is somebody else.
    """

    changed: bool
    is_own: bool
    now: int
    reservation: Reservation
    other_holder: str = ""
    limited_until: int | None = None
    plan: PlanVerdict | None = None

    def refuses(self, hold: Hold, message: "Message") -> bool:
        """Whether a hold right after `message`, of which this is the outcome, would be refused.

        A holder's own hold would be renewed, and an anonymous one's anew: they are not.
        """
        row = self.reservation
        if not (row.is_live(self.now) or row.status is Status.CONFIRMED):
            return False
        other = bytes.fromhex(self.other_holder)
        return hold.holder != (getattr(message, "holder", ANONYMOUS) if self.is_own else other)

    @property
    def leaves_due(self) -> bool:
        """Whether an expiry changed nothing and something else is due: the slot is the earliest."""
        at = self.reservation.alarm_at
        return not self.changed and at is not None and at <= self.now


class AlarmInfo(Struct, frozen=True):
    """What a handler is told: when its alarm was due, and how often it was tried before."""

    scheduled_time: int
    retry_count: int

    @property
    def is_retry(self) -> bool:
        return self.retry_count > 0
