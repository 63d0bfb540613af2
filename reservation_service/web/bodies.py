"""JSON request bodies, read within bounds.

The order of the checks is part of the contract: content type, size, JSON, then `fields` checks
for unknown ones and the values.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec
from aiohttp import web

from reservation_service.web.fields import B, checked
from reservation_service.web.problems import BadRequest

BODY_SECONDS_MAX = 10.0
"""How long a client may take to send its body."""

BODY_SENTENCE = "Send a JSON request body."

WAITING_FOR_CLIENT: web.AppKey[Callable[[web.Request], AbstractContextManager[None]]] = web.AppKey(
    "WAITING_FOR_CLIENT"
)
"""What stands around a wait for the rest of a body."""


async def read_body(request: web.Request, kind: type[B], *, may_be_empty: bool = False) -> B:
    """The body's JSON object as this kind. Raises BadRequest, or aiohttp's 413.

    An empty body is the same as `{}` where it may be.
    """
    body = await _read(request)
    return checked({} if may_be_empty and not body else _parse(body), kind)


async def _read(request: web.Request) -> bytes:
    if request.content_type != "application/json":
        raise BadRequest("unsupported-media-type", "Send Content-Type: application/json.")
    try:
        if request.content.is_eof():  # it came with its headers: nothing to wait for
            body = request.content.read_nowait()
            _refuse_too_large(request, len(body))
            return body
        _refuse_too_large(request, request.content_length or 0)
        with request.app[WAITING_FOR_CLIENT](request):
            async with asyncio.timeout(BODY_SECONDS_MAX):
                return await request.read()
    except TimeoutError:
        raise BadRequest("body-too-slow", "The request body took too long to arrive.") from None
    except web.RequestPayloadError:  # not encoded as its headers say
        raise BadRequest("invalid-body", BODY_SENTENCE) from None


def _refuse_too_large(request: web.Request, size: int) -> None:
    if size > request.client_max_size:
        raise web.HTTPRequestEntityTooLarge(request.client_max_size, size)


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
