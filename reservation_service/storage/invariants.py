"""What is true in every database that the service may leave behind, however it was stopped.

`violations(database)` only reads, so it may look at the file of a running or a killed process;
`violations_in(connection)` looks at a database that has no file.
It is written from the slot protocol and the lifecycle, and shares no statement with the service:
what one of them gets wrong, the other does not repeat.
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
    # a hold is over no earlier than agreed
    "expired_at >= expires_at",
)
"""Conditions on one row; like a CHECK, one that is NULL holds."""

PLAN_RULES = (
    "generation >= 1",
    "run_at >= first_at",
    "repeat_ms >= 1000",
    "length(data) <= 2048",
    # what happens once happens at the time that was asked for; the others keep their pace
    "run_at = first_at OR (run_at - first_at) % repeat_ms = 0",
    "repeat_ms IS NOT NULL OR run_at = first_at",
    "id <= (SELECT seq FROM sqlite_sequence WHERE name = 'schedule')",
)
"""Conditions on one planned event."""

PLANS_MAX = 100
"""Per reservation."""

STATES = {"held", "expired", "confirmed", "released"}
"""Events after which the row is what they say; all others change no state."""

FOLLOWS = {
    "held": {"", "held", "expired", "released"},
    "renewed": {"held"},
    "extended": {"held"},
    "expired": {"held"},
    "confirmed": {"held", "expired"},
    "released": {"held", "confirmed"},
    "alarm-failed": {"held", "confirmed"},
    "scheduled-event": {"held", "confirmed"},
}
"""In which states an event may happen; nothing is there before the first hold."""

BY = {
    "alarm-failed": {"alarm"},
    "scheduled-event": {"alarm"},
    "expired": {"request", "alarm", "replay"},
}
"""What makes an event; all others come by a request alone."""

REJECTED_IN = {
    "hold-expired": {"held", "expired"},
    "hold-released": {"released"},
    "taken": {"held", "confirmed"},
}
"""Why a confirmation came too late, and the states in which that can be."""

REJECTIONS_MAX = 20
"""Per hold: strangers cannot fill the log."""

PURGED = "purged"
"""The state before the first event of a log that has lost its head: any."""

_ROWS = """
SELECT id, status, generation, created_at, expires_at, expired_at, confirmed_at, released_at,
       expiration_count, holder, alarm_at, alarm_attempts
FROM reservation ORDER BY id
"""
_EVENTS = """
SELECT reservation, generation, type, at, "trigger", data FROM event ORDER BY reservation, seq
"""
_IS_PURGED = """
SELECT coalesce((SELECT min(seq) FROM event),
                (SELECT seq + 1 FROM sqlite_sequence WHERE name = 'event'), 1) > 1
"""
# The slot is a function of the state: the earliest of the deadline and of what is planned.
_WRONG_SLOTS = """
SELECT id, alarm_at, earliest
FROM (SELECT id, alarm_at, CASE status
          WHEN 'held' THEN min(expires_at, coalesce(first, expires_at))
          WHEN 'confirmed' THEN first END AS earliest
      FROM (SELECT r.*, (SELECT min(s.run_at) FROM schedule AS s
                         WHERE s.reservation = r.id AND s.generation = r.generation) AS first
            FROM reservation AS r))
WHERE alarm_at IS NOT earliest
"""
_CROWDED = """
SELECT reservation, count(*) FROM schedule GROUP BY reservation HAVING count(*) > ?
"""
_STRAY_PLANS = """
SELECT s.reservation, s.event_id, s.generation, r.generation
FROM schedule AS s LEFT JOIN reservation AS r ON r.id = s.reservation
WHERE r.generation IS NOT s.generation
"""
_FIRED = """
SELECT e.reservation, e.planned, e.run_at, e.at, e.data, s.run_at AS next_at, s.event_id,
       s.repeat_ms, count(*) OVER (PARTITION BY e.planned, e.run_at) AS times
FROM event AS e LEFT JOIN schedule AS s ON s.id = e.planned
WHERE e.type = 'scheduled-event' ORDER BY e.seq
"""
_REJECTIONS = """
SELECT reservation, generation, sum(is_event), sum(NOT is_event),
       EXISTS (SELECT 1 FROM reservation AS r WHERE r.id = reservation)
FROM (SELECT reservation, generation, 1 AS is_event FROM event WHERE type = 'confirm-rejected'
      UNION ALL
      SELECT reservation, generation, 0 FROM confirm_rejection)
GROUP BY reservation, generation
"""


def violations(database: Path) -> list[str]:
    """Every broken invariant in one sentence each; an empty list is what a healthy file gives."""
    uri = f"file:{quote(str(database))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        return violations_in(connection)


def violations_in(connection: sqlite3.Connection) -> list[str]:
    """The same over a connection that is the caller's own; it is left in a read transaction."""
    return list(found_in(connection))


