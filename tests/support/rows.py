"""A database looked at, or prepared, from outside: plain SQLite, none of the service's code."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def rows(database: Path) -> list[Row]:
    """Every reservation, by ID."""
    return _query(database, "SELECT * FROM reservation ORDER BY id")


def row(database: Path, reservation_id: str) -> Row:
    """The one row of a reservation that exists."""
    (found,) = (one for one in rows(database) if one["id"] == reservation_id)
    return found


def events(database: Path, reservation_id: str | None = None) -> list[Row]:
    """What was recorded, in order, of one reservation or of all."""
    return _query(
        database,
        """SELECT seq, reservation, generation, type, at, "trigger", data FROM event
           WHERE coalesce(reservation = ?, 1) ORDER BY seq""",
        reservation_id,
    )


def history(database: Path, reservation_id: str) -> list[tuple[int, str, str]]:
    """The generation, type and trigger of each event of a reservation."""
    return [
        (event["generation"], event["type"], event["trigger"])
        for event in events(database, reservation_id)
    ]


def confirm(database: Path, reservation_id: str, at: int) -> None:
    """What a confirmation will leave behind, made by hand, while the service does not look."""
    _query(
        database,
        """UPDATE reservation SET status = 'confirmed', confirmed_at = ?, alarm_at = NULL,
                                  alarm_dispatch_at = NULL, alarm_attempts = 0, alarm_claim = NULL
           WHERE id = ?""",
        at,
        reservation_id,
    )
    _query(
        database,
        """INSERT INTO event (reservation, generation, type, at, "trigger")
           SELECT id, generation, 'confirmed', confirmed_at, 'request' FROM reservation
           WHERE id = ?""",
        reservation_id,
    )


def insert(database: Path, *columns: Row) -> None:
    """Reservations as they are given, all with the same columns."""
    names = ", ".join(columns[0])
    marks = ", ".join(f":{name}" for name in columns[0])
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executemany(f"INSERT INTO reservation ({names}) VALUES ({marks})", columns)


def _query(database: Path, sql: str, *values: object) -> list[Row]:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.row_factory = sqlite3.Row
        return [dict(found) for found in connection.execute(sql, values)]
