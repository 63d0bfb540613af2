"""Readers of streams: how many there may be, what they cost others, and how they end."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp_sse import EventSourceResponse

from reservation_service import feed
from reservation_service.errors import DatabaseUnusable, ServiceError, StorageUnavailable
from reservation_service.events import EventPage, EventQuery
from reservation_service.storage.sqlite_engine import SqliteEngine
from reservation_service.web import streams
from reservation_service.web.streams import StreamReader
from tests.conftest import StartService
from tests.http.answers import assert_problem
from tests.support.harness import Answer, ServiceHarness
from tests.support.streams import Frame, frames
from tests.support.waiting import bounded

ASKED = b"GET %b HTTP/1.%d\r\nHost: test\r\nAccept: text/event-stream\r\n\r\n"
HEADERS = {"Accept": "text/event-stream"}
SOON = {"coalesce_ms": 1}


async def refused(service: ServiceHarness) -> Answer:
    return await service.request("GET", "/events", headers=HEADERS)


@asynccontextmanager
async def raw_reader(
    service: ServiceHarness, version: int = 1, path: bytes = b"/events?after=latest"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection with little room, on which nothing is read unless the test does."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", service.port))
    reader, writer = await asyncio.open_connection(sock=client, limit=4_096)
    writer.write(ASKED % (path, version))
    await bounded(reader.readuntil(b"\r\n\r\n"), "the head of a stream")
    await bounded(reader.readuntil(b"\n\n"), "the first frame")
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def test_one_reader_too_many_is_refused_and_may_read_pages(
    start_service: StartService,
) -> None:
    service = await start_service(feed={"readers_max": 2})
    async with service.follow("/events"), service.follow("/events"):
        answer = await refused(service)
        sentence = "The feed has too many readers; read its pages, or try again later."
        assert_problem(answer, 503, "too-many-readers", sentence)
        assert answer.headers["Retry-After"] == "5"
        assert (await service.get("/events")).status == 200


async def test_a_reader_that_has_gone_makes_room_at_once(start_service: StartService) -> None:
    service = await start_service(feed={"readers_max": 1})
    for _ in range(5):
        async with service.follow("/events") as stream:
            await stream.frame()
            assert (await refused(service)).status == 503


async def test_no_readers_at_all_may_be_had(start_service: StartService) -> None:
    service = await start_service(feed={"readers_max": 0})
    assert (await refused(service)).status == 503


async def test_readers_leave_half_of_the_connections_to_others(
    start_service: StartService,
) -> None:
    service = await start_service(server={"connections_max": 4})
    async with service.follow("/events"), service.follow("/events"):
        assert (await refused(service)).status == 503
        assert (await service.get("/")).status == 200


async def test_readers_are_no_requests_in_flight(start_service: StartService) -> None:
    service = await start_service(server={"requests_max": 1}, feed=SOON)
    async with AsyncExitStack() as opened:
        for _ in range(5):
            stream = await opened.enter_async_context(service.follow("/events"))
        await service.hold("seat-1")
        assert (await stream.event())["reservation"] == "seat-1"


async def test_a_crowd_of_idle_connections_closes_no_reader(start_service: StartService) -> None:
    service = await start_service(server={"connections_max": 6}, feed=SOON)
    async with service.follow("/events") as stream:
        await stream.frame()
        address = "127.0.0.1", service.port
        crowd = [await asyncio.open_connection(*address) for _ in range(20)]
        await bounded(crowd[0][0].read(), "the first of the crowd to be closed")
        await service.hold("seat-1")
        assert (await stream.event())["reservation"] == "seat-1"
        for _, writer in crowd:
            writer.transport.abort()


async def test_a_silent_stream_has_a_heartbeat(start_service: StartService) -> None:
    service = await start_service(feed={"heartbeat_ms": 100})
    async with service.follow("/events") as stream:
        assert await stream.frame() == Frame(0)
        for _ in range(2):
            assert (await stream.frame()).is_heartbeat


async def test_a_stop_ends_every_stream_without_a_broken_chunk(
    start_service: StartService,
) -> None:
    service = await start_service(feed=SOON)
    await service.hold("seat-1")
    async with service.follow("/events") as stream:
        assert [(await stream.frame()).id for _ in range(2)] == [1, 1]
        stopping = asyncio.create_task(service.stop())
        assert await stream.rest() == []
        await stopping


async def test_a_stop_ends_a_stream_that_has_not_caught_up(start_service: StartService) -> None:
    service = await start_service(feed=SOON)
    async with service.follow("/events") as stream:
        stopping = asyncio.create_task(service.stop())
        assert [found for found in await stream.rest() if found.id != 0] == []
        await stopping


async def test_a_client_of_http_1_0_reads_the_same_frames(start_service: StartService) -> None:
    service = await start_service(feed=SOON)
    async with raw_reader(service, version=0) as (reader, _):
        await service.hold("seat-1")
        text = await bounded(reader.readuntil(b"\n\n"), "a frame")
        (found,) = frames(text.decode())
        assert (found.id, found.event) == (1, "held")


async def fill(service: ServiceHarness, rounds: int) -> int:
    """Record 50 events a round; how many there are."""
    for number in range(rounds):
        await asyncio.gather(*(service.hold(f"seat-{number}-{one}") for one in range(50)))
    return rounds * 50


async def test_a_reader_that_never_reads_is_dropped_and_the_others_notice_nothing(
    start_service: StartService,
) -> None:
    service = await start_service(feed={"buffer_bytes": 4_096} | SOON)
    async with raw_reader(service), service.follow("/events?after=latest") as other:
        reading = asyncio.create_task(other.events(1_000))
        assert await fill(service, 20) == 1_000
        await service.recorder.seen("reader-dropped", reason="slow")
        assert [event["seq"] for event in await reading] == list(range(1, 1_001))
        assert len(service.recorder.of("reader-dropped")) == 1


async def test_what_waits_for_a_slow_reader_is_bounded(
    start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[int] = []
    taken: list[int] = []
    take = StreamReader.take

    def watched(reader: StreamReader, text: bytes) -> None:
        take(reader, text)
        if not reader.is_gone:
            assert reader._request.transport is not None
            waiting.append(reader._request.transport.get_write_buffer_size())
            taken.append(len(text))

    monkeypatch.setattr(StreamReader, "take", watched)
    service = await start_service(feed={"buffer_bytes": 4_096} | SOON)
    async with raw_reader(service):
        await fill(service, 20)
        await service.recorder.seen("reader-dropped", reason="slow")
    assert 4_096 < max(waiting) <= 4_096 + max(taken) + len("ffff\r\n\r\n")


async def test_a_reader_that_was_dropped_comes_again_and_has_lost_nothing(
    start_service: StartService,
) -> None:
    service = await start_service(feed={"buffer_bytes": 4_096} | SOON)
    async with raw_reader(service):
        count = await fill(service, 20)
        await service.recorder.seen("reader-dropped", reason="slow")
    async with service.follow("/events", resumed=7) as stream:
        assert [event["seq"] for event in await stream.events(count - 7)] == list(
            range(8, count + 1)
        )


async def test_a_reader_that_stalls_before_it_has_caught_up_is_dropped(
    start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STALL_SECONDS_MAX", 0.05)
    monkeypatch.setattr(EventSourceResponse, "_set_tcp_user_timeout", lambda *_: None)
    service = await start_service(feed={"buffer_bytes": 4_096} | SOON)
    await fill(service, 20)
    async with raw_reader(service, path=b"/events"):
        await service.recorder.seen("reader-dropped", reason="slow")


class Failing:
    """The engine's reading of events, with failures in the test's hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failure: ServiceError | None = None
        self.failed = asyncio.Event()
        read = SqliteEngine.read_events

        async def read_or_fail(engine: SqliteEngine, query: EventQuery) -> EventPage:
            if self.failure is not None:
                self.failed.set()
                raise self.failure
            return await read(engine, query)

        monkeypatch.setattr(SqliteEngine, "read_events", read_or_fail)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Failing:
    monkeypatch.setattr(feed, "TROUBLE_SECONDS", 0.0)
    return Failing(monkeypatch)


