"""What is done now and then: told with what it did, and never in the way."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC

import pytest
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger

from reservation_service import service as composition
from reservation_service.errors import StorageUnavailable
from reservation_service.housekeeping import MS_PER_DAY
from reservation_service.storage.sqlite_engine import SqliteEngine
from reservation_service.storage.sqlite_files import wal_of
from tests.conftest import StartService
from tests.support.harness import ServiceHarness
from tests.support.metrics import samples
from tests.support.waiting import bounded

LOG_HEAD_BYTES = 32

Chore = Callable[[], Awaitable[None]]
Chores = dict[str, Chore]


@pytest.fixture
def chores(monkeypatch: pytest.MonkeyPatch) -> Chores:
    """The jobs of the service that is started next, by name; none runs by itself."""
    found: Chores = {}

    class Scheduler(AsyncIOScheduler):  # type: ignore[misc]
        def add_job(self, work: Chore, trigger: object, **options: object) -> None:
            if trigger == "cron":
                assert options.pop("misfire_grace_time") is None
                assert options.pop("coalesce") is True
                CronTrigger(timezone=UTC, **options)
                found[work.__name__] = work

    monkeypatch.setattr(composition, "AsyncIOScheduler", Scheduler)
    return found


async def nobody_reads(service: ServiceHarness) -> None:
    """What a start looks through is looked through: a reader keeps the log from being emptied."""
    await service.recorder.seen("integrity-checked")


async def test_each_chore_has_its_job(chores: Chores, service: ServiceHarness) -> None:
    assert chores.keys() == {"purge", "optimize", "empty_wal", "count_events"}


async def test_the_log_is_emptied_once_nothing_was_changed_for_a_while(
    chores: Chores, service: ServiceHarness
) -> None:
    await nobody_reads(service)
    wal = wal_of(service.database)
    await service.hold("seat-1", 60)
    await chores["empty_wal"]()  # it has only just begun to look
    await service.hold("seat-2", 60)
    await chores["empty_wal"]()
    assert service.recorder.of("wal-emptied") == []
    await service.get("/readyz")  # commits, and changes nothing
    await chores["empty_wal"]()
    size = wal.stat().st_size
    (told,) = service.recorder.of("wal-emptied")
    assert told["bytes"] == size - LOG_HEAD_BYTES
    await chores["empty_wal"]()
    assert len(service.recorder.of("wal-emptied")) == 1
    before = wal.read_bytes()
    assert (await service.hold("seat-3"))["status"] == "held"
    assert wal.read_bytes()[:LOG_HEAD_BYTES] != before[:LOG_HEAD_BYTES]  # it began anew
    assert wal.stat().st_size == size  # and is as long as before
    await chores["empty_wal"]()
    await chores["empty_wal"]()
    assert len(service.recorder.of("wal-emptied")) == 2


async def test_the_log_is_left_alone_when_an_alarm_is_near(
    chores: Chores, service: ServiceHarness
) -> None:
    await service.hold("seat-1", 60)
    await chores["empty_wal"]()
    service.clock.advance(59_000)
    await chores["empty_wal"]()
    assert service.recorder.of("wal-emptied") == []


async def test_a_reader_is_not_waited_for(chores: Chores, service: ServiceHarness) -> None:
    await nobody_reads(service)
    with closing(sqlite3.connect(service.database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM reservation").fetchone()
        await service.hold("seat-1", 60)
        await chores["empty_wal"]()
        await chores["empty_wal"]()
        assert service.recorder.of("wal-emptied") == []
    await chores["empty_wal"]()
    assert len(service.recorder.of("wal-emptied")) == 1


async def test_a_chore_that_a_stop_cuts_short_is_no_failure(
    chores: Chores, service: ServiceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def optimize(_engine: SqliteEngine) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(SqliteEngine, "optimize", optimize)
    at_work = asyncio.ensure_future(chores["optimize"]())
    await bounded(begun.wait(), "the chore to begin")
    at_work.cancel()
    await bounded(at_work, "the chore to end")
    assert service.recorder.of("optimized") == service.recorder.of("optimize-failed") == []


async def test_statistics_are_looked_at(chores: Chores, service: ServiceHarness) -> None:
    await service.hold("seat-1", 60)
    await chores["optimize"]()
    (told,) = service.recorder.of("optimized")
    assert told["duration_ms"] >= 0
    await service.advance(60_000)
    assert (await service.status("seat-1"))["status"] == "expired"


async def test_what_was_counted_stays_counted_once_it_is_purged(
    chores: Chores, start_service: StartService
) -> None:
    service = await start_service(events={"retention_days": 1})
    await service.hold("seat-1", 60)
    await chores["count_events"]()
    await service.advance(60_000)
    service.clock.advance(MS_PER_DAY)
    await chores["purge"]()
    (purged,) = service.recorder.of("purged")
    assert purged["events"] == 1
    counted = 'reservation_transitions_total{kind="held",trigger="request"}'
    assert samples((await service.get("/metrics")).body.decode())[counted] == 1


@pytest.mark.parametrize(
    "trouble",
    [
        ("optimize", "optimize", "optimize-failed"),
        ("empty_wal", "empty_wal", "empty-wal-failed"),
        ("tally", "count_events", "count-failed"),
    ],
)
async def test_trouble_is_told_and_left_for_the_next_time(
    chores: Chores,
    start_service: StartService,
    monkeypatch: pytest.MonkeyPatch,
    trouble: tuple[str, str, str],
) -> None:
    name, chore, event = trouble

    async def fail(*_: object) -> int:
        raise StorageUnavailable

    service = await start_service()
    monkeypatch.setattr(SqliteEngine, name, fail)
    await chores[chore]()
    assert service.recorder.of(event) == [{"reason": "storage-unavailable"}]
    monkeypatch.undo()
    assert (await service.hold("seat-1"))["status"] == "held"
