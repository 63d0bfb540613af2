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
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from reservation_service.clock import Clock, utc_text
from reservation_service.correlation import REQUEST_ID

_encode = msgspec.json.Encoder().encode


class Telemetry:
    """The one sink of named events."""

    def __init__(
        self, clock: Clock, stream: BinaryIO | None = None, *, is_for_people: bool = False
    ) -> None:
        self._clock = clock
        self._lines = _Lines(stream or sys.stdout.buffer, self._tell_lost)
        has_colors = stream is None and sys.stdout.isatty()
        self._render = _for_people(has_colors=has_colors) if is_for_people else _for_programs

    def observe(self, name: str, **fields: object) -> None:
        """Record that `name` happened; fields are JSON values."""
        if (request_id := REQUEST_ID.get()) is not None:
            fields["request_id"] = request_id
        line = _line_with(tuple(fields))(name, self._clock.now(), *fields.values())
        self._lines.write(self._render(line))

    def flush(self) -> None:
        """Write what is waiting; for an end that no pass of the event loop follows."""
        self._lines.flush()

    def _tell_lost(self, lines: int) -> None:
        self.observe("log-lines-lost", lines=lines)


def _for_programs(line: Struct) -> bytes:
    encoded = _encode(line)
    return encoded if encoded.isascii() else _escaped(encoded)


def _for_people(*, has_colors: bool) -> Callable[[Struct], bytes]:
    from structlog.dev import ConsoleRenderer  # noqa: PLC0415 - a service has programs as readers

    console = ConsoleRenderer(colors=has_colors, repr_native_str=True, pad_event_to=20)

    def render(line: Struct) -> bytes:
        fields: dict[str, Any] = msgspec.to_builtins(line)
        told = console(None, "info", fields | {"timestamp": utc_text(fields["timestamp"])})
        return told.encode("ascii", "backslashreplace")

    return render


class _Lines:
    """Writes the lines of one pass of the event loop at its end; outside of a loop, at once."""

    def __init__(self, stream: BinaryIO, tell_lost: Callable[[int], None]) -> None:
        self._stream = stream
        self._tell_lost = tell_lost
        self._waiting: list[bytes] = []
        self._lost = 0

    def write(self, line: bytes) -> None:
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
def _line_with(names: Sequence[str]) -> type[Struct]:
    """The type of lines with these fields; each event has its own, so they are few."""
    fields = [(name, object) for name in ("event", "timestamp", *names)]
    return msgspec.defstruct("Line", fields, rename="camel", gc=False)
