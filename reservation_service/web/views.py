"""Reservations and events as the API shows them: camelCase, times as epoch milliseconds."""

from collections.abc import Sequence
from typing import Any

import msgspec

from reservation_service.events import Event
from reservation_service.reservation import Outcome, PlannedEvent, Reservation, Status, Trigger


class ReservationView(msgspec.Struct, rename="camel", gc=False):
    """The twelve fields of the contract; null, 0 or false where unused."""

    reservation_id: str
    status: Status
    created_at: int | None
    expires_at: int | None
    expired_at: int | None
    expiration_count: int
    alarm_at: int | None
    generation: int
    confirmed_at: int | None
    released_at: int | None
    alarm_retry_count: int
    alarm_stuck: bool


class OutcomeView(ReservationView, rename="camel", gc=False):
    """A reservation, and whether the call changed it."""

    changed: bool


class ItemsView(msgspec.Struct, rename="camel", gc=False):
    """The reservations that were asked for by name, in their order."""

    items: list[ReservationView]


class PageView(msgspec.Struct, rename="camel", gc=False):
    """Some reservations, and where the next ones begin; no cursor is on the last page."""

    items: list[ReservationView]
    next_cursor: str | None


class EventView(msgspec.Struct, gc=False):
    """What happened to one reservation; data is null or a JSON object."""

    seq: int
    type: str
    reservation: str
    generation: int
    at: int
    trigger: Trigger
    data: msgspec.Raw


class EventPageView(msgspec.Struct, rename="camel", gc=False):
    """Some events, and where to go on; a reset page begins anew, since what was before is gone."""

    items: list[EventView]
    next_after: int
    reset: bool


class PlannedEventView(msgspec.Struct, rename="camel", gc=False):
    """An event that is planned; `run_at` is its next occurrence, `data` is the client's own."""

    event_id: str
    run_at: int
    repeat_ms: int | None
    data: msgspec.Raw


class ScheduleView(msgspec.Struct, gc=False):
    """What is planned on a reservation, in the order in which it is to happen."""

    items: list[PlannedEventView]


_encode = msgspec.json.Encoder().encode


def render(row: Reservation, stuck_after: int) -> bytes:
    """The JSON of one reservation; stuck means that its alarm failed `stuck_after` times."""
    return _encode(view(row, stuck_after))


def render_outcome(outcome: Outcome, stuck_after: int) -> bytes:
    """The JSON of a reservation with one field more: whether the call changed it."""
    values = [*_values(outcome.reservation, stuck_after), outcome.changed]
    return _encode(OutcomeView(*values))


def render_items(rows: Sequence[Reservation], stuck_after: int) -> bytes:
    """The JSON of the reservations that were asked for by name."""
    return _encode(ItemsView([view(row, stuck_after) for row in rows]))


def render_page(rows: Sequence[Reservation], next_cursor: str | None, stuck_after: int) -> bytes:
    """The JSON of one page of a list."""
    return _encode(PageView([view(row, stuck_after) for row in rows], next_cursor))


def render_events(events: Sequence[Event], next_after: int, *, is_reset: bool) -> bytes:
    """The JSON of one page of the log."""
    return _encode(EventPageView([view_event(event) for event in events], next_after, is_reset))


def render_event(event_id: str, run_at: int, repeat_ms: int | None, data: str | None) -> bytes:
    """The JSON of one planned event."""
    return _encode(_event_view(event_id, run_at, repeat_ms, data))


def render_schedule(events: Sequence[PlannedEvent]) -> bytes:
    """The JSON of what is planned on a reservation."""
    items = [_event_view(one.event_id, one.run_at, one.repeat_ms, one.data) for one in events]
    return _encode(ScheduleView(items))


def view(row: Reservation, stuck_after: int) -> ReservationView:
    """A reservation as the API shows it."""
    return ReservationView(*_values(row, stuck_after))


def _values(row: Reservation, stuck_after: int) -> tuple[Any, ...]:
    return (
        row.reservation_id,
        row.status,
        row.created_at,
        row.expires_at,
        row.expired_at,
        row.expiration_count,
        row.alarm_at,
        row.generation,
        row.confirmed_at,
        row.released_at,
        row.alarm_retry_count,
        row.is_alarm_stuck(stuck_after),
    )


def view_event(event: Event) -> EventView:
    """An event as the API shows it."""
    return EventView(
        event.seq,
        event.type,
        event.reservation,
        event.generation,
        event.at,
        event.trigger,
        event.data,
    )


def _event_view(
    event_id: str, run_at: int, repeat_ms: int | None, data: str | None
) -> PlannedEventView:
    return PlannedEventView(event_id, run_at, repeat_ms, msgspec.Raw((data or "null").encode()))
