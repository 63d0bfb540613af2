"""Set-based is one by one: a batch does what its messages do singly, in some order.

The rows and the messages of a batch are drawn from the transitions that the explorer met, so that
every part of it is reachable. The order is that of the transaction: what ends comes before what
begins. When a holder's first hold ends may be told as it is after the whole batch.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from reservation_service.reservation import (
    Cancel,
    Confirm,
    Expire,
    Extend,
    Fire,
    Hold,
    Outcome,
    Plan,
    Release,
)
from reservation_service.store import Retry
from tests.torture import model_specification as specification
from tests.torture.model_database import Committed, Database
from tests.torture.model_judge import Met
from tests.torture.model_tables import Event, Look, Request, Step, Tables

_ORDER = (Expire, Hold, Extend, Confirm, Release, Plan, Cancel, Fire, Retry)
_SIZE_MAX = 4
_CLAIMS_APART = 100


class Batch(NamedTuple):
    """Messages of different reservations that meet in one transaction."""

    tables: Tables
    messages: tuple[Request | Retry, ...]
    now: int


def draw(met: Iterable[Met], count: int, chance: Random) -> Iterator[Batch]:
    """So many batches of transitions that were met at the same time."""
    by_time: dict[int, list[Met]] = defaultdict(list)
    for one in met:
        if not isinstance(one.message, Look) and len(one.tables.rows) <= 1:
            by_time[one.now].append(one)
    times = [now for now, some in by_time.items() if len(some) >= _SIZE_MAX]
    for _ in range(count):
        now = chance.choice(times)
        parts = chance.sample(by_time[now], chance.randint(2, _SIZE_MAX))
        limit = chance.choice((0, 1, 1, 2))
        yield _together([_renamed(part, n, limit) for n, part in enumerate(parts)], now)


def batch_differences(database: Database, batch: Batch) -> Iterator[str]:
    """Where the batch did anything else than its messages one by one; none when all is well."""
    committed = database.commit(batch.tables, batch.messages, batch.now)
    if committed.failure:
        yield f"{batch.messages} were refused: {committed.failure}"
        return
    tables, steps = batch.tables, {}
    for message in sorted(batch.messages, key=lambda one: _ORDER.index(type(one))):
        step = steps[message.id] = specification.tell(tables, message, batch.now)
        tables = step.tables
    yield from _differences(batch, committed, tables, steps)


def _differences(
    batch: Batch, committed: Committed, tables: Tables, steps: dict[str, Step]
) -> Iterator[str]:
    if committed.tables != tables:
        yield f"{batch} left {committed.tables}, one by one {tables}"
    events = [event for step in steps.values() for event in step.events]
    if sorted(committed.events, key=_place) != sorted(events, key=_place):
        yield f"{batch} wrote {committed.events}, one by one {events}"
    for message, result in zip(batch.messages, committed.results, strict=True):
        assert isinstance(result, Outcome)
        step = steps[message.id]
        answer = result.changed, result.limited_until is not None
        if answer != (step.changed, step.limited_until is not None):
            yield f"{batch}: {message} says {result}, one by one {step}"


def _together(parts: list[Met], now: int) -> Batch:
    rows = [row for part in parts for row in part.tables.rows]
    rejections = [one for part in parts for one in part.tables.rejections]
    plans = [one for part in parts for one in part.tables.plans]
    messages = [part.message for part in parts if not isinstance(part.message, Look)]
    tables = Tables(
        tuple(sorted(rows)),
        tuple(sorted(rejections)),
        tuple(sorted(plans)),
        max(part.tables.last_key for part in parts),
    )
    return Batch(tables, tuple(messages), now)


def _renamed(part: Met, number: int, limit: int) -> Met:
    """The same under another name, with claims of its own."""
    name, apart = f"r{number}", _CLAIMS_APART * number
    rows = tuple(
        row._replace(id=name, alarm_claim=row.alarm_claim and row.alarm_claim + apart)
        for row in part.tables.rows
    )
    rejections = tuple(one._replace(reservation=name) for one in part.tables.rejections)
    plans = tuple(one._replace(key=one.key + apart, reservation=name) for one in part.tables.plans)
    last_key = part.tables.last_key + apart
    message = part.message
    assert not isinstance(message, Look)
    message = replace(message, id=name)
    if isinstance(message, Retry):
        message = replace(message, claim=message.claim + apart)
    if isinstance(message, Hold):
        message = replace(message, max_per_holder=limit)
    if isinstance(message, Fire):
        message = replace(message, key=message.key + apart)
    return part._replace(tables=Tables(rows, rejections, plans, last_key), message=message)


def _place(event: Event) -> tuple[str, str]:
    """Events of one reservation keep their order: a sort that looks at nothing else is stable."""
    return event.reservation, ""
