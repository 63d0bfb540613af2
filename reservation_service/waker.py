"""APScheduler as the alarm clock's waker.

One permanent job that is moved earlier when a commit brings an earlier alarm; it sets an event, and
decides nothing. Its scheduler sleeps on a thread, since the event loop counts its sleep in
milliseconds, rounded up. APScheduler follows the wall clock, which may be stepped, so its tick is
precision only: the guarantee is the event loop's own time-out of `HEARTBEAT_S`.

An idle service has cold caches, and a process that slept long wakes slowly. So the tick comes a
little early and wakes an idle service at once, which gets ready; for any other it sleeps to the
very time.
"""

import asyncio
from datetime import datetime, timedelta

from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from reservation_service.clock import Clock, monotonic_s, wall_datetime

HEARTBEAT_S = 1.0
"""The longest time between two looks into the table."""

SETTLED_S = 0.002
"""Moving the job takes a fifth of a millisecond; what a commit has set going comes first."""

EARLY_S = 0.002
"""Longer than an idle service needs to look into the table, which is a millisecond, and for its
next call to reach the writer."""

IDLE_S = 0.01
"""A service that has committed less than this ago is warm, and its writer may be needed."""

_JOB = "next-alarm"
_AT_ONCE = "at-once"
_FAR = timedelta(days=1)


class _Later(BaseTrigger):  # type: ignore[misc]
    """Always later than now: a trigger that is not would make APScheduler spin."""

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        del previous
        return now + _FAR


class SchedulerWaker:
    """Implements `alarms.Waker` on a started scheduler, for the event loop that runs now."""

    def __init__(self, scheduler: BackgroundScheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._armed_at: int | None = None
        self._committed_s = monotonic_s()
        self._event = asyncio.Event()
        self._soon_due_at: int | None = None
        self._moving: asyncio.TimerHandle | None = None
        self._ticks_for: int | None = None
        self._loop = asyncio.get_running_loop()
        scheduler.add_executor(DebugExecutor(), _AT_ONCE)  # it calls, and asks no other thread
        scheduler.add_job(
            self._tick,
            _Later(),
            id=_JOB,
            executor=_AT_ONCE,
            misfire_grace_time=None,
            coalesce=True,
        )

    def arm(self, at_ms: int) -> None:
        self._committed_s = monotonic_s()  # that is when one is armed
        if self._armed_at is not None and self._armed_at <= at_ms:
            return
        self._armed_at = at_ms
        delay_s = self._clock.seconds_until(at_ms)
        if delay_s <= 0:
            self._event.set()
        elif delay_s <= 2 * SETTLED_S:
            self._move()
        elif delay_s < 2 * HEARTBEAT_S and self._moving is None:  # a heartbeat may begin later
            self._moving = self._loop.call_later(SETTLED_S, self._move)

    async def wait(self) -> int | None:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await self._event.wait()
        except TimeoutError:
            pass
        soon_due_at, self._soon_due_at = self._soon_due_at, None
        self._event.clear()
        self._armed_at = None
        return soon_due_at

    def _tick(self) -> None:
        """Wake in time, from the scheduler's thread, which sleeps to the microsecond."""
        at_ms = self._armed_at
        if at_ms is not None and 0 < self._clock.seconds_until(at_ms) <= 2 * EARLY_S:
            if monotonic_s() - self._committed_s >= IDLE_S:
                self._loop.call_soon_threadsafe(self._wake_early, at_ms)
                return
            self._ticks_for = at_ms
            self._clock.sleep_until(at_ms)
        self._loop.call_soon_threadsafe(self._event.set)

    def _wake_early(self, at_ms: int) -> None:
        self._soon_due_at = at_ms
        self._event.set()

    def _move(self) -> None:
        """Move the job to just before the armed time, if it is still armed.

        The scheduler lets nobody move a job while it ticks. What is armed then is armed again by
        the look that follows.
        """
        if self._moving is not None:
            self._moving.cancel()
            self._moving = None
        if self._is_ticking() or self._armed_at is None:
            return
        if self._scheduler.running:
            delay_s = max(0.0, self._clock.seconds_until(self._armed_at) - EARLY_S)
            tick_at = wall_datetime() + timedelta(seconds=delay_s)
            self._scheduler.modify_job(_JOB, next_run_time=tick_at)

    def _is_ticking(self) -> bool:
        return self._ticks_for is not None and self._clock.seconds_until(self._ticks_for) > 0
