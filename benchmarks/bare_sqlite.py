"""The limit that the disk sets: the same rows and events by plain SQLite, without asyncio.

`python -m benchmarks.bare_sqlite commits DATABASE BATCH SECONDS` holds in transactions of BATCH;
`… burst DATABASE LIMIT` claims and expires what is due, LIMIT at a time, until nothing is.
"""

import json
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.seeding import open_durable, seat
from reservation_service.storage.sqlite_start import reserve_log

_HOLD = """
INSERT INTO reservation (id, status, holder, generation, created_at, expires_at, expiration_count,
                         alarm_at, alarm_dispatch_at, alarm_attempts, batch, changed_by)
VALUES (?1, 'held', ?2, 1, ?3, ?3 + 3600000, 0, ?3 + 3600000, ?3 + 3600000, 0, ?4, 'request')
"""
_HELD = """
INSERT INTO event (reservation, generation, type, at, "trigger") VALUES (?, 1, 'held', ?, 'request')
"""
_CLAIM = """
UPDATE reservation
SET alarm_attempts = alarm_attempts + 1, alarm_dispatch_at = :now + 10000, alarm_claim = :batch
WHERE rowid IN (SELECT rowid FROM reservation WHERE alarm_dispatch_at <= :now
                ORDER BY alarm_dispatch_at LIMIT :limit)
"""
_CLAIMED = "SELECT id FROM reservation WHERE alarm_attempts > 0 AND alarm_claim = :batch"
_EXPIRE = """
UPDATE reservation
SET status = 'expired', expired_at = ?1, expiration_count = 1, alarm_at = NULL,
    alarm_dispatch_at = NULL, alarm_attempts = 0, alarm_claim = NULL, changed_by = 'alarm'
WHERE id = ?2 AND status = 'held' AND expires_at <= ?1
"""
_EXPIRED = """
INSERT INTO event (reservation, generation, type, at, "trigger")
VALUES (?2, 1, 'expired', ?1, 'alarm')
"""


def commit_holds(connection: sqlite3.Connection, batch: int, seconds: float) -> dict[str, float]:
    """Transaction after transaction of `batch` holds."""
    began, cpu, number = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < seconds:
        hold(connection, [seat(n) for n in range(number, number + batch)], number)
        number += batch
    return _figures(number, began, cpu)


def hold(connection: sqlite3.Connection, names: Sequence[str], number: int) -> None:
    """One transaction, whose number it is, of holds that are new and of nobody else's."""
    now = _now()
    holds = [(name, name.encode().ljust(32, b"0"), now, number) for name in names]
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(_HOLD, holds)
    connection.executemany(_HELD, [(name, now) for name in names])
    connection.execute("COMMIT")


def open_with_room(database: Path) -> sqlite3.Connection:
    """The service's own schema and pragmas, and the room for its log."""
    connection = open_durable(database)
    reserve_log(connection, database)
    return connection


def expire_all(connection: sqlite3.Connection, limit: int) -> dict[str, float]:
    """Two transactions for each `limit` alarms: the claims, then what they do."""
    began, cpu, done, batch = time.perf_counter(), time.process_time(), 0, 1
    while True:
        claim = {"now": _now(), "batch": batch, "limit": limit}
        connection.execute("BEGIN IMMEDIATE")
        claimed = connection.execute(_CLAIM, claim).rowcount
        names = connection.execute(_CLAIMED, claim).fetchall()
        connection.execute("COMMIT")
        if not claimed:
            return _figures(done, began, cpu)
        effects = [(_now(), name) for (name,) in names]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_EXPIRE, effects)
        connection.executemany(_EXPIRED, effects)
        connection.execute("COMMIT")
        done, batch = done + claimed, batch + 1


def _figures(done: int, began: float, cpu: float) -> dict[str, float]:
    return {
        "per_second": done / (time.perf_counter() - began),
        "cpu_us": (time.process_time() - cpu) * 1e6 / max(1, done),
    }


def _now() -> int:
    return time.time_ns() // 1_000_000


def main(what: str, database: str, *numbers: str) -> None:
    """Print the figures as JSON."""
    programs: dict[str, Callable[..., dict[str, float]]] = {
        "commits": lambda batch, seconds: commit_holds(connection, int(batch), float(seconds)),
        "burst": lambda limit: expire_all(connection, int(limit)),
    }
    with closing(open_with_room(Path(database))) as connection:
        sys.stdout.write(json.dumps(programs[what](*numbers)))


if __name__ == "__main__":
    main(*sys.argv[1:])
