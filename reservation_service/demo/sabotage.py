"""What the demo does to its own database file, and only while no server runs on it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

_PLANT = """
    CREATE TRIGGER demo_failure BEFORE UPDATE ON reservation
    WHEN NEW.id = 'demo-failing' AND NEW.status = 'expired'
    BEGIN SELECT RAISE(ABORT, 'planted failure'); END
"""
_REMOVE = "DROP TRIGGER demo_failure"
_EXPIRIES = """SELECT reservation, "trigger" FROM event WHERE type = 'expired' ORDER BY seq"""

_OCCURRENCES = """
    SELECT data->>'scheduledTime', data->>'missed' FROM event
    WHERE type = 'scheduled-event' ORDER BY seq
"""


def plant(database: Path) -> None:
    """From now on every attempt to expire `demo-failing` fails."""
    _run(database, _PLANT)


def remove(database: Path) -> None:
    """Take the planted failure back."""
    _run(database, _REMOVE)


def expiries(database: Path) -> list[tuple[str, str]]:
    """Every recorded expiry in order: the reservation, and what triggered it."""
    return _run(database, _EXPIRIES)


def occurrences(database: Path) -> list[tuple[int, int]]:
    """What has happened of the planned event: the time it was planned for, the periods missed."""
    return _run(database, _OCCURRENCES)


def _run(database: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(database)) as connection, connection:
        return connection.execute(statement).fetchall()
