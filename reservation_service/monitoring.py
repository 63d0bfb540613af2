"""What those who look after the service are told: metrics and health, put together.

Nothing here waits for the writer, and what the disk does not tell in time is left out of a scrape.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

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
from reservation_service.storage.sqlite_tally import Tally
from reservation_service.web.health import Health
from reservation_service.web.scrapes import Scrapes

SAMPLE_SECONDS_MAX = 1.0
"""How long a scrape waits for the database."""

MS_PER_SECOND = 1000


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
        self._sampling: asyncio.Task[tuple[Backlog, Tally] | None] | None = None
        self.metrics = Metrics()

    def observe(self, name: str, **fields: object) -> None:
        """A named event: counted, and told."""
        self.metrics.observe(name, **fields)
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

        async def scrape() -> bytes:
            sample = await self._sample(engine)
            return self.metrics.render(self._standing(engine.database, store, sample))

        return [*Health(self._readiness.look).routes(), *Scrapes(scrape).routes()]

    async def _sample(self, engine: SqliteEngine) -> tuple[Backlog, Tally] | None:
        """What the database says; None when it does not, or not in time. One asks for all."""
        if self._sampling is None or self._sampling.done():
            self._sampling = asyncio.create_task(self._ask(engine))
        await asyncio.wait([self._sampling], timeout=SAMPLE_SECONDS_MAX)
        return self._sampling.result() if self._sampling.done() else None

    async def _ask(self, engine: SqliteEngine) -> tuple[Backlog, Tally] | None:
        try:
            return await self._backlog(engine), await engine.tally()
        except ServiceError:
            return None

    async def _backlog(self, engine: SqliteEngine) -> Backlog:
        return await engine.backlog(self._clock.now(), self._settings.alarms.stuck_after)

    def _standing(
        self, database: Path, store: GroupedStore, sample: tuple[Backlog, Tally] | None
    ) -> Standing:
        standing = Standing(
            queue_depth=store.waiting,
            feed_readers=self._feed_readers(),
            clock_divergence_ms=self._clock.divergence_ms(),
            database_bytes=_size(database),
            wal_bytes=_size(database.with_name(database.name + "-wal")),
        )
        return standing if sample is None else self._with(standing, *sample)

    def _with(self, standing: Standing, backlog: Backlog, tally: Tally) -> Standing:
        oldest = backlog.oldest_due_at
        return replace(
            standing,
            pending=tally.planned,
            overdue=backlog.overdue,
            overdue_ms=0 if oldest is None else max(0, self._clock.now() - oldest),
            stuck=backlog.stuck,
            transitions=tally.transitions,
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
