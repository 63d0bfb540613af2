"""JSON request bodies: read within bounds, then checked field by field.

The order of the checks is part of the contract: content type, size, JSON, unknown fields, values.
A number with a zero fraction (5.0, 5e0) is an integer in JSON and accepted as one.
"""

import asyncio
from collections.abc import Callable, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from reservation_service.web.problems import BadRequest

BODY_SECONDS_MAX = 10.0
"""How long a client may take to send its body."""

BODY_SENTENCE = "Send a JSON request body."

WAITING_FOR_CLIENT: web.AppKey[Callable[[web.Request], AbstractContextManager[None]]] = web.AppKey(
    "WAITING_FOR_CLIENT"
)
"""What stands around a wait for the rest of a body."""

TIMESTAMP_MAX = 2**53 - 1
"""The largest integer that every JSON reader keeps exact."""


@dataclass(frozen=True, slots=True)
class IntegerField:
    """A required integer from `least` through `most`; `sentence` says so to whoever errs."""

    name: str
    least: int
    most: int
    sentence: str

    def read(self, document: dict[str, Any]) -> int:
        """The field's value. Raises BadRequest when it is missing or anything else."""
        value = document.get(self.name)
        if type(value) is int and self.least <= value <= self.most:
            return value
        raise BadRequest("invalid-field", self.sentence)


async def read_integer(request: web.Request, field: IntegerField) -> int:
    """The value of a body's only field. Raises BadRequest, or aiohttp's 413."""
    document = _parse(await _read(request))
    _refuse_others(document, {field.name})
    return field.read(document)


def _refuse_others(document: dict[str, Any], names: Set[str]) -> None:
    for name in document.keys() - names:
        raise BadRequest("unknown-field", f"Unknown field {_shown(name)}.")


async def _read(request: web.Request) -> bytes:
    if request.content_type != "application/json":
        raise BadRequest("unsupported-media-type", "Send Content-Type: application/json.")
    try:
        if request.content.is_eof():  # it came with its headers: nothing to wait for
            return await request.read()
        announced = request.content_length or 0
        if announced > request.client_max_size:
            raise web.HTTPRequestEntityTooLarge(request.client_max_size, announced)
        with request.app[WAITING_FOR_CLIENT](request):
            async with asyncio.timeout(BODY_SECONDS_MAX):
                return await request.read()
    except TimeoutError:
        raise BadRequest("body-too-slow", "The request body took too long to arrive.") from None
    except web.RequestPayloadError:  # not encoded as its headers say
        raise BadRequest("invalid-body", BODY_SENTENCE) from None


def _parse(body: bytes) -> dict[str, Any]:
    try:
        document = _decode(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise BadRequest("invalid-body", BODY_SENTENCE)
    return document


def _whole_or_float(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() else number


_decode = msgspec.json.Decoder(float_hook=_whole_or_float).decode
_NAME_SHOWN_MAX = 40


def _shown(name: str) -> str:
    shown = name if len(name) <= _NAME_SHOWN_MAX else f"{name[:_NAME_SHOWN_MAX]}…"
    return msgspec.json.encode(shown).decode()
