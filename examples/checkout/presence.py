"""Which holders still have the page open; a hold goes back when the last of their pages has gone.

A page that goes cannot tell a reload from a closed tab: both are the same `pagehide`. So it only
says that it goes, and a page that comes says so as well. A hold is given back when nobody has come
for `grace_s`. Pages are counted by name, so that a word of leaving that is late, or that comes from
one of two tabs, gives nothing back. Whatever gets lost, the hold still frees itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

HOLDERS_MAX = 10_000
"""Beyond it the holder who has been silent for longest is forgotten; their hold frees itself."""

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Hold:
    """What to give back."""

    seat: str
    generation: int


GiveBack = Callable[[str, Hold], Awaitable[None]]


@dataclass(slots=True)
class _Visitor:
    pages: set[str] = field(default_factory=set)
    farewell: asyncio.Task[None] | None = None


class Presence:
    """Calls `give_back(holder, hold)` once per holder who has gone."""

    def __init__(self, give_back: GiveBack, grace_s: float, sleep: Sleep = asyncio.sleep) -> None:
        self._give_back = give_back
        self._grace_s = grace_s
        self._sleep = sleep
        self._visitors: dict[str, _Visitor] = {}

    def arrive(self, holder: str, page: str) -> None:
        """A page of this holder is open: whatever was about to be given back is kept."""
        visitor = self._visitor(holder)
        visitor.pages.add(page)
        _cancel(visitor)

    def leave(self, holder: str, page: str, hold: Hold | None) -> None:
        """A page has gone; `hold` is what it showed as its own."""
        visitor = self._visitor(holder)
        visitor.pages.discard(page)
        if hold is not None and not visitor.pages:
            _cancel(visitor)
            visitor.farewell = asyncio.create_task(self._give_back_later(holder, hold))

    async def close(self) -> None:
        """Give nothing more back."""
        farewells = [visitor.farewell for visitor in self._visitors.values() if visitor.farewell]
        self._visitors.clear()
        for farewell in farewells:
            farewell.cancel()
        await asyncio.gather(*farewells, return_exceptions=True)

    async def _give_back_later(self, holder: str, hold: Hold) -> None:
        await self._sleep(self._grace_s)
        del self._visitors[holder]  # from here on nobody can cancel what is on its way
        await self._give_back(holder, hold)

    def _visitor(self, holder: str) -> _Visitor:
        """The holder's entry, as the one that spoke last."""
        visitor = self._visitors.pop(holder, None) or _Visitor()
        if len(self._visitors) >= HOLDERS_MAX:
            _cancel(self._visitors.pop(next(iter(self._visitors))))
        self._visitors[holder] = visitor
        return visitor


def _cancel(visitor: _Visitor) -> None:
    if visitor.farewell is not None:
        visitor.farewell.cancel()
        visitor.farewell = None
