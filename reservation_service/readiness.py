"""Whether calls may be sent here: it can commit, the dispatcher looks, and no alarm is far behind.

However many ask at once, one look answers them all, and it is good for a second: anybody may ask,
and each look costs a commit.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from reservation_service.clock import Clock
from reservation_service.errors import ServiceError

OK = "ok"

GOOD_FOR_MS = 1_000
"""How long one look answers."""

PATIENCE_S = 2.0
"""How long a look waits for the disk."""

SILENCE_MS_MAX = 5_000
"""The dispatcher looks once a second."""

Checks = Mapping[str, str]
"""Name → `ok`, or what is wrong."""


class Readiness:
    """`look` at `probe`, which commits, at the dispatcher, and at the oldest alarm that is due.

    `looked_at` and `oldest_due_at` are epoch milliseconds of service time.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        probe: Callable[[], Awaitable[None]],
        looked_at: Callable[[], int],
        oldest_due_at: Callable[[], Awaitable[int | None]],
        overdue_max_ms: int,
    ) -> None:
        self._clock = clock
        self._probe = probe
        self._looked_at = looked_at
        self._oldest_due_at = oldest_due_at
        self._overdue_max_ms = overdue_max_ms
        self._is_stopping = False
        self._begun_at = 0
        self._look: asyncio.Task[dict[str, str]] | None = None

    def stop(self) -> None:
        """Not ready any more, from now on."""
        self._is_stopping = True

    async def look(self) -> Checks:
        """Every check by name; all of them `ok` is ready."""
        now = self._clock.now()
        if self._look is None or (self._look.done() and now - self._begun_at >= GOOD_FOR_MS):
            self._begun_at = now
            self._look = asyncio.create_task(self._check())
        checks = {"running": OK} | await asyncio.shield(self._look)
        return checks | {"running": "stopping"} if self._is_stopping else checks

    async def _check(self) -> dict[str, str]:
        return {
            "commit": await _verdict(self._commit()),
            "dispatcher": self._dispatcher(),
            "overdue": await _verdict(self._overdue()),
        }

    async def _commit(self) -> str:
        await self._probe()
        return OK

    def _dispatcher(self) -> str:
        silent_ms = self._clock.now() - self._looked_at()
        return OK if silent_ms < SILENCE_MS_MAX else f"silent for {silent_ms} ms"

    async def _overdue(self) -> str:
        oldest = await self._oldest_due_at()
        overdue_ms = 0 if oldest is None else self._clock.now() - oldest
        return OK if overdue_ms <= self._overdue_max_ms else f"by {overdue_ms} ms"


async def _verdict(check: Awaitable[str]) -> str:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await check
    except TimeoutError:
        return f"no answer within {PATIENCE_S:g} s"
    except ServiceError as error:
        return error.code
