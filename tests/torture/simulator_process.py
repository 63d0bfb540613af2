"""One life of the service: the real parts on a simulated disk, until it stops, exits or crashes.

It is composed as the composition root does it, without files, threads and sockets. What stands
between the parts (the disk, the dispatcher's calls, the clients' connections) can fail.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar, cast

from reservation_service.actor import ReservationNamespace
from reservation_service.alarms import AlarmClock, AlarmLimits
from reservation_service.errors import ServiceError
from reservation_service.reservation import HoldLimits, Reservation, Schedule
from reservation_service.retry import RetryPolicy
from reservation_service.storage import sqlite, sqlite_reads, sqlite_schedule, sqlite_start
from reservation_service.storage.migrations import load_migrations, migrate
from reservation_service.storage.sqlite_engine import BATCHES_AT_ONCE_MAX
from reservation_service.storage.sqlite_messages import create_message_table
from reservation_service.store import Claimed, Page, Query, Result, ScheduleQuery, StoreMessage
from tests.torture.simulator_disk import PLANTED, Crashed, open_disk
from tests.torture.simulator_dispatch import Deliveries, SlipperyStore
from tests.torture.simulator_ledger import Ledger
from tests.torture.simulator_time import ServiceClock, TimerWaker
from tests.torture.simulator_watch import Watch
from tests.torture.simulator_world import World

T = TypeVar("T")

STOP_SECONDS_MAX = 4.5
_SLOW_SECONDS_MAX = 3.0
_MIGRATIONS = load_migrations("sqlite")


class ConnectionLost(Exception):
    """The client knows nothing about its call."""


@dataclass(frozen=True)
class Sizes:
    """What a configuration chooses; every seed has its own."""

    alarms: AlarmLimits
    holds: HoldLimits
    first_ms: int
    cap_ms: int
    batch_max: int
    queue_max: int


def choose_sizes(chance: Random) -> Sizes:
    """Small ones above all: limits that are never reached are never tested."""
    lease_ms = chance.choice((1_000, 3_000, 10_000))
    first_ms = chance.choice((100, 2_000))
    return Sizes(
        AlarmLimits(
            lease_ms=lease_ms,
            attempt_timeout_ms=lease_ms // 2,
            claim_max=chance.choice((1, 3, 1_000)),
            in_flight_max=chance.choice((1, 3, 4_000)),
            stuck_after=chance.choice((2, 6)),
        ),
        HoldLimits(
            max_hold_ms=chance.choice((30_000, 120_000)), max_per_holder=chance.choice((0, 1, 2))
        ),
        first_ms=first_ms,
        cap_ms=first_ms * chance.choice((1, 8, 30)),
        batch_max=chance.choice((2, 5, 1_000)),
        queue_max=chance.choice((1, 10, 10_000)),
    )


class Process:
    """Serves from `start` until `ended`, which tells how it ended; `image` is what it leaves.

    `start` raises Crashed when it does not get that far, and sqlite3.Error when it refuses.
    """

    def __init__(self, world: World, ledger: Ledger, sizes: Sizes, image: bytes | None) -> None:
        self.world = world
        self.ledger = ledger
        self.clock = ServiceClock(world.loop, world.wall)
        self.image = image
        self.is_alive = True
        self.is_accepting = False
        self.ended: asyncio.Future[str] = world.loop.create_future()
        self._sizes = sizes
        self._disk = open_disk(image)
        self._watch = Watch(world, ledger, self._disk, self.clock, sizes.holds.max_per_holder)
        self._way_there, self._way_back = asyncio.Lock(), asyncio.Lock()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._answers: dict[asyncio.Future[Any], None] = {}
        self._context = copy_context()
        self._context.run(_PROCESS.set, self)

    def start(self) -> None:
        """Reload and serve."""
        migrate(self._disk, _MIGRATIONS)
        create_message_table(self._disk)
        self._disk.attach(self.world, self.crash, self._watch.committed)
        sizes = self._sizes
        seed = self.world.chance.randrange(10**9)
        recovery = sqlite_start.Recovery(sizes.first_ms, sizes.cap_ms, seed)
        reloaded = sqlite_start.begin_epoch(self._disk, self.clock, recovery)
        self._transaction = sqlite.BatchTransaction(self.clock, None, reloaded.epoch)
        self._watch.recovered(self.clock.now() + max(sizes.cap_ms, 2 * sizes.first_ms))
        self._compose()
        self.is_accepting = True

    def _compose(self) -> None:
        self._store = store = SlipperyStore(
            self,
            self.write,
            self.read,
            self.find,
            self.schedules,
            batch_max=self._sizes.batch_max,
            queue_max=self._sizes.queue_max,
            batches_at_once=BATCHES_AT_ONCE_MAX,
        )
        self._namespace = ReservationNamespace(store, self._sizes.holds)
        alarm_clock = AlarmClock(
            store,
            cast("ReservationNamespace", Deliveries(self, self._namespace)),
            TimerWaker(self.clock, is_deaf=self.world.strikes("deaf-waker")),
            self.clock,
            policy=RetryPolicy(self._sizes.first_ms, self._sizes.cap_ms, self.world.chance.random),
            limits=self._sizes.alarms,
            observe=self._observe,
        )
        store.on_commit(alarm_clock.expect)
        self._alarm_clock = alarm_clock
        self._storing = self.spawn(store.run())
        self._ringing = self.spawn(alarm_clock.run())
        self.spawn(self._exit_when_a_part_ends())

    async def request(self, call: Callable[[ReservationNamespace], Awaitable[T]]) -> T:
        """One client's request, to its answer. Raises ConnectionLost when that never comes."""
        if not self.is_accepting:
            raise ConnectionLost
        answer: asyncio.Future[T] = self.world.loop.create_future()
        self._answers[answer] = None
        serving = self.spawn(self._serve(call, answer))
        try:
            return await answer
        except asyncio.CancelledError:  # the client hangs up; a server may notice that or not
            if self.world.strikes("cancelled-request"):
                serving.cancel()
            raise
        finally:
            self._answers.pop(answer, None)

    async def stop(self) -> bool:
        """End like after a SIGTERM; False when the process was down, or took too long."""
        if not self.is_accepting:
            return False
        self.is_accepting = False
        in_time = True
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                if self._answers:
                    await asyncio.wait(list(self._answers), timeout=STOP_SECONDS_MAX / 2)
                self._ringing.cancel()
                await asyncio.wait([self._ringing])
                self._store.close()
                await asyncio.wait([self._storing])
        except TimeoutError:
            in_time = False
        self.crash("stopped" if in_time else "the stop took too long")
        return in_time

    def snapshot(self) -> bytes:
        """What a crash at this moment would keep."""
        return self._disk.serialize() if self.is_alive else self.image or b""

    def crash(self, how: str) -> None:
        """Lose everything but what is on the disk."""
        if not self.is_alive:
            return
        self.world.note(f"the process ends: {how}")
        self.is_alive = self.is_accepting = False
        self.image = self._disk.power_off()
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(ConnectionLost())
        for task in list(self._tasks):
            task.cancel()
        self.ended.set_result(how)

    def die(self, how: str) -> None:
        """Crash inside of the process's own code."""
        self.crash(how)
        raise Crashed

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that is gone when the process is, and those that it starts are, too."""
        task = self.world.loop.create_task(work, context=self._context)
        self.own(task)
        return task

    def own(self, task: asyncio.Task[Any]) -> None:
        if task in self._tasks:
            return
        self._tasks[task] = None
        task.add_done_callback(self._disown)
        if not self.is_alive:  # what was on its way when it ended begins nothing any more
            task.cancel()

    def look(self, claimed: Sequence[Claimed]) -> None:
        """The dispatcher has claimed these, or has looked in vain."""
        self.ledger.claim(claimed, list(self._alarm_clock._claimed.values()))
        self._watch.look(is_vain=not claimed)

    async def write(self, messages: Sequence[StoreMessage]) -> tuple[list[Result], int | None]:
        """The real transaction, inline; the way to the disk and back may take its time.

        What is on its way at once keeps its order, there and back, as on a socket.
        """
        async with self._way_there:
            await self.world.delay("slow-batch", _SLOW_SECONDS_MAX)
            failure: ServiceError | None = None
            try:
                with self._watch.batch(messages):
                    done = self._transaction(self._disk, messages)
            except ServiceError as error:
                failure = error
        async with self._way_back:
            await self.world.delay("slow-batch", _SLOW_SECONDS_MAX)
            if self.world.strikes("crash-before-answers"):
                self.die("before the answers")
        if failure is not None:
            raise failure
        return done

    async def read(self, ids: Sequence[str]) -> list[Reservation]:
        return sqlite_reads.read_rows(self._disk, ids)

    async def find(self, query: Query) -> Page:
        return sqlite_reads.find_rows(self._disk, query)

    async def schedules(self, queries: Sequence[ScheduleQuery]) -> list[Schedule]:
        return sqlite_schedule.read_schedules(self._disk, queries, self.clock.now())

    async def _serve(
        self, call: Callable[[ReservationNamespace], Awaitable[T]], answer: asyncio.Future[T]
    ) -> None:
        try:
            result = await call(self._namespace)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told
            if not answer.done():
                answer.set_exception(error)
        else:
            if answer.done():
                return
            if self.world.strikes("lost-answer"):
                answer.set_exception(ConnectionLost())
            else:
                answer.set_result(result)

    async def _exit_when_a_part_ends(self) -> None:
        """A part that ends on its own ends the process; without a planted reason it must not."""
        unknown = self.world.figures["commit-unknown"]
        parts = [self._storing, self._ringing]
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        if not self.is_accepting:
            return
        if self.world.figures["commit-unknown"] == unknown:
            self.world.complain(f"a part of the process ended on its own: {parts}")
        self.crash("exit 1")

    def _disown(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task)
        error = None if task.cancelled() else task.exception()
        is_expected = isinstance(error, Crashed) or (
            isinstance(error, ServiceError) and error.fatal
        )
        if self.is_alive and error is not None and not is_expected:
            self.world.complain(f"a task ended on its own: {error!r} from {error.__cause__!r}")

    def _observe(self, name: str, **fields: Any) -> None:
        """The log, to which the same promises are made as to clients."""
        if not self.is_alive:
            return
        self.world.note(f"log {name} {fields}")
        if fields.get("outcome") == "ok":
            self.ledger.fire(fields["reservation_id"])
        if fields.get("error", PLANTED) != PLANTED:
            self.world.complain(f"{name}: {fields['error']}")


_PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


def start_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    """A task factory: what a process starts belongs to it."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    process = _PROCESS.get()
    if process is not None:
        process.own(task)
    return task
