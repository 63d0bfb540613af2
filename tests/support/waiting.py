"""Bounded waits: a test that waits for something that never comes fails, and says for what."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

WAIT_SECONDS_MAX = 15.0
"""Real time, and only spent by a test that is about to fail."""


async def bounded(awaitable: Awaitable[T], what: str | Callable[[], str]) -> T:
    """The result of `awaitable`; an AssertionError that names `what` when it does not come."""
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            return await awaitable
    except TimeoutError:
        name = what if isinstance(what, str) else what()
        raise AssertionError(f"waited {WAIT_SECONDS_MAX} s in vain for {name}") from None


class Signal:
    """Something changed; whoever waits looks again. Nobody has to know what changed."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def notify(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def until(self, is_true: Callable[[], bool], what: str | Callable[[], str]) -> None:
        """Return once `is_true()`, which is asked again at every notification."""
        await bounded(self._until(is_true), what)

    async def _until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
