"""The service, telling of each alarm to the microsecond when it was begun and when it was done.

`python -m benchmarks.timed_service DATABASE`: IDs are `at-` and the deadline in epoch ms. An alarm
is begun when the transaction that claims it begins, done when it is committed and told.
"""

import asyncio
import bisect
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from reservation_service.clock import BootClock
from reservation_service.config import load
from reservation_service.service import Service
from reservation_service.telemetry import Telemetry

_PREFIX = "at-"


class _WatchedClock(BootClock):
    """Remembers when the writer's thread looked at it: once for each transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.looks_ms: list[float] = []

    def now(self) -> int:
        if threading.current_thread() is not threading.main_thread():
            self.looks_ms.append(self.exact_ms())
        return super().now()

    def exact_ms(self) -> float:
        return -1000 * self.seconds_until(0)


class _Watch:
    """Adds to the log line of an alarm what the clock saw."""

    def __init__(self, clock: _WatchedClock) -> None:
        self._clock = clock
        self._telemetry = Telemetry(clock)

    def observe(self, name: str, **fields: Any) -> None:
        if name == "reservation-alarm":
            fields |= self._seen(int(fields["reservation_id"].removeprefix(_PREFIX)))
        self._telemetry.observe(name, **fields)

    def _seen(self, due_ms: int) -> dict[str, float]:
        looks = self._clock.looks_ms
        begun = looks[bisect.bisect_left(looks, due_ms)]
        return {"begun_after_ms": begun - due_ms, "done_after_ms": self._clock.exact_ms() - due_ms}


async def main(database: Path) -> None:
    """Serve until SIGTERM."""
    clock = _WatchedClock()
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
    asyncio.run(main(Path(sys.argv[1])))
