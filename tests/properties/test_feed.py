"""Readers come, go, come again and fall behind at any moment; each sees exactly the log.

Between a question at the log and its answer, between an answer and its arrival, before and after
each delivery anything may happen: commits, purges, failures, others that come and go.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from reservation_service import feed
from reservation_service.errors import StorageUnavailable
from reservation_service.events import EventPage
from reservation_service.feed import LATEST, Feed
from tests.support.feeds import ListeningReader, LogInMemory, Pauses, Telling, rest

NAMES = ("a", "b", "c")
PAGE = 3
STEPS_TO_REST_MAX = 500
FOLLOWED = (None, frozenset("a"), frozenset("ab"), frozenset("abc"))

Bug = Callable[[], AbstractContextManager[None]]
Step = tuple[str, int, int]
KINDS = (
    *("commit",) * 4,
    *("look", "tell") * 5,
    *("pause",) * 3,
    *("come", "come again", "leave", "make room", "purge", "fail"),
)
numbers = st.integers(0, 7)
steps = st.lists(st.tuples(st.sampled_from(KINDS), numbers, numbers), min_size=40, max_size=120)


class Visit:
    """One reader from its coming to its going, and what it may be told."""

    def __init__(
        self, world: "World", names: frozenset[str] | None, after: int | None, *, is_slow: bool
    ) -> None:
        self.world = world
        self.names = names
        self.after = after
        self.begun_at = world.log.newest
        self.reader = ListeningReader(is_slow=is_slow)
        self.task = asyncio.create_task(self._follow())

    @property
    def has_failed(self) -> bool:
        return self.task.done() and not self.task.cancelled() and self.task.exception() is not None

    def leave(self) -> None:
        self.task.cancel()
        self.world.feed.leave(self.reader)

    def position(self) -> int | None:
        """Where it would go on; the same as in the beginning when it was told nothing."""
        return self.reader.told[-1][1] if self.reader.told else self.after

    def check(self) -> int | None:
        """Nothing was left out, doubled, disordered or strange; the position that it has now."""
        log, position = self.world.log, self._begin()
        for kind, seq in self.reader.told:
            if kind == "reset":
                is_lost = (position is None or position < seq) and seq <= log.purged_to
                is_foreign = position is not None and position > self.begun_at
                assert is_lost or is_foreign, (kind, seq, position)
            elif position is None:
                assert self.begun_at <= seq or self.after is None, (kind, seq)
                position = seq - 1 if kind == "event" else seq
            if kind == "event":
                assert position is not None
                assert log.seqs(self.names, position, seq) == [seq], (position, seq)
            elif kind == "position":
                assert position is not None
                assert log.seqs(self.names, position, seq) == [], (position, seq)
            position = seq
        return position

    def check_end(self) -> None:
        """It has seen everything."""
        position = self.check()
        assert position is not None
        assert self.world.log.seqs(self.names, position, self.world.log.newest) == []

    async def _follow(self) -> None:
        position = await self.world.feed.locate(self.after)
        await self.world.feed.follow(self.reader, self.names, position)

    def _begin(self) -> int | None:
        """None until the first word says it: a purge may be going on."""
        return None if self.after is None or self.after == LATEST else self.after


class World:
    """A feed, its log, and those who read it."""

    def __init__(self) -> None:
        self.log = LogInMemory()
        self.pauses = Pauses()
        self.feed = Feed(self.log, Telling(), coalesce_s=0.1, pause=self.pauses)
        self.visits: list[Visit] = []
        self.gone: list[Visit] = []
        self.running = asyncio.create_task(self.feed.run())

    async def take(self, step: Step) -> None:
        kind, one, another = step
        getattr(self, kind.replace(" ", "_"))(one, another)
        await rest()
        for visit in [visit for visit in self.visits if visit.has_failed]:
            self._part(visit)

    def commit(self, one: int, another: int) -> None:
        for number in range(another % PAGE + 1):
            self.log.commit(NAMES[(one + number) % len(NAMES)])
        self.feed.ring()

    def look(self, one: int, _another: int) -> None:
        unseen = [reading for reading in self.log.readings if reading.page is None]
        if unseen:
            self.log.look(unseen[one % len(unseen)])

    def tell(self, one: int, _another: int) -> None:
        seen = [reading for reading in self.log.readings if reading.page is not None]
        if seen:
            self.log.tell(seen[one % len(seen)])

    def pause(self, _one: int, _another: int) -> None:
        self.pauses.end()

    def come(self, one: int, another: int) -> None:
        starts = (None, LATEST, 0, self.log.newest // 2, self.log.newest, self.log.newest + 3)
        names = FOLLOWED[one % len(FOLLOWED)]
        visit = Visit(self, names, starts[another % len(starts)], is_slow=one > len(FOLLOWED))
        self.visits.append(visit)

    def come_again(self, one: int, another: int) -> None:
        if self.gone:
            before = self.gone[one % len(self.gone)]
            position = before.position()
            self.visits.append(Visit(self, before.names, position, is_slow=another == 0))

    def leave(self, one: int, _another: int) -> None:
        if self.visits:
            self._part(self.visits[one % len(self.visits)])

    def make_room(self, one: int, _another: int) -> None:
        if self.visits:
            self.visits[one % len(self.visits)].reader.make_room()

    def purge(self, one: int, _another: int) -> None:
        self.log.purged_to = max(self.log.purged_to, self.log.newest - one)

    def fail(self, one: int, _another: int) -> None:
        if self.log.readings:
            self.log.fail(self.log.readings[one % len(self.log.readings)], StorageUnavailable())

    async def come_to_rest(self) -> None:
        """Let everything happen that is under way."""
        for _ in range(STEPS_TO_REST_MAX):
            for visit in self.visits:
                visit.reader.make_room()
            self.look(0, 0)
            self.tell(0, 0)
            self.pauses.end()
            await self.take(("pause", 0, 0))
            if not self.log.readings and not self.pauses.lasting:
                return
        raise AssertionError("no end of reading")

    async def end(self) -> None:
        self.running.cancel()
        for visit in self.visits:
            visit.task.cancel()
        await asyncio.wait([self.running, *(visit.task for visit in self.visits)])

    def _part(self, visit: Visit) -> None:
        self.visits.remove(visit)
        visit.leave()
        self.gone.append(visit)


async def live(story: list[Step]) -> None:
    world = World()
    try:
        for step in story:
            await world.take(step)
        await world.come_to_rest()
        for visit in world.gone:
            visit.check()
        for visit in world.visits:
            visit.check_end()
    finally:
        await world.end()


def check(examples: int, phases: list[Phase]) -> None:
    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=phases,
        report_multiple_bugs=False,
    )
    @given(steps)
    def sees_the_log(story: list[Step]) -> None:
        asyncio.run(live(story))

    with patch.object(feed, "PAGE", PAGE):
        sees_the_log()


def test_a_reader_sees_exactly_the_log_whenever_it_comes_and_goes() -> None:
    check(120, [Phase.generate, Phase.shrink])


@contextmanager
def joining_without_catching_up() -> Iterator[None]:
    """Who comes late is let in as it is."""
    join = Feed._join

    def join_at_once(self: Feed, reader: feed.Reader, following: feed._Following) -> bool:
        self._position, before = 0, self._position
        join(self, reader, following)
        self._position = max(before, following.since)
        return True

    with patch.object(Feed, "_join", join_at_once):
        yield


@contextmanager
def joining_without_a_bell() -> Iterator[None]:
    """What was committed while nobody followed is not looked for."""
    join = Feed._join

    def join_silently(self: Feed, reader: feed.Reader, following: feed._Following) -> bool:
        with patch.object(self._bell, "set"):
            return join(self, reader, following)

    with patch.object(Feed, "_join", join_silently):
        yield


@contextmanager
def forgetting_who_knows_what() -> Iterator[None]:
    """Everybody is handed everything, also what they have been sent before."""
    join = Feed._join

    def join_as_new(self: Feed, reader: feed.Reader, following: feed._Following) -> bool:
        has_joined = join(self, reader, following)
        if has_joined:
            self._readers[reader] = feed._Following(following.names, 0)
        return has_joined

    with patch.object(Feed, "_join", join_as_new):
        yield


@contextmanager
def losing_what_could_not_be_read() -> Iterator[None]:
    """A delivery that failed is not tried again."""
    deliver = Feed._deliver

    async def deliver_once(self: Feed) -> None:
        try:
            await deliver(self)
        except StorageUnavailable:
            self._position += 1

    with patch.object(Feed, "_deliver", deliver_once):
        yield


@contextmanager
def hiding_what_is_gone() -> Iterator[None]:
    """A reader is not told that it has missed something."""
    with patch.object(EventPage, "has_lost", lambda _page, _position: False):
        yield


@pytest.mark.system  # it tests a test
@pytest.mark.parametrize(
    "bug",
    [
        joining_without_catching_up,
        joining_without_a_bell,
        forgetting_who_knows_what,
        losing_what_could_not_be_read,
        hiding_what_is_gone,
    ],
)
def test_a_planted_bug_in_the_feed_is_found(
    bug: Callable[[], AbstractContextManager[None]],
) -> None:
    with bug(), pytest.raises(AssertionError):
        check(300, [Phase.generate])
