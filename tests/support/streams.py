"""Server-sent events as a client reads them: frame by frame, over whatever brings the lines."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp

from tests.support.waiting import bounded

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands between two empty lines; a comment alone is a heartbeat."""

    id: int | None = None
    event: str | None = None
    data: Any = None
    is_heartbeat: bool = False


def frame(lines: Iterable[str]) -> Frame:
    """The frame that these lines are, the empty one left out."""
    fields = dict(line.partition(": ")[::2] for line in lines if not line.startswith(":"))
    assert fields.keys() <= {"id", "event", "data"}, fields
    return Frame(
        int(fields["id"]) if "id" in fields else None,
        fields.get("event"),
        json.loads(fields["data"]) if "data" in fields else None,
        not fields,
    )


def frames(text: str) -> Iterator[Frame]:
    """All whole frames of a text."""
    whole = text.replace("\r\n", "\n").split("\n\n")[:-1]
    return (frame(lines.split("\n")) for lines in whole)


class Stream:
    """One open stream; `position` is the Last-Event-ID of a browser that has read so far."""

    def __init__(self, asked: Any) -> None:
        self._asked = asked
        self.position: int | None = None

    async def __aenter__(self) -> Self:
        """Within, the headers have come."""
        self.response: aiohttp.ClientResponse = await bounded(
            self._asked.__aenter__(), "the head of a stream"
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.response.close()
        await self._asked.__aexit__(kind, error, traceback)

    async def frame(self) -> Frame:
        """The next frame of any kind."""
        lines: list[str] = []
        while line := (await bounded(self.response.content.readline(), "a frame")).strip(b"\r\n"):
            lines.append(line.decode())
        assert lines, "the stream has ended"
        found = frame(lines)
        self.position = self.position if found.id is None else found.id
        return found

    async def event(self) -> Event:
        """The data of the next frame that has some; its id and type agree with it."""
        found = await self.frame()
        while found.data is None:
            found = await self.frame()
        assert found.event == found.data["type"], found
        assert found.id == found.data["seq"], found
        event: Event = found.data
        return event

    async def events(self, count: int) -> list[Event]:
        return [await self.event() for _ in range(count)]

    async def rest(self) -> list[Frame]:
        """What still comes until the stream ends by itself."""
        text = await bounded(self.response.content.read(), "the end of a stream")
        return list(frames(text.decode()))

    async def ended(self) -> bool:
        """Whether the server has cut it off before anything came."""
        try:
            return await bounded(self.response.content.read(), "the end of a stream") == b""
        except aiohttp.ClientPayloadError:
            return True
