"""The schedule: many planned events of a reservation on its one alarm slot.

The slot is always the earliest of the deadline and of what is planned on this generation. Plans of
an older generation, or of a hold that is over, are silent: not shown, not fired. A plan that is
replaced gets a new number, so whoever still has the old one fires nothing.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from reservation_service.reservation import PlannedEvent, Schedule
from reservation_service.storage.sqlite_bookings import FIRST_PLANNED
from reservation_service.storage.sqlite_errors import failure_before_commit
from reservation_service.storage.sqlite_messages import MESSAGES
from reservation_service.storage.sqlite_reads import read_rows
from reservation_service.store import ScheduleQuery

LIVE = "(r.status = 'confirmed' OR (r.status = 'held' AND r.expires_at > :now))"

# The guard of a plan. One message for an ID and batch, so the number of its events is exact.
SORT_PLANS = f"""
SELECT json_group_array(json_array(m.number - :first, CASE
    WHEN s.id IS NULL AND (SELECT count(*) FROM schedule AS c
        WHERE c.reservation = r.id AND c.generation = r.generation) >= :events_max THEN 'full'
    WHEN s.id IS NULL THEN 'new'
    WHEN s.first_at = m.run_at AND s.repeat_ms IS m.repeat_ms AND s.data IS m.data THEN 'same'
    ELSE 'replaced' END))
FROM ({MESSAGES}) AS m JOIN reservation AS r ON r.id = m.id
     LEFT JOIN schedule AS s
       ON s.reservation = r.id AND s.event_id = m.event_id AND s.generation = r.generation
WHERE (r.holder = m.holder OR m.operator)
  AND (m.generation IS NULL OR m.generation = r.generation) AND {LIVE}
"""  # noqa: S608 - a constant, no input in it

SCHEDULE_PUT = f"""
INSERT OR REPLACE INTO schedule (reservation, event_id, generation, run_at, first_at,
                                 repeat_ms, data)
SELECT r.id, m.event_id, r.generation, m.run_at, m.run_at, m.repeat_ms, m.data
FROM ({MESSAGES}) AS m JOIN reservation AS r ON r.id = m.id
"""  # noqa: S608 - a constant, no input in it

SCHEDULE_DELETE = f"""
DELETE FROM schedule
WHERE id IN (SELECT s.id FROM ({MESSAGES}) AS m JOIN reservation AS r ON r.id = m.id
             JOIN schedule AS s ON s.reservation = r.id AND s.event_id = m.event_id
                               AND s.generation = r.generation
             WHERE r.holder = m.holder OR m.operator)
RETURNING reservation
"""  # noqa: S608 - a constant, no input in it

FIRE = f"""
INSERT INTO event (reservation, generation, type, at, "trigger", data, planned, run_at)
SELECT r.id, r.generation, 'scheduled-event', :now, 'alarm', json_object(
    'eventId', s.event_id, 'data', json(s.data),
    'missed', coalesce((:now - s.run_at) / s.repeat_ms, 0),
    'scheduledTime', s.run_at, 'retryCount', m.retry_count,
    'isRetry', json(CASE WHEN m.retry_count > 0 THEN 'true' ELSE 'false' END),
    'lateness', :now - s.run_at, 'outcome', 'ok'), s.id, s.run_at
FROM ({MESSAGES}) AS m
     JOIN schedule AS s ON s.id = m.key AND s.reservation = m.id
     JOIN reservation AS r ON r.id = s.reservation AND r.generation = s.generation
WHERE s.run_at = m.run_at AND s.run_at <= :now AND {LIVE}
RETURNING reservation
"""  # noqa: S608 - a constant, no input in it

# From the planned time, so that nothing drifts; what was missed meanwhile is skipped.
FIRE_ADVANCE = f"""
UPDATE schedule AS s
SET run_at = s.run_at + s.repeat_ms * ((:now - s.run_at) / s.repeat_ms + 1)
FROM ({MESSAGES}) AS m
WHERE s.id = m.key AND s.repeat_ms IS NOT NULL
"""  # noqa: S608 - a constant, no input in it

FIRE_DROP = f"""
DELETE FROM schedule
WHERE id IN (SELECT m.key FROM ({MESSAGES}) AS m) AND repeat_ms IS NULL
"""  # noqa: S608 - a constant, no input in it

_EARLIEST = f"""CASE t.status
        WHEN 'held' THEN min(t.expires_at, coalesce({FIRST_PLANNED}, t.expires_at))
        WHEN 'confirmed' THEN {FIRST_PLANNED} END"""

# A plan for the slot's own time is a new alarm. One for later than that need not wait for the
# backoff of what is in the slot, nor for the attempt at it.
PLAN_PUT = f"""
WITH n AS MATERIALIZED (
    SELECT x.id, x.run_at, x.alarm_at, (x.before IS NOT x.alarm_at OR x.run_at = x.alarm_at) AS anew
    FROM (SELECT t.id, t.alarm_at AS before, m.run_at, {_EARLIEST} AS alarm_at
          FROM ({MESSAGES}) AS m JOIN reservation AS t ON t.id = m.id) AS x)
