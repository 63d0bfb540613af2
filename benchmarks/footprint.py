"""What pending holds cost while nothing happens: time to start, memory, bytes on the disk."""

import hashlib
import json
import random
import time
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

from benchmarks.processes import Program, scratch, service
from benchmarks.report import Benchmark, Beside, Sheet, Size, at_most
from benchmarks.seeding import HOUR_MS, open_durable, seat, seed, within_an_hour
from reservation_service.clock import BootClock
from reservation_service.reservation import Hold
from reservation_service.storage.sqlite import BatchTransaction

_PENDING = (0, 10_000, 1_000_000)
_ON_DISK = 100_000
_BATCH = 64
_NONE = "none pending"


def measure(sheet: Sheet, size: Size) -> None:
    """Each round starts the service with every number of pending holds in turn."""
    with scratch() as folder:
        databases = {full: folder / f"{full}.db" for full in _PENDING}
        beyond = time.time_ns() // 1_000_000 + HOUR_MS
        for full, database in databases.items():
            count = size.count(full) if full else 0
            seed(database, range(count), within_an_hour(beyond))
        for _ in range(size.rounds):
            started = {full: _start(folder, databases[full]) for full in _PENDING}
            _add_starts(sheet, size, started)
        for order, name in {"in order": seat, "at random": _random_name}.items():
            bytes_each = _bytes_per_pending(folder / f"{order}.db", size.count(_ON_DISK), name)
            sheet.add(f"disk per pending, IDs {order}", "bytes", bytes_each, aim=at_most(400))


def _start(folder: Path, database: Path) -> tuple[float, float]:
    """Seconds until it listens, and MiB once it has looked at the whole file and served."""
    with Program(service(database), folder) as ours:
        ours.line("integrity-checked")
        with closing(HTTPConnection("127.0.0.1", ours.port)) as connection:
            for method, body in (("POST", json.dumps({"ttlSeconds": 3600})), ("GET", None)):
                headers = {"Content-Type": "application/json"}
                connection.request(method, "/reservations/one-more", body, headers)
                connection.getresponse().read()
        return ours.started_after_s, ours.resident_mib


def _add_starts(sheet: Sheet, size: Size, started: dict[int, tuple[float, float]]) -> None:
    least_s, least_mib = started[0]
    for full, (seconds, mib) in started.items():
        if full == 0:
            continue
        is_most = full == _PENDING[-1]
        name = f"with {size.count(full):,} pending"
        no_longer = at_most(factor=1.1) if is_most else None
        no_more = at_most(20, factor=1) if is_most else None
        sheet.add(f"start {name}", "s", seconds, Beside(_NONE, least_s), no_longer)
        sheet.add(f"memory {name}", "MiB", mib, Beside(_NONE, least_mib), no_more)


def _bytes_per_pending(database: Path, count: int, name: Callable[[int], str]) -> float:
    """Holds by the service's own transactions, then a checkpoint."""
    with closing(open_durable(database)) as connection:
        connection.execute("PRAGMA main.wal_checkpoint(TRUNCATE)")
        empty = database.stat().st_size
        connection.execute("PRAGMA synchronous = OFF")
        transact = BatchTransaction(BootClock(), database, epoch=1)
        for first in range(0, count, _BATCH):
            transact(connection, [_hold(name(n)) for n in range(first, first + _BATCH)])
        connection.execute("PRAGMA main.wal_checkpoint(TRUNCATE)")
        held = connection.execute("SELECT count(*) FROM reservation").fetchone()[0]
    return float((database.stat().st_size - empty) / held)


def _hold(name: str) -> Hold:
    ttl_ms = random.randrange(60_000, HOUR_MS)
    return Hold(name, ttl_ms, 2 * HOUR_MS, 20, hashlib.sha256(name.encode()).digest())


def _random_name(number: int) -> str:
    return hashlib.sha256(seat(number).encode()).hexdigest()[:16]


BENCHMARK = Benchmark("footprint", "start, memory and disk with many holds pending", measure)
