"""How late a single alarm is, of an idle service and of one under load, and how late a job is.

Deadlines are 40 ms apart, so that each alarm is alone.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.disk import syncs_ms
from benchmarks.load import drive
from benchmarks.percentiles import percentile
from benchmarks.processes import Program, module, scratch
from benchmarks.report import Benchmark, Beside, Sheet, Size, at_least, at_most
from benchmarks.seeding import seed

_ALARMS = 200
_STEP_MS = 40
_AHEAD_MS = 2500
_CONNECTIONS = 16
_JOB = "APScheduler job"


def measure(sheet: Sheet, size: Size) -> None:
    """Each round: alarms alone, alarms beside holds, and jobs."""
    count = size.count(_ALARMS)
    seconds = count * _STEP_MS / 1000
    for _ in range(size.rounds):
        with scratch() as folder:
            syncs = syncs_ms(folder, count, _STEP_MS / 1000)
            idle = _alarms(folder, count, lambda _: None)
            busy = _alarms(folder, count, lambda one: drive(one, "hold", _CONNECTIONS, seconds))
            jobs = _jobs(folder, count)
        _add_idle(sheet, idle, syncs, [line["latenessMs"] for line in jobs])
        late = [line["doneAfterMs"] for line in busy]
        name = f"alarm beside holds at {_CONNECTIONS}"
        for percent in (50, 99):
            sheet.add(f"{name}, committed p{percent}", "ms", percentile(late, percent))
        sheet.add(f"{name}, earliest", "ms", min(late), aim=at_least(0))


def _add_idle(
    sheet: Sheet, idle: list[dict[str, Any]], syncs: list[float], jobs: list[float]
) -> None:
    begun = percentile([line["begunAfterMs"] for line in idle], 50)
    done = [line["doneAfterMs"] for line in idle]
    p50, p99 = percentile(done, 50), percentile(done, 99)
    name = "idle alarm, committed p"
    sheet.add("idle alarm, dispatch begun p50", "ms", begun, aim=at_most(1.5))
    sheet.add(
        f"{name}50", "ms", p50, Beside("1 sync", percentile(syncs, 50)), at_most(1.5, factor=2)
    )
    sheet.add(f"{name}50", "ms", p50, Beside(_JOB, percentile(jobs, 50)))
    sheet.add(f"{name}99", "ms", p99, Beside("1 sync, p99", percentile(syncs, 99)), at_most(10))
    sheet.add(f"{name}99", "ms", p99, Beside(_JOB, percentile(jobs, 99)))
    sheet.add("idle alarm, earliest", "ms", min(done), aim=at_least(0))


def _alarms(folder: Path, count: int, burden: Callable[[Program], object]) -> list[dict[str, Any]]:
    """The log lines of `count` alarms that went off while `burden` ran."""
    database = folder / f"alarms-{time.monotonic_ns()}.db"
    first = time.time_ns() // 1_000_000 + _AHEAD_MS
    deadlines = [first + n * _STEP_MS + random.randrange(_STEP_MS // 2) for n in range(count)]
    seed(database, range(count), deadlines.__getitem__, lambda n: f"at-{deadlines[n]}")
    with Program(module("timed_service", database), folder) as service:
        time.sleep(max(0.0, first / 1000 - time.time()))
        burden(service)
        service.wait_for_lines("reservation-alarm", count)
        return service.lines("reservation-alarm")


def _jobs(folder: Path, count: int) -> list[dict[str, Any]]:
    first = time.time_ns() // 1_000_000 + _AHEAD_MS
    program = module("naive_jobs", folder / "jobs.db", count, first, _STEP_MS)
    with Program(program, folder) as scheduler:
        scheduler.wait_for_lines("reservation-alarm", count)
        return scheduler.lines("reservation-alarm")


BENCHMARK = Benchmark("alarms", "lateness of single alarms, idle and under load", measure)
