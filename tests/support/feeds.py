"""A log in memory and readers of it, every wait of which is in the test's hand."""

import asyncio
from dataclasses import dataclass, field

import msgspec

from reservation_service.errors import ServiceError
from reservation_service.events import Event, EventPage, EventQuery
from reservation_service.reservation import Trigger

PASSES = 12
"""Passes of the event loop after which everything has come to rest that waits for nobody."""


async def rest() -> None:
    """Let everybody go on until they wait for the test."""
    for _ in range(PASSES):
        await asyncio.sleep(0)


@dataclass
class Reading:
    """One question at the log: what is found, and when it is told, are two steps."""

    query: EventQuery
    answer: asyncio.Future[EventPage] = field(default_factory=asyncio.Future)
    page: EventPage | None = None


class LogInMemory:
    """Implements `events.EventLog`; questions wait in `readings` unless it `is_open`."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.names: list[str] = []
        self.purged_to = 0
        self.is_open = is_open
        self.readings: list[Reading] = []

    @property
    def newest(self) -> int:
        return len(self.names)

    def commit(self, name: str) -> int:
        self.names.append(name)
        return self.newest

    def seqs(self, names: frozenset[str] | None, after: int, to: int) -> list[int]:
        """What was ever recorded of these between two positions."""
        return [
            seq for seq in range(after + 1, to + 1) if names is None or self.names[seq - 1] in names
        ]

    async def read_events(self, query: EventQuery) -> EventPage:
        if self.is_open:
            return self.find(query)
        self.readings.append(Reading(query))
        return await self.readings[-1].answer

    def look(self, reading: Reading) -> None:
        """What the log says now is what will be told."""
        reading.page = self.find(reading.query)

    def tell(self, reading: Reading) -> None:
        self.readings.remove(reading)
        if not reading.answer.done():  # whoever asked may have gone
            assert reading.page is not None
            reading.answer.set_result(reading.page)

    def fail(self, reading: Reading, failure: ServiceError) -> None:
        self.readings.remove(reading)
        if not reading.answer.done():
            reading.answer.set_exception(failure)

    def find(self, query: EventQuery) -> EventPage:
        found = self.seqs(query.names, max(query.after, self.purged_to), self.newest)
        items = [event(seq, self.names[seq - 1]) for seq in found[: query.limit]]
        following = items[-1].seq if len(items) == query.limit else self.newest
        return EventPage(items, following, self.purged_to + 1, self.newest)


def event(seq: int, name: str) -> Event:
    return Event(seq, "held", name, 1, seq, Trigger.REQUEST, msgspec.Raw(b"null"))


class Telling:
    """Implements `feed.Rendering`; counts how often each event was rendered."""

    def __init__(self) -> None:
        self.rendered: list[int] = []

    def event(self, event: Event) -> bytes:
        self.rendered.append(event.seq)
        return b"event %d\n" % event.seq

    def position(self, seq: int) -> bytes:
        return b"position %d\n" % seq

    def reset(self, seq: int) -> bytes:
        return b"reset %d\n" % seq


class ListeningReader:
    """Implements `feed.Reader`; may want to be waited for."""

    def __init__(self, *, is_slow: bool = False) -> None:
        self.told: list[tuple[str, int]] = []
        self.takes = 0
        self._has_room = asyncio.Event()
        if not is_slow:
            self._has_room.set()

    def make_room(self) -> None:
        self._has_room.set()

    async def send(self, text: bytes) -> None:
        self._hear(text)
        await self._has_room.wait()

    def take(self, text: bytes) -> None:
        self.takes += 1
        self._hear(text)

    @property
    def events(self) -> list[int]:
        return [seq for kind, seq in self.told if kind == "event"]

    def _hear(self, text: bytes) -> None:
        for line in text.decode().splitlines():
            kind, _, seq = line.partition(" ")
            self.told.append((kind, int(seq)))


class Pauses:
    """`pause` of a feed: every pause lasts until the test ends it."""

    def __init__(self) -> None:
        self.lasting: list[tuple[float, asyncio.Future[None]]] = []

    async def __call__(self, seconds: float) -> None:
        ending: asyncio.Future[None] = asyncio.Future()
        self.lasting.append((seconds, ending))
        await ending

    def end(self) -> None:
        """End those that last now."""
        lasting, self.lasting = self.lasting, []
        for _, ending in lasting:
            if not ending.done():
                ending.set_result(None)
