"""The alarm clock's waker in a test's hand: the fake clock rings it, the test is its heartbeat."""

import asyncio

from tests.support.clock import FakeClock
from tests.support.waiting import Signal


class HandWaker:
    """Implements `alarms.Waker`. It wakes when the clock reaches the armed time, or at a `tick`,
    which may come early.

    There is no heartbeat but the test's own, so that an alarm which nobody armed stays unseen.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._ring = asyncio.Event()
        self._changed = Signal()
        self._is_waiting = False
        self._soon_due_at: int | None = None
        self.armed_at: int | None = None
        clock.follow(self._look)

    def arm(self, at_ms: int) -> None:
        if self.armed_at is None or at_ms < self.armed_at:
            self.armed_at = at_ms
        self._look()
        self._changed.notify()

    async def wait(self) -> int | None:
        self._is_waiting = True
        self._changed.notify()
        try:
            await self._ring.wait()
        finally:
            self._is_waiting = False
        self._ring.clear()
        self.armed_at = None
        soon_due_at, self._soon_due_at = self._soon_due_at, None
        return soon_due_at

    def tick(self, soon_due_at: int | None = None) -> None:
        """The heartbeat: wake now, whatever is armed; or early, for a time that is near."""
        self._soon_due_at = soon_due_at
        self._ring.set()

    @property
    def is_asleep(self) -> bool:
        """True while the dispatcher has looked and waits with nothing to wake it."""
        return self._is_waiting and not self._ring.is_set()

    async def asleep(self) -> None:
        """Wait until the dispatcher has looked at everything that it was woken for."""
        await self._changed.until(lambda: self.is_asleep, "the dispatcher to fall asleep")

    async def armed(self, at_ms: int) -> None:
        """Wait until the dispatcher is to wake at `at_ms`."""
        await self._changed.until(
            lambda: self.armed_at == at_ms, f"the waker to be armed at {at_ms}"
        )

    def retire(self) -> None:
        """The service that it woke is gone."""
        self._clock.unfollow(self._look)

    def _look(self) -> None:
        if self.armed_at is not None and self.armed_at <= self._clock.now():
            self._ring.set()
