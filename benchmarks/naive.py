"""The naive designs beside ours: a commit per request, and an APScheduler job per alarm."""

import time
from pathlib import Path

from benchmarks.bursts import run_burst
from benchmarks.load import add_pair, compare, require_all_served
from benchmarks.processes import Program, module, scratch, service
from benchmarks.report import Benchmark, Beside, Sheet, Size

_CONNECTIONS = 64
_ALARMS = 1000
_JOB_S, _START_S = 0.01, 3.0
_DESIGNS = {"commit per request": "naive_commits", "APScheduler jobs": "naive_jobs"}


def measure(sheet: Sheet, size: Size) -> None:
    """Each round: holds of each design, and a burst that is small enough for jobs."""
    for _ in range(size.rounds):
        for beside, name in _DESIGNS.items():
            with (
                scratch() as folder,
                Program(module(name, folder / "naive.db"), folder) as naive,
                Program(service(folder / "ours.db"), folder) as ours,
            ):
                pair = compare(ours, naive, "hold", connections=_CONNECTIONS, seconds=size.seconds)
            require_all_served(pair)
            add_pair(sheet, f"holds at {_CONNECTIONS}", pair, beside)
        count = size.count(_ALARMS)
        with scratch() as folder:
            ours_per_second = run_burst(folder, count).per_second
            jobs = Beside("APScheduler jobs", _jobs_per_second(folder, count))
        sheet.add(f"burst of {count:,}: alarms", "1/s", ours_per_second, jobs)


def _jobs_per_second(folder: Path, count: int) -> float:
    due = time.time_ns() // 1_000_000 + round((count * _JOB_S + _START_S) * 1000)
    with Program(module("naive_jobs", folder / "jobs.db", count, due), folder) as scheduler:
        scheduler.wait_for_lines("reservation-alarm", count)
        late = [float(line["latenessMs"]) for line in scheduler.lines("reservation-alarm")]
    return count / max(late) * 1000


BENCHMARK = Benchmark("naive", "a commit per request, and an APScheduler job per alarm", measure)
