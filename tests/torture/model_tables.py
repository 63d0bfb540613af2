"""What the model knows of the disk: rows, plans, events, as values that can be compared."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from reservation_service.reservation import (
    Cancel,
    Confirm,
    Expire,
    Extend,
    Fire,
    Hold,
    Plan,
    Release,
)

Request = Hold | Expire | Extend | Confirm | Release | Plan | Cancel | Fire


class Row(NamedTuple):
    """One reservation as the table has it, without what only marks the batch."""

    id: str
    status: str
    holder: bytes
    generation: int
    created_at: int
    expires_at: int
    expired_at: int | None
    confirmed_at: int | None
    released_at: int | None
    expiration_count: int
    alarm_at: int | None
    alarm_dispatch_at: int | None
    alarm_attempts: int
    alarm_claim: int | None


class Event(NamedTuple):
    """One line of the log; `data` is decoded."""

    reservation: str
    generation: int
    type: str
    at: int
    trigger: str
    data: Any = None
    planned: int | None = None


class Planned(NamedTuple):
    """One planned event; `key` is its plan's number, never given out again."""

    key: int
    reservation: str
    event_id: str
    generation: int
    run_at: int
    first_at: int
    repeat_ms: int | None
    data: str | None


class Rejection(NamedTuple):
    """A confirmation that came too late, remembered so that it is recorded once."""

    reservation: str
    generation: int
    holder: bytes
    code: str


class Tables(NamedTuple):
    """What is on the disk, in a canonical order."""

    rows: tuple[Row, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    plans: tuple[Planned, ...] = ()
    last_key: int = 0

    def row(self, reservation_id: str) -> Row | None:
        return next((row for row in self.rows if row.id == reservation_id), None)

    def with_row(self, changed: Row | None) -> "Tables":
        if changed is None:
            return self
        others = [row for row in self.rows if row.id != changed.id]
        return self._replace(rows=tuple(sorted([*others, changed])))

    def with_plans(self, plans: Iterable[Planned]) -> "Tables":
        return self._replace(plans=tuple(sorted(plans)))

    def planned_on(self, row: Row) -> list[Planned]:
        """What is planned on this very hold, in the order in which it is to happen."""
        mine = [one for one in self.plans if one[1:4:2] == (row.id, row.generation)]
        return sorted(mine, key=lambda one: (one.run_at, one.key))


class Step(NamedTuple):
    """What one message leads to."""

    tables: Tables
    events: tuple[Event, ...] = ()
    changed: bool = False
    limited_until: int | None = None
    plan: str | None = None


class Look(NamedTuple):
    """A claim: take up to `limit` due alarms, leaving out those `running` here."""

    limit: int
    lease_ms: int
    running: tuple[str, ...]


class Recovery(NamedTuple):
    """How a start plans anew what a dead process left."""

    first_ms: int
    cap_ms: int


def is_live(row: Row | None, now: int) -> bool:
    return row is not None and row.status == "held" and now < row.expires_at


def earliest(tables: Tables, row: Row) -> int | None:
    """What the slot is set to: the earliest of the deadline and of what is planned."""
    times = [one.run_at for one in tables.planned_on(row)]
    if row.status == "held":
        times.append(row.expires_at)
    return min(times, default=None) if row.status in {"held", "confirmed"} else None


def with_slot(row: Row, at: int | None) -> Row:
    """The row with its slot at this time; another time is another alarm."""
    return row if row.alarm_at == at else new_alarm(row, at)


def new_alarm(row: Row, at: int | None) -> Row:
    return row._replace(alarm_at=at, alarm_dispatch_at=at, alarm_attempts=0, alarm_claim=None)


def told(scheduled_at: int, now: int, retry_count: int, **more: object) -> dict[str, object]:
    """What an event says of the alarm behind it."""
    return {
        "scheduledTime": scheduled_at,
        "retryCount": retry_count,
        "isRetry": retry_count > 0,
        "lateness": now - scheduled_at,
        "outcome": "ok",
    } | more
