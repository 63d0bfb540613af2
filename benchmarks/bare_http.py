"""The limit that HTTP sets: the same answers from an aiohttp application that stores nothing.

`python -m benchmarks.bare_http` parses and validates the same fields, on the same event loop and
with the same JSON library, and answers the same documents with the same headers. IDs that begin
with `hot-` are answered as somebody else's. `python -m benchmarks.bare_http DATABASE` commits each
hold as well, with two statements that check nothing, while its event loop waits for the disk: the
least that a durable answer can cost in these tables.
"""

import asyncio
import itertools
import re
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from benchmarks import bare_sqlite

_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{1,38}[a-z0-9])")
_HOLDER = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,200}")
_FIELDS = {"ttlSeconds", "holder", "generation", "ifStillFree"}
_TTL_MIN, _TTL_MAX = 5, 3600
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Server": "bare",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Request-ID": "4f1c2a-1",
}
_TAKEN = "Somebody else holds this reservation."


class _Reservation(msgspec.Struct, rename="camel", gc=False):
    reservation_id: str
    status: str
    created_at: int
    expires_at: int
    expired_at: int | None
    expiration_count: int
    alarm_at: int | None
    generation: int
    confirmed_at: int | None
    released_at: int | None
    alarm_retry_count: int
    alarm_stuck: bool


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(float_hook=float).decode


async def hold(request: web.Request) -> web.Response:
    name = _checked_id(request)
    ttl_ms = await _checked_body(request)
    now = _now()
    if name.startswith("hot-"):
        return _refuse(name, now)
    response = _answer(_encode(_row(name, "held", now, now + ttl_ms)), now, 201)
    response.headers["Location"] = f"/reservations/{name}"
    return response


def hold_and_commit(database: Path) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler that answers a hold once it is committed; everybody else waits meanwhile."""
    connection, numbers = bare_sqlite.open_with_room(database), itertools.count()

    async def handle(request: web.Request) -> web.Response:
        response = await hold(request)
        bare_sqlite.hold(connection, [request.match_info["id"]], next(numbers))
        return response

    return handle


async def read(request: web.Request) -> web.Response:
    name = _checked_id(request)
    now = _now()
    return _answer(_encode(_row(name, "held", now, now + 1000)), now)


async def change(request: web.Request) -> web.Response:
    name = _checked_id(request)
    ttl_ms = await _checked_body(request)
    now = _now()
    document = _encode(_row(name, request.match_info["call"], now, now + ttl_ms))
    return _answer(document[:-1] + b',"changed":true}', now)


def _checked_id(request: web.Request) -> str:
    name = request.match_info["id"]
    if not _ID.fullmatch(name):
        raise web.HTTPBadRequest
    return name


async def _checked_body(request: web.Request) -> int:
    if request.content_type != "application/json":
        raise web.HTTPBadRequest
    body: Any = _decode(await request.read())
    if not body.keys() <= _FIELDS:
        raise web.HTTPBadRequest
    holder = body.get("holder", "anybody")
    if not isinstance(holder, str) or not _HOLDER.fullmatch(holder):
        raise web.HTTPBadRequest
    ttl = body.get("ttlSeconds", _TTL_MIN)
    if type(ttl) is not int or not _TTL_MIN <= ttl <= _TTL_MAX:
        raise web.HTTPBadRequest
    return ttl * 1000


def _row(name: str, status: str, now: int, until: int) -> _Reservation:
    return _Reservation(name, status, now, until, None, 0, until, 1, None, None, 0, False)


def _answer(
    body: bytes, now: int, status: int = 200, content_type: str = "application/json"
) -> web.Response:
    response = web.Response(body=body, status=status, content_type=content_type)
    response.headers["Server-Time"] = str(now)
    response.headers.update(_HEADERS)
    return response


def _refuse(name: str, now: int) -> web.Response:
    document = {
        "type": "urn:reservation-service:problem:already-held",
        "title": "Conflict",
        "status": 409,
        "detail": _TAKEN,
        "code": "already-held",
        "error": _TAKEN,
        "reservation": _row(name, "held", now, now + 1000),
    }
    response = _answer(_encode(document), now, 409, "application/problem+json")
    response.headers["Retry-After"] = "1"
    return response


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000


async def serve(app: web.Application) -> None:
    """Serve on any free port until the process is ended; also for the naive designs."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    _, port = runner.addresses[0]
    sys.stdout.write(f'{{"event":"service-started","port":{port}}}\n')
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    app = web.Application()
    app.router.add_get("/reservations/{id}", read)
    answer = hold_and_commit(Path(sys.argv[1])) if len(sys.argv) > 1 else hold
    app.router.add_post("/reservations/{id}", answer)
    app.router.add_post("/reservations/{id}/{call}", change)
    asyncio.run(serve(app))
