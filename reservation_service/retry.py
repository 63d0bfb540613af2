"""The backoff of a failing alarm: how long to wait after so many failures. Pure.

The delay doubles from `first_ms` to `cap_ms` and never ends: an alarm is retried for ever.
"""

from collections.abc import Callable
from dataclasses import dataclass

JITTER_PART = 0.2
"""The delay is shortened by up to this part, so that alarms that failed together spread out."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delays in milliseconds. `random` yields floats in [0, 1) and is handed in, so tests choose.

    The defaults of the configuration are 2 s and 60 s: Durable Objects start at 2 s and double.
    """

    first_ms: int
    cap_ms: int
    random: Callable[[], float]

    def delay_ms(self, failures: int) -> int:
        """Milliseconds from the `failures`-th failure (1 or more) to the next attempt."""
        exponent = min(failures - 1, self.cap_ms.bit_length())
        full = min(self.cap_ms, self.first_ms << exponent)
        return max(1, round(full * (1 - JITTER_PART * self.random())))
