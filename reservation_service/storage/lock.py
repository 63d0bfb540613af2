"""One process per database: an exclusive flock on a file beside it.

Never on the database file itself: closing any handle of it would drop SQLite's own locks. The
kernel frees the lock when the process ends, however it ends.
"""

import fcntl
import os
from pathlib import Path

from reservation_service.errors import StartupError


class DatabaseLock:
    """Held from construction until `release`. Raises StartupError when another process has it."""

    def __init__(self, database: Path) -> None:
        path = lock_path(database)
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartupError(f"Cannot open the lock file {path}: {error.strerror}.") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise StartupError(
                f"Another process is using the database {database}; stop it first."
            ) from error

    def release(self) -> None:
        """Let others have the database; safe to repeat."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def lock_path(database: Path) -> Path:
    """The lock's own file; `database` has its symlinks resolved, so that aliases share one lock."""
    return database.with_name(database.name + ".lock")
