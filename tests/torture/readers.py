"""Readers of the feed in a process of their own, so that the crowd does not slow its own server.

`python -m tests.torture.readers PORT COUNT PATH` opens so many streams, says `ready` once all of
them have been told where they are, and prints its figures when its standard input ends. A `%d`
in the path is the number of the reader.
"""

import asyncio
import json
import subprocess
import sys
import threading
import time
from typing import Self

from tests.process.server import PATIENCE_S, ROOT, environment
from tests.torture.clients import HOST

COMING_AT_ONCE = 50
_EVENT = b"\ndata: "
_FRAME_ENDS = b"\n\n"


class Crowd:
    """Within `with`, `count` readers follow `path`; afterwards what they were told is here."""

    def __init__(self, port: int, count: int, path: str) -> None:
        self.events = 0
        self.lost = 0
        self.events_per_second = 0.0
        self._command = [
            *(sys.executable, "-m", "tests.torture.readers"),
            *(str(port), str(count), path),
        ]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        try:
            figures = self._process.communicate(timeout=2 * PATIENCE_S)[0]
        finally:
            self._process.kill()
        vars(self).update(json.loads(figures))


class StreamClient(asyncio.Protocol):
    """One stream: counts its events, and reads no more of them than that."""

    def __init__(self, path: str) -> None:
        self.events = 0
        self.is_lost = False
        self.has_begun = asyncio.Event()
        self._head = (
            f"GET {path} HTTP/1.1\r\nHost: torture\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        self._carried = b""

    @classmethod
    async def connect(cls, port: int, path: str) -> Self:
        """A stream whose first frame has come."""
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: cls(path), HOST, port)
        await client.has_begun.wait()
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._head)

    def data_received(self, data: bytes) -> None:
        if not self.has_begun.is_set():
            assert not data.startswith(b"HTTP/1.1 5"), data
            if _FRAME_ENDS in data:
                self.has_begun.set()
        text = self._carried + data
        self.events += text.count(_EVENT)
        self._carried = text[-len(_EVENT) + 1 :]

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.has_begun.set()


async def _follow(port: int, count: int, path: str) -> dict[str, object]:
    readers: list[StreamClient] = []
    for begin in range(0, count, COMING_AT_ONCE):
        numbers = range(begin, min(begin + COMING_AT_ONCE, count))
        paths = [path % number if "%d" in path else path for number in numbers]
        readers += await asyncio.gather(*(StreamClient.connect(port, one) for one in paths))
    print("ready", flush=True)  # noqa: T201 - this is what its parent waits for
    began, over = time.monotonic(), asyncio.Event()
    stop = asyncio.get_running_loop().call_soon_threadsafe
    threading.Thread(target=lambda: (sys.stdin.read(), stop(over.set)), daemon=True).start()
    await over.wait()
    events = sum(reader.events for reader in readers)
    return {
        "events": events,
        "lost": sum(reader.is_lost for reader in readers),
        "events_per_second": round(events / (time.monotonic() - began)),
    }


if __name__ == "__main__":
    port, count, path = sys.argv[1:]
    sys.stdout.write(json.dumps(asyncio.run(_follow(int(port), int(count), path))))
