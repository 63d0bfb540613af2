"""The cron jobs: what is done now and then, by whom, and when. Times are UTC."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from typing import Protocol

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from reservation_service.alarms import Observe
from reservation_service.clock import Clock, monotonic_s
from reservation_service.config import Settings
from reservation_service.errors import ServiceError
from reservation_service.housekeeping import MS_PER_DAY, Housekeeping
from reservation_service.storage.sqlite_tally import Tally
from reservation_service.store import Store

PURGE = {"minute": 17}
"""Once an hour, away from the full hour when everybody else's jobs run."""

OPTIMIZE = {"hour": 3, "minute": 43}
"""Once a day."""

EMPTY_WAL = {"second": 37}
"""Once a minute: it is emptied when nothing was changed since the last look."""

COUNT_EVENTS = {"second": 7}
"""Once a minute: no scrape has many to count, and none is purged before it was counted."""

_MS_PER_SECOND = 1000


class Upkept(Protocol):
    """A database that can look after itself; each call raises ServiceError."""

    async def optimize(self) -> None:
        """Bring the planner's statistics up to date."""

    async def empty_wal(self, now: int) -> int:
        """Empty the write-ahead log, if it is not in use; the bytes that it had."""

    async def tally(self) -> Tally:
        """Count the events since the last time."""


class Upkeep:
    """Each is told with what it did, if anything; trouble is left for the next time."""

    def __init__(self, database: Upkept, clock: Clock, observe: Observe) -> None:
        self._database = database
        self._clock = clock
        self._observe = observe

    async def optimize(self) -> None:
        """Let the database look at its statistics."""
        began = monotonic_s()
        try:
            await self._database.optimize()
        except ServiceError as error:
            self._observe("optimize-failed", reason=error.code)
            return
        self._observe("optimized", duration_ms=_ms_since(began))

    async def empty_wal(self) -> None:
        """Empty the write-ahead log when nobody needs it; says nothing when there was nothing."""
        began = monotonic_s()
        try:
            emptied = await self._database.empty_wal(self._clock.now())
        except ServiceError as error:
            self._observe("empty-wal-failed", reason=error.code)
            return
        if emptied:
            self._observe("wal-emptied", bytes=emptied, duration_ms=_ms_since(began))

    async def count_events(self) -> None:
        """Let the database count what was recorded; says nothing when it could."""
        try:
            await self._database.tally()
        except ServiceError as error:
            self._observe("count-failed", reason=error.code)


def schedule_chores(  # noqa: PLR0913, PLR0917 - the composition root hands in each port once
    scheduler: AsyncIOScheduler,
    settings: Settings,
    store: Store,
    database: Upkept,
    clock: Clock,
    observe: Observe,
) -> None:
    """Have everything done when its time comes."""
    housekeeping = Housekeeping(
        store,
        clock,
        observe,
        reservations_kept_ms=settings.reservations.retention_days * MS_PER_DAY,
        events_kept_ms=settings.events.retention_days * MS_PER_DAY,
    )
    upkeep = Upkeep(database, clock, observe)
    for chore, when in (
        (housekeeping.purge, PURGE),
        (upkeep.optimize, OPTIMIZE),
        (upkeep.empty_wal, EMPTY_WAL),
        (upkeep.count_events, COUNT_EVENTS),
    ):
        scheduler.add_job(
            _until_stopped(chore), "cron", misfire_grace_time=None, coalesce=True, **when
        )


def _until_stopped(chore: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """A stop cuts it short, of which APScheduler would tell as of a failure."""

    @wraps(chore)
    async def work() -> None:
        with suppress(asyncio.CancelledError):
            await chore()

    return work


def _ms_since(began_s: float) -> int:
    return round((monotonic_s() - began_s) * _MS_PER_SECOND)
