"""What a hold, an alarm and a start cost while more and more holds are pending.

CPU time of the work itself, without HTTP and asyncio; the reference is the cost with
the fewest pending.
"""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.processes import scratch
from benchmarks.report import Benchmark, Beside, Sheet, Size
from benchmarks.seeding import HOUR_MS, open_durable, seat, seed, within_an_hour
from reservation_service.clock import BootClock
from reservation_service.reservation import Expire, Hold, Trigger
from reservation_service.storage import sqlite_start
from reservation_service.storage.sqlite import BatchTransaction
from reservation_service.storage.sqlite_engine import SqliteEngine
from reservation_service.storage.sqlite_start import Recovery
from reservation_service.store import Claim

_PENDING = (1_000, 10_000, 100_000, 1_000_000)
_BATCHES, _BATCH = 20, 64
_DUE = 1000
_FEW = "with the fewest"


def measure(sheet: Sheet, size: Size) -> None:
    """The same file grows; what a round adds it takes away again."""
    sqlite_start.LOG_PAGES = 0  # a start's room for the log costs the same with any number
    with scratch() as folder:
        database, seeded = folder / "growth.db", 0
        beyond = time.time_ns() // 1_000_000 + HOUR_MS
        few: list[dict[str, tuple[float, str]]] = []
        for full in _PENDING:
            count = size.count(full)
            seed(database, range(seeded, count), within_an_hour(beyond))
            seeded = max(seeded, count)
            for number in range(size.rounds):
                costs = dict(_costs(database, epoch=seeded + number))
                few += [costs] if full == _PENDING[0] else []
                for name, (cost, unit) in costs.items():
                    first = few[number][name][0]
                    sheet.add(f"{name} with {count:,} pending", unit, cost, Beside(_FEW, first))


def _costs(database: Path, epoch: int) -> Iterator[tuple[str, tuple[float, str]]]:
    seed(database, range(_DUE), lambda _: time.time_ns() // 1_000_000 - 1000, _due)
    with closing(open_durable(database)) as connection:
        transact = BatchTransaction(BootClock(), database, epoch)
        yield "hold", (_hold_some(connection, transact), "µs")
        yield "alarm", (_expire_due(connection, transact), "µs")
        connection.execute("DELETE FROM event WHERE reservation GLOB 'new-*'")
        connection.execute("DELETE FROM reservation WHERE id GLOB 'new-*'")
    yield "start", (asyncio.run(_start(database)), "ms")


def _hold_some(connection: sqlite3.Connection, transact: BatchTransaction) -> float:
    began = time.process_time()
    for batch in range(_BATCHES):
        names = [f"new-{batch:03}-{n:05}" for n in range(_BATCH)]
        holders = [name.encode().ljust(32, b"0") for name in names]
        holds = [
            Hold(name, HOUR_MS, 2 * HOUR_MS, 20, holder)
            for name, holder in zip(names, holders, strict=True)
        ]
        transact(connection, holds)
    return (time.process_time() - began) * 1e6 / (_BATCHES * _BATCH)


def _expire_due(connection: sqlite3.Connection, transact: BatchTransaction) -> float:
    began = time.process_time()
    (claimed,), _ = transact(connection, [Claim(_DUE, 10_000, [])])
    assert isinstance(claimed, list)
    transact(connection, [Expire(one.id, Trigger.ALARM) for one in claimed])
    return (time.process_time() - began) * 1e6 / len(claimed)


def _due(number: int) -> str:
    return f"new-due-{seat(number)}"


async def _start(database: Path) -> float:
    began = time.process_time()
    engine = await SqliteEngine.open(database)
    await engine.migrate()
    await engine.start(BootClock(), Recovery(2000, 60_000, 0))
    took = time.process_time() - began
    await engine.close()
    return took * 1000


BENCHMARK = Benchmark("growth", "the cost of a hold, an alarm and a start from 10³ to 10⁶", measure)
