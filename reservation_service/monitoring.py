"""What those who look after the service are told: metrics and health, put together.

Nothing here waits for the writer, and what the disk does not tell in time is left out of a scrape.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Generic, TypeVar

from aiohttp import web
from msgspec.structs import replace

from reservation_service.alarms import AlarmClock, Observe
from reservation_service.clock import Clock
from reservation_service.config import Settings
from reservation_service.errors import ServiceError
from reservation_service.metrics import Metrics, Standing
from reservation_service.readiness import Readiness
from reservation_service.storage.grouped_store import GroupedStore
from reservation_service.storage.sqlite_engine import Backlog, SqliteEngine
from reservation_service.storage.sqlite_files import wal_of
from reservation_service.storage.sqlite_tally import Tally
from reservation_service.web.health import Health
from reservation_service.web.scrapes import Scrapes

SAMPLE_SECONDS_MAX = 1.0
"""How long a scrape waits for the database; what it counts does not hold up what it looks up."""

MS_PER_SECOND = 1000

T = TypeVar("T")


class Monitoring:
    """The metrics of one service, and its health once it has `watch`ed a store.

    `feed_readers` counts the streams that are open.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        observe: Observe,
        feed_readers: Callable[[], int] = lambda: 0,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._tell = observe
        self._feed_readers = feed_readers
        self._is_stopping = False
        self._readiness: Readiness | None = None
        self.metrics = Metrics()

    def observe(self, name: str, **fields: object) -> None:
        """A named event: counted, and told."""
        self.metrics.count_event(name, fields)
        self._tell(name, **fields)

    def stop(self) -> None:
        """Not ready any more."""
        self._is_stopping = True
        if self._readiness is not None:
            self._readiness.stop()

    def watch(
        self, engine: SqliteEngine, store: GroupedStore, alarm_clock: AlarmClock
    ) -> list[web.RouteDef]:
        """Watch these from now on; the routes that tell of them."""

        async def oldest_due_at() -> int | None:
            return (await self._backlog(engine)).oldest_due_at

        self._readiness = Readiness(
            self._clock,
            probe=store.probe,
            looked_at=lambda: alarm_clock.looked_at,
            oldest_due_at=oldest_due_at,
            overdue_max_ms=self._settings.alarms.overdue_max_seconds * MS_PER_SECOND,
        )
        if self._is_stopping:
            self._readiness.stop()
        if (writer := engine.writer_pid) is not None:
            self.metrics.watch_writer(writer)

        backlogs = _Sample(lambda: self._backlog(engine))
        tallies = _Sample(engine.tally)

        async def scrape() -> bytes:
            backlog, tally = await asyncio.gather(backlogs.take(), tallies.take())
            return self.metrics.render(self._standing(engine.database, store, backlog, tally))

        return [*Health(self._readiness.look).routes(), *Scrapes(scrape).routes()]

    async def _backlog(self, engine: SqliteEngine) -> Backlog:
        return await engine.backlog(self._clock.now(), self._settings.alarms.stuck_after)

    def _standing(
        self, database: Path, store: GroupedStore, backlog: Backlog | None, tally: Tally | None
    ) -> Standing:
        standing = Standing(
            queue_depth=store.waiting,
            feed_readers=self._feed_readers(),
            clock_divergence_ms=self._clock.divergence_ms(),
            database_bytes=_size(database),
            wal_bytes=_size(wal_of(database)),
        )
        if backlog is not None:
            oldest = backlog.oldest_due_at
            standing = replace(
                standing,
                overdue=backlog.overdue,
                overdue_ms=0 if oldest is None else max(0, self._clock.now() - oldest),
                stuck=backlog.stuck,
            )
        if tally is not None:
            standing = replace(standing, pending=tally.planned, transitions=tally.transitions)
        return standing


class _Sample(Generic[T]):
    """What the database says of one thing; all who want to know it meanwhile ask once."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._asking: asyncio.Task[T | None] | None = None

    async def take(self) -> T | None:
        """None when the database does not say it, or not in time."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._answer())
        await asyncio.wait([self._asking], timeout=SAMPLE_SECONDS_MAX)
        return self._asking.result() if self._asking.done() else None

    async def _answer(self) -> T | None:
        try:
            return await self._ask()
        except ServiceError:
            return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
