"""Pending holds by the million, as if each had been asked for by a holder of its own."""

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from reservation_service.storage.migrations import load_migrations, migrate
from reservation_service.storage.sqlite_files import make_durable
from reservation_service.storage.sqlite_start import prepare_batches

HOUR_MS = 3_600_000
_HELD_MS = 60_000
_SPREAD = 2_654_435_761
_FAST = ("journal_mode = OFF", "synchronous = OFF", "cache_size = -600000")
_ROW = """
INSERT INTO reservation (id, status, holder, generation, created_at, expires_at, expiration_count,
                         alarm_at, alarm_dispatch_at, alarm_attempts, batch, changed_by)
VALUES (:id, 'held', :holder, 1, :created_at, :until, 0, :until, :until, 0, 0, 'request')
"""
_EVENT = """
INSERT INTO event (reservation, generation, type, at, "trigger")
VALUES (:id, 1, 'held', :created_at, 'request')
"""


def seat(number: int) -> str:
    """An ID of 16 characters."""
    return f"seat-{number:011}"


def open_durable(database: Path) -> sqlite3.Connection:
    """The service's own schema and pragmas, without the service."""
    connection = sqlite3.connect(database, isolation_level=None, cached_statements=256)
    migrate(connection, load_migrations("sqlite"))
    make_durable(connection)
    prepare_batches(connection)
    return connection


def seed(
    database: Path,
    numbers: range,
    until_ms: Callable[[int], int],
    name: Callable[[int], str] = seat,
) -> None:
    """Hold `name(n)` until `until_ms(n)` (epoch ms) for each n; nobody serves the file yet."""
    with closing(open_durable(database)) as connection:
        for pragma in _FAST:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN")
        connection.executemany(_ROW, _rows(numbers, until_ms, name))
        connection.executemany(_EVENT, _rows(numbers, until_ms, name))
        connection.execute("COMMIT")


def within_an_hour(after_ms: int) -> Callable[[int], int]:
    """Deadlines as they come: spread over an hour, in no order."""
    return lambda number: after_ms + number * _SPREAD % HOUR_MS


def _rows(
    numbers: range, until_ms: Callable[[int], int], name: Callable[[int], str]
) -> Iterator[dict[str, object]]:
    for number in numbers:
        until = until_ms(number)
        yield {
            "id": name(number),
            "holder": hashlib.sha256(b"%d" % number).digest(),
            "created_at": until - _HELD_MS,
            "until": until,
        }
