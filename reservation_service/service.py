"""The composition root: opens everything in order, runs it, and closes it in reverse.

Whatever ends on its own that should not (the writer above all) ends the process with status 1:
half a service would keep accepting what it cannot promise.
"""

import asyncio
import gc
import os
import random
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import UTC
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler

from reservation_service.actor import ReservationNamespace
from reservation_service.admission import Admission
from reservation_service.alarms import AlarmClock, AlarmLimits, Observe, Waker
from reservation_service.chores import schedule_chores
from reservation_service.clock import BootClock, Clock
from reservation_service.config import Settings
from reservation_service.divergence import watch_divergence
from reservation_service.errors import ServiceError, StartupError
from reservation_service.feed import Feed
from reservation_service.monitoring import Monitoring
from reservation_service.reservation import HoldLimits
from reservation_service.retry import RetryPolicy
from reservation_service.storage.grouped_store import GroupedStore
from reservation_service.storage.sqlite_engine import BATCHES_AT_ONCE_MAX, SqliteEngine
from reservation_service.storage.sqlite_start import Recovery, Reloaded
from reservation_service.telemetry import Telemetry
from reservation_service.waker import SchedulerWaker
from reservation_service.web.api import Api, ApiLimits
from reservation_service.web.application import Surroundings, tombstone_routes
from reservation_service.web.connections import Connections
from reservation_service.web.cors import allow_origins
from reservation_service.web.events import Events
from reservation_service.web.lists import Lists
from reservation_service.web.schedules import Schedules
from reservation_service.web.server import BACKLOG, HttpServer
from reservation_service.web.streams import Frames, Readers, StreamLimits, Streams

S = TypeVar("S", AsyncIOScheduler, BackgroundScheduler)

STOP_SECONDS_MAX = 4.5
"""The whole of a stop, whatever clients do."""

FILES_BESIDE_CONNECTIONS = 64
"""Databases, pipes, listeners and what libraries open."""

GC_THRESHOLDS = 50_000, 20, 100
"""Requests leave few cycles behind: looking for them 70 times less often saves a hold 19,000 of
650,000 instructions (callgrind, 64 connections)."""

SWITCH_INTERVAL_S = 0.0005
"""How long a thread has the interpreter's lock when another wants it. With Python's own 5 ms the
thread of a connection waits so long at every statement that it and the event loop only take turns:
with the writer on a thread, 20,000 alarms drained at 14,300/s, and at 18,900/s with this."""


