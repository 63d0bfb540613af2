"""APScheduler for precision, the event loop's own time-out for the guarantee."""

import asyncio
import queue
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.schedulers.background import BackgroundScheduler

from reservation_service import waker as waker_module
from reservation_service.clock import BootClock, wall_datetime
from reservation_service.waker import SchedulerWaker
from tests.support.clock import START, FakeClock
from tests.support.harness import threads_accounted_for
from tests.support.waiting import WAIT_SECONDS_MAX, bounded


@pytest.fixture
def silent() -> Iterator[BackgroundScheduler]:
    """A scheduler that keeps its jobs and never runs one."""
    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.start(paused=True)
    yield scheduler
    scheduler.shutdown(wait=False)


@pytest.fixture
def ticking() -> Iterator[BackgroundScheduler]:
    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.start()
    yield scheduler
    scheduler.shutdown(wait=False)


@pytest.fixture(autouse=True)
def settled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waker_module, "SETTLED_S", 0)


async def planned(scheduler: BackgroundScheduler) -> float:
    """Seconds from now to the next run of the only job."""
    for _ in range(3):
        await asyncio.sleep(0)
    (job,) = scheduler.get_jobs()
    seconds: float = (job.next_run_time - wall_datetime()).total_seconds()
    return seconds


async def elapsed(waker: SchedulerWaker) -> float:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await bounded(waker.wait(), "the waker")
    return loop.time() - begun


async def test_an_earlier_alarm_moves_the_tick_and_a_later_one_does_not(
    silent: BackgroundScheduler, clock: FakeClock
) -> None:
    waker = SchedulerWaker(silent, clock)
    waker.arm(START + 800)
    assert await planned(silent) == pytest.approx(0.8, abs=0.1)
    waker.arm(START + 400)
    assert await planned(silent) == pytest.approx(0.4, abs=0.1)
    waker.arm(START + 900)
    assert await planned(silent) == pytest.approx(0.4, abs=0.1)


async def test_it_wakes_at_the_armed_time(ticking: BackgroundScheduler) -> None:
    clock = BootClock()
    waker = SchedulerWaker(ticking, clock)
    at = clock.now() + 30
    wakes = 0
    while clock.now() < at:
        waker.arm(at)
        await bounded(waker.wait(), "the waker")
        wakes += 1
    assert wakes <= 2
    assert clock.now() < at + 500


async def test_the_tick_is_planned_a_little_early(
    silent: BackgroundScheduler, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2027, 1, 15, tzinfo=UTC)
    monkeypatch.setattr(waker_module, "wall_datetime", lambda: now)
    SchedulerWaker(silent, clock).arm(START + 100)
    await planned(silent)
    (job,) = silent.get_jobs()
    assert job.next_run_time - now == timedelta(milliseconds=98)


