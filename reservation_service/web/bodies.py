"""JSON request bodies: read within bounds, then checked field by field.

The order of the checks is part of the contract: content type, size, JSON, unknown fields, values.
A number with a zero fraction (5.0, 5e0) is an integer in JSON and accepted as one.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from aiohttp import web

from reservation_service.web.problems import BadRequest

BODY_SECONDS_MAX = 10.0
"""How long a client may take to send its body."""

BODY_SENTENCE = "Send a JSON request body."

TIMESTAMP_MAX = 2**53 - 1
"""The largest integer that every JSON reader keeps exact."""


@dataclass(frozen=True, slots=True)
class Field:
    """One required field: its name, its type as msgspec checks it, and what to say otherwise."""

    name: str
    type: Any
    sentence: str


def integer_field(name: str, least: int, most: int, sentence: str) -> Field:
    """A required integer from `least` through `most`."""
    return Field(name, Annotated[int, msgspec.Meta(ge=least, le=most)], sentence)


async def read_fields(request: web.Request, fields: Sequence[Field]) -> list[Any]:
    """The values of `fields`, in their order. Raises BadRequest, or aiohttp's 413."""
    document = _parse(await _read(request))
    for name in document:
        if all(name != field.name for field in fields):
            raise BadRequest("unknown-field", f"Unknown field {_shown(name)}.")
    return [_convert(document, field) for field in fields]


async def _read(request: web.Request) -> bytes:
    if request.content_type != "application/json":
        raise BadRequest("unsupported-media-type", "Send Content-Type: application/json.")
    try:
        if request.content.is_eof():  # it came with its headers: nothing to wait for
            return await request.read()
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


def _convert(document: dict[str, Any], field: Field) -> Any:
    try:
        return msgspec.convert(document.get(field.name), field.type)
    except msgspec.ValidationError:
        raise BadRequest("invalid-field", field.sentence) from None


def _whole_or_float(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() else number


_decode = msgspec.json.Decoder(float_hook=_whole_or_float).decode
_NAME_SHOWN_MAX = 40


def _shown(name: str) -> str:
    shown = name if len(name) <= _NAME_SHOWN_MAX else f"{name[:_NAME_SHOWN_MAX]}…"
    return msgspec.json.encode(shown).decode()
