"""A reservation as the API shows it: camelCase, times as epoch milliseconds."""

from collections.abc import Sequence

import msgspec

from reservation_service.reservation import Outcome, PlannedEvent, Reservation, Status


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


class PageView(msgspec.Struct, rename="camel", gc=False):
    """Some reservations, and where the next ones begin; no cursor is on the last page."""

    items: list[ReservationView]
    next_cursor: str | None


class PlannedEventView(msgspec.Struct, rename="camel", gc=False):
    """An event that is planned; `run_at` is its next occurrence, `data` is the client's own."""

    event_id: str
    run_at: int
    repeat_ms: int | None
    data: msgspec.Raw


_encode = msgspec.json.Encoder().encode


def render(row: Reservation, stuck_after: int) -> bytes:
    """The JSON of one reservation; stuck means that its alarm failed `stuck_after` times."""
    return _encode(view(row, stuck_after))


def render_outcome(outcome: Outcome, stuck_after: int) -> bytes:
    """The JSON of a reservation with one field more: whether the call changed it."""
    changed = b',"changed":true}' if outcome.changed else b',"changed":false}'
    return render(outcome.reservation, stuck_after)[:-1] + changed


def render_items(rows: Sequence[Reservation], stuck_after: int) -> bytes:
    """The JSON of the reservations that were asked for by name."""
    return _encode({"items": [view(row, stuck_after) for row in rows]})


def render_page(rows: Sequence[Reservation], next_cursor: str | None, stuck_after: int) -> bytes:
    """The JSON of one page of a list."""
    return _encode(PageView([view(row, stuck_after) for row in rows], next_cursor))


def render_event(event_id: str, run_at: int, repeat_ms: int | None, data: str | None) -> bytes:
    """The JSON of one planned event."""
    return _encode(_event_view(event_id, run_at, repeat_ms, data))


def render_schedule(events: Sequence[PlannedEvent]) -> bytes:
    """The JSON of what is planned on a reservation."""
    items = [_event_view(one.event_id, one.run_at, one.repeat_ms, one.data) for one in events]
    return _encode({"items": items})


def view(row: Reservation, stuck_after: int) -> ReservationView:
    """A reservation as the API shows it."""
    return ReservationView(
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


def _event_view(
    event_id: str, run_at: int, repeat_ms: int | None, data: str | None
) -> PlannedEventView:
    return PlannedEventView(event_id, run_at, repeat_ms, msgspec.Raw((data or "null").encode()))
