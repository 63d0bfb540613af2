"""Programs under measurement: started on a disk of their own, watched, and ended.

Each prints JSON lines, `service-started` with its port among them. They go to a file, so that
nobody reads them while something is measured.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from tests.process.server import ROOT, command, environment, eventually, family

_SCRATCH = ROOT / "build" / "benchmarks"
_PATIENCE_S = 120.0
_KIB = 1024


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the disk of this checkout; one in memory would make every sync free."""
    _SCRATCH.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_SCRATCH) as name:
        yield Path(name)


def module(name: str, *arguments: object) -> list[str]:
    """The command line of a program of this package."""
    return [sys.executable, "-m", f"benchmarks.{name}", *map(str, arguments)]


def service(database: Path) -> list[str]:
    """The command line of the service itself."""
    return command("serve", "--database", str(database), "--port", "0")


def figures(name: str, *arguments: object) -> dict[str, float]:
    """Run a program of this package to its end; the JSON object that it prints."""
    ended = subprocess.run(
        module(name, *arguments), cwd=ROOT, env=environment(), capture_output=True, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode()
    found: dict[str, float] = json.loads(ended.stdout)
    return found


class Program:
    """Within `with` it runs and listens on `port`."""

    def __init__(self, arguments: list[str], folder: Path, **settings: object) -> None:
        self._command = arguments
        self._folder = folder
        self._settings = {"log__access": False} | settings
        self._log = folder / f"{id(self)}.log"
        self.port = 0
        self.started_after_s = 0.0

    def __enter__(self) -> Self:
        began = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=environment(**self._settings), stdout=log
            )
        try:
            self.port = int(self.line("service-started")["port"])
        except BaseException:
            self._process.kill()
            raise
        self.started_after_s = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_PATIENCE_S)
        finally:
            self._process.kill()

    def line(self, event: str) -> dict[str, Any]:
        """The first line of the log about this event, as soon as it is there."""

        def found() -> dict[str, Any] | None:
            assert self._process.poll() is None, f"{self._command} ended"
            return next(iter(self.lines(event)), None)

        return eventually(found, _PATIENCE_S) or {}

    def lines(self, event: str) -> list[dict[str, Any]]:
        """All complete lines of the log about this event."""
        whole, _, _ = self._log.read_bytes().rpartition(b"\n")
        name = f'"event":"{event}"'.encode()
        return [json.loads(line) for line in whole.splitlines() if name in line]

    def wait_for_lines(self, event: str, count: int) -> None:
        """Until the log has so many lines about this event; what is half written waits."""
        name, seen, rest = f'"event":"{event}"'.encode(), 0, b""
        with self._log.open("rb") as log:

            def is_there() -> bool:
                nonlocal seen, rest
                *lines, rest = (rest + log.read()).split(b"\n")
                seen += sum(name in line for line in lines)
                return seen >= count

            eventually(is_there, _PATIENCE_S)

    @property
    def resident_mib(self) -> float:
        """The memory of the process and its writer, pages that both have counted twice."""
        return sum(map(_resident_kib, family(self._process.pid))) / _KIB

    def cpu_us(self) -> dict[int, float]:
        """What each thread, the writer's too, has used so far; the event loop's under 0."""
        return cpu_us(self._process.pid)


def cpu_us(pid: int) -> dict[int, float]:
    """What each thread of a process and of its children has used; its first one's under 0."""
    used = {}
    for member in family(pid):
        for task in Path(f"/proc/{member}/task").iterdir():
            number = int(task.name)
            with suppress(FileNotFoundError):  # a thread that has just ended
                microseconds = int((task / "schedstat").read_text().split()[0]) / 1000
                used[0 if number == pid else number] = microseconds
    return used


def _resident_kib(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def cores_used_by_others() -> Callable[[], float]:
    """Begin to watch; the function tells what neither this process nor its children used."""
    began, ticks = time.monotonic(), _foreign_ticks()

    def used() -> float:
        seconds = (time.monotonic() - began) * os.sysconf("SC_CLK_TCK")
        return max(0.0, (_foreign_ticks() - ticks) / seconds)

    return used


def _foreign_ticks() -> float:
    user, nice, system, _idle, _wait, irq, soft, *_ = (
        int(number) for number in Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    own = sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK")
    return user + nice + system + irq + soft - own
