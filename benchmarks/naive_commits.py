"""A naive design: a transaction of its own for each request, by aiosqlite.

`python -m benchmarks.naive_commits DATABASE`. The schema and the pragmas are the service's.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import aiosqlite
import msgspec
from aiohttp import web

from benchmarks.bare_http import serve
from benchmarks.seeding import open_durable

_DATABASE: web.AppKey[aiosqlite.Connection] = web.AppKey("database")
_HOLD = """
INSERT INTO reservation (id, status, holder, generation, created_at, expires_at, expiration_count,
                         alarm_at, alarm_dispatch_at, alarm_attempts, batch, changed_by)
VALUES (?1, 'held', x'', 1, ?2, ?3, 0, ?3, ?3, 0, 0, 'request')
"""
_HELD = """
INSERT INTO event (reservation, generation, type, at, "trigger") VALUES (?, 1, 'held', ?, 'request')
"""


def build_app(database: Path) -> web.Application:
    """One connection, and one caller at a time, or their transactions would mix."""
    taking_turns, numbers = asyncio.Lock(), itertools.count(1)

    async def hold(request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        name, now = request.match_info["id"], time.time_ns() // 1_000_000
        connection = request.app[_DATABASE]
        async with taking_turns:
            await connection.execute("BEGIN IMMEDIATE")
            await connection.execute(_HOLD, (name, now, now + body["ttlSeconds"] * 1000))
            await connection.execute(_HELD, (name, now))
            await connection.execute("COMMIT")
        return web.json_response({"reservationId": name, "generation": next(numbers)}, status=201)

    async def connect(app: web.Application) -> AsyncIterator[None]:
        async with aiosqlite.connect(database, isolation_level=None) as connection:
            await connection.execute("PRAGMA synchronous = FULL")
            app[_DATABASE] = connection
            yield

    app = web.Application()
    app.cleanup_ctx.append(connect)
    app.router.add_post("/reservations/{id}", hold)
    return app


if __name__ == "__main__":
    file = Path(sys.argv[1])
    with closing(open_durable(file)):
        asyncio.run(serve(build_app(file)))
