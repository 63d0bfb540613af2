"""What keeps a database fast and small, in moments too short for an alarm to be late.

All of it is the writer's own work: nobody else may write or checkpoint.
"""

import sqlite3

from reservation_service.storage.sqlite_alarms import OLDEST_DUE

ANALYZED_MAX = 200
"""Rows of each index that are looked at: the same time for a million rows as for a thousand."""

QUIET_MS = 1_000
"""Nothing may be due within this time when the write-ahead log is emptied."""

_FRAME_HEAD_BYTES = 24


def optimize(connection: sqlite3.Connection) -> None:
    """Let SQLite look at its statistics again, where it finds that they are out of date."""
    connection.execute(f"PRAGMA analysis_limit = {ANALYZED_MAX}")
    connection.execute("PRAGMA optimize").fetchall()


def touch(connection: sqlite3.Connection) -> None:
    """Write the first page as it is: a transaction that wrote nothing would not need the disk."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.execute(f"PRAGMA user_version = {version:d}")


class WalEmptier:
    """Empties the write-ahead log once nothing was changed between two calls.

    What is in it is copied into the database, and it begins anew. The file keeps its length.
    """

    def __init__(self) -> None:
        self._changes = -1
        self._emptied = -1

    def __call__(self, connection: sqlite3.Connection, now: int) -> int:
        """The bytes that were in it; 0 while there is work, or somebody reads it."""
        before, self._changes = self._changes, connection.total_changes
        due_at = connection.execute(OLDEST_DUE).fetchone()[0]
        is_quiet = before == self._changes and (due_at is None or due_at > now + QUIET_MS)
        if not is_quiet or self._changes == self._emptied:
            return 0
        is_busy, pages = _checkpoint(connection, "RESTART")
        if is_busy:
            return 0
        self._emptied = self._changes
        return pages * (page_bytes(connection) + _FRAME_HEAD_BYTES)


def cut_wal(connection: sqlite3.Connection) -> bool:
    """Empty the log, and its file; False when a reader is in the way."""
    is_busy, _ = _checkpoint(connection, "TRUNCATE")
    return not is_busy


def page_bytes(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA page_size").fetchone()[0])


def _checkpoint(connection: sqlite3.Connection, mode: str) -> tuple[bool, int]:
    """Whether a reader is in the way, who is not waited for, and the pages that are in the log."""
    patience_ms = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        is_busy, pages, _ = connection.execute(f"PRAGMA main.wal_checkpoint({mode})").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience_ms:d}")
    return bool(is_busy), pages
