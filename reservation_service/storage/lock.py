"""One process per database: an exclusive flock on a file beside it.

Never on the database file itself: closing any handle of it would drop SQLite's own locks. The
kernel frees the lock when the process ends, however it ends. The writer's process shares the lock,
so what a killed service has left there is written before the next one begins.
"""

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Self

from reservation_service.errors import StartupError

_PATIENCE_S = 2.0
"""How long a writer that has lost its service may take for the batch that it has: one sync."""

_LOOK_S = 0.02


class InUse(StartupError):
    """Another process has the database."""


class DatabaseLock:
    """Held from construction until `release`. Raises InUse when another process has it."""

    @classmethod
    async def take(cls, database: Path) -> Self:
        """Have the lock as soon as it is free. Raises StartupError when it stays taken."""
        for _ in range(round(_PATIENCE_S / _LOOK_S)):
            try:
                return cls(database)
            except InUse:
                await asyncio.sleep(_LOOK_S)
        return cls(database)

    def __init__(self, database: Path) -> None:
        path = lock_path(database)
        try:
            self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartupError(f"Cannot open the lock file {path}: {error.strerror}.") from error
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self.file)
            raise InUse(
                f"Another process is using the database {database}; stop it first."
            ) from error

    def release(self) -> None:
        """Let others have the database; safe to repeat."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


def lock_path(database: Path) -> Path:
    """The lock's own file; `database` has its symlinks resolved, so that aliases share one lock."""
    return database.with_name(database.name + ".lock")
