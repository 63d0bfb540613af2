"""The service, telling of each alarm to the microsecond when it was begun and when it was done.

`python -m benchmarks.timed_service DATABASE`: IDs are `at-` and the deadline in epoch ms. An alarm
is begun when the transaction that claims it begins, done when it is committed and told.
"""

import asyncio
import bisect
import os
import signal
import sys
from functools import cached_property
from pathlib import Path
from struct import Struct
from typing import Any

from reservation_service.clock import BootClock
from reservation_service.config import load
from reservation_service.service import Service
from reservation_service.telemetry import Telemetry

_PREFIX = "at-"
_LOOK = Struct("d")


class WatchedClock(BootClock):
    """Writes into a file when the writer's process looked at it: once for each transaction."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._service = os.getpid()
        file.touch()

    def now(self) -> int:
        if os.getpid() != self._service:
            os.write(self._looks, _LOOK.pack(self.exact_ms()))
        return super().now()

    @cached_property
    def _looks(self) -> int:
        """Opened in the writer's process, at its first transaction."""
        return os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def exact_ms(self) -> float:
        """Service time with all that the system tells of it."""
        return -1000 * self.seconds_until(0)

    def looks_ms(self) -> list[float]:
        """All looks of the writer so far."""
        return [look for (look,) in _LOOK.iter_unpack(self._file.read_bytes())]


class _Watch:
    """Adds to the log line of an alarm what the clock saw."""

    def __init__(self, clock: WatchedClock) -> None:
        self._clock = clock
        self._telemetry = Telemetry(clock)

    def observe(self, name: str, **fields: Any) -> None:
        if name == "reservation-alarm":
            fields |= self._seen(int(fields["reservation_id"].removeprefix(_PREFIX)))
        self._telemetry.observe(name, **fields)

    def _seen(self, due_ms: int) -> dict[str, float]:
        done = self._clock.exact_ms()
        looks = self._clock.looks_ms()
        begun = looks[bisect.bisect_left(looks, due_ms)]
        return {"begun_after_ms": begun - due_ms, "done_after_ms": done - due_ms}


async def main(database: Path) -> None:
    """Serve until SIGTERM."""
    clock = WatchedClock(database.with_name("looks"))
    overrides: dict[str, dict[str, object]] = {
        "log": {"access": False},
        "server": {"port": 0},
        "storage": {"database": database},
    }
    settings = load(None, overrides, {})
    service = Service(settings, clock, _Watch(clock).observe)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, service.request_stop)
    await service.start()
    await service.run()
    await service.stop()


if __name__ == "__main__":
    # The writer's process knows the clock by the name of its module.
    from benchmarks import timed_service as importable  # noqa: PLW0406

    asyncio.run(importable.main(Path(sys.argv[1])))