UPDATE reservation AS r
SET alarm_at = n.alarm_at,
    alarm_dispatch_at = CASE WHEN n.anew THEN n.alarm_at
                             ELSE min(r.alarm_dispatch_at, n.run_at) END,
    alarm_attempts = CASE WHEN n.anew THEN 0 ELSE r.alarm_attempts END,
    alarm_claim = CASE WHEN n.anew OR n.run_at < r.alarm_dispatch_at THEN NULL
                       ELSE r.alarm_claim END
FROM n
WHERE r.id = n.id
"""  # noqa: S608 - a constant, no input in it

PLAN = f"""
WITH n AS MATERIALIZED (
    SELECT t.id, {_EARLIEST} AS alarm_at
    FROM ({MESSAGES}) AS m JOIN reservation AS t ON t.id = m.id)
UPDATE reservation AS r
SET alarm_at = n.alarm_at, alarm_dispatch_at = n.alarm_at, alarm_attempts = 0, alarm_claim = NULL
FROM n
WHERE r.id = n.id AND r.alarm_at IS NOT n.alarm_at
"""  # noqa: S608 - a constant, no input in it

# The attempt that has fired one event goes on to the next that is due: it is the first at it.
PLAN_FIRED = f"""
WITH n AS MATERIALIZED (
    SELECT t.id, x.alarm_at, t.alarm_claim IS NOT NULL AND x.alarm_at <= :now AS goes_on
    FROM (SELECT t.id, {_EARLIEST} AS alarm_at
          FROM ({MESSAGES}) AS m JOIN reservation AS t ON t.id = m.id) AS x
    JOIN reservation AS t ON t.id = x.id)
UPDATE reservation AS r
SET alarm_at = n.alarm_at,
    alarm_dispatch_at = CASE WHEN n.goes_on THEN max(r.alarm_dispatch_at, n.alarm_at)
                             ELSE n.alarm_at END,
    alarm_attempts = CASE WHEN n.goes_on THEN 1 ELSE 0 END,
    alarm_claim = CASE WHEN n.goes_on THEN r.alarm_claim END
FROM n
WHERE r.id = n.id AND r.alarm_at IS NOT n.alarm_at
"""  # noqa: S608 - a constant, no input in it

# A new hold begins with nothing planned.
FORGET_PLANS = f"""
DELETE FROM schedule
WHERE id IN (SELECT s.id FROM ({MESSAGES}) AS m
             JOIN reservation AS r ON r.id = m.id
             JOIN schedule AS s ON s.reservation = r.id AND s.generation < r.generation)
"""  # noqa: S608 - a constant, no input in it

PLANNED = f"""
SELECT json_group_array(json_array(id, event_id, run_at, repeat_ms, data))
FROM (SELECT s.id, s.event_id, s.run_at, s.repeat_ms, s.data
      FROM reservation AS r
      JOIN schedule AS s ON s.reservation = r.id AND s.generation = r.generation
      WHERE r.id = :id AND s.run_at <= :until AND {LIVE}
      ORDER BY s.run_at, s.id)
"""  # noqa: S608 - a constant, no input in it

IS_OWN = "SELECT coalesce(max(holder = :holder), 0) FROM reservation WHERE id = :id"

_FOR_EVER = 2**63 - 1
_decode = msgspec.json.Decoder(list[PlannedEvent]).decode


def read_schedules(
    connection: sqlite3.Connection, queries: Sequence[ScheduleQuery], now: int
) -> list[Schedule]:
    """What is planned, or due, at `now`; of a hold that is over nothing."""
    try:
        connection.execute("BEGIN")  # all statements see the same rows
        return [_read(connection, query, now) for query in queries]
    except sqlite3.Error as error:
        raise failure_before_commit(error) from error
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _read(connection: sqlite3.Connection, query: ScheduleQuery, now: int) -> Schedule:
    values: dict[str, Any] = {
        "id": query.reservation_id,
        "holder": query.holder,
        "now": now,
        "until": now if query.is_due_only else _FOR_EVER,
    }
    (row,) = read_rows(connection, [query.reservation_id])
    (is_own,) = connection.execute(IS_OWN, values).fetchone()
    (events,) = connection.execute(PLANNED, values).fetchone()
    return Schedule(row, bool(is_own), _decode(events))
