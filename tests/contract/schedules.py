"""Planned events for the store contract: plans, cancellations, and the alarm's way to fire them."""

from typing import Any

from reservation_service.actor import ReservationNamespace
from reservation_service.reservation import (
    ANONYMOUS,
    AlarmInfo,
    Cancel,
    HoldLimits,
    Outcome,
    Plan,
    PlannedEvent,
)
from reservation_service.store import Claimed, ScheduleQuery
from tests.contract.engines import MAX_HOLD_MS, EngineUnderTest, EventRow, Opened, Row, claim

SECOND = 1_000
SLOT = ("alarm_at", "alarm_dispatch_at", "alarm_attempts", "alarm_claim")


async def plan(
    opened: Opened, event_id: str, run_at: int, repeat_ms: int | None = None, **more: Any
) -> Outcome:
    """Plan an event on `seat-1`, or on another `name`."""
    name = more.pop("name", "seat-1")
    return await opened.store.apply(Plan(name, event_id, run_at, repeat_ms, **more))


async def cancel(opened: Opened, event_id: str, holder: bytes = ANONYMOUS) -> Outcome:
    return await opened.store.apply(Cancel("seat-1", event_id, holder))


async def shown(opened: Opened, name: str = "seat-1") -> list[tuple[str, int]]:
    """The events that are on the schedule, with their next time."""
    schedule = await opened.store.schedule(ScheduleQuery(name))
    return [(event.event_id, event.run_at) for event in schedule.events]


async def due(opened: Opened, name: str = "seat-1") -> list[PlannedEvent]:
    schedule = await opened.store.schedule(ScheduleQuery(name, is_due_only=True))
    return schedule.events


async def alarm(opened: Opened, name: str = "seat-1", retry_count: int = 0) -> Outcome:
    """What the alarm clock calls: the real actor's handler."""
    namespace = ReservationNamespace(opened.store, HoldLimits(MAX_HOLD_MS, 0))
    return await namespace.get_by_name(name).alarm(AlarmInfo(0, retry_count))


async def claim_one(opened: Opened, *running: str) -> Claimed:
    (claimed,) = await claim(opened, running=running)
    return claimed


def fired(engine: EngineUnderTest, name: str = "seat-1") -> list[tuple[str, int]]:
    """What has happened of the plans, in order: the event and the time it was planned for."""
    return [
        (event.data["eventId"], event.data["scheduledTime"]) for event in events_of(engine, name)
    ]


def events_of(engine: EngineUnderTest, name: str = "seat-1") -> list[EventRow]:
    return [event for event in engine.events(name) if event.type == "scheduled-event"]


def slot(engine: EngineUnderTest, name: str = "seat-1") -> tuple[Any, ...]:
    row: Row | None = engine.row(name)
    assert row is not None
    return tuple(row[column] for column in SLOT)
