"""What keeps a database fast and small, in moments too short for an alarm to be late.

All of it is the writer's own work: nobody else may write or checkpoint.
"""

import sqlite3
from pathlib import Path

from reservation_service.storage.sqlite_alarms import OLDEST_DUE

ANALYZED_MAX = 200
"""Rows of each index that are looked at: the same time for a million rows as for a thousand."""

QUIET_MS = 1_000
"""Nothing may be due within this time when the write-ahead log is cut."""


def optimize(connection: sqlite3.Connection) -> None:
    """Let SQLite look at its statistics again, where it finds that they are out of date."""
    connection.execute(f"PRAGMA analysis_limit = {ANALYZED_MAX}")
    connection.execute("PRAGMA optimize").fetchall()


def touch(connection: sqlite3.Connection) -> None:
    """Write the first page as it is: a transaction that wrote nothing would not need the disk."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.execute(f"PRAGMA user_version = {version:d}")


class WalCutter:
    """Empties the write-ahead log once nothing was changed between two calls."""

    def __init__(self, database: Path) -> None:
        self._wal = database.with_name(database.name + "-wal")
        self._changes = -1

    def __call__(self, connection: sqlite3.Connection, now: int) -> int:
        """The bytes that the file has no more; 0 while there is work, or somebody reads it."""
        before, self._changes = self._changes, connection.total_changes
        size = self._wal.stat().st_size
        due_at = connection.execute(OLDEST_DUE).fetchone()[0]
        is_quiet = before == self._changes and (due_at is None or due_at > now + QUIET_MS)
        return size if size and is_quiet and _cut(connection) else 0


def _cut(connection: sqlite3.Connection) -> bool:
    """False when a reader is in the way; it is not waited for."""
    patience_ms = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        is_busy, _, _ = connection.execute("PRAGMA main.wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience_ms:d}")
    return not is_busy
