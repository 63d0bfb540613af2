"""The only place that reads time.

Service time is epoch milliseconds: the wall clock at start plus the elapsed boot time, so a step
of the wall clock neither frees a hold early nor keeps it. It refuses to follow such a step; how
far the two have drifted apart is `divergence_ms`, and a restart brings them together again.
"""

import select
import time
from datetime import UTC, datetime
from typing import Protocol

_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_NS_PER_MS = 1_000_000


class Clock(Protocol):
    """A source of service time."""

    def now(self) -> int:
        """Epoch milliseconds, rounded down; never goes back while the process lives."""

    def seconds_until(self, at_ms: int) -> float:
        """Seconds of service time until `at_ms`, exact to the nanosecond; 0 or less when due."""

    def sleep_until(self, at_ms: int) -> None:
        """Block this thread until `at_ms` (epoch ms of service time); not for an event loop."""

    def divergence_ms(self) -> int:
        """The wall clock minus service time, in milliseconds: how far a step has parted them."""


class BootClock:
    """Service time from the wall clock at construction and CLOCK_BOOTTIME since then."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.clock_gettime_ns(_ELAPSED)

    def now(self) -> int:
        return (self._offset_ns + time.clock_gettime_ns(_ELAPSED)) // _NS_PER_MS

    def seconds_until(self, at_ms: int) -> float:
        elapsed_ns = time.clock_gettime_ns(_ELAPSED)
        return (at_ms * _NS_PER_MS - self._offset_ns - elapsed_ns) / 1e9

    def sleep_until(self, at_ms: int) -> None:
        # No step of the wall clock makes it longer, as a wait for a lock may be made; and
        # `time.sleep` ends in an error under libfaketime.
        select.select([], [], [], max(0.0, self.seconds_until(at_ms)))

    def divergence_ms(self) -> int:
        return time.time_ns() // _NS_PER_MS - self.now()


def wall_datetime() -> datetime:
    """The wall clock as an aware datetime, for libraries that schedule by it and take no other."""
    return datetime.now(UTC)


def utc_text(at_ms: int) -> str:
    """A time for people to read, to the second."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


monotonic_s = time.monotonic
"""Seconds that only ever rise, for measuring durations inside the process."""
