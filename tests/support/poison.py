"""Alarms that fail for chosen reservations, by a trigger in the test's own database.

The product has no switch for faults. While an ID is planted, every transaction that lets its
alarm expire the hold, or that fires a planned event of this ID, is aborted; requests and replays
go through.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

_SETUP = """
CREATE TABLE IF NOT EXISTS planted (id TEXT PRIMARY KEY) STRICT;
CREATE TRIGGER IF NOT EXISTS planted_failure BEFORE UPDATE ON reservation
WHEN NEW.status = 'expired' AND OLD.status = 'held' AND NEW.changed_by = 'alarm'
     AND EXISTS (SELECT 1 FROM planted WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'planted'); END;
CREATE TRIGGER IF NOT EXISTS planted_event_failure BEFORE INSERT ON event
WHEN NEW.type = 'scheduled-event'
     AND EXISTS (SELECT 1 FROM planted WHERE id = NEW.data->>'eventId')
BEGIN SELECT RAISE(ABORT, 'planted'); END;
"""


class Poison:
    """Makes alarms fail and heals them again; the database has its schema already."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._run(lambda connection: connection.executescript(_SETUP))

    def plant(self, *ids: str) -> None:
        """From now on the alarms of these reservations fail."""
        rows = [(one,) for one in ids]
        self._run(lambda c: c.executemany("INSERT OR IGNORE INTO planted VALUES (?)", rows))

    def heal(self, *ids: str) -> None:
        """From now on they do not."""
        rows = [(one,) for one in ids]
        self._run(lambda c: c.executemany("DELETE FROM planted WHERE id = ?", rows))

    def drop(self) -> None:
        """Take the trigger itself out of the schema."""
        self._run(lambda c: c.execute("DROP TRIGGER planted_failure"))

    def _run(self, work: Callable[[sqlite3.Connection], object]) -> None:
        with closing(sqlite3.connect(self._database)) as connection, connection:
            work(connection)
