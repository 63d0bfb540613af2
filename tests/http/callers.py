"""Callers with keys, and one call of every route."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from reservation_service.access import Scope
from reservation_service.keys.key_file import KeyFile
from tests.support.clock import START
from tests.support.harness import Answer, ServiceHarness


class Call(NamedTuple):
    """A request that is in order, apart from who makes it."""

    method: str
    path: str
    document: object = None


CALLS: Mapping[str, Call] = {
    "GET /": Call("GET", "/"),
    "GET /healthz": Call("GET", "/healthz"),
    "GET /readyz": Call("GET", "/readyz"),
    "GET /metrics": Call("GET", "/metrics"),
    "GET /whoami": Call("GET", "/whoami"),
    "GET /openapi.json": Call("GET", "/openapi.json"),
    "GET /docs": Call("GET", "/docs"),
    "GET /docs/{asset}": Call("GET", "/docs/start.js"),
    "GET /reservations": Call("GET", "/reservations?id=seat-1"),
    "GET /reservations/{id}": Call("GET", "/reservations/seat-1"),
    "GET /reservations/{id}/events": Call("GET", "/reservations/seat-1/events"),
    "GET /events": Call("GET", "/events?reservation=seat-1"),
    "POST /reservations/{id}": Call("POST", "/reservations/seat-1", {"ttlSeconds": 60}),
    "POST /reservations/{id}/extend": Call(
        "POST", "/reservations/seat-1/extend", {"ttlSeconds": 60}
    ),
    "GET /reservations/{id}/schedule": Call("GET", "/reservations/seat-1/schedule"),
    "PUT /reservations/{id}/schedule/{eventId}": Call(
        "PUT", "/reservations/seat-1/schedule/reminder", {"runAt": START + 86_400_000}
    ),
    "DELETE /reservations/{id}/schedule/{eventId}": Call(
        "DELETE", "/reservations/seat-1/schedule/reminder"
    ),
    "POST /reservations/{id}/release": Call("POST", "/reservations/seat-1/release", {}),
    "POST /reservations/{id}/confirm": Call("POST", "/reservations/seat-1/confirm", {}),
    "POST /reservations/{id}/replay-alarm": Call(
        "POST", "/reservations/seat-1/replay-alarm", {"now": START}
    ),
}
"""One call of each route, by its name in the table of access."""

LIST = Call("GET", "/reservations?limit=5")
FEED = Call("GET", "/events?limit=5")


def new_key(database: Path, scope: str, name: str | None = None) -> str:
    """The token of a key in the database's file."""
    return KeyFile(database).add(name or f"{scope}-key", Scope(scope), START)


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


async def make(service: ServiceHarness, call: Call, token: str | None = None) -> Answer:
    """One call, with a key or without."""
    if call.document is None:
        return await service.request(call.method, call.path, headers=bearer(token))
    return await service.request(call.method, call.path, json=call.document, headers=bearer(token))
