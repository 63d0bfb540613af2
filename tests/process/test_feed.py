"""Streams of a real process: a stop with a thousand of them open."""

import asyncio
import resource
from collections.abc import Iterator

import pytest

from tests.process.server import STOP_SECONDS_MAX, Server
from tests.support.waiting import bounded
from tests.torture.scratch import scratch

READERS = 1_000
HEAD = b"HTTP/1.1\r\nHost: test\r\nAccept: text/event-stream\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
AT_ONCE = 50

Reader = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many open files as the system lets us have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def come(port: int, number: int) -> Reader:
    """A reader that has seen its first frame."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /reservations/seat-%d/events %b" % (number, HEAD))
    head = await bounded(reader.readuntil(b"\r\n\r\n"), "the head of a stream")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n"), head
    await bounded(reader.readuntil(b"\n\n"), "the first frame")
    return reader, writer


async def stop_with(server: Server, count: int) -> tuple[float, list[bytes]]:
    """How long a stop takes with so many readers, and the last that each of them gets."""
    readers: list[Reader] = []
    for begin in range(0, count, AT_ONCE):
        numbers = range(begin, min(begin + AT_ONCE, count))
        readers += await asyncio.gather(*(come(server.port, number) for number in numbers))
    seconds = await asyncio.to_thread(server.stop)
    rests = await asyncio.gather(
        *(bounded(one.read(), "the end of a stream") for one, _ in readers)
    )
    for _, writer in readers:
        writer.transport.abort()
    return seconds, rests


@pytest.mark.usefixtures("many_files")
def test_a_stop_with_a_thousand_open_readers_ends_in_time(server: Server) -> None:
    held = server.start().hold("seat-1", 3600)
    seconds, rests = asyncio.run(stop_with(server, READERS))
    assert seconds < STOP_SECONDS_MAX
    assert {rest[-len(LAST_CHUNK) :] for rest in rests} == {LAST_CHUNK}
    assert server.query("SELECT id FROM reservation") == [(held["reservationId"],)]


@pytest.mark.system  # it tests a test
def test_a_stop_that_waits_for_readers_is_found() -> None:
    with scratch(bug="keep-readers-at-a-stop") as target:
        seconds, _ = asyncio.run(stop_with(target.start(), 1))
    assert seconds >= STOP_SECONDS_MAX
