"""One run from its first process to its last: lives, clients, disturbances, and then peace.

While there are faults only safety is asked for. Once they are over everything that is due must
fire, everybody must be answered, and the process must stop when told to.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing, suppress
from typing import Any, TypeVar

from reservation_service.actor import ReservationNamespace
from tests.torture.simulator_clients import HOLDERS, NAMES, Client
from tests.torture.simulator_disk import Crashed
from tests.torture.simulator_ledger import Ledger
from tests.torture.simulator_process import Process, choose_sizes
from tests.torture.simulator_watch import check_image
from tests.torture.simulator_world import World

T = TypeVar("T")

_FAULTS_SECONDS = (20.0, 240.0)
_DOWN_SECONDS = (0.0, 0.0, 1.0, 30.0)
_CALM_DOWN_SECONDS = 150.0
_WAIT_SECONDS_MAX = 600.0
_HOUR_MS = 3_600_000
_JUMPS_MS = (-_HOUR_MS, -60_000, -3_000, -1, 1, 3_000, 60_000, _HOUR_MS)
_HEALED_PART = 0.3
_SOON_MS = 2_000
_PENDING = """
SELECT id, status, expires_at, alarm_at, alarm_dispatch_at, alarm_attempts, alarm_claim
FROM reservation WHERE alarm_dispatch_at IS NOT NULL ORDER BY alarm_dispatch_at
"""
_LAST_AT = """
SELECT max(at) FROM (
    SELECT alarm_dispatch_at AS at FROM reservation
    UNION SELECT expires_at FROM reservation WHERE status = 'held'
    UNION SELECT s.run_at FROM schedule AS s JOIN reservation AS r
    ON r.id = s.reservation AND r.generation = s.generation AND r.alarm_at IS NOT NULL)
"""
_FOR_EVER = """
SELECT s.reservation FROM schedule AS s JOIN reservation AS r
ON r.id = s.reservation AND r.generation = s.generation AND r.alarm_at = s.run_at
WHERE s.repeat_ms IS NOT NULL
"""


class Lives:
    """The service as its clients know it: one process after the other on the same disk."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ledger = Ledger()
        self._sizes = choose_sizes(world.chance)
        self._process = Process(world, self._ledger, self._sizes, None)

    async def run(self) -> None:
        """Play the whole run, or until a promise is broken."""
        story = asyncio.create_task(self._play())
        broken = asyncio.create_task(self._world.broken.wait())
        await asyncio.wait([story, broken], return_when=asyncio.FIRST_COMPLETED)
        self._process.crash("the run is over")
        ended = story.exception() if story.done() else None
        await _cancel_everything()
        if ended:
            raise ended

    def now(self) -> int:
        return self._process.clock.now()

    async def request(self, call: Callable[[ReservationNamespace], Awaitable[T]]) -> T:
        return await self._process.request(call)

    async def _play(self) -> None:
        world = self._world
        world.note(f"sizes {self._sizes}{', a calm run' * world.is_calm}")
        keeping = self._go_on(self._keep_running())
        clients = [Client(name, world, self._ledger, self) for name in HOLDERS]
        calling = [self._go_on(client.run()) for client in clients]
        self._go_on(self._disturb())
        await asyncio.sleep(world.chance.uniform(*_FAULTS_SECONDS))
        world.end_faults()
        for client in clients:
            client.leave()
        _, unanswered = await asyncio.wait(calling, timeout=_WAIT_SECONDS_MAX)
        if unanswered:
            world.complain(f"{len(unanswered)} clients were never answered")
        await asyncio.sleep(_CALM_DOWN_SECONDS)
        await self._see_everything_fire()
        keeping.cancel()
        await self._end_well()

    def _go_on(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Work beside the story; when it breaks, the simulator itself is broken."""

        def look(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                self._world.complain(f"the simulator is broken: {task.exception()!r}")

        task = asyncio.create_task(work)
        task.add_done_callback(look)
        return task

    async def _keep_running(self) -> None:
        """Start the process again whenever it has ended, sooner or later."""
        while True:
            self._start()
            await asyncio.wait([self._process.ended])
            if self._world.strikes("clock-jump"):
                self._world.wall.step(jump_ms := self._world.chance.choice(_JUMPS_MS))
                self._world.note(f"the wall clock jumps by {jump_ms} ms")
            if not self._world.faults_are_over:
                seconds_max = self._world.chance.choice(_DOWN_SECONDS)
                await asyncio.sleep(self._world.chance.uniform(0, seconds_max))
            image = self._process.image
            self._process = Process(self._world, self._ledger, self._sizes, image)

    def _start(self) -> None:
        self._world.figures["starts"] += 1
        self._world.note(f"a process starts at {self.now()}")
        try:
            self._process.start()
        except Crashed:
            pass
        except sqlite3.OperationalError as error:
            self._process.crash(f"refused to start: {error}")

    async def _disturb(self) -> None:
        """What happens to a process at any moment; a stop that has begun is played to its end."""
        world = self._world
        while True:
            await asyncio.sleep(world.chance.uniform(0, 10.0))
            if world.faults_are_over:
                return
            for kind, what in (
                ("failing-alarm", "alarm"),
                ("failing-request", "held"),
                ("failing-event", "event"),
            ):
                if world.strikes(kind):
                    world.failing.add((world.chance.choice(NAMES), what))
            for planted in sorted(world.failing):
                if world.chance.random() < _HEALED_PART:
                    world.failing.remove(planted)
            if world.strikes("crash-at-idle"):
                self._process.crash("at idle")
            elif world.strikes("stop"):
                await self._process.stop()

    async def _see_everything_fire(self) -> None:
        """Liveness: no more faults, so whatever is planned fires when it is due."""
        self._none_is_put_off(self._pending())
        last_at = self._rows(_LAST_AT)[0][0]
        wait_s = ((last_at or 0) - self.now()) / 1000
        if wait_s > _WAIT_SECONDS_MAX:  # the wall clock was set back: set it right
            await self._process.stop()
            self._world.wall.step(round(wait_s * 1000))
        elif wait_s > 0:
            await asyncio.sleep(wait_s)
        await asyncio.sleep(_CALM_DOWN_SECONDS)
        repeated = {row["reservation"] for row in self._rows(_FOR_EVER)}
        for row in self._pending():
            if row["id"] not in repeated or row["alarm_dispatch_at"] < self.now() - _SOON_MS:
                self._world.complain(f"never fired: {dict(row)} at {self.now()}")

    def _none_is_put_off(self, pending: list[sqlite3.Row]) -> None:
        """A failing alarm is tried again within the cap, an abandoned one after its lease."""
        sizes = self._sizes
        latest_ms = self.now() + max(sizes.cap_ms, sizes.alarms.lease_ms)
        for row in pending:
            if row["alarm_dispatch_at"] > max(row["alarm_at"], latest_ms):
                self._world.complain(f"put off: {dict(row)} at {self.now()}")

    def _pending(self) -> list[sqlite3.Row]:
        return self._rows(_PENDING)

    def _rows(self, sql: str) -> list[sqlite3.Row]:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.deserialize(self._process.snapshot())
            connection.row_factory = sqlite3.Row
            return connection.execute(sql).fetchall()

    async def _end_well(self) -> None:
        if not await self._process.stop():
            self._world.complain("the process did not stop in time")
        assert self._process.image is not None
        check_image(self._world, self._ledger, self._process.image)


async def _cancel_everything() -> None:
    me = asyncio.current_task()
    while others := [task for task in asyncio.all_tasks() if task is not me]:
        for task in others:
            task.cancel()
        with suppress(Crashed):
            await asyncio.wait(others)
