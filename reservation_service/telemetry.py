"""Turns named events into log lines, in one place; docs/operations.md lists the names.

Lower layers are handed `observe(name, **fields)` and import nothing of this. One event is one
JSON line on standard output: `event`, `timestamp` (epoch ms of service time), then its fields
in camelCase, and the ID of the request that it was for. For people it is one line of text. The
lines of one pass of the event loop are written together. Lines that cannot be written, as on a full
disk, are lost and counted; nothing else is disturbed by it.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from functools import cache
from typing import BinaryIO

import msgspec
import structlog
from structlog.dev import ConsoleRenderer
from structlog.typing import EventDict, WrappedLogger

from reservation_service.clock import Clock, utc_text
from reservation_service.correlation import REQUEST_ID

_encode = msgspec.json.Encoder().encode


class Telemetry:
    """The one sink of named events."""

    def __init__(
        self, clock: Clock, stream: BinaryIO | None = None, *, is_for_people: bool = False
    ) -> None:
        self._clock = clock
        self._console = ConsoleRenderer(
            colors=stream is None and sys.stdout.isatty(), repr_native_str=True, pad_event_to=20
        )
        self._lines = _Lines(stream or sys.stdout.buffer, self._tell_lost)
        self._info = (
            structlog.wrap_logger(
                self._lines,
                processors=[self._print if is_for_people else self._encode],
                wrapper_class=structlog.make_filtering_bound_logger("info"),
                context_class=dict,
            )
            .bind()
            .info
        )

    def observe(self, name: str, **fields: object) -> None:
        """Record that `name` happened; fields are JSON values."""
        self._info(name, **fields)

    def flush(self) -> None:
        """Write what is waiting; for an end that no pass of the event loop follows."""
        self._lines.flush()

    def _tell_lost(self, lines: int) -> None:
        self.observe("log-lines-lost", lines=lines)

    def _encode(self, _logger: WrappedLogger, _method: str, fields: EventDict) -> bytes:
        encoded = _encode(self._line(fields))
        return encoded if encoded.isascii() else _escaped(encoded)

    def _print(self, logger: WrappedLogger, method: str, fields: EventDict) -> bytes:
        line = self._line(fields)
        line["timestamp"] = utc_text(line["timestamp"])
        return self._console(logger, method, line).encode("ascii", "backslashreplace")

    def _line(self, fields: EventDict) -> EventDict:
        line: EventDict = {"event": fields.pop("event"), "timestamp": self._clock.now()}
        for key, value in fields.items():
            line[_camel(key)] = value
        if (request_id := REQUEST_ID.get()) is not None:
            line["requestId"] = request_id
        return line


class _Lines:
    """Writes the lines of one pass of the event loop at its end; outside of a loop, at once."""

    def __init__(self, stream: BinaryIO, tell_lost: Callable[[int], None]) -> None:
        self._stream = stream
        self._tell_lost = tell_lost
        self._waiting: list[bytes] = []
        self._lost = 0

    def info(self, line: bytes) -> None:
        self._waiting.append(line)
        if len(self._waiting) == 1:
            try:
                asyncio.get_running_loop().call_soon(self.flush)
            except RuntimeError:
                self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        lines, self._waiting = self._waiting, []
        try:
            self._stream.write(b"\n".join([*lines, b""]))
            self._stream.flush()
        except OSError:
            self._lost += len(lines)
            return
        if self._lost:
            lost, self._lost = self._lost, 0
            self._tell_lost(lost)


def _escaped(line: bytes) -> bytes:
    """The same JSON in ASCII: some readers take other characters for the end of a line, too, and
    some terminals for commands."""
    return json.dumps(msgspec.json.decode(line), separators=(",", ":")).encode()


@cache
def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(word.capitalize() for word in rest)
