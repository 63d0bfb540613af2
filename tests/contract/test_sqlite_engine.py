"""SQLite: who may open the file, and what happens when it is lost, full or given up on purpose."""

import asyncio
import resource
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from reservation_service.errors import (
    DatabaseUnusable,
    StartupError,
    StorageFull,
    StorageUnavailable,
)
from reservation_service.reservation import Hold, Outcome, Plan
from reservation_service.storage import lock, sqlite_start, sqlite_tally
from reservation_service.storage.sqlite_engine import SqliteEngine
from reservation_service.storage.sqlite_files import CACHE_SIZE, connect_to_write, wal_of
from reservation_service.storage.sqlite_tally import Tally
from reservation_service.store import Claim
from tests.conftest import OpenEngine
from tests.contract.engines import MAX_HOLD_MS, RECOVERY
from tests.support.clock import START, FakeClock
from tests.support.harness import threads_accounted_for
from tests.support.invariants import violations
from tests.support.waiting import WAIT_SECONDS_MAX, bounded

HOLD = Hold("seat-1", 60_000, MAX_HOLD_MS)

FRAME_COMMITS = slice(36, 40)
"""Where the log says that its first page ends a transaction."""

ENDLESS = """
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT 1 FROM n) SELECT count(*) FROM n
"""

StartEngine = Callable[[], Awaitable[SqliteEngine]]


@pytest.fixture
def start_engine(open_engine: OpenEngine, database: Path, clock: FakeClock) -> StartEngine:
    async def start() -> SqliteEngine:
        engine = await open_engine(database)
        await engine.migrate()
        await engine.start(clock, RECOVERY)
        return engine

    return start


@pytest.fixture
async def engine(start_engine: StartEngine) -> SqliteEngine:
    return await start_engine()


async def hold(engine: SqliteEngine, *names: str) -> list[bool]:
    results, _ = await engine.write([Hold(name, 5_000, MAX_HOLD_MS) for name in names])
    return [result.changed for result in results if isinstance(result, Outcome)]


def move_away(database: Path) -> None:
    database.rename(database.with_name("moved.db"))


def move_back(database: Path) -> None:
    database.with_name("moved.db").rename(database)


def replace(database: Path) -> None:
    copy = database.with_name("copy.db")
    copy.write_bytes(database.read_bytes())
    copy.replace(database)


def delete(database: Path) -> None:
    database.unlink()


def link(alias: Path, database: Path) -> None:
    alias.symlink_to(database)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def names(directory: Path) -> set[str]:
    return {file.name for file in directory.iterdir()}


@pytest.mark.parametrize("lose", [move_away, replace, delete])
async def test_nothing_is_promised_on_a_file_that_is_lost(
    engine: SqliteEngine, database: Path, lose: Callable[[Path], None]
) -> None:
    assert await hold(engine, "seat-1") == [True]
    lose(database)
    with pytest.raises(DatabaseUnusable):
        await hold(engine, "seat-2")


async def test_nothing_is_committed_after_a_fatal_error(
    engine: SqliteEngine, database: Path
) -> None:
    move_away(database)
    with pytest.raises(DatabaseUnusable):
        await hold(engine, "seat-1")
    move_back(database)
    with pytest.raises(DatabaseUnusable):
        await hold(engine, "seat-2")
    assert [row.status for row in await engine.read(["seat-1", "seat-2"])] == ["missing"] * 2


async def test_a_full_disk_loses_nothing_and_is_over_when_there_is_space(
    engine: SqliteEngine,
) -> None:
    await hold(engine, "seat-1")
    (pages,) = await engine._writer.run(lambda c: c.execute("PRAGMA page_count").fetchone())
    await engine._writer.run(lambda c: c.execute(f"PRAGMA max_page_count = {pages}"))
    with pytest.raises(StorageFull):
        await hold(engine, *(f"many-{number}" for number in range(2_000)))
    rows = await engine.read(["seat-1", "many-0"])
    assert [row.status for row in rows] == ["held", "missing"]
    await engine._writer.run(lambda c: c.execute("PRAGMA max_page_count = 1000000"))
    assert await hold(engine, "seat-2") == [True]


async def test_a_sound_file_passes_the_check(engine: SqliteEngine) -> None:
    await hold(engine, "seat-1")
    with threads_accounted_for():
        await engine.check_integrity()


def damage(database: Path) -> None:
    """Overwrite the root of the first index, behind SQLite's back and before it is opened."""
    with closing(sqlite3.connect(database)) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'reservation_due'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


