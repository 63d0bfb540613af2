"""The feed: what it costs, whom it tells, and when."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from reservation_service.errors import StorageUnavailable
from reservation_service.feed import LATEST, PAGE, TROUBLE_SECONDS, Feed
from tests.support.feeds import ListeningReader, LogInMemory, Pauses, Telling, rest
from tests.support.waiting import bounded

COALESCE_S = 0.1


class Stage:
    """A running feed over a log that answers at once."""

    def __init__(self) -> None:
        self.log = LogInMemory(is_open=True)
        self.telling = Telling()
        self.pauses = Pauses()
        self.feed = Feed(self.log, self.telling, coalesce_s=COALESCE_S, pause=self.pauses)
        self.running = asyncio.create_task(self.feed.run())

    async def reader(
        self, *names: str, after: int | None = LATEST, is_slow: bool = False
    ) -> ListeningReader:
        reader = ListeningReader(is_slow=is_slow)
        position = await self.feed.locate(after)
        following = self.feed.follow(reader, frozenset(names) or None, position)
        if is_slow:
            self.task = asyncio.create_task(following)
        else:
            await bounded(following, "a reader to catch up")
        await rest()
        self.pauses.end()
        await rest()
        return reader

    async def commit(self, *names: str) -> None:
        """One transaction with these events, and what follows from it at once."""
        for name in names:
            self.log.commit(name)
        self.feed.ring()
        await rest()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    stage.running.cancel()
    await asyncio.wait([stage.running])


async def test_a_commit_that_nobody_hears_of_reads_and_renders_nothing(stage: Stage) -> None:
    stage.log.is_open = False
    await stage.commit("a")
    assert (stage.log.readings, stage.telling.rendered) == ([], [])
    assert not stage.feed._bell.is_set()


async def test_an_event_is_rendered_once_for_all_who_follow_it(stage: Stage) -> None:
    readers = [await stage.reader(*names) for names in [(), ("a",), ("a", "b")] * 10]
    await stage.commit("a", "b")
    assert stage.telling.rendered == [1, 2]
    assert [reader.events for reader in readers] == [[1, 2], [1], [1, 2]] * 10


async def test_an_event_that_nobody_follows_is_not_rendered(stage: Stage) -> None:
    reader = await stage.reader("a")
    await stage.commit("b", "a", "b")
    assert stage.telling.rendered == [2]
    assert reader.events == [2]


async def test_news_come_at_once_and_then_what_gathers_comes_together(stage: Stage) -> None:
    reader = await stage.reader()
    await stage.commit("a")
    assert (reader.events, reader.takes) == ([1], 1)
    for _ in range(5):
        await stage.commit("a")
    assert reader.takes == 1
    assert [seconds for seconds, _ in stage.pauses.lasting] == [COALESCE_S]
    stage.pauses.end()
    await rest()
    assert (reader.events, reader.takes) == ([1, 2, 3, 4, 5, 6], 2)


async def test_a_burst_of_many_pages_comes_without_pauses(stage: Stage) -> None:
    reader = await stage.reader()
    await stage.commit(*["a"] * (2 * PAGE + 1))
    assert (len(reader.events), reader.takes) == (2 * PAGE + 1, 3)


async def test_a_backlog_is_sent_at_the_readers_own_pace_and_never_handed_out(
    stage: Stage,
) -> None:
    await stage.commit(*["a"] * (2 * PAGE + 1))
    slow = await stage.reader(after=None, is_slow=True)
    assert (len(slow.events), slow.takes) == (PAGE, 0)
    other = await stage.reader()
    await stage.commit("a")
    assert other.events == [2 * PAGE + 2]
    assert len(slow.events) == PAGE
    slow.make_room()
    await bounded(stage.task, "the slow one to catch up")
    assert slow.events == list(range(1, 2 * PAGE + 3))
    assert slow.takes == 0


async def test_a_log_that_cannot_be_read_is_left_alone_for_a_while(stage: Stage) -> None:
    reader = await stage.reader()
    stage.log.is_open = False
    await stage.commit("a")
    stage.log.fail(stage.log.readings[0], StorageUnavailable())
    stage.log.is_open = True
    await rest()
    assert [seconds for seconds, _ in stage.pauses.lasting] == [TROUBLE_SECONDS]
    assert reader.events == []
    for _ in range(2):
        stage.pauses.end()
        await rest()
    assert reader.events == [1]


async def test_who_has_left_is_told_nothing_and_forgotten(stage: Stage) -> None:
    readers = [await stage.reader(*names) for names in [(), ("a",), ("a", "b")]]
    for reader in [*readers, *readers]:
        stage.feed.leave(reader)
    await stage.commit("a", "b")
    assert [reader.events for reader in readers] == [[], [], []]
    assert not stage.feed._readers
    assert not stage.feed._of_all
    assert not stage.feed._by_name
