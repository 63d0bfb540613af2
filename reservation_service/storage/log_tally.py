"""Counts the log for scrapes, on a connection of its own that is there only while it counts."""

import asyncio
import sqlite3
from collections import Counter
from pathlib import Path

from reservation_service.errors import StorageUnavailable
from reservation_service.storage import sqlite_tally
from reservation_service.storage.connection import open_reader
from reservation_service.storage.sqlite_tally import Tally

_STEPS_BETWEEN_LOOKS = 100_000
"""Instructions of SQLite, about a millisecond; then a count at work sees that it is the end."""


class LogTally:
    """What was recorded behind event `after`, however often one asks, and what is planned now."""

    def __init__(self, database: Path, after: int) -> None:
        self._database = database
        self._counted = after
        self._transitions: Counter[tuple[str, str]] = Counter()
        self._turn = asyncio.Lock()
        self._is_closed = False

    async def count(self) -> Tally:
        """Count on; one at a time. Raises StorageUnavailable when it cannot be read."""
        async with self._turn:
            try:
                planned = await self._count_on()
            except (sqlite3.Error, OSError, RuntimeError) as error:  # no thread, too
                raise StorageUnavailable from error
            return Tally(planned, dict(self._transitions))

    async def close(self) -> None:
        """Begin no count any more, and see the one at work end: its connection is in the way."""
        self._is_closed = True
        async with self._turn:
            return

    async def _count_on(self) -> int:
        if self._is_closed:
            raise StorageUnavailable
        reader = await open_reader(self._database)
        try:
            # an interruption would miss whoever is between two statements
            await reader.set_progress_handler(lambda: self._is_closed, _STEPS_BETWEEN_LOOKS)
            tally, self._counted = await reader.run(sqlite_tally.count, self._counted)
            self._transitions.update(tally.transitions)
            return tally.planned
        finally:
            await reader.interrupt()
            await reader.close()
