"""Database files: how they are opened, made durable, and told from others'."""

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from reservation_service.errors import StartupError

APPLICATION_ID = 0x52535631
"""`RSV1` in the database's header tells our files from others'."""

SQLITE_MIN = (3, 38, 0)
"""The first release with `->>` built in."""

_BUSY_TIMEOUT_S = 1.0
CACHE_SIZE = -16_384
"""In KiB, since it is negative."""

_STATEMENTS_MAX = 256
_MIB = 1024 * 1024
_WAL_BYTES_KEPT_MAX = 16 * _MIB
"""More, as after a reader that stayed for long, is cut off once the log begins anew."""

WAL_PAGES = 2_500
"""Then it is copied into the database: 10 MiB, which a start after a crash reads in milliseconds.

SQLite's own 1,000 cost a twelfth of the holds/s with 100,000 pending, since the same pages of
indexes are copied more often.
"""


def connect_to_write(database: Path) -> sqlite3.Connection:
    """The only connection that writes; it creates the file, private to its owner."""
    return _connect(f"file:{quote(str(database))}?mode=rwc")


def connect_to_read(database: Path) -> sqlite3.Connection:
    """A read-only connection beside the writer."""
    return _connect(f"file:{quote(str(database))}?mode=ro")


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(
        uri,
        uri=True,
        isolation_level=None,
        timeout=_BUSY_TIMEOUT_S,
        cached_statements=_STATEMENTS_MAX,
        check_same_thread=False,
    )


def make_durable(connection: sqlite3.Connection) -> None:
    """WAL, and every COMMIT synced; set after the file is known to be ours. Raises StartupError."""
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StartupError(f"The database cannot use a write-ahead log here (it says {mode!r}).")
    for pragma in (
        "synchronous = FULL",
        f"cache_size = {CACHE_SIZE}",
        f"wal_autocheckpoint = {WAL_PAGES}",
        f"journal_size_limit = {_WAL_BYTES_KEPT_MAX}",
    ):
        connection.execute(f"PRAGMA {pragma}")


def wal_of(database: Path) -> Path:
    """Its write-ahead log, which is there while it is open."""
    return database.with_name(f"{database.name}-wal")


def inode(database: Path | str) -> int:
    """Which file is there now; -1 when there is none."""
    try:
        return os.stat(database).st_ino  # noqa: PTH116 - once a commit, and half the cost
    except FileNotFoundError:
        return -1


def require_sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    """Raises StartupError when the SQLite library is too old."""
    if version < SQLITE_MIN:
        needed, found = (".".join(map(str, v)) for v in (SQLITE_MIN, version))
        raise StartupError(f"SQLite {needed} or newer is needed; this Python has {found}.")
