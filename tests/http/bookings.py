"""The calls of a booking front end, and reservations brought into each state of the contract."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from reservation_service.store import Claim
from tests.support.clock import START
from tests.support.harness import Answer, ServiceHarness
from tests.support.rows import Row, events, row, rows

TTL_SECONDS = 60
TTL_MS = 60_000
DEADLINE = START + TTL_MS

STATES = ("held", "overdue", "expired", "released", "confirmed", "missing")


def path(name: str, verb: str = "hold") -> str:
    return f"/reservations/{name}" if verb == "hold" else f"/reservations/{name}/{verb}"


def body(holder: str | None = None, **fields: object) -> dict[str, object]:
    """A body without what is None: those fields are absent."""
    given = {"holder": holder} | fields
    return {key: value for key, value in given.items() if value is not None}


async def hold(
    service: ServiceHarness, name: str, holder: str | None = None, ttl: int = TTL_SECONDS
) -> Answer:
    return await service.post(path(name), body(holder, ttlSeconds=ttl))


async def extend(
    service: ServiceHarness, name: str, holder: str | None = None, ttl: int = TTL_SECONDS
) -> Answer:
    return await service.post(path(name, "extend"), body(holder, ttlSeconds=ttl))


async def confirm(
    service: ServiceHarness, name: str, holder: str | None = None, **fields: object
) -> Answer:
    return await service.post(path(name, "confirm"), body(holder, **fields))


async def release(
    service: ServiceHarness, name: str, holder: str | None = None, **fields: object
) -> Answer:
    return await service.post(path(name, "release"), body(holder, **fields))


def changed(answer: Answer) -> Any:
    """The document of a 200 that says that it changed something."""
    assert (answer.status, answer.json.get("changed")) == (200, True), answer
    return answer.json


def unchanged(answer: Answer) -> Any:
    """The document of a 200 that says that it changed nothing."""
    assert (answer.status, answer.json.get("changed")) == (200, False), answer
    return answer.json


def held(answer: Answer) -> Any:
    assert answer.status == 201, answer
    return answer.json


def is_claim(message: object) -> bool:
    return isinstance(message, Claim)


@contextmanager
def alarms_held_back(service: ServiceHarness) -> Iterator[None]:
    """Within it no alarm is dispatched, however overdue it is."""
    gate = service.gates.before(is_claim)
    try:
        yield
    finally:
        gate.open()


async def bring(service: ServiceHarness, state: str, holder: str | None, names: list[str]) -> None:
    """Each of these names into this state, by the API alone; for `overdue` ones every alarm is
    held back from now on."""
    if state == "missing":
        return
    for name in names:
        held(await hold(service, name, holder))
        if state in {"confirmed", "released"}:
            verb = confirm if state == "confirmed" else release
            changed(await verb(service, name, holder))
    if state == "expired":
        await service.advance(TTL_MS)
    if state == "overdue":
        service.gates.before(is_claim)
        service.clock.advance(TTL_MS)


def everything(service: ServiceHarness) -> tuple[list[Row], list[Row]]:
    """Every row and every event, to the last column."""
    return rows(service.database), events(service.database)


def slot(service: ServiceHarness, name: str) -> tuple[int | None, int | None, int, int | None]:
    """The alarm slot: what was asked for, when it is tried, how often it was, by which claim."""
    found = row(service.database, name)
    return (
        found["alarm_at"],
        found["alarm_dispatch_at"],
        found["alarm_attempts"],
        found["alarm_claim"],
    )
