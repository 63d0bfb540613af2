"""Turns named events into log lines, in one place; docs/operations.md lists the names.

Lower layers are handed `observe(name, **fields)` and import nothing of this. One event is one
JSON line on standard output: `event`, `timestamp` (epoch ms of service time), then its fields
in camelCase.
"""

import sys
from collections.abc import Callable
from functools import cache
from typing import BinaryIO

import msgspec
import structlog
from structlog.typing import EventDict, WrappedLogger

from reservation_service.clock import Clock

_encode = msgspec.json.Encoder().encode


class Telemetry:
    """The one sink of named events; `observe` never raises and never waits."""

    def __init__(self, clock: Clock, stream: BinaryIO | None = None) -> None:
        self._log = structlog.wrap_logger(
            structlog.BytesLogger(stream or sys.stdout.buffer),
            processors=[_named(clock), _render],
            wrapper_class=structlog.BoundLogger,
            cache_logger_on_first_use=True,
        )

    def observe(self, name: str, **fields: object) -> None:
        """Record that `name` happened; fields are JSON values."""
        self._log.info(name, **fields)


def _named(clock: Clock) -> Callable[[WrappedLogger, str, EventDict], EventDict]:
    def name_first(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
        line: EventDict = {"event": fields.pop("event"), "timestamp": clock.now()}
        line.update((_camel(key), value) for key, value in fields.items())
        return line

    return name_first


def _render(_logger: WrappedLogger, _method: str, line: EventDict) -> bytes:
    return _encode(line)


@cache
def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(word.capitalize() for word in rest)
