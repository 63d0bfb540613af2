"""The feed of committed events: one reader of the log for everybody who follows it.

A commit rings a bell, and only while somebody follows. What was committed is read in pages, each
event is rendered once, and all who follow it are handed the same bytes. Nobody waits for a reader
that cannot take them: it is the reader that has to go. Who comes late is sent what is in the log
until it has caught up. So everybody sees every event once and in order, wherever they begin.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from reservation_service.errors import ServiceError
from reservation_service.events import Event, EventLog, EventPage, EventQuery

PAGE = 1_000
"""Events that are read at once: some milliseconds, and more than 100 ms bring."""

TROUBLE_SECONDS = 1.0
"""How long the log is left alone when it could not be read."""

LATEST = -1
"""Where to begin in order to hear of new events only."""


class Reader(Protocol):
    """Somebody who follows the feed."""

    async def send(self, text: bytes) -> None:
        """Take what was in the log already, and wait until there is room for more."""

    def take(self, text: bytes) -> None:
        """Take what was just committed, or be gone; never waits."""


class Rendering(Protocol):
    """How readers are told."""

    def event(self, event: Event) -> bytes:
        """Something happened."""

    def position(self, seq: int) -> bytes:
        """The reader has seen the log up to here, though not every event was for it."""

    def reset(self, seq: int) -> bytes:
        """Events up to here are gone, and the reader may have missed some."""


class _Following(Struct, frozen=True):
    """What a reader follows, None for all, and the position that it had when it joined."""

    names: frozenset[str] | None
    since: int


class Feed:
    """Readers of one log. Nothing that is new is handed out unless `run` is running.

    What is committed within `coalesce_s` after a delivery is delivered together; `pause` waits.
    """

    def __init__(
        self,
        log: EventLog,
        rendering: Rendering,
        *,
        coalesce_s: float,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._log = log
        self._rendering = rendering
        self._coalesce_s = coalesce_s
        self._pause = pause
        self._bell = asyncio.Event()
        self._position = 0
        self._readers: dict[Reader, _Following] = {}
        self._of_all: set[Reader] = set()
        self._by_name: dict[str, set[Reader]] = {}

    def ring(self) -> None:
        """Something was committed. When nobody follows, nothing happens."""
        if self._readers:
            self._bell.set()

    async def run(self) -> None:
        """Deliver until cancelled; raises the fatal ServiceError that ended the log."""
        while True:
            await self._bell.wait()
            self._bell.clear()
            try:
                await self._deliver()
            except ServiceError as error:
                if error.fatal:
                    raise
                self._bell.set()
                await self._pause(TROUBLE_SECONDS)
            await self._pause(self._coalesce_s)

    async def locate(self, after: int | None) -> int:
        """The position that `after` means: None is before all there is, LATEST is behind it."""
        if after is not None and after != LATEST:
            return after
        page = await self._log.read_events(EventQuery(0, 1))
        return page.newest if after == LATEST else page.oldest - 1

    async def read(
        self, names: frozenset[str] | None, after: int | None, limit: int
    ) -> tuple[EventPage, bool]:
        """A page behind `after`, None for the first, and whether it begins anew.

        It does when events behind `after` are gone, or when this log has never been there.
        """
        position = await self.locate(after)
        page = await self._log.read_events(EventQuery(position, limit, names))
        if not page.has_lost(position):
            return page, False
        return await self._log.read_events(EventQuery(page.oldest - 1, limit, names)), True

    async def follow(self, reader: Reader, names: frozenset[str] | None, position: int) -> None:
        """Send what lies behind `position`; then join those who `take`, until `leave`.

        Raises the ServiceError that kept the log from being read.
        """
        while True:
            page = await self._log.read_events(EventQuery(position, PAGE, names))
            if page.has_lost(position):
                position = page.oldest - 1
                await reader.send(self._rendering.reset(position))
                continue
            texts = [self._rendering.event(event) for event in page.items]
            position = page.next
            await reader.send(b"".join([*texts, self._rendering.position(position)]))
            if position == page.newest and self._join(reader, _Following(names, position)):
                return

    def leave(self, reader: Reader) -> None:
        """Hand this reader nothing any more, if it has joined."""
        following = self._readers.pop(reader, None)
        self._of_all.discard(reader)
        for name in (following and following.names) or ():
            self._by_name[name].discard(reader)
            if not self._by_name[name]:
                del self._by_name[name]

    def _join(self, reader: Reader, following: _Following) -> bool:
        """False when others are further on: what they were handed has to be sent first."""
        if self._readers and following.since < self._position:
            return False
        if not self._readers:
            self._position = following.since
        self._readers[reader] = following
        if following.names is None:
            self._of_all.add(reader)
        for name in following.names or ():
            self._by_name.setdefault(name, set()).add(reader)
        self._bell.set()  # nobody may have listened when the latest was committed
        return True

    async def _deliver(self) -> None:
        """Hand out what is new, page after page; the bell may have rung for nothing."""
        is_more = True
        while is_more and self._readers:
            page = await self._log.read_events(EventQuery(self._position, PAGE))
            if page.has_lost(self._position):
                self._position = page.oldest - 1
                self._hand_out_reset()
                continue
            self._hand_out(page.items)
            self._position = max(self._position, page.next)  # readers may have come and gone
            is_more = len(page.items) == PAGE

    def _hand_out_reset(self) -> None:
        text = self._rendering.reset(self._position)
        for reader, following in self._readers.items():
            if following.since < self._position:
                reader.take(text)

    def _hand_out(self, events: Sequence[Event]) -> None:
        texts: dict[int, bytes] = {}
        for_named: dict[Reader, list[bytes]] = {}
        for event in events:
            named = self._by_name.get(event.reservation, ())
            if not named and not self._of_all:
                continue
            texts[event.seq] = text = self._rendering.event(event)
            for reader in named:
                if event.seq > self._readers[reader].since:
                    for_named.setdefault(reader, []).append(text)
        for reader, some in for_named.items():
            reader.take(b"".join(some))
        self._hand_to_all(texts)

    def _hand_to_all(self, texts: dict[int, bytes]) -> None:
        if not self._of_all or not texts:
            return
        first, together = min(texts), b"".join(texts.values())
        for reader in self._of_all:
            since = self._readers[reader].since
            if since < first:
                reader.take(together)
            elif rest := [text for seq, text in texts.items() if seq > since]:
                reader.take(b"".join(rest))
