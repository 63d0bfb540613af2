"""Cheap HTTP clients on loopback: raw connections under asyncio, each with one request at a time.

A generator that is slower than the server measures itself; these cost a fraction of the server.
Latency counts from the moment at which a request was planned, not from when it could be sent.
"""

import asyncio
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

HOST = "127.0.0.1"
_HEAD_ENDS = b"\r\n\r\n"
_TICK_S = 0.002


class Answer(NamedTuple):
    """One whole answer."""

    status: int
    head: bytes
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """The value of a header, None when it is not there."""
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b": ")
            if key.decode().lower() == name.lower():
                return value.decode()
        return None


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: torture\r\n\r\n".encode()


def post(path: str, body: bytes, *headers: str) -> bytes:
    """A whole request; `headers` are added to those that it needs."""
    head = [
        f"POST {path} HTTP/1.1",
        "Host: torture",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(head).encode() + _HEAD_ENDS + body


def hold(reservation_id: str, ttl_seconds: int) -> bytes:
    return post(f"/reservations/{reservation_id}", b'{"ttlSeconds":%d}' % ttl_seconds)


Receive = Callable[[Answer | None], None]
"""Called once per request: with its answer, or with None when the connection ended instead."""


class Client(asyncio.Protocol):
    """One connection; `ask` may be called again once the answer has been received."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._text = bytearray()
        self._receive: Receive | None = None

    @classmethod
    async def connect(cls, port: int) -> "Client":
        """Raises OSError when nobody listens."""
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(cls, HOST, port)
        return client

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes, receive: Receive) -> None:
        """Send a request; `receive` is called with what came of it."""
        assert self._transport is not None
        assert self._receive is None, "one request at a time"
        self._receive = receive
        self._transport.write(request)

    async def ask(self, request: bytes) -> Answer | None:
        """Send a request and wait for its answer; None when the connection ended instead."""
        answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self.send(request, lambda came: None if answer.done() else answer.set_result(came))
        return await answer

    def hang_up(self) -> None:
        """Go without a goodbye, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._text += data
        if (answer := self._whole_answer()) is not None and self._receive is not None:
            receive, self._receive = self._receive, None
            receive(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._receive is not None:
            receive, self._receive = self._receive, None
            receive(None)

    def _whole_answer(self) -> Answer | None:
        end = self._text.find(_HEAD_ENDS)
        if end < 0:
            return None
        head = bytes(self._text[:end])
        size = head.lower().find(b"content-length: ")
        length = int(head[size + 16 :].split(b"\r\n", 1)[0]) if size >= 0 else 0
        whole = end + len(_HEAD_ENDS) + length
        if len(self._text) < whole:
            return None
        body = bytes(self._text[whole - length : whole])
        del self._text[:whole]
        return Answer(int(head[9:12]), head, body)


@dataclass
class Tally:
    """What came of an open loop: answers by status, and seconds from plan to answer by status.

    `unsent` arrivals found every connection busy; `broken` ones lost their connection.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: dict[int, list[float]] = field(default_factory=dict)
    planned: int = 0
    unsent: int = 0
    broken: int = 0
    behind_s: float = 0.0
    """The worst delay of the generator itself."""

    def take(self, status: int, seconds: float) -> None:
        self.statuses[status] += 1
        self.seconds.setdefault(status, []).append(seconds)

    def percentile_ms(self, percent: float, status: int = 200) -> float:
        """Milliseconds within which so many per cent of these answers came; 0 without any."""
        return percentile_ms(self.seconds.get(status, []), percent)


def percentile_ms(seconds: list[float], percent: float) -> float:
    """The value in milliseconds that so many per cent do not exceed; 0 of nothing."""
    if not seconds:
        return 0.0
    ordered = sorted(seconds)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1000, 1)


class OpenLoop:
    """Sends requests when they are planned, whether or not the earlier ones were answered.

    `connections` bounds it: an arrival that finds all of them busy is counted and not sent, as a
    front end's pool would do it.
    """

    def __init__(
        self,
        port: int,
        requests: Iterator[bytes],
        connections: int,
        on_answer: Callable[[bytes, Answer], None] | None = None,
    ) -> None:
        self.tally = Tally()
        self._port = port
        self._requests = requests
        self._connections = connections
        self._on_answer = on_answer
        self._free: deque[Client] = deque()
        self._clients: list[Client] = []
        self._made = 0
        self._under_way = 0
        self._settled = asyncio.Event()
        self._settled.set()
        self._is_stopped = False
        self._dialling: set[asyncio.Task[None]] = set()

    async def run(self, per_second: float, seconds: float) -> Tally:
        """Plan `per_second` requests for so many seconds, or until `stop`."""
        began = time.monotonic()
        planned, total = 0, int(per_second * seconds)
        while planned < total and not self._is_stopped:
            due = min(total, int((time.monotonic() - began) * per_second) + 1)
            for number in range(planned, due):
                self._arrive(began + number / per_second)
            planned = due
            await asyncio.sleep(_TICK_S)
        self.tally.planned += planned
        return self.tally

    async def settle(self, patience_s: float = 10.0) -> Tally:
        """Wait for the answers that are still to come; those that do not come are broken."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._settled.wait()
        self.tally.broken += self._under_way
        return self.tally

    def stop(self) -> None:
        self._is_stopped = True

    def close(self) -> None:
        """Hang up, whatever is under way."""
        for client in self._clients:
            client.hang_up()
        self._free.clear()

    def _arrive(self, planned_at: float) -> None:
        self.tally.behind_s = max(self.tally.behind_s, time.monotonic() - planned_at)
        while self._free:
            client = self._free.popleft()
            if client.is_open:
                self._send(client, planned_at)
                return
            self._made -= 1
        if self._made >= self._connections:
            self.tally.unsent += 1
            return
        self._made += 1
        self._begin()
        task = asyncio.create_task(self._dial(planned_at))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    async def _dial(self, planned_at: float) -> None:
        try:
            client = await Client.connect(self._port)
        except OSError:
            self._lose()
        else:
            self._clients.append(client)
            self._send(client, planned_at)
        finally:
            self._end()

    def _send(self, client: Client, planned_at: float) -> None:
        request = next(self._requests)
        self._begin()

        def receive(answer: Answer | None) -> None:
            self._end()
            if answer is None:
                self._lose()
                return
            self.tally.take(answer.status, time.monotonic() - planned_at)
            if self._on_answer is not None:
                self._on_answer(request, answer)
            self._free.append(client)

        client.send(request, receive)

    def _begin(self) -> None:
        self._under_way += 1
        self._settled.clear()

    def _end(self) -> None:
        self._under_way -= 1
        if self._under_way == 0:
            self._settled.set()

    def _lose(self) -> None:
        self._made -= 1
        self.tally.broken += 1