def found_in(connection: sqlite3.Connection) -> Iterator[str]:
    """The same one by one, in little memory: a damaged database may have them without number."""
    connection.row_factory = sqlite3.Row
    if not connection.in_transaction:
        connection.execute("BEGIN")  # one snapshot, though the service may go on writing
    yield from _all(connection)


def _all(connection: sqlite3.Connection) -> Iterator[str]:
    try:
        yield from _damage(connection)
        yield from _broken_rows(connection)
        yield from _broken_histories(connection)
        yield from _broken_rejections(connection)
        yield from _broken_schedules(connection)
    except sqlite3.DatabaseError as error:
        yield f"the file cannot be read: {error}"


def _damage(connection: sqlite3.Connection) -> Iterator[str]:
    findings = [finding for (finding,) in connection.execute("PRAGMA quick_check(5)")]
    if findings != ["ok"]:
        yield f"the file is damaged: {findings}"


def _broken_rows(connection: sqlite3.Connection) -> Iterator[str]:
    for rule in ROW_RULES:
        sql = f"SELECT id FROM reservation WHERE NOT ({rule})"  # noqa: S608 - a constant
        for (name,) in connection.execute(sql):
            yield f"{name}: {rule}"


def _broken_histories(connection: sqlite3.Connection) -> Iterator[str]:
    ((is_purged,),) = connection.execute(_IS_PURGED)
    for name, row, events in _histories(connection):
        if events:
            for complaint in _complaints(events, row, is_purged=is_purged):
                yield f"{name}: {complaint}"
        elif not is_purged:
            yield f"{name}: a row without events"


def _histories(
    connection: sqlite3.Connection,
) -> Iterator[tuple[str, sqlite3.Row | None, list[sqlite3.Row]]]:
    """Each name with its row and its events, in the order of names; one of both may be missing."""
    rows = connection.execute(_ROWS)
    row: sqlite3.Row | None = rows.fetchone()
    events = groupby(connection.execute(_EVENTS), key=lambda event: str(event["reservation"]))
    for name, some in events:
        while row is not None and row["id"] < name:
            yield row["id"], row, []
            row = rows.fetchone()
        if row is not None and row["id"] == name:
            yield name, row, list(some)
            row = rows.fetchone()
        else:
            yield name, None, list(some)
    while row is not None:
        yield row["id"], row, []
        row = rows.fetchone()


def _broken_rejections(connection: sqlite3.Connection) -> Iterator[str]:
    """What was remembered of late confirmations, so that it is recorded once."""
    ((is_purged,),) = connection.execute(_IS_PURGED)
    for name, generation, recorded, remembered, has_row in connection.execute(_REJECTIONS):
        if recorded > remembered or (recorded < remembered and not is_purged):
            yield f"{name}: {recorded} rejections recorded, {remembered} remembered"
        if remembered > REJECTIONS_MAX:
            yield f"{name}: {remembered} rejections of generation {generation}"
        if not has_row:
            yield f"{name}: rejections without a row"


def _broken_schedules(connection: sqlite3.Connection) -> Iterator[str]:
    """What is planned, what the slots say of it, and what has happened of it."""
    for rule in PLAN_RULES:
        for name, event_id in connection.execute(
            f"SELECT reservation, event_id FROM schedule WHERE NOT ({rule})"  # noqa: S608 - a constant
        ):
            yield f"{name}: planned {event_id}: {rule}"
    for name, alarm_at, earliest in connection.execute(_WRONG_SLOTS):
        yield f"{name}: the slot is set to {alarm_at}, planned is {earliest}"
    for name, count in connection.execute(_CROWDED, [PLANS_MAX]):
        yield f"{name}: {count} planned events"
    for name, event_id, planned, current in connection.execute(_STRAY_PLANS):
        yield f"{name}: {event_id} is planned on generation {planned}, the row is at {current}"
    for event in connection.execute(_FIRED):
        yield from (f"{event['reservation']}: {told}" for told in _misfired(event))


def _misfired(event: sqlite3.Row) -> Iterator[str]:
    """Why this occurrence cannot have been recorded, or not like this."""
    data = json.loads(event["data"])
    name, run_at = data["eventId"], event["run_at"]
    if event["times"] > 1:
        yield f"{name} of {run_at} happened {event['times']} times"
    if event["at"] < run_at:
        yield f"{name} of {run_at} happened early, at {event['at']}"
    if (data["scheduledTime"], data["lateness"]) != (run_at, event["at"] - run_at):
        yield f"{name} of {run_at} at {event['at']} says {data}"
    if event["event_id"] is None:
        return
    if event["repeat_ms"] is None:
        yield f"{name} of {run_at} happened and is planned"
    elif event["next_at"] <= run_at:
        yield f"{name} of {run_at} happened and is planned for {event['next_at']}"
    elif data["missed"] != (event["at"] - run_at) // event["repeat_ms"]:
        yield f"{name} of {run_at} at {event['at']} missed {data['missed']}"


