"""10,000 and 100,000 alarms that are due in the same millisecond, and who calls meanwhile."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bystander import Bystander
from benchmarks.percentiles import percentile
from benchmarks.processes import Program, figures, scratch, service
from benchmarks.report import Aim, Benchmark, Beside, CannotRun, Sheet, Size, at_least, at_most
from benchmarks.seeding import seat, seed

_SQLITE = "bare SQLite"
_CLAIM_MAX = 1000
_FULL = (10_000, 100_000)
_AIMS = {"lateness p99": at_most(600), "GET p99 meanwhile": at_most(50)}
_PAST_MS = 1_700_000_000_000
_SEED_S = 0.00004
_AHEAD_S = (2, 6, 20)
_READY_S = 0.1
"""How long before they are due all is ready; who sleeps until then may sleep longer."""


@dataclass(frozen=True)
class Burst:
    """What came of one: times in milliseconds, the CPU of the service per alarm."""

    lateness_ms: list[float]
    gets_ms: list[float]
    holds_ms: list[float]
    cpu_us: float

    @property
    def per_second(self) -> float:
        return len(self.lateness_ms) / max(self.lateness_ms) * 1000


def measure(sheet: Sheet, size: Size) -> None:
    """Each round: the service with its bystanders, and plain SQLite with the same rows."""
    for _ in range(size.rounds):
        for full in _FULL:
            count = size.count(full)
            with scratch() as folder:
                burst = run_burst(folder, count)
                bare = folder / "bare.db"
                seed(bare, range(count), lambda _: _PAST_MS)
                limit = figures("bare_sqlite", "burst", bare, _CLAIM_MAX)
            _add(sheet, count, burst, limit, _AIMS if full == _FULL[0] else {})


def run_burst(folder: Path, count: int) -> Burst:
    """The service with `count` alarms at once, while a bystander reads and holds."""
    for ahead_s in _AHEAD_S:
        with suppress(_TooLate):
            return _run_burst(folder / f"{ahead_s}.db", count, ahead_s + count * _SEED_S)
    raise CannotRun("no service starts in time on a machine that is so busy")


class _TooLate(Exception):
    """The alarms were due before the service and the bystander were there."""


def _run_burst(database: Path, count: int, ahead_s: float) -> Burst:
    folder, due = database.parent, _now_ms() + round(ahead_s * 1000)
    seed(database, range(count), lambda _: due)
    with Program(service(database), folder) as ours:
        with Bystander(ours.port, seat(count // 2)) as bystander:
            time.sleep(max(0.0, due / 1000 - _READY_S - time.time()))
            before = sum(ours.cpu_us().values())
            if _now_ms() >= due:
                raise _TooLate
            ours.wait_for_lines("reservation-alarm", count)
            after = sum(ours.cpu_us().values())
        lines = ours.lines("reservation-alarm")
    late = [float(line["latenessMs"]) for line in lines]
    until = due + max(late)
    return Burst(
        late, bystander.reads(due, until), bystander.holds(due, until), (after - before) / count
    )


def _add(
    sheet: Sheet, count: int, burst: Burst, limit: dict[str, float], aims: Mapping[str, Aim]
) -> None:
    at = f"burst of {count:,}"
    rate, cpu = (Beside(_SQLITE, limit[name]) for name in ("per_second", "cpu_us"))
    sheet.add(f"{at}: alarms", "1/s", burst.per_second, rate, at_least(0.7))
    sheet.add(f"{at}: CPU per alarm", "µs", burst.cpu_us, cpu)
    sheet.add(f"{at}: drained after", "s", max(burst.lateness_ms) / 1000)
    columns = {
        "lateness p50": percentile(burst.lateness_ms, 50),
        "lateness p99": percentile(burst.lateness_ms, 99),
        "GET p50 meanwhile": percentile(burst.gets_ms, 50),
        "GET p99 meanwhile": percentile(burst.gets_ms, 99),
        "slowest GET meanwhile": max(burst.gets_ms),
        "hold p50 meanwhile": percentile(burst.holds_ms, 50),
        "slowest hold meanwhile": max(burst.holds_ms),
    }
    for name, value in columns.items():
        sheet.add(f"{at}: {name}", "ms", value, aim=aims.get(name))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


BENCHMARK = Benchmark("bursts", "10,000 and 100,000 alarms due in the same millisecond", measure)
