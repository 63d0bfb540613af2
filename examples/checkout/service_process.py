"""The reservation service as a process of its own beside the page."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

STOP_SECONDS_MAX = 6.0
"""The service itself promises 5."""


KEY_NAME = "checkout"


class ServiceEnded(Exception):
    """The process ended before it listened; it has said why on standard error."""


class ServiceProcess:
    """`reservation-service serve`, from `start` to `stop`; its log goes to standard error.

    Its configuration, and its database unless one is given, lie in `scratch`. Pages of `origins`
    may call it without a key, but for confirming; that needs `key`.
    """

    def __init__(self, scratch: Path, origins: Sequence[str]) -> None:
        self._scratch = scratch
        self._origins = origins
        self._process: asyncio.subprocess.Process | None = None
        self._log: asyncio.Task[None] | None = None
        self.key = ""

    async def start(self, database: Path | None, port: int) -> str:
        """Its URL, once it listens. Raises ServiceEnded when it refuses to start."""
        config = self._scratch / "config.toml"
        config.write_text(_config(self._origins))
        files = ("--config", config, "--database", database or self._scratch / "reservations.db")
        await _keys("revoke", KEY_NAME, *files)  # there is one if the database is an older one
        self.key = await _keys("add", KEY_NAME, "--scope", "reserve", *files)
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "reservation_service", "serve", *files),
            *("--host", "127.0.0.1", "--port", str(port)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        url = await _url(self._process.stdout)
        self._log = asyncio.create_task(_pass_on(self._process.stdout))
        return url

    async def wait(self) -> int:
        """The exit status, when it has ended."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        """Let it commit what it has taken; Ctrl-C may have ended it already."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS_MAX)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        if self._log is not None:
            await self._log


def _config(origins: Sequence[str]) -> str:
    """A log without a line per call: every page asks for every seat that has changed."""
    return (
        f"[cors]\norigins = {json.dumps(list(origins))}\n\n"
        "[auth]\npublic = true\n\n[log]\naccess = false\n"
    )


async def _keys(*arguments: str | Path) -> str:
    """What the command prints: a token is in no argument, where others could see it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "reservation_service", "keys", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output, _ = await process.communicate()
    return output.decode().strip()


async def _url(log: asyncio.StreamReader) -> str:
    async for text in log:
        line: dict[str, Any] = json.loads(text)
        if line["event"] == "service-started":
            return str(line["url"])
    raise ServiceEnded


async def _pass_on(log: asyncio.StreamReader) -> None:
    async for text in log:
        click.echo(text, nl=False, err=True)
