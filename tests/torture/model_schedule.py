"""What plans, cancellations and firings do, said a second time, without any SQL."""

from reservation_service.reservation import EVENTS_MAX, Cancel, Fire, Plan
from tests.torture.model_tables import (
    Event,
    Planned,
    Row,
    Step,
    Tables,
    earliest,
    is_live,
    new_alarm,
    told,
    with_slot,
)


def tell(tables: Tables, row: Row | None, message: Plan | Cancel | Fire, now: int) -> Step:
    """One message about a schedule, alone in its transaction."""
    if row is None:
        return Step(tables)
    match message:
        case Plan():
            return _plan(tables, row, message, now)
        case Cancel():
            return _cancel(tables, row, message)
        case Fire():
            return _fire(tables, row, message, now)


def due(tables: Tables, reservation_id: str, now: int) -> list[tuple[int, int]]:
    """The plans that are to be fired, in order, each with its time."""
    row = tables.row(reservation_id)
    if row is None or not _is_alive(row, now):
        return []
    return [(one.key, one.run_at) for one in tables.planned_on(row) if one.run_at <= now]


def _is_alive(row: Row, now: int) -> bool:
    return row.status == "confirmed" or is_live(row, now)


def _plan(tables: Tables, row: Row, message: Plan, now: int) -> Step:
    is_own = row.holder == message.holder and message.generation in {None, row.generation}
    if not is_own or not _is_alive(row, now):
        return Step(tables)
    mine = tables.planned_on(row)
    before = next((one for one in mine if one.event_id == message.event_id), None)
    asked = message.run_at, message.repeat_ms, message.data
    if before is None and len(mine) >= EVENTS_MAX:
        return Step(tables, plan="full")
    if before is not None and before[5:] == asked:
        return Step(tables, plan="same")
    key = tables.last_key + 1
    new = Planned(
        key, row.id, message.event_id, row.generation, message.run_at, message.run_at, *asked[1:]
    )
    others = [one for one in tables.plans if one != before]
    tables = tables.with_plans([*others, new])._replace(last_key=key)
    planned = _planned_anew(tables, row, message.run_at)
    verdict = "replaced" if before else "new"
    return Step(tables.with_row(planned), changed=True, plan=verdict)


def _planned_anew(tables: Tables, row: Row, run_at: int) -> Row:
    """A plan for the slot's own time is a new alarm; another one may bring the next try forward."""
    at = earliest(tables, row)
    if at != row.alarm_at or run_at == at:
        return new_alarm(row, at)
    assert row.alarm_dispatch_at is not None
    if run_at < row.alarm_dispatch_at:
        return row._replace(alarm_dispatch_at=run_at, alarm_claim=None)
    return row


def _cancel(tables: Tables, row: Row, message: Cancel) -> Step:
    left = [
        one
        for one in tables.plans
        if (one.reservation, one.generation, one.event_id)
        != (row.id, row.generation, message.event_id)
    ]
    if row.holder != message.holder or len(left) == len(tables.plans):
        return Step(tables)
    tables = tables.with_plans(left)
    return Step(tables.with_row(with_slot(row, earliest(tables, row))), changed=True)


def _fire(tables: Tables, row: Row, message: Fire, now: int) -> Step:
    planned = next((one for one in tables.planned_on(row) if one.key == message.key), None)
    is_due = planned is not None and planned.run_at == message.run_at <= now
    if planned is None or not is_due or not _is_alive(row, now):
        return Step(tables)
    missed = (now - planned.run_at) // planned.repeat_ms if planned.repeat_ms else 0
    assert planned.data is None  # small worlds have none
    more = {"eventId": planned.event_id, "data": None, "missed": missed}
    data = told(planned.run_at, now, message.retry_count, **more)
    event = Event(row.id, row.generation, "scheduled-event", now, "alarm", data, planned.key)
    left = [one for one in tables.plans if one != planned]
    if planned.repeat_ms is not None:
        following = planned.run_at + planned.repeat_ms * (missed + 1)
        left.append(planned._replace(run_at=following))
    tables = tables.with_plans(left)
    moved = _moved_on(row, earliest(tables, row), now)
    return Step(tables.with_row(moved), (event,), changed=True)


def _moved_on(row: Row, at: int | None, now: int) -> Row:
    """An attempt goes on to the next event that is due, as the first attempt at it."""
    if at == row.alarm_at or at is None or at > now or row.alarm_claim is None:
        return with_slot(row, at)
    assert row.alarm_dispatch_at is not None
    return row._replace(
        alarm_at=at, alarm_dispatch_at=max(row.alarm_dispatch_at, at), alarm_attempts=1
    )