class Tick:
    """A tick on a thread of its own, which sleeps until it `may_go_on`."""

    def __init__(
        self, scheduler: BackgroundScheduler, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.asleep, self.may_go_on = queue.SimpleQueue[int](), threading.Event()
        monkeypatch.setattr(clock, "sleep_until", self._sleep)
        (self._job,) = scheduler.get_jobs()
        monkeypatch.setattr(scheduler, "modify_job", None)  # it would wait for the thread
        self.ended = asyncio.get_running_loop().run_in_executor(None, self._job.func)

    def _sleep(self, at_ms: int) -> None:
        self.asleep.put(at_ms)
        assert self.may_go_on.wait(WAIT_SECONDS_MAX)

    async def begin(self) -> int:
        """Until when it sleeps."""
        return await asyncio.to_thread(self.asleep.get, timeout=WAIT_SECONDS_MAX)

    async def end(self) -> None:
        self.may_go_on.set()
        await bounded(self.ended, "the tick")


async def test_an_idle_service_is_woken_a_little_early_and_told_for_what_time(
    silent: BackgroundScheduler, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waker_module, "IDLE_S", 0)
    waker = SchedulerWaker(silent, clock)
    waker.arm(START + 100)
    await planned(silent)
    clock.advance(98)
    tick = Tick(silent, clock, monkeypatch)
    assert await bounded(waker.wait(), "the early wake") == START + 100
    await bounded(tick.ended, "the tick")
    assert tick.asleep.empty()
    waker.arm(START + 98)
    assert await bounded(waker.wait(), "the next wake") is None


async def test_nothing_is_moved_while_the_scheduler_ticks(
    silent: BackgroundScheduler, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waker = SchedulerWaker(silent, clock)
    waker.arm(START + 100)
    await planned(silent)
    clock.advance(98)
    tick = Tick(silent, clock, monkeypatch)
    await tick.begin()
    monkeypatch.setattr(waker_module, "SETTLED_S", 0.01)
    waker.arm(START + 99)
    await tick.end()
    await bounded(waker.wait(), "the waker")


async def test_who_has_just_committed_is_not_woken_early(
    silent: BackgroundScheduler, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waker_module, "IDLE_S", WAIT_SECONDS_MAX)
    waker = SchedulerWaker(silent, clock)
    waker.arm(START + 100)
    await planned(silent)
    clock.advance(98)
    tick = Tick(silent, clock, monkeypatch)
    assert await tick.begin() == START + 100
    waiting = asyncio.ensure_future(waker.wait())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    await tick.end()
    assert await bounded(waiting, "the waker") is None


async def test_a_tick_that_the_wall_clock_brings_far_too_early_does_not_sleep(
    silent: BackgroundScheduler, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waker = SchedulerWaker(silent, clock)
    waker.arm(START + 30)
    await planned(silent)
    tick = Tick(silent, clock, monkeypatch)
    await bounded(tick.ended, "the tick")
    assert tick.asleep.empty()
    assert await elapsed(waker) < 0.5


async def test_it_wakes_again_and_again(ticking: BackgroundScheduler, clock: FakeClock) -> None:
    waker = SchedulerWaker(ticking, clock)
    for _ in range(3):
        waker.arm(START + 10)
        assert await elapsed(waker) < 0.5


async def test_what_is_due_already_wakes_at_once(
    silent: BackgroundScheduler, clock: FakeClock
) -> None:
    waker = SchedulerWaker(silent, clock)
    waker.arm(START)
    assert await elapsed(waker) < 0.5
    waker.arm(START - 86_400_000)
    assert await elapsed(waker) < 0.5


async def test_the_heartbeat_wakes_although_the_scheduler_is_silent(
    silent: BackgroundScheduler, clock: FakeClock
) -> None:
    waker = SchedulerWaker(silent, clock)
    waker.arm(START + 1)
    assert 0.9 <= await elapsed(waker) < 1.2


async def test_the_heartbeat_needs_no_alarm(
    silent: BackgroundScheduler, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waker_module, "HEARTBEAT_S", 0.02)
    assert await elapsed(SchedulerWaker(silent, clock)) >= 0.019


def test_no_sleep_is_longer_than_a_second() -> None:
    assert waker_module.HEARTBEAT_S <= 1.0


async def test_the_job_is_moved_once_for_all_that_is_armed_before_it_settles(
    silent: BackgroundScheduler, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waker, moves = SchedulerWaker(silent, clock), []
    monkeypatch.setattr(silent, "modify_job", lambda *_, **kw: moves.append(kw["next_run_time"]))
    for at in (800, 700, 600):
        waker.arm(START + at)
    assert moves == []
    await planned(silent)
    assert len(moves) == 1
    assert (moves[0] - wall_datetime()).total_seconds() == pytest.approx(0.6, abs=0.1)


async def test_an_alarm_that_is_very_near_does_not_wait_until_it_settles(
    silent: BackgroundScheduler, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waker_module, "SETTLED_S", 0.01)
    waker = SchedulerWaker(silent, clock)
    waker.arm(START + 500)
    waker.arm(START + 20)
    (job,) = silent.get_jobs()
    assert (job.next_run_time - wall_datetime()).total_seconds() < 0.1


async def test_nothing_is_moved_to_an_alarm_that_has_woken_it_already(
    silent: BackgroundScheduler, clock: FakeClock
) -> None:
    waker = SchedulerWaker(silent, clock)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
    waker.arm(START + 500)
    waker.arm(START)
    assert waker._moving is not None
    await bounded(waker.wait(), "the waker")
    assert await planned(silent) > 80_000
    assert complaints == []


async def test_what_is_armed_anew_before_it_settled_is_moved_to(
    silent: BackgroundScheduler, clock: FakeClock
) -> None:
    waker = SchedulerWaker(silent, clock)
    waker.arm(START + 500)
    waker.arm(START)
    await bounded(waker.wait(), "the waker")
    waker.arm(START + 700)
    assert await planned(silent) == pytest.approx(0.7, abs=0.1)


async def test_an_alarm_a_little_behind_the_heartbeat_has_its_tick(
    silent: BackgroundScheduler, clock: FakeClock
) -> None:
    """The heartbeat begins with the wait, which may be a while after the alarm was armed."""
    waker = SchedulerWaker(silent, clock)
    waker.arm(START + 1_050)
    assert await planned(silent) == pytest.approx(1.05, abs=0.1)


async def test_nothing_is_moved_after_the_end(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.start()
    waker = SchedulerWaker(scheduler, clock)
    waker.arm(START + 500)
    scheduler.shutdown(wait=False)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
    for _ in range(3):
        await asyncio.sleep(0)
    assert complaints == []


async def test_it_is_disarmed_once_it_woke(silent: BackgroundScheduler, clock: FakeClock) -> None:
    waker = SchedulerWaker(silent, clock)
    waker.arm(START)
    await bounded(waker.wait(), "the waker")
    waker.arm(START + 500)
    assert await planned(silent) == pytest.approx(0.5, abs=0.1)


async def test_an_alarm_beyond_the_heartbeat_costs_the_scheduler_nothing(
    silent: BackgroundScheduler, clock: FakeClock
) -> None:
    waker = SchedulerWaker(silent, clock)
    waker.arm(START + 3_600_000)
    assert await planned(silent) > 80_000


async def test_an_alarm_armed_during_a_wake_is_not_lost(
    silent: BackgroundScheduler, clock: FakeClock
) -> None:
    waker = SchedulerWaker(silent, clock)
    waiting = asyncio.create_task(waker.wait())
    await asyncio.sleep(0)
    waker.arm(START)
    await bounded(waiting, "the first wake")
    waker.arm(START)
    assert await elapsed(waker) < 0.5


@pytest.mark.parametrize("late", [timedelta(0), timedelta(days=400), timedelta(days=-400)])
def test_the_trigger_is_always_later_than_now(late: timedelta) -> None:
    now = datetime.now(UTC)  # noqa: TID251 - any time would do
    assert waker_module._Later().get_next_fire_time(now - late, now) > now


async def test_the_job_is_permanent_and_never_misses_for_being_late(
    ticking: BackgroundScheduler, clock: FakeClock
) -> None:
    waker = SchedulerWaker(ticking, clock)
    waker.arm(START + 10)
    await bounded(waker.wait(), "the waker")
    (job,) = ticking.get_jobs()
    assert job.misfire_grace_time is None
    assert job.next_run_time > wall_datetime()


async def test_a_tick_needs_no_thread_but_the_schedulers_own(clock: FakeClock) -> None:
    with threads_accounted_for():
        scheduler = BackgroundScheduler(timezone=UTC, daemon=False)
        scheduler.start()
        waker = SchedulerWaker(scheduler, clock)
        before = threading.enumerate()
        waker.arm(START + 10)
        await bounded(waker.wait(), "the waker")
        assert threading.enumerate() == before
        scheduler.shutdown(wait=False)
