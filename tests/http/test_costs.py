"""What a request costs on the event loop, counted and not timed: tasks, timers, hops, calls."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import pytest

import reservation_service
from reservation_service import service as composition
from reservation_service.storage.connection import Connection
from tests.conftest import StartService
from tests.support.harness import ServiceHarness

PACKAGE = str(Path(reservation_service.__file__).parent)
REQUESTS = 10
HOLD = b'{"ttlSeconds":60,"holder":"me"}'


class Client:
    """A kept-alive connection that makes no task and no timer of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def hold(self, number: int) -> None:
        head = f"POST /reservations/seat-{number} HTTP/1.1\r\nHost: x\r\n"
        fields = f"Content-Type: application/json\r\nContent-Length: {len(HOLD)}\r\n\r\n"
        self._writer.write(f"{head}{fields}".encode() + HOLD)
        await self._answer(b"201")

    async def read(self, number: int) -> None:
        self._writer.write(f"GET /reservations/seat-{number} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await self._answer(b"200")

    async def _answer(self, status: bytes) -> None:
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.split()[1] == status
        _, _, length = head.partition(b"Content-Length: ")
        await self._reader.readexactly(int(length.split()[0]))


@pytest.fixture
async def service(start_service: StartService, monkeypatch: pytest.MonkeyPatch) -> ServiceHarness:
    """Without the chores that a clock would do in the middle of what is counted."""
    monkeypatch.setattr(composition, "schedule_chores", lambda *_: None)
    sections: dict[str, Any] = {
        "log": {"access": False},
        "reservations": {"max_holds_per_holder": 0},
    }
    return await start_service(**sections)


@pytest.fixture
async def client(service: ServiceHarness) -> AsyncIterator[Client]:
    """One that was served before, so that what is made once is made."""
    await service.recorder.seen("integrity-checked")
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    client = Client(reader, writer)
    await client.hold(0)
    await client.read(0)
    await service.quiet()
    yield client
    writer.close()
    await writer.wait_closed()


async def test_a_request_makes_one_task_at_most(client: Client) -> None:
    loop, made = asyncio.get_running_loop(), 0

    def count(loop: Any, coroutine: Any, **options: Any) -> Any:
        nonlocal made
        made += 1
        return asyncio.Task(coroutine, loop=loop, **options)

    loop.set_task_factory(count)
    for number in range(REQUESTS):
        await client.hold(number + 1)
        await client.read(number + 1)
    loop.set_task_factory(None)
    assert made <= 2 * REQUESTS


async def test_a_request_sets_one_timer_at_most(client: Client) -> None:
    loop = asyncio.get_running_loop()
    with patch.object(loop, "call_at", side_effect=loop.call_at) as call_at:
        for number in range(REQUESTS):
            await client.hold(number + 1)
            await client.read(number + 1)
    assert call_at.call_count <= 2 * REQUESTS


async def test_a_batch_is_one_hop_to_the_connections_thread(
    service: ServiceHarness, client: Client
) -> None:
    hop = Connection._execute
    batches = len(service.gates.batches)
    with patch.object(Connection, "_execute", autospec=True, side_effect=hop) as hops:
        for number in range(REQUESTS):
            await client.hold(number + 1)
        assert hops.call_count == len(service.gates.batches) - batches == REQUESTS
        for number in range(REQUESTS):
            await client.read(number + 1)
    assert hops.call_count == 2 * REQUESTS


@pytest.mark.parametrize(("call", "most"), [(Client.hold, 81), (Client.read, 62)])
async def test_a_request_makes_few_calls_into_our_code(
    client: Client, call: Any, most: int
) -> None:
    calls: list[str] = []

    def count(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            calls.append(f"{Path(code.co_filename).stem}.{code.co_qualname}")

    sys.setprofile(count)
    for number in range(REQUESTS):
        await call(client, number + 1)
    sys.setprofile(None)
    assert len(calls) <= most * REQUESTS, calls[: len(calls) // REQUESTS]
