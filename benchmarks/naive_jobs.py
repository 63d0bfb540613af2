"""A naive design: one APScheduler job for each alarm, kept in SQLite.

`python -m benchmarks.naive_jobs DATABASE [COUNT AT_MS STEP_MS]` begins with COUNT holds that end
at AT_MS, each STEP_MS after the one before, and logs how late each ended.
"""

import asyncio
import sqlite3
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from aiohttp import web
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from benchmarks.bare_http import serve
from benchmarks.seeding import open_durable

_HOLD = """
INSERT INTO reservation (id, status, holder, generation, created_at, expires_at, expiration_count,
                         alarm_at, alarm_dispatch_at, alarm_attempts, batch, changed_by)
VALUES (?1, 'held', x'', 1, ?2, ?3, 0, ?3, ?3, 0, 0, 'request')
"""
_EXPIRE = """
UPDATE reservation
SET status = 'expired', expired_at = ?, expiration_count = 1, alarm_at = NULL,
    alarm_dispatch_at = NULL
WHERE id = ? AND status = 'held'
"""


async def expire(database: str, name: str, until: int) -> None:
    """The job: a transaction of its own, on a connection of its own."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(_EXPIRE, (until, name))
    late = time.time_ns() / 1e6 - until
    sys.stdout.write(f'{{"event":"reservation-alarm","latenessMs":{late:.3f}}}\n')
    sys.stdout.flush()


def main(database: Path, count: int = 0, at_ms: int = 0, step_ms: int = 0) -> None:
    """Serve until the process is ended."""
    jobs = SQLAlchemyJobStore(url=f"sqlite:///{database.with_suffix('.jobs')}")
    with closing(sqlite3.connect(database.with_suffix(".jobs"))) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    scheduler = AsyncIOScheduler(jobstores={"default": jobs}, timezone=UTC)

    def hold(name: str, now: int, until: int) -> None:
        connection.execute(_HOLD, (name, now, until))  # outside of BEGIN: committed at once
        when = datetime.fromtimestamp(until / 1000, UTC)
        scheduler.add_job(
            expire, "date", run_date=when, args=[str(database), name, until], id=name,
            misfire_grace_time=None,
        )  # fmt: skip

    async def answer(request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        name, now = request.match_info["id"], time.time_ns() // 1_000_000
        hold(name, now, now + body["ttlSeconds"] * 1000)
        return web.json_response({"reservationId": name}, status=201)

    async def start() -> None:
        scheduler.start()
        for number in range(count):
            until = at_ms + number * step_ms
            hold(f"seat-{number}", until - 60_000, until)
        await serve(app)

    app = web.Application()
    app.router.add_post("/reservations/{id}", answer)
    with closing(open_durable(database)) as connection:
        asyncio.run(start())


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    main(Path(name), *map(int, numbers))