async def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. Raises StartupError when it refuses to."""
    _allow_open_files(settings.server.connections_max + BACKLOG + FILES_BESIDE_CONNECTIONS)
    clock = BootClock()
    telemetry = Telemetry(clock, is_for_people=settings.log.format == "console")
    service = Service(settings, clock, telemetry.observe)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.request_stop)
    await service.start()
    tune_interpreter()
    try:
        return await service.run()
    finally:
        if not await service.stop():
            telemetry.flush()
            os._exit(1)  # a thread that hangs in the kernel would keep the process for ever


def tune_interpreter() -> None:
    """How this process collects garbage and shares the interpreter, once all of it is there."""
    gc.collect()
    gc.freeze()  # what was made for good need not be looked at by every later collection
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


async def migrate(settings: Settings) -> list[str]:
    """Bring the database up to date; the migrations applied. Raises StartupError."""
    engine = await SqliteEngine.open(settings.storage.database)
    try:
        return await engine.migrate()
    finally:
        await engine.close()


async def destroy(settings: Settings) -> int:
    """Delete everything and leave a tombstone; the reservations deleted. Raises StartupError."""
    _require_file(settings.storage.database)
    engine = await SqliteEngine.open(settings.storage.database)
    try:
        await engine.migrate()
        return await engine.destroy(BootClock())
    finally:
        await engine.close()


class Service:
    """One running service: `start`, then `run` until it is to stop, then `stop`.

    Production leaves `waker` and `jitter` alone; tests hand in ports that they drive themselves.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        observe: Observe,
        *,
        waker: Waker | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._readers = Readers(_readers_max(settings))
        self._monitoring = Monitoring(settings, clock, observe, lambda: self._readers.count)
        self._observe = self._monitoring.observe
        self._waker = waker
        self._jitter = jitter
        self._admission = Admission(settings, clock, self._observe)
        self._opened = AsyncExitStack()
        self._work: list[asyncio.Task[None]] = []
        self._stop_requested = asyncio.Event()
        self.port = 0

    async def start(self) -> None:
        """Open the database, reload the alarms, listen. Raises StartupError; nothing stays open."""
        try:
            await self._start()
        except BaseException:
            await self._opened.aclose()
            raise

    def request_stop(self) -> None:
        """Let `run` return 0; not ready from now on."""
        self._monitoring.stop()
        self._stop_requested.set()

    async def run(self) -> int:
        """Wait for a requested stop (0) or for the first part that ends on its own (1)."""
        stop = asyncio.create_task(self._stop_requested.wait())
        await asyncio.wait([stop, *self._work], return_when=asyncio.FIRST_COMPLETED)
        if stop.done():
            return 0
        stop.cancel()
        for reason in {_reason(task) for task in self._work if task.done()}:
            self._observe("service-failed", reason=reason)
        return 1

    async def stop(self) -> bool:
        """Answer what was taken, commit, close; False when `STOP_SECONDS_MAX` were not enough.

        Before that, `server.drain_ms` for those who send calls here to notice that it is not ready.
        """
        self._observe("service-stopping")
        if self._stop_requested.is_set() and (drain_ms := self._settings.server.drain_ms):
            await asyncio.sleep(drain_ms / 1000)
        closing = asyncio.create_task(self._opened.aclose())
        await asyncio.wait([closing], timeout=STOP_SECONDS_MAX)  # what hangs cannot be cancelled
        if not closing.done() or closing.exception() is not None:
            reason = _reason(closing) if closing.done() else "the stop took too long"
            self._observe("service-failed", reason=reason)
            return False
        self._observe("service-stopped")
        return True

    async def _start(self) -> None:
        settings = self._settings
        engine = await SqliteEngine.open(
            settings.storage.database, own_process=settings.writer.own_process
        )
        self._opened.push_async_callback(engine.close)
        self._run(engine.watch())
        if applied := await engine.migrate():
            self._observe("migrations-applied", names=applied)
        alarms = settings.alarms
        reloaded = await engine.start(
            self._clock,
            Recovery(alarms.retry_first_ms, alarms.retry_cap_ms, int(self._jitter() * 1e9)),
        )
        self._run(watch_divergence(self._clock, self._observe))
        await self._admission.open()
        self._run(self._admission.watch())
        routes = tombstone_routes() if reloaded.is_destroyed else self._compose(engine, reloaded)
        await self._listen(routes)

    def _compose(self, engine: SqliteEngine, reloaded: Reloaded) -> list[web.RouteDef]:
        """The two paths: routes to actors, and the alarm clock to the same actors."""
        settings = self._settings
        store = GroupedStore(
            self._monitoring.metrics.measured(engine.write),
            engine.read,
            engine.find,
            engine.schedules,
            batch_max=settings.writer.batch_max,
            queue_max=settings.writer.queue_max,
            batches_at_once=BATCHES_AT_ONCE_MAX if settings.writer.own_process else 1,
        )
        namespace = ReservationNamespace(store, _hold_limits(settings))
        alarm_clock = AlarmClock(
            store,
            namespace,
            self._waker or self._open_waker(),
            self._clock,
            policy=RetryPolicy(
                settings.alarms.retry_first_ms, settings.alarms.retry_cap_ms, self._jitter
            ),
            limits=_alarm_limits(settings),
            observe=self._observe,
        )
        store.on_commit(alarm_clock.expect)
        self._run(store.run(), until=store.close)
        self._observe(
            "alarms-reloaded",
            overdue=reloaded.overdue,
            claims_voided=reloaded.claims_voided,
            next_due_at=reloaded.next_due_at,
        )
        self._run(alarm_clock.run())
        self._run(self._check_integrity(engine))
        chores = self._started(AsyncIOScheduler(timezone=UTC))
        schedule_chores(chores, settings, store, engine, self._clock, self._observe)
        limits = _api_limits(settings)
        routes = [
            *Api(namespace, limits).routes(),
            *Lists(namespace, store, limits).routes(),
            *Schedules(namespace, limits).routes(),
            *self._events(engine, store).routes(),
            *self._monitoring.watch(engine, store, alarm_clock),
        ]
        return self._admission.protect(routes, limits)

    def _events(self, engine: SqliteEngine, store: GroupedStore) -> Events:
        """The log, and the feed that every commit rings."""
        limits = self._settings.feed
        feed = Feed(engine, Frames(), coalesce_s=limits.coalesce_ms / 1000)
        store.on_commit(lambda _next_due_at: feed.ring())
        self._run(feed.run())
        stream_limits = StreamLimits(limits.heartbeat_ms / 1000, limits.buffer_bytes)
        streams = Streams(feed, self._readers, self._clock, self._observe, stream_limits)
        return Events(feed, streams)

    def _open_waker(self) -> SchedulerWaker:
        return SchedulerWaker(self._started(BackgroundScheduler(timezone=UTC)), self._clock)

    def _started(self, scheduler: S) -> S:
        scheduler.start()
        self._opened.callback(scheduler.shutdown, wait=False)
        return scheduler

    def _run(
        self, work: Coroutine[Any, Any, None], until: Callable[[], None] | None = None
    ) -> None:
        """Work that may only end when stopped, by `until` or else by cancelling it."""
        task = asyncio.create_task(work)
        self._work.append(task)
        self._opened.push_async_callback(_end, task, until or task.cancel)

    async def _check_integrity(self, engine: SqliteEngine) -> None:
        """Look at the whole database behind the traffic; a finding ends the process."""
        await engine.check_integrity()
        if not self._stop_requested.is_set():
            self._observe("integrity-checked")
        await self._stop_requested.wait()

    async def _listen(self, routes: list[web.RouteDef]) -> None:
        server = self._settings.server
        connections = Connections(server.connections_max)
        surroundings = Surroundings(
            self._clock,
            self._observe,
            connections,
            self._monitoring.metrics.count_request,
            requests_max=server.requests_max,
            stuck_after=self._settings.alarms.stuck_after,
        )
        app = surroundings.build_app(routes, server.body_bytes_max)
        allow_origins(app, self._settings.cors.origins)
        app.on_shutdown.append(self._readers.close)
        http = HttpServer(
            app,
            connections,
            self._observe,
            surroundings,
            access_log=self._settings.log.access,
        )
        try:
            await http.start(server.host, server.port)
        except OSError as error:
            raise StartupError(
                f"Cannot listen on {server.host}:{server.port}: {_plain(error)}."
            ) from error
        self._opened.push_async_callback(self._stop_listening, http)
        self.port = http.port
        self._observe(
            "service-started",
            url=f"http://{f'[{server.host}]' if ':' in server.host else server.host}:{self.port}",
            host=server.host,
            port=self.port,
            database=str(self._settings.storage.database),
        )

    async def _stop_listening(self, http: HttpServer) -> None:
        await http.stop(has_failed=not self._stop_requested.is_set())


