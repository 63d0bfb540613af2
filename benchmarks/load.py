"""Load over HTTP: wrk with one thread on kept-alive connections, and a Lua script per workload.

Each connection asks again as soon as it is answered. wrk tells every script a prefix that was not
used before, so that the IDs of one load are nobody else's.
"""

import itertools
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.processes import Program
from benchmarks.report import Aim, Beside, CannotRun, Sheet

_SCRIPTS = Path(__file__).parent / "lua"
_prefixes = (f"{number:05x}" for number in itertools.count())


@dataclass(frozen=True)
class Load:
    """What came of one load; `refused` are answers of 400 and more, CPU is the server's."""

    per_second: float
    p50_ms: float
    p99_ms: float
    refused: int
    cpu_us: float
    loop_us: float


def drive(program: Program, workload: str, connections: int, seconds: float) -> Load:
    """Ask as fast as it answers; CPU is per answer: of all threads, and of the event loop's."""
    before = program.cpu_us()
    told = _wrk(program.port, workload, connections, seconds)
    after = program.cpu_us()
    answers = max(1, told["requests"])
    used = {thread: cpu - before.get(thread, 0.0) for thread, cpu in after.items()}
    return Load(
        per_second=told["requests"] / told["seconds"],
        p50_ms=told["p50_us"] / 1000,
        p99_ms=told["p99_us"] / 1000,
        refused=int(told["refused"]),
        cpu_us=sum(used.values()) / answers,
        loop_us=used[0] / answers,
    )


class Pair(NamedTuple):
    """The same load on the service and on what it is compared with."""

    ours: Load
    reference: Load


def compare(
    ours: Program, reference: Program, workload: str, *, connections: int, seconds: float
) -> Pair:
    """One after the other, the reference first."""
    limit = drive(reference, workload, connections, seconds)
    return Pair(drive(ours, workload, connections, seconds), limit)


def add_pair(sheet: Sheet, name: str, pair: Pair, beside: str, aim: Aim | None = None) -> None:
    """The rows of one load; the aim is for its rate."""
    ours, limit = pair
    sheet.add(name, "1/s", ours.per_second, Beside(beside, limit.per_second), aim)
    sheet.add(f"{name}: p50", "ms", ours.p50_ms, Beside(beside, limit.p50_ms))
    sheet.add(f"{name}: p99", "ms", ours.p99_ms, Beside(beside, limit.p99_ms))
    sheet.add(f"{name}: CPU each", "µs", ours.cpu_us, Beside(beside, limit.cpu_us))
    sheet.add(f"{name}: event loop each", "µs", ours.loop_us, Beside(beside, limit.loop_us))


def require_all_served(pair: Pair) -> None:
    """A refusal is cheap, and no figure."""
    assert pair.ours.refused == pair.reference.refused == 0, pair


def _wrk(port: int, workload: str, connections: int, seconds: float) -> dict[str, float]:
    if shutil.which("wrk") is None:
        raise CannotRun("wrk is not installed; make bench installs it")
    whole = max(1, round(seconds))
    ended = subprocess.run(
        [
            *("wrk", "--threads", "1", "--connections", str(connections)),
            *("--duration", str(whole), "--timeout", "30", "--script", f"{workload}.lua"),
            *(f"http://127.0.0.1:{port}", "--", next(_prefixes), str(connections)),
        ],
        cwd=_SCRIPTS,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    told: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    assert told["broken"] == 0, f"{told['broken']} connections broke under {workload}"
    return told
