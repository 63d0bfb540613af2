"""Servers that are gone with their folder when an attack is over, and what one sees of them."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.process.server import family
from tests.torture.target import Target

BUSY_FACTOR = 8
"""Short versions run beside other work: their bounds on time are so many times as long."""

_KIB = 1024


@contextmanager
def scratch(*, bug: str | None = None, **settings: object) -> Iterator[Target]:
    """A server that is not started yet, in a folder of its own; `bug` as in `planted_service`."""
    with tempfile.TemporaryDirectory(prefix="torture-") as name:
        target = Target(Path(name), None, bug=bug, variables=None, **settings)
        if bug is not None:
            target.command[2] = "tests.torture.planted_service"
        try:
            yield target
        finally:
            target.end()


def allowed(bound: float, scale: float) -> float:
    """A bound on time as it stands for this scale: to the letter only in the long version."""
    return bound if scale >= 1 else bound * BUSY_FACTOR


def resident_mib(target: Target) -> int:
    """The memory that the process and its writer have now."""
    return sum(map(_resident_kib, family(target.pid))) // _KIB


def _resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("a process without memory")


class Neighbours:
    """Within `with`: how many cores others used meanwhile; to be told beside figures of time."""

    cores = 0.0

    def __init__(self, target: Target) -> None:
        self._target = target

    def __enter__(self) -> Self:
        self._began = time.monotonic(), _busy_ticks(), self._own_ticks()
        return self

    def __exit__(self, *_: object) -> None:
        began, busy, own = self._began
        ticks = _busy_ticks() - busy - (self._own_ticks() - own)
        seconds = max(time.monotonic() - began, 0.001)
        self.cores = round(max(0.0, ticks / os.sysconf("SC_CLK_TCK") / seconds), 2)

    def _own_ticks(self) -> int:
        """This process, its children that are over, and the server."""
        own = int(sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK"))
        return own + cpu_ticks(self._target) if self._target.is_running else own


def cpu_ticks(target: Target) -> int:
    """What the server and its writer have used so far."""
    return sum(map(_cpu_ticks, family(target.pid)))


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _busy_ticks() -> int:
    user, nice, system, _idle, _iowait, irq, softirq, *_ = (
        int(number) for number in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return user + nice + system + irq + softirq