async def test_a_log_that_cannot_be_read_for_a_while_loses_nothing(
    start_service: StartService, log: Failing
) -> None:
    service = await start_service(feed=SOON)
    async with service.follow("/events") as stream:
        await stream.frame()
        log.failure = StorageUnavailable()
        await service.hold("seat-1")
        await bounded(log.failed.wait(), "a failure")
        log.failure = None
        assert (await stream.event())["seq"] == 1


async def test_a_reader_that_comes_meanwhile_is_sent_away_to_come_again(
    start_service: StartService, log: Failing
) -> None:
    service = await start_service(feed=SOON)
    log.failure = StorageUnavailable()
    assert (await service.get("/events")).status == 503
    assert (await refused(service)).status == 503
    async with service.follow("/events", resumed=0) as stream:
        assert await stream.ended()
    await service.recorder.seen("reader-dropped", reason="storage-unavailable")
    log.failure = None
    async with service.follow("/events") as stream:
        assert await stream.frame() == Frame(0)


async def test_a_log_that_is_lost_ends_the_process(
    start_service: StartService, log: Failing
) -> None:
    service = await start_service(feed=SOON)
    async with service.follow("/events") as stream:
        await stream.frame()
        log.failure = DatabaseUnusable()
        await service.hold("seat-1")
        assert await service.exited() == 1