def _complaints(
    events: list[sqlite3.Row], row: sqlite3.Row | None, *, is_purged: bool
) -> Iterator[str]:
    state, generation = "", 0
    if is_purged:  # its first hold may have begun before the log does
        state, generation = PURGED, events[0]["generation"] - (events[0]["type"] == "held")
    for event in events:
        kind = event["type"]
        if event["generation"] != generation + (kind == "held"):
            yield _misplaced(event, generation)
        yield from _misfits(event, state)
        if kind in STATES:
            state, generation = kind, event["generation"]
    if row is None:
        yield "events without a row"
    else:
        last = [event for event in events if event["generation"] == row["generation"]]
        is_whole = not is_purged or any(event["type"] == "held" for event in last)
        if row["status"] != state and state != PURGED:
            yield f"the row is {row['status']}, the log says {state}"
        if row["generation"] != generation:
            yield f"the row is at generation {row['generation']}, the log at {generation}"
        yield from _other_counts(last, row, is_whole=is_whole)
        yield from _other_times(last, row, is_whole=is_whole)
    yield from _forgotten_failures(events, row)


def _misplaced(event: sqlite3.Row, generation: int) -> str:
    if event["type"] == "held":
        return f"generation {event['generation']} follows {generation}"
    return f"{event['type']} of generation {event['generation']} in generation {generation}"


def _misfits(event: sqlite3.Row, state: str) -> Iterator[str]:
    """Why this event cannot have happened in this state, or not by what made it."""
    kind = event["type"]
    if event["trigger"] not in BY.get(kind, {"request"}):
        yield f"{kind} by {event['trigger']}"
    states = FOLLOWS.get(kind, set())
    if kind == "confirm-rejected":
        code = json.loads(event["data"])["code"]
        kind, states = f"confirm-rejected as {code}", REJECTED_IN.get(code, set())
    if state not in states | {PURGED}:
        yield f"{kind} follows {state}"


def _other_counts(events: list[sqlite3.Row], row: sqlite3.Row, *, is_whole: bool) -> Iterator[str]:
    """Where the row and the log of its generation disagree about its expiry."""
    expiries = [event for event in events if event["type"] == "expired"]
    if is_whole and row["expiration_count"] != len(expiries):
        yield f"the row counts {row['expiration_count']} expiries, the log {len(expiries)}"
    for event in expiries:
        if event["trigger"] == "replay":
            continue  # a replay brings its own time
        if event["at"] != row["expired_at"]:
            yield f"expired at {event['at']} by the log, at {row['expired_at']} by the row"
        if event["at"] < row["expires_at"]:
            yield f"expired {row['expires_at'] - event['at']} ms early by {event['trigger']}"


def _other_times(events: list[sqlite3.Row], row: sqlite3.Row, *, is_whole: bool) -> Iterator[str]:
    """Where the row and its log disagree about when it was held, confirmed or released."""
    for event in events:
        if event["type"] == "held" and event["at"] != row["created_at"]:
            yield f"held at {event['at']}, created at {row['created_at']}"
    for kind in ("confirmed", "released"):
        recorded = [event["at"] for event in events if event["type"] == kind]
        shown = [row[f"{kind}_at"]] if row[f"{kind}_at"] is not None else []
        if recorded != shown and (is_whole or recorded):
            yield f"{kind} at {recorded} by the log, at {shown} by the row"


def _forgotten_failures(events: list[sqlite3.Row], row: sqlite3.Row | None) -> Iterator[str]:
    """The retry count of one planned alarm only grows, across restarts too.

    An event that is planned once more for the same time is a new alarm, and counts from 0.
    """
    is_held = row is not None and row["status"] in {"held", "expired"}
    deadline = (row["generation"], row["expires_at"]) if row is not None and is_held else None
    counts: dict[tuple[int, int], int] = {}
    for event in events:
        if event["type"] == "alarm-failed":
            data = json.loads(event["data"])
            slot = event["generation"], data["scheduledTime"]
            is_anew = data["retryCount"] == 0 and slot != deadline
            if data["retryCount"] <= counts.get(slot, -1) and not is_anew:
                yield f"retry {data['retryCount']} after retry {counts[slot]}"
            counts[slot] = data["retryCount"]
