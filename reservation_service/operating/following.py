"""`tail`: committed events as they come, over a stream that is taken up again where it broke."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from reservation_service.operating.remote import Remote, RemoteError

AGAIN_SECONDS = 1.0
"""How long a stream that broke is left alone."""


async def follow(
    remote: Remote, reservations: Sequence[str], after: str, again_s: float = AGAIN_SECONDS
) -> AsyncGenerator[tuple[str, Any], None]:
    """Kind and document of each event behind `after`, without end.

    Each time that the stream ends, `broken` says why, and it begins again where it was. Raises
    RemoteError if it cannot begin at all.
    """
    stream = _Stream(remote, reservations, after)
    while True:
        reason = "the stream ended"
        try:
            async for event in stream.read():
                yield event
        except RemoteError as error:
            if not stream.has_begun:
                raise
            reason = str(error)
        yield "broken", {"reason": reason}
        await asyncio.sleep(again_s)


class _Stream:
    """Reads frames, and remembers how far."""

    def __init__(self, remote: Remote, reservations: Sequence[str], after: str) -> None:
        self._remote = remote
        self._query: dict[str, str | Sequence[str]] = {"after": after}
        if reservations:
            self._query["reservation"] = list(reservations)
        self._last_id: str | None = None
        self.has_begun = False

    async def read(self) -> AsyncGenerator[tuple[str, Any], None]:
        """Events until the stream ends. Raises RemoteError when it breaks."""
        headers = {"Accept": "text/event-stream"}
        if self._last_id is not None:
            headers["Last-Event-ID"] = self._last_id
        frame: dict[str, str] = {}
        async for line in self._remote.lines("/events", self._query, headers):
            self.has_begun = True
            name, _, value = line.partition(":")
            if line:
                frame[name] = value.removeprefix(" ")
                continue
            self._last_id = frame.get("id", self._last_id)
            if "data" in frame:
                yield frame.get("event", "message"), msgspec.json.decode(frame["data"])
            frame = {}
