"""What is true in every database that the service may leave behind, however it was stopped.

`violations(database)` only reads, so it may look at the file of a running or a killed process;
`violations_in(connection)` looks at a database that has no file.
It is written from the slot protocol and the lifecycle, not from the service's code. A harness
that injects faults ends by asserting that the list is empty.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

ROW_RULES = (
    "status IN ('held', 'confirmed', 'released', 'expired')",
    "length(holder) IN (0, 32)",
    "generation >= 1",
    "created_at < expires_at",
    "expiration_count IN (0, 1)",
    "(expiration_count = 1) = (expired_at IS NOT NULL)",
    "status <> 'expired' OR expiration_count = 1",
    "status <> 'held' OR expiration_count = 0",
    "status <> 'confirmed' OR confirmed_at IS NOT NULL",
    "status NOT IN ('held', 'expired') OR confirmed_at IS NULL",
    "(status = 'released') = (released_at IS NOT NULL)",
    "status <> 'held' OR (alarm_at IS NOT NULL AND alarm_at <= expires_at)",
    "status IN ('held', 'confirmed') OR alarm_at IS NULL",
    "(alarm_at IS NULL) = (alarm_dispatch_at IS NULL)",
    "alarm_dispatch_at >= alarm_at",
    "alarm_attempts >= 0",
    "alarm_attempts > 0 OR alarm_dispatch_at IS alarm_at",
    "alarm_attempts = 0 OR alarm_at IS NOT NULL",
    "alarm_claim IS NULL OR alarm_attempts > 0",
    "changed_by IN ('request', 'alarm', 'replay')",
    # nothing planned reaches beyond the deadline yet, and a hold is over no earlier than agreed
    "status <> 'held' OR alarm_at = expires_at",
    "expired_at >= expires_at",
)
"""Conditions on one row; like a CHECK, one that is NULL holds."""

STEPS = {
    "held": {"renewed", "extended", "expired", "confirmed", "released"},
    "expired": {"confirmed"},
    "confirmed": {"released"},
    "released": set[str](),
}
"""What may follow each state within one generation."""

REMARKS = {"alarm-failed", "confirm-rejected", "scheduled-event"}
"""Events that change no state."""

_ROWS = """
SELECT id, status, generation, created_at, expires_at, expired_at, expiration_count,
       alarm_at, alarm_attempts
FROM reservation
"""
_EVENTS = """
SELECT reservation, generation, type, at, "trigger", data FROM event ORDER BY reservation, seq
"""


def violations(database: Path) -> list[str]:
    """Every broken invariant in one sentence each; an empty list is what a healthy file gives."""
    uri = f"file:{quote(str(database))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        return violations_in(connection)


def violations_in(connection: sqlite3.Connection) -> list[str]:
    """The same over a connection that is the caller's own; it is left in a read transaction."""
    connection.row_factory = sqlite3.Row
    connection.execute("BEGIN")  # one snapshot, though the service may go on writing
    return list(_all(connection))


def _all(connection: sqlite3.Connection) -> Iterator[str]:
    try:
        yield from _damage(connection)
        yield from _broken_rows(connection)
        yield from _broken_histories(connection)
    except sqlite3.DatabaseError as error:
        yield f"the file cannot be read: {error}"


def _damage(connection: sqlite3.Connection) -> Iterator[str]:
    findings = [finding for (finding,) in connection.execute("PRAGMA quick_check(5)")]
    if findings != ["ok"]:
        yield f"the file is damaged: {findings}"


def _broken_rows(connection: sqlite3.Connection) -> Iterator[str]:
    for rule in ROW_RULES:
        for (name,) in connection.execute(f"SELECT id FROM reservation WHERE NOT ({rule})"):
            yield f"{name}: {rule}"


def _broken_histories(connection: sqlite3.Connection) -> Iterator[str]:
    rows = {row["id"]: row for row in connection.execute(_ROWS)}
    histories = groupby(connection.execute(_EVENTS), key=lambda event: str(event["reservation"]))
    recorded = set()
    for name, events in histories:
        recorded.add(name)
        for complaint in _complaints(list(events), rows.get(name)):
            yield f"{name}: {complaint}"
    for name in rows.keys() - recorded:
        yield f"{name}: a row without events"


def _complaints(events: list[sqlite3.Row], row: sqlite3.Row | None) -> Iterator[str]:
    state, generation = "", 0
    for event in events:
        kind = event["type"]
        if kind == "held":
            if event["generation"] != generation + 1:
                yield f"generation {event['generation']} follows {generation}"
            if state not in ("", "held", "expired", "released"):
                yield f"held follows {state}"
        elif event["generation"] != generation:
            yield f"{kind} of generation {event['generation']} in generation {generation}"
        if kind == "alarm-failed" and state not in ("held", "confirmed"):
            yield f"alarm-failed in state {state}"
        if kind in REMARKS:
            continue
        if kind != "held" and kind not in STEPS.get(state, set()):
            yield f"{kind} follows {state}"
        generation = event["generation"]
        state = kind if kind in STEPS else state
    if row is None:
        yield "events without a row"
    else:
        yield from _contradictions(events, row, state, generation)
    yield from _forgotten_failures(events)


def _contradictions(
    events: list[sqlite3.Row], row: sqlite3.Row, state: str, generation: int
) -> Iterator[str]:
    """Where the row and the last generation of its log disagree."""
    if row["status"] != state:
        yield f"the row is {row['status']}, the log says {state}"
    if row["generation"] != generation:
        yield f"the row is at generation {row['generation']}, the log at {generation}"
    last = [event for event in events if event["generation"] == row["generation"]]
    expiries = [event for event in last if event["type"] == "expired"]
    if row["expiration_count"] != len(expiries):
        yield f"the row counts {row['expiration_count']} expiries, the log {len(expiries)}"
    for event in last:
        if event["type"] == "held" and event["at"] != row["created_at"]:
            yield f"held at {event['at']}, created at {row['created_at']}"
    for event in expiries:
        if event["trigger"] == "replay":
            continue  # a replay brings its own time
        if event["at"] != row["expired_at"]:
            yield f"expired at {event['at']} by the log, at {row['expired_at']} by the row"
        if event["at"] < row["expires_at"]:
            yield f"expired {row['expires_at'] - event['at']} ms early by {event['trigger']}"


def _forgotten_failures(events: list[sqlite3.Row]) -> Iterator[str]:
    """The retry count of one planned alarm only grows, across restarts too."""
    counts: dict[tuple[int, int], int] = {}
    for event in events:
        if event["type"] == "alarm-failed":
            data = json.loads(event["data"])
            slot = event["generation"], data["scheduledTime"]
            if data["retryCount"] <= counts.get(slot, -1):
                yield f"retry {data['retryCount']} after retry {counts[slot]}"
            counts[slot] = data["retryCount"]