def _require_file(database: Path) -> None:
    try:
        database.stat()
    except OSError as error:
        raise StartupError(f"There is no database at {database}: {error.strerror}.") from error


def _allow_open_files(needed: int) -> None:
    """Raise this process's own limit where the system lets it. Raises StartupError otherwise."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY not in {soft, hard} and needed > hard:
        raise StartupError(
            f"{needed} open files are needed and the system allows {hard}; "
            "raise the limit (ulimit -n) or lower server.connections_max."
        )
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


async def _end(task: asyncio.Task[None], stop: Callable[[], object]) -> None:
    stop()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # seen: `run` has reported it


def _reason(task: asyncio.Task[None]) -> str:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, ServiceError):
        return f"{error} ({error.__cause__})" if error.__cause__ else str(error)
    return f"a part ended on its own: {error!r}"


def _plain(error: OSError) -> str:
    """The system's own words, without those that asyncio puts around them."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)


def _alarm_limits(settings: Settings) -> AlarmLimits:
    alarms = settings.alarms
    return AlarmLimits(
        lease_ms=alarms.lease_ms,
        attempt_timeout_ms=alarms.attempt_timeout_ms,
        claim_max=alarms.claim_max,
        in_flight_max=alarms.in_flight_max,
        stuck_after=alarms.stuck_after,
    )


def _readers_max(settings: Settings) -> int:
    """Half of the connections are for those who ask and go."""
    return min(settings.feed.readers_max, settings.server.connections_max // 2)


def _hold_limits(settings: Settings) -> HoldLimits:
    reservations = settings.reservations
    return HoldLimits(
        max_hold_ms=reservations.max_hold_seconds * 1000,
        max_per_holder=reservations.max_holds_per_holder,
    )


def _api_limits(settings: Settings) -> ApiLimits:
    reservations = settings.reservations
    return ApiLimits(
        service_name=settings.service.name,
        ttl_seconds_min=reservations.ttl_seconds_min,
        ttl_seconds_max=reservations.ttl_seconds_max,
        stuck_after=settings.alarms.stuck_after,
        replay_alarm=reservations.replay_alarm,
        require_holder=reservations.require_holder,
    )
