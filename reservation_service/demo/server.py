"""The real server as a process of its own: started, killed, called, and its log lines read.

Nothing is mocked: this is `python -m reservation_service serve` with a scratch configuration.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp

from reservation_service.config import PREFIX

Line = dict[str, Any]
"""A line of the server's log, or an answer of its API."""

PATIENCE_S = 15.0
"""How long a log line or an answer is waited for."""

# Failures are retried soon, so that nobody waits; the access log proves when nobody called.
CONFIG = """\
[alarms]
retry_first_ms = 500
retry_cap_ms = 1000

[log]
access = true
"""


class ServerGone(Exception):
    """The process ended although nobody had ended it."""


class Server:
    """One scratch database, and one process on it at a time."""

    def __init__(self, scratch: Path) -> None:
        self.database = scratch / "reservations.db"
        self.runs: list[list[Line]] = []
        self._config = scratch / "config.toml"
        self._config.write_text(CONFIG)
        self._complaints = scratch / "stderr"
        self._news = asyncio.Condition()
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._url = ""

    async def start(self) -> str:
        """Start the process; its URL once it listens."""
        with self._complaints.open("wb") as complaints:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "reservation_service", "serve"),
                *("--host", "127.0.0.1", "--port", "0"),
                *("--database", self.database, "--config", self._config),
                env=dict(_environment()),
                stdout=asyncio.subprocess.PIPE,
                stderr=complaints,
            )
        self.runs.append([])
        self._reader = asyncio.create_task(self._read_log(self._process, self.runs[-1]))
        self._url = (await self.line("service-started"))["url"]
        return self._url

    async def kill(self) -> None:
        """SIGKILL, if it lives: no handler, no goodbye."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        await self._bury()

    async def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self._process is not None
        process = self._process
        process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            status = await process.wait()
        await self._bury()
        return status

    def seen(self, event: str, **fields: object) -> list[Line]:
        """The lines of the present run that match."""
        return [line for line in self.runs[-1] if _matches(line, event, fields)]

    def seen_ever(self, event: str, **fields: object) -> list[Line]:
        """The lines of all runs that match."""
        return [line for run in self.runs for line in run if _matches(line, event, fields)]

    async def line(self, event: str, nth: int = 1, **fields: object) -> Line:
        """The `nth` line of the present run that matches, as soon as it is there."""
        async with asyncio.timeout(PATIENCE_S), self._news:
            while len(found := self.seen(event, **fields)) < nth:
                self._check_alive()
                await self._news.wait()
        return found[nth - 1]

    async def hold(self, name: str, seconds: int) -> Line:
        return await self._call("POST", f"/reservations/{name}", {"ttlSeconds": seconds})

    async def status(self, name: str) -> Line:
        return await self._call("GET", f"/reservations/{name}")

    async def replay(self, name: str, now: int) -> Line:
        return await self._call("POST", f"/reservations/{name}/replay-alarm", {"now": now})

    async def plan(self, name: str, event_id: str, run_at: int, repeat_ms: int) -> Line:
        event = {"runAt": run_at, "repeatMs": repeat_ms}
        return await self._call("PUT", f"/reservations/{name}/schedule/{event_id}", event)

    async def schedule(self, name: str) -> list[Line]:
        planned: list[Line] = (await self._call("GET", f"/reservations/{name}/schedule"))["items"]
        return planned

    async def _call(self, method: str, path: str, body: Line | None = None) -> Line:
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with (
            aiohttp.ClientSession(self._url, timeout=timeout, raise_for_status=True) as session,
            session.request(method, path, json=body) as answer,
        ):
            reservation: Line = await answer.json()
            return reservation

    async def _read_log(self, process: asyncio.subprocess.Process, run: list[Line]) -> None:
        assert process.stdout is not None
        async for text in process.stdout:
            run.append(_parse(text))
            await self._spread_the_news()
        await process.wait()
        await self._spread_the_news()

    async def _spread_the_news(self) -> None:
        async with self._news:
            self._news.notify_all()

    def _check_alive(self) -> None:
        assert self._process is not None
        if self._process.returncode is not None:
            reason = self._complaints.read_text().strip() or self._process.returncode
            raise ServerGone(f"the server ended by itself: {reason}")

    async def _bury(self) -> None:
        """Wait until the process is gone and its last lines are read."""
        if self._reader is not None:
            await self._reader
        self._process = self._reader = None


def _environment() -> Iterator[tuple[str, str]]:
    """The present environment without settings of a real deployment."""
    ours = PREFIX.rstrip("_")
    return (pair for pair in os.environ.items() if not pair[0].upper().startswith(ours))


def _parse(text: bytes) -> Line:
    try:
        line: Line = json.loads(text)
    except ValueError:
        line = {"event": "unreadable"}
    return line


def _matches(line: Line, event: str, fields: dict[str, object]) -> bool:
    return line["event"] == event and line.items() >= fields.items()
