"""Clients that connect, or begin, and then say nothing lock nobody out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple, cast

import pytest
from aiohttp import web

from reservation_service.web import connections
from reservation_service.web.connections import Connections
from tests.conftest import StartService
from tests.support.harness import ServiceHarness
from tests.support.waiting import bounded

HEAD = b"POST /reservations/seat-1 HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
BODY = b'{"ttlSeconds": 60}'
HALF = HEAD + b"Content-Length: 18\r\n\r\n" + BODY[:5]
REST = BODY[5:]


class Client(NamedTuple):
    """A connection whose owner sends what he likes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def status(self) -> int:
        line = await bounded(self.reader.readline(), "an answer")
        return int(line.split(b" ")[1])

    async def closed(self) -> None:
        await bounded(self.reader.read(), "the server to hang up")


@asynccontextmanager
async def clients(service: ServiceHarness, count: int, text: bytes) -> AsyncIterator[list[Client]]:
    """So many connections at once, each of which has sent `text`."""
    address = "127.0.0.1", service.port
    opened = [
        Client(*pair)
        for pair in await asyncio.gather(*(asyncio.open_connection(*address) for _ in range(count)))
    ]
    for client in opened:
        client.writer.write(text)
    try:
        yield opened
    finally:
        for client in opened:
            client.writer.transport.abort()


async def test_half_sent_bodies_take_nobodys_place(start_service: StartService) -> None:
    service = await start_service(server={"requests_max": 1})
    async with clients(service, 5, HALF) as waiting:
        assert (await service.get("/")).status == 200
        waiting[0].writer.write(REST)
        assert await waiting[0].status() == 201


async def test_a_body_that_ends_when_there_is_no_room_is_refused(
    start_service: StartService,
) -> None:
    service = await start_service(server={"requests_max": 1})
    gate = service.gates.before(lambda _: True)
    async with clients(service, 1, HALF) as (waiting,):
        assert (await service.get("/")).status == 200  # asked last: the half is being read
        reading = asyncio.create_task(service.get("/reservations/seat-2"))
        await gate.reached()
        waiting.writer.write(REST)
        assert await waiting.status() == 503
        gate.open()
        assert (await bounded(reading, "the read")).status == 200


async def test_a_client_that_leaves_in_the_middle_gives_its_place_back(
    start_service: StartService,
) -> None:
    service = await start_service(server={"requests_max": 1})
    async with clients(service, 3, HALF):
        assert (await service.get("/")).status == 200
    assert (await service.get("/")).status == 200
    assert (await service.hold("seat-1"))["generation"] == 1


async def test_a_body_announced_as_too_large_is_refused_before_it_comes(
    service: ServiceHarness,
) -> None:
    async with clients(service, 1, HEAD + b"Content-Length: 16385\r\n\r\n") as (large,):
        assert await large.status() == 413


async def test_the_longest_idle_of_a_crowd_make_room_for_the_others(
    start_service: StartService,
) -> None:
    service = await start_service(server={"connections_max": 5})
    async with clients(service, 20, b"") as crowd:
        for gone in crowd[:15]:
            await gone.closed()
        for left in crowd[15:]:
            left.writer.write(HEAD + b"Content-Length: 18\r\n\r\n" + BODY)
            assert await left.status() == 201


class Line:
    """A connection as the watch sees it: without a transport before it is open, and afterwards."""

    def __init__(self, transport: object | None) -> None:
        self.transport = transport
        self.is_closed = False

    def force_close(self) -> None:
        self.is_closed = True


class Lines:
    """Connections of one server, watched with a clock and a pause in the test's hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.watched = Connections(limit=10)
        monkeypatch.setattr(connections, "monotonic_s", lambda: self.now)

    def idle(self, transport: object | None) -> Line:
        line = Line(transport)
        self.watched.end(cast(web.RequestHandler, line))
        return line

    async def look_after(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        """Let the watch sleep once, for so long."""
        looked = asyncio.Event()

        async def pause(_: float) -> None:
            if looked.is_set():
                await asyncio.Event().wait()
            self.now += seconds
            looked.set()

        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "sleep", pause)
            watching = asyncio.create_task(self.watched.watch())
            await bounded(looked.wait(), "the watch to look")
            watching.cancel()
            await asyncio.wait([watching])

    def known(self) -> int:
        return len(self.watched._idle_since)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    return Lines(monkeypatch)


async def test_the_watch_closes_who_says_nothing_for_too_long(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = lines.idle(object())
    lines.now += connections.IDLE_SECONDS_MAX
    lively = lines.idle(object())
    await lines.look_after(monkeypatch, 1)
    assert (silent.is_closed, lively.is_closed) == (True, False)


async def test_the_watch_forgets_who_is_gone_wherever_he_stood(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines.idle(object())
    lines.idle(None)
    lines.now += 0.5
    await lines.look_after(monkeypatch, 1)
    assert lines.known() == 1


async def test_the_watch_leaves_a_connection_alone_that_is_about_to_open(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    arriving = lines.idle(None)
    await lines.look_after(monkeypatch, 1)
    assert not arriving.is_closed
    assert lines.known() == 1


async def test_after_a_standstill_nobody_is_closed_who_may_have_spoken(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = lines.idle(object())
    await lines.look_after(monkeypatch, 60)
    assert not waiting.is_closed
