"""Holds through the actors without HTTP, beside plain SQLite with batches of the same size.

`python -m benchmarks.actors DATABASE CALLERS SECONDS` is the program that is measured.
"""

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.processes import cpu_us, figures, scratch
from benchmarks.report import Benchmark, Beside, Sheet, Size, at_least
from benchmarks.seeding import HOUR_MS, seat
from reservation_service.actor import ReservationNamespace
from reservation_service.clock import BootClock
from reservation_service.reservation import HoldLimits
from reservation_service.service import tune_interpreter
from reservation_service.storage.grouped_store import GroupedStore
from reservation_service.storage.sqlite_engine import BATCHES_AT_ONCE_MAX, SqliteEngine
from reservation_service.storage.sqlite_start import Recovery
from reservation_service.store import Result, StoreMessage

_CALLERS = (64, 512)
_SQLITE = "bare SQLite"


def measure(sheet: Sheet, size: Size) -> None:
    """Plain SQLite gets the batch size that the service had come to in the same round."""
    for _ in range(size.rounds):
        for callers in _CALLERS:
            with scratch() as folder:
                ours = figures("actors", folder / "ours.db", callers, size.seconds)
                batch = max(1, round(ours["batch"]))
                bare = figures("bare_sqlite", "commits", folder / "bare.db", batch, size.seconds)
            name = f"holds by {callers} callers"
            rate = Beside(_SQLITE, bare["per_second"])
            sheet.add(name, "1/s", ours["per_second"], rate, at_least(0.7))
            cpu = Beside(_SQLITE, bare["cpu_us"])
            sheet.add(f"{name}: CPU each", "µs", ours["cpu_us"], cpu)
            sheet.add(f"{name}: batch", "holds", ours["batch"], Beside(_SQLITE, batch))


async def run(database: Path, callers: int, seconds: float) -> dict[str, float]:
    """So many callers hold one thing after another."""
    engine = await SqliteEngine.open(database, own_process=True)
    await engine.migrate()
    await engine.start(BootClock(), Recovery(2000, 60_000, 0))
    batches: list[int] = []

    async def write(messages: Sequence[StoreMessage]) -> tuple[list[Result], int | None]:
        batches.append(len(messages))
        return await engine.write(messages)

    store = GroupedStore(
        write,
        engine.read,
        engine.find,
        engine.schedules,
        batch_max=512,
        queue_max=10_000,
        batches_at_once=BATCHES_AT_ONCE_MAX,
    )
    namespace = ReservationNamespace(store, HoldLimits(2 * HOUR_MS, 20))
    serving = asyncio.create_task(store.run())
    tune_interpreter()
    began, cpu = time.perf_counter(), _cpu_us()
    numbers, until = itertools.count(), began + seconds
    await asyncio.gather(*(_hold(namespace, numbers, until) for _ in range(callers)))
    took, held = time.perf_counter() - began, sum(batches)
    used_us = (_cpu_us() - cpu) / held
    store.close()
    await serving
    await engine.close()
    return {"per_second": held / took, "cpu_us": used_us, "batch": held / len(batches)}


def _cpu_us() -> float:
    return sum(cpu_us(os.getpid()).values())


async def _hold(namespace: ReservationNamespace, numbers: Iterator[int], until: float) -> None:
    while time.perf_counter() < until:
        name = seat(next(numbers))
        await namespace.get_by_name(name).hold(HOUR_MS, name.encode().ljust(32, b"0"))


BENCHMARK = Benchmark("actors", "holds/s through the actors, without HTTP", measure)

if __name__ == "__main__":
    database, callers, seconds = sys.argv[1:]
    measured = asyncio.run(run(Path(database), int(callers), float(seconds)))
    sys.stdout.write(json.dumps(measured))
