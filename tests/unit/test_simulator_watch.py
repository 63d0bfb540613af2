"""What the simulator's watch learns of a transaction, whatever becomes of the process behind it."""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing, suppress
from random import Random
from typing import TypeVar

import pytest

from reservation_service.errors import OutcomeUnknown
from reservation_service.reservation import ANONYMOUS, Fire, Plan
from tests.support.clock import START
from tests.torture.simulator_bugs import BUGS, without_second_defence
from tests.torture.simulator_disk import open_disk
from tests.torture.simulator_ledger import Ledger
from tests.torture.simulator_lives import _cancel_everything
from tests.torture.simulator_process import ConnectionLost, Process, choose_sizes, start_task
from tests.torture.simulator_time import ServiceClock
from tests.torture.simulator_watch import Slot, Watch
from tests.torture.simulator_world import World

T = TypeVar("T")

UNTIL_CALM_S = 1.5  # not when the dispatcher looks again: its claim would share the batch

SEAT = "seat-1"
HELD_MS = 30_000
OVERDUE = Plan(SEAT, "overdue", START - 1_000)
LATER = Plan(SEAT, "later", START + 3_600_000)
ATTEMPTS = "SELECT alarm_attempts FROM reservation"
COUNT_FIRED = "SELECT count(*) FROM event WHERE type = 'scheduled-event'"
FORGET_THE_COUNT = "UPDATE reservation SET alarm_attempts = 0, alarm_dispatch_at = alarm_at"


class First(Random):
    """Chooses what is named first: the smallest sizes, and COMMIT."""

    def choice(self, options: Sequence[T]) -> T:  # type: ignore[override] # a part of what it takes
        return options[0]


class Stage(World):
    """One process after the other; nothing goes wrong but `fault`, once."""

    def __init__(self) -> None:
        super().__init__(0)
        self.chance = First(0)
        self.fault = ""
        self.ledger = Ledger()

    def strikes(self, kind: str) -> bool:
        if kind != self.fault:
            return False
        self.fault = ""
        self.figures[kind] += 1
        return True

    def play(self, story: Callable[["Stage"], Coroutine[None, None, None]]) -> list[str]:
        """The complaints when it is over."""
        self.loop.set_task_factory(start_task)
        with closing(self.loop):
            self.loop.run_until_complete(story(self))
            self.process.crash("the story is over")
            self.loop.run_until_complete(_cancel_everything())
        return self.violations

    async def begin(self, image: bytes | None = None) -> None:
        """Start, from this disk or an empty one."""
        self.process = Process(self, self.ledger, choose_sizes(self.chance), image)
        self.process.start()
        await self.calm_down()

    async def calm_down(self, seconds: float = UNTIL_CALM_S) -> None:
        """Let virtual time pass, while the process lives."""
        await asyncio.wait([self.process.ended], timeout=seconds)

    async def hold(self) -> None:
        await self.process.request(lambda seats: seats.get_by_name(SEAT).hold(HELD_MS, ANONYMOUS))

    async def send(self, fire: Fire) -> None:
        await self.process.request(lambda seats: seats.get_by_name(SEAT)._take_turn(fire))

    async def plan(self, event: Plan) -> None:
        await self.process.request(lambda seats: seats.get_by_name(SEAT).plan(event))
        await self.calm_down()

    async def plan_and_lose_the_answer(self, event: Plan, fault: str) -> bytes:
        """What is on the disk when the process has ended of that."""
        self.fault = fault
        with suppress(ConnectionLost, OutcomeUnknown):
            await self.plan(event)
        await self.calm_down()
        assert self.process.ended.done()
        return self.process.snapshot()


def asked(image: bytes, sql: str) -> int:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(image)
        (value,) = connection.execute(sql).fetchone()
        return int(value)


def changed(image: bytes, sql: str) -> bytes:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.deserialize(image)
        connection.execute(sql)
        return connection.serialize()


@pytest.mark.parametrize("fault", ["crash-after-commit", "commit-unknown"])
def test_attempts_count_anew_for_what_a_commit_without_an_answer_has_planned(fault: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await stage.hold()
        await stage.plan(OVERDUE)  # which fires; planned once more it is another alarm
        image = await stage.plan_and_lose_the_answer(OVERDUE, fault)
        assert asked(image, ATTEMPTS) == 0
        await stage.begin(image)
        assert asked(stage.process.snapshot(), COUNT_FIRED) == 2

    assert Stage().play(story) == []


def test_a_count_that_is_lost_behind_such_a_commit_is_complained_of() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await stage.hold()
        stage.failing.add((SEAT, "event"))
        await stage.plan(OVERDUE)  # which is tried again and again
        image = await stage.plan_and_lose_the_answer(LATER, "crash-after-commit")
        assert asked(image, ATTEMPTS) > 1
        await stage.begin(changed(image, FORGET_THE_COUNT))

    assert f"attempt 1 again: {(SEAT, 1, OVERDUE.run_at)}" in Stage().play(story)


@pytest.mark.parametrize("is_over", [True, False], ids=["over", "live"])
def test_what_is_recorded_on_a_hold_that_is_over_is_complained_of(is_over: bool) -> None:
    fire = Fire(SEAT, 1, OVERDUE.run_at)

    async def story(stage: Stage) -> None:
        await stage.begin()
        await stage.hold()
        stage.failing |= {(SEAT, "event"), (SEAT, "alarm")}
        await stage.plan(OVERDUE)
        await stage.calm_down(HELD_MS / 1000 if is_over else UNTIL_CALM_S)
        stage.failing.clear()
        await stage.send(fire)
        await stage.calm_down(HELD_MS / 1000)
        await stage.send(fire)  # which has happened, and does not again
        assert asked(stage.process.snapshot(), COUNT_FIRED) == 1

    with without_second_defence(), BUGS["fire-what-is-over"]():
        complaints = Stage().play(story)
    assert complaints == ([f"{fire} was recorded on a hold that is over"] if is_over else [])


def a_watch(world: World, *, max_per_holder: int = 0) -> Watch:
    clock = ServiceClock(world.loop, world.wall)
    return Watch(world, Ledger(), open_disk(None), clock, max_per_holder)


def test_a_claim_behind_a_plan_hides_no_lost_count() -> None:
    world = World(0)
    watch, slot = a_watch(world), (SEAT, 1, OVERDUE.run_at)
    tried = Slot(SEAT, 1, "held", START, OVERDUE.run_at, OVERDUE.run_at, attempts=3, claim=None)
    for attempts, counted in ((4, 3), (1, None)):
        watch._ledger._attempts = {slot: 3}
        claimed = tried._replace(attempts=attempts, claim=7)
        watch._set_anew(tried, claimed, may_be_claimed=True)
        assert watch._ledger._attempts.get(slot) == counted
    world.loop.close()


def test_an_answer_without_a_commit_is_complained_of() -> None:
    world = World(0)
    with closing(world.loop), a_watch(world).batch([]):
        pass
    assert world.violations == ["answered without a COMMIT: "]


def test_what_breaks_in_the_watch_is_not_taken_for_the_disks() -> None:
    world = World(0)
    watch = a_watch(world, max_per_holder=1)  # there is no table to count in
    with closing(world.loop), watch.batch([]):
        watch.committed()
    (complaint,) = world.violations
    assert complaint.startswith("the simulator is broken: OperationalError")