async def test_a_damaged_file_is_found(
    engine: SqliteEngine, open_engine: OpenEngine, database: Path
) -> None:
    await engine.close()
    damage(database)
    damaged = await open_engine(database)
    with threads_accounted_for(), pytest.raises(DatabaseUnusable):
        await damaged.check_integrity()


async def test_destroying_deletes_everything_and_leaves_a_tombstone(
    engine: SqliteEngine, open_engine: OpenEngine, database: Path, clock: FakeClock
) -> None:
    await hold(engine, "seat-1", "seat-2")
    await engine.write([Plan("seat-1", "call", clock.now() + 1)])
    assert await engine.destroy(clock) == 2
    await engine.close()
    reopened = await open_engine(database)
    await reopened.migrate()
    reloaded = await reopened.start(clock, RECOVERY)
    assert reloaded.is_destroyed
    assert reloaded.next_due_at is None
    assert [row.status for row in await reopened.read(["seat-1"])] == ["missing"]
    assert violations(database) == []


async def test_a_second_opener_is_refused_by_whatever_name_it_calls_the_file(
    engine: SqliteEngine, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_PATIENCE_S", 0.05)
    alias = database.with_name("alias.db")
    link(alias, database)
    for name in (database, alias):
        with threads_accounted_for(), pytest.raises(StartupError, match="Another process"):
            await SqliteEngine.open(name)
    assert await hold(engine, "seat-1") == [True]


async def test_a_closed_one_can_be_opened_again_with_what_was_in_it(
    start_engine: StartEngine, database: Path
) -> None:
    with threads_accounted_for():
        engine = await start_engine()
        await hold(engine, "seat-1")
        await engine.close()
        engine = await start_engine()
        assert [row.status for row in await engine.read(["seat-1"])] == ["held"]
        await engine.close()
    assert names(database.parent) == {"reservations.db", "reservations.db.lock"}


async def test_reservations_are_nobody_elses_business(engine: SqliteEngine, database: Path) -> None:
    await hold(engine, "seat-1")
    assert {mode(database.with_name(name)) for name in names(database.parent)} == {0o600}


async def test_a_missing_directory_is_refused_in_a_sentence(scratch: Path) -> None:
    with threads_accounted_for(), pytest.raises(StartupError, match="does not exist; create it"):
        await SqliteEngine.open(scratch / "missing" / "reservations.db")
    assert names(scratch) == set()


async def test_a_directory_is_no_database(scratch: Path) -> None:
    with threads_accounted_for(), pytest.raises(StartupError, match="is not a file"):
        await SqliteEngine.open(scratch)


async def test_a_count_that_is_cancelled_ends_when_nothing_uses_its_connection(
    start_engine: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await start_engine()
    await engine.write([HOLD])
    loop, has_begun, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    count = sqlite_tally.count

    def count_slowly(reader: sqlite3.Connection, after: int) -> tuple[Tally, int]:
        loop.call_soon_threadsafe(has_begun.set)
        assert may_end.wait(WAIT_SECONDS_MAX)
        return count(reader, after)

    monkeypatch.setattr(sqlite_tally, "count", count_slowly)
    counting = asyncio.ensure_future(engine.tally())
    await bounded(has_begun.wait(), "the count to begin")
    counting.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not counting.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await bounded(counting, "the count to end")
    assert await engine.tally() == Tally(1, {("held", "request"): 1})


async def test_counts_at_once_count_each_event_once(start_engine: StartEngine) -> None:
    engine = await start_engine()
    await engine.write([HOLD])
    for tally in await asyncio.gather(*(engine.tally() for _ in range(3))):
        assert tally == Tally(1, {("held", "request"): 1})


async def test_an_end_waits_for_a_count_and_leaves_one_file(
    start_engine: StartEngine, monkeypatch: pytest.MonkeyPatch, database: Path
) -> None:
    engine = await start_engine()
    await engine.write([HOLD])
    loop, has_begun, may_go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def count_for_ever(reader: sqlite3.Connection, _after: int) -> tuple[Tally, int]:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM reservation").fetchone()
        loop.call_soon_threadsafe(has_begun.set)
        assert may_go_on.wait(WAIT_SECONDS_MAX)  # the end comes between two statements
        reader.execute(ENDLESS).fetchone()
        raise AssertionError("it was not interrupted")

    monkeypatch.setattr(sqlite_tally, "count", count_for_ever)
    counting = asyncio.ensure_future(engine.tally())
    await bounded(has_begun.wait(), "the count to begin")
    ending = asyncio.ensure_future(engine.close())
    for _ in range(20):
        await asyncio.sleep(0)
    may_go_on.set()
    await bounded(ending, "the end")
    with pytest.raises(StorageUnavailable):
        await counting
    with pytest.raises(StorageUnavailable):
        await engine.tally()
    assert not wal_of(database).exists()


@pytest.mark.parametrize(
    ("asked_at", "claimed_at"), [(4_994, []), (4_995, [5_000]), (5_000, [5_000]), (5_001, [5_001])]
)
async def test_a_claim_waits_for_a_time_that_is_near(
    engine: SqliteEngine, clock: FakeClock, asked_at: int, claimed_at: list[int]
) -> None:
    await hold(engine, "seat-1")
    clock.advance(asked_at)
    (claimed,), _ = await engine.write([Claim(10, 10_000, [], not_before=START + 5_000)])
    assert isinstance(claimed, list)
    assert [one.claimed_at - START for one in claimed] == claimed_at


LOG_PAGES = 300
LOG_BYTES = LOG_PAGES * 4096


@pytest.fixture
def database_with_log(database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database whose start reserves room for its log, as it does outside of tests."""
    monkeypatch.setattr(sqlite_start, "LOG_PAGES", LOG_PAGES)
    return database


async def cache_size(engine: SqliteEngine) -> int | None:
    return await engine._writer.run(sqlite_start.single_value, "PRAGMA cache_size")


async def test_a_start_reserves_the_room_that_its_log_needs(
    start_engine: StartEngine, database_with_log: Path
) -> None:
    engine, log = await start_engine(), wal_of(database_with_log)
    before = log.stat().st_size
    assert before >= LOG_BYTES
    assert log.read_bytes()[FRAME_COMMITS] != bytes(4)  # what was reserved is synced
    for number in range(20):
        assert await hold(engine, f"seat-{number}") == [True]
    assert log.stat().st_size == before
    assert await cache_size(engine) == CACHE_SIZE
    assert violations(database_with_log) == []


async def test_a_short_log_that_a_dead_process_left_is_made_long(
    start_engine: StartEngine, database_with_log: Path
) -> None:
    await (await start_engine()).close()
    with closing(connect_to_write(database_with_log)) as left:
        left.execute("BEGIN IMMEDIATE")
        left.execute("UPDATE namespace SET epoch = epoch + 1")
        left.execute("COMMIT")
        assert 0 < wal_of(database_with_log).stat().st_size < LOG_BYTES
        await start_engine()
        assert wal_of(database_with_log).stat().st_size >= LOG_BYTES


async def test_a_reader_in_the_way_is_not_waited_for_at_a_start(
    start_engine: StartEngine, database_with_log: Path
) -> None:
    await (await start_engine()).close()
    with closing(sqlite3.connect(database_with_log, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM reservation").fetchone()
        engine = await start_engine()
        assert await hold(engine, "seat-1") == [True]
        assert wal_of(database_with_log).stat().st_size < LOG_BYTES
        assert await cache_size(engine) == CACHE_SIZE


@pytest.mark.parametrize(("times_free", "is_reserved"), [(9.9, False), (10.1, True)])
async def test_a_small_disk_keeps_its_space_for_what_is_to_come(
    start_engine: StartEngine,
    database_with_log: Path,
    monkeypatch: pytest.MonkeyPatch,
    times_free: float,
    is_reserved: bool,
) -> None:
    usage = SimpleNamespace(free=times_free * LOG_BYTES)
    monkeypatch.setattr(sqlite_start, "disk_usage", lambda _: usage)
    await start_engine()
    assert (wal_of(database_with_log).stat().st_size >= LOG_BYTES) == is_reserved


async def test_a_start_goes_on_where_the_log_cannot_be_so_long(
    start_engine: StartEngine, database_with_log: Path
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LOG_BYTES // 2, before[1]))
    try:
        engine = await start_engine()
        assert wal_of(database_with_log).stat().st_size < LOG_BYTES // 4  # it is given back
        assert await hold(engine, "seat-1") == [True]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert await cache_size(engine) == CACHE_SIZE
    assert violations(database_with_log) == []


async def test_what_is_destroyed_needs_no_log(
    start_engine: StartEngine, database_with_log: Path, clock: FakeClock
) -> None:
    engine = await start_engine()
    await engine.destroy(clock)
    await engine.close()
    await start_engine()
    assert wal_of(database_with_log).stat().st_size < LOG_BYTES
