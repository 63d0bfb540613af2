"""Whether the wall clock has left service time."""

import asyncio
from collections.abc import Callable

from reservation_service.clock import Clock

_LOOK_SECONDS = 1.0

DIVERGENCE_TOLERATED_MS = 1000
"""A smaller difference between the wall clock and service time is not worth a warning."""


async def watch_divergence(clock: Clock, observe: Callable[..., None]) -> None:
    """Warn when the wall clock was stepped, once per step, until cancelled.

    The difference lasts until a restart, and then falls on the holds that are alive.
    """
    warned_ms = 0
    while True:
        divergence_ms = clock.divergence_ms()
        if abs(divergence_ms - warned_ms) >= DIVERGENCE_TOLERATED_MS:
            warned_ms = divergence_ms
            observe("clock-diverged", divergence_ms=divergence_ms)
        await asyncio.sleep(_LOOK_SECONDS)
