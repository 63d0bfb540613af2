"""The schedule calls of a front end, and what the log says has happened."""

import json
from typing import Any

from tests.support.clock import START
from tests.support.harness import Answer, ServiceHarness
from tests.support.rows import events

SECOND = 1_000
DAY = 86_400 * SECOND


def path(event_id: str | None = None, name: str = "seat-1") -> str:
    return f"/reservations/{name}/schedule" + (f"/{event_id}" if event_id else "")


async def plan(service: ServiceHarness, event_id: str, **fields: Any) -> Answer:
    """Plan an event on `seat-1`, or on another `name`; it is due in a second if nothing is said."""
    name = fields.pop("name", "seat-1")
    document = {"runAt": START + SECOND} | fields
    return await service.request("PUT", path(event_id, name), json=document)


async def planned(service: ServiceHarness, event_id: str, **fields: Any) -> Any:
    """The document of the event that was planned, new or not."""
    answer = await plan(service, event_id, **fields)
    assert answer.status in {200, 201}, answer
    return answer.json


async def cancel(service: ServiceHarness, event_id: str, holder: str | None = None) -> Answer:
    return await service.request("DELETE", path(event_id), headers=as_holder(holder))


async def schedule(service: ServiceHarness, holder: str | None = None) -> Answer:
    return await service.request("GET", path(), headers=as_holder(holder))


async def shown(service: ServiceHarness, holder: str | None = None) -> list[tuple[str, int]]:
    """The events on the schedule of `seat-1`, and when each happens next."""
    answer = await schedule(service, holder)
    assert answer.status == 200, answer
    return [(item["eventId"], item["runAt"]) for item in answer.json["items"]]


def happened(service: ServiceHarness, name: str = "seat-1") -> list[dict[str, Any]]:
    """What the log has of planned events: the data of each."""
    return [
        json.loads(event["data"])
        for event in events(service.database, name)
        if event["type"] == "scheduled-event"
    ]


def times(service: ServiceHarness, name: str = "seat-1") -> list[tuple[str, int]]:
    """Which event happened, and how many milliseconds after the beginning it was planned for."""
    return [(data["eventId"], data["scheduledTime"] - START) for data in happened(service, name)]


def as_holder(holder: str | None) -> dict[str, str]:
    return {} if holder is None else {"Reservation-Holder": holder}
