"""Counts the log for scrapes, on a connection of its own that is there only while it counts."""

import asyncio
import sqlite3
from collections import Counter
from pathlib import Path

from reservation_service.errors import StorageUnavailable
from reservation_service.storage import sqlite_tally
from reservation_service.storage.connection import Connection, open_reader
from reservation_service.storage.sqlite_tally import Tally


class LogTally:
    """What was recorded behind event `after`, however often one asks, and what is planned now."""

    def __init__(self, database: Path, after: int) -> None:
        self._database = database
        self._counted = after
        self._transitions: Counter[tuple[str, str]] = Counter()
        self._turn = asyncio.Lock()
        self._reader: Connection | None = None
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
        if self._reader is not None:
            self._reader.give_up()
        async with self._turn:
            return

    async def _count_on(self) -> int:
        if self._is_closed:
            raise StorageUnavailable
        self._reader = reader = await open_reader(self._database)
        reader.is_given_up = self._is_closed  # it may have come to its end meanwhile
        try:
            tally, self._counted = await reader.run(sqlite_tally.count, self._counted)
            self._transitions.update(tally.transitions)
            return tally.planned
        finally:
            self._reader = None
            reader.give_up()
            await reader.close()
