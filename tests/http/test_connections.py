"""Connections that say nothing cannot lock others out."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from reservation_service.reservation import Hold
from reservation_service.web import connections
from tests.conftest import StartService
from tests.support.harness import ServiceHarness
from tests.support.waiting import bounded

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HOLD = (
    b"POST /reservations/seat-1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b'Content-Length: 17\r\n\r\n{"ttlSeconds": 5}'
)


class Client:
    """A bare connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, request: bytes = GET) -> None:
        self._writer.write(request)
        await self._writer.drain()

    async def answer(self) -> int:
        """The status of the next answer."""
        head = await bounded(self._reader.readuntil(b"\r\n\r\n"), "an answer")
        lengths = [line for line in head.splitlines() if line.lower().startswith(b"content-length")]
        await bounded(self._reader.readexactly(int(lengths[0].split(b":")[1])), "its body")
        return int(head.split()[1])

    async def was_closed(self) -> bool:
        return await bounded(self._reader.read(), "the server to close") == b""

    def close(self) -> None:
        self._writer.close()


class Clients:
    """Connects, and closes what it connected."""

    def __init__(self, service: ServiceHarness) -> None:
        self._service = service
        self._connected: list[Client] = []

    async def connect(self, *, ask: bool = True) -> Client:
        """A connection that the server knows of: it has had an answer."""
        client = Client(*await asyncio.open_connection("127.0.0.1", self._service.port))
        self._connected.append(client)
        if ask:
            await client.ask()
            assert await client.answer() == 200
        return client

    def close(self) -> None:
        for client in self._connected:
            client.close()


@pytest.fixture
async def service(start_service: StartService) -> ServiceHarness:
    return await start_service(server={"connections_max": 2})


@pytest.fixture
async def clients(service: ServiceHarness) -> AsyncIterator[Clients]:
    clients = Clients(service)
    yield clients
    clients.close()


async def test_a_connection_too_many_closes_the_one_that_is_idle_for_longest(
    clients: Clients,
) -> None:
    first, second = await clients.connect(), await clients.connect()
    third = await clients.connect()
    assert await first.was_closed()
    for client in (second, third):
        await client.ask()
        assert await client.answer() == 200


async def test_idle_is_counted_from_the_last_answer(clients: Clients) -> None:
    first, second = await clients.connect(), await clients.connect()
    await first.ask()
    assert await first.answer() == 200
    await clients.connect()
    assert await second.was_closed()


async def test_a_connection_whose_request_is_at_work_is_kept(
    service: ServiceHarness, clients: Clients
) -> None:
    gate = service.gates.before(lambda message: isinstance(message, Hold))
    busy, idle = await clients.connect(), await clients.connect()
    await busy.ask(HOLD)
    await gate.reached()
    await clients.connect()
    assert await idle.was_closed()
    gate.open()
    assert await busy.answer() == 201


async def test_connections_that_never_say_anything_make_room(clients: Clients) -> None:
    silent = [await clients.connect(ask=False) for _ in range(5)]
    speaking = await clients.connect()
    await speaking.ask()
    assert await speaking.answer() == 200
    assert await silent[0].was_closed()


async def test_a_connection_without_a_request_is_closed_after_a_while(
    start_service: StartService, monkeypatch: pytest.MonkeyPatch, service: ServiceHarness
) -> None:
    monkeypatch.setattr(connections, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(connections, "IDLE_SECONDS_MAX", 0.02)
    await service.stop()
    await service.start()
    clients = Clients(service)
    client = await clients.connect(ask=False)
    await client.ask(b"GET / HTTP/1.1\r\n")
    assert await client.was_closed()
    clients.close()
