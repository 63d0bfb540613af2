"""Time that is only counted: an event loop that jumps to its next timer, and clocks upon it.

Nothing waits for real. The order of what happens depends on nothing outside of the process, so
the same decisions always give the same run.
"""

import asyncio
import math
import selectors

from tests.support.clock import START

HEARTBEAT_S = 1.0
"""The longest time between two looks that the alarm clock's waker may take."""

_PASSES_MAX = 5_000
"""Passes of the event loop at one moment; an honest burst of calls needs some hundred."""

_US_PER_S = 1_000_000
_US_PER_MS = 1_000


class NothingLeft(Exception):
    """Everybody waits for somebody else: no timer is set, and nothing is ready to run."""


class Spinning(Exception):
    """The event loop is busy for ever without any time passing."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, which starts at 0 and is kept in whole microseconds."""

    def __init__(self) -> None:
        self.elapsed_us = 0
        super().__init__(_Jump(self))

    def time(self) -> float:
        return self.elapsed_us / _US_PER_S

    def jump(self, seconds: float) -> None:
        """Let the time pass until the next timer; never a moment less."""
        self.elapsed_us += max(1, math.ceil(seconds * _US_PER_S - 1e-3))


class _Jump(selectors.SelectSelector):
    """A selector for a loop without sockets: instead of waiting it moves the time."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._passes = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingLeft
        self._passes += 1
        if timeout > 0:
            self._passes = 0
            self._loop.jump(timeout)
        if self._passes > _PASSES_MAX:
            raise Spinning
        return []


class WallClock:
    """The machine's clock, which somebody may set forward or back at any moment."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._offset_ms = START

    def now(self) -> int:
        return self._offset_ms + self._loop.elapsed_us // _US_PER_MS

    def step(self, ms: int) -> None:
        self._offset_ms += ms


class ServiceClock:
    """Implements `clock.Clock` like a process does: it follows no step after its own start."""

    def __init__(self, loop: VirtualLoop, wall: WallClock) -> None:
        self._loop = loop
        self._wall = wall
        self._offset_us = wall.now() * _US_PER_MS - loop.elapsed_us

    def now(self) -> int:
        return (self._offset_us + self._loop.elapsed_us) // _US_PER_MS

    def seconds_until(self, at_ms: int) -> float:
        return (at_ms * _US_PER_MS - self._offset_us - self._loop.elapsed_us) / _US_PER_S

    def sleep_until(self, at_ms: int) -> None:
        raise NotImplementedError  # its waker is never early

    def divergence_ms(self) -> int:
        return self._wall.now() - self.now()


class TimerWaker:
    """Implements `alarms.Waker` by the loop's timers.

    A deaf one ignores every arming, as a scheduler may that the wall clock has led astray: then
    only the heartbeat is left, which is all that the contract promises.
    """

    def __init__(self, clock: ServiceClock, *, is_deaf: bool) -> None:
        self._clock = clock
        self._is_deaf = is_deaf
        self._ring = asyncio.Event()
        self._armed_at: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def arm(self, at_ms: int) -> None:
        if self._is_deaf or (self._armed_at is not None and self._armed_at <= at_ms):
            return
        self._armed_at = at_ms
        self._disarm()
        delay_s = max(0.0, self._clock.seconds_until(at_ms))
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring.set)

    async def wait(self) -> int | None:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await self._ring.wait()
        except TimeoutError:
            pass
        self._disarm()
        self._ring.clear()
        self._armed_at = None
        return None

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
