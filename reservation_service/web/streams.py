"""Events as server-sent events: rendered once, written at once, to readers that keep up.

A reader is never waited for once it has caught up: what it does not take stays in its connection's
buffer, and when that is full the connection is cut. The reader comes again with its Last-Event-ID
and loses nothing. Readers are no requests in flight; they have a limit of their own.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache

import msgspec
from aiohttp import HttpVersion11, web
from aiohttp_sse import EventSourceResponse

from reservation_service.clock import Clock
from reservation_service.errors import ServiceError, TooManyReaders
from reservation_service.events import Event
from reservation_service.feed import Feed
from reservation_service.web.answers import finish
from reservation_service.web.views import view_event

Observe = Callable[..., None]

STALL_SECONDS_MAX = 30.0
"""How long a reader that has not caught up may take for what it was sent last."""

STREAMING: web.AppKey[Callable[[], AbstractContextManager[None]]] = web.AppKey("STREAMING")
"""What stands around an open stream."""

_encode = msgspec.json.Encoder().encode


class Frames:
    """Implements `feed.Rendering`. A frame without data tells nobody, but moves Last-Event-ID."""

    def event(self, event: Event) -> bytes:
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (
            event.seq,
            event.type.encode(),
            _encode(view_event(event)),
        )

    def position(self, seq: int) -> bytes:
        return b"id: %d\n\n" % seq

    def reset(self, seq: int) -> bytes:
        return b'id: %d\nevent: reset\ndata: {"oldest":%d}\n\n' % (seq, seq + 1)


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How often a silent stream says that it is there, and how much may wait for its reader."""

    heartbeat_s: float
    buffer_bytes: int


class Readers:
    """The open streams, at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: set[StreamReader] = set()

    @property
    def count(self) -> int:
        """How many are open now."""
        return len(self._open)

    @contextmanager
    def admit(self, reader: "StreamReader") -> Iterator[None]:
        """A place for this reader. Raises TooManyReaders."""
        if len(self._open) >= self._limit:
            self._end({reader for reader in self._open if reader.is_gone})
        if len(self._open) >= self._limit:
            raise TooManyReaders
        self._open.add(reader)
        try:
            yield
        finally:
            self._open.discard(reader)

    async def close(self, _app: web.Application) -> None:
        """End all streams; their readers come again when somebody listens."""
        self._end(set(self._open))

    def _end(self, readers: set["StreamReader"]) -> None:
        self._open -= readers
        for reader in readers:
            reader.end()


class StreamReader:
    """Implements `feed.Reader` over one response."""

    def __init__(self, request: web.Request, limits: StreamLimits, observe: Observe) -> None:
        self._request = request
        self._buffer_bytes = limits.buffer_bytes
        self._observe = observe
        self._is_chunked = request.version >= HttpVersion11
        self.response = EventSourceResponse(
            ping_interval=limits.heartbeat_s, send_timeout=STALL_SECONDS_MAX
        )

    @property
    def is_gone(self) -> bool:
        """Whether there is nobody any more to be told."""
        transport = self._request.transport
        return transport is None or transport.is_closing()

    async def begin(self, server_time: int) -> None:
        """Send the headers; from now on there is a heartbeat."""
        finish(self.response, server_time)
        await self.response.prepare(self._request)
        if self._request.transport is None:  # the reader has gone meanwhile
            self.end()
            raise ConnectionResetError
        connection = self._request.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._buffer_bytes)

    def end(self) -> None:
        """Let the stream end."""
        if self.response.prepared:
            self.response.stop_streaming()

    def drop(self, reason: str) -> None:
        """Cut the connection, whatever is still in its buffer."""
        self._observe("reader-dropped", reason=reason)
        if self._request.transport is not None:
            self._request.transport.abort()
        self.end()

    async def send(self, text: bytes) -> None:
        if not self.response.is_connected():
            raise ConnectionResetError
        try:
            async with asyncio.timeout(STALL_SECONDS_MAX):
                await self.response.write(text)
        except TimeoutError:
            self.drop("slow")
            raise ConnectionResetError from None

    def take(self, text: bytes) -> None:
        """Past the response's own writer, which has to be awaited for every reader."""
        transport = self._request.transport
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() > self._buffer_bytes:
            self.drop("slow")
            return
        transport.write(_chunk(text) if self._is_chunked else text)


@lru_cache(maxsize=1)
def _chunk(text: bytes) -> bytes:
    """A chunk of HTTP/1.1; those who follow everything are handed the same one after another."""
    return b"%x\r\n%b\r\n" % (len(text), text)


class Streams:
    """Answers that go on for as long as their reader does."""

    def __init__(
        self, feed: Feed, readers: Readers, clock: Clock, observe: Observe, limits: StreamLimits
    ) -> None:
        self._feed = feed
        self._readers = readers
        self._clock = clock
        self._observe = observe
        self._limits = limits

    async def stream(
        self, request: web.Request, names: frozenset[str] | None, after: int | None
    ) -> web.StreamResponse:
        """What lies behind `after`, and then what is committed. Raises TooManyReaders."""
        reader = StreamReader(request, self._limits, self._observe)
        with self._readers.admit(reader), request.app[STREAMING]():
            # before the headers: what is asked once they are there cannot be older than `latest`
            position = await self._feed.locate(after)
            await reader.begin(self._clock.now())
            async with reader.response:
                await self._follow(reader, names, position)
        return reader.response

    async def _follow(
        self, reader: StreamReader, names: frozenset[str] | None, position: int
    ) -> None:
        """Once the headers are out there is no other answer: what fails ends the stream."""
        try:
            await self._feed.follow(reader, names, position)
            await reader.response.wait()
        except ConnectionError:
            pass  # the reader has gone, or the stream was ended before it had caught up
        except ServiceError as error:
            reader.drop(error.code)
        finally:
            self._feed.leave(reader)
