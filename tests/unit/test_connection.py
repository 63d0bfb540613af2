"""What is taken from aiosqlite and SQLite beyond their public words, pinned."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import aiosqlite
import pytest

from reservation_service.errors import (
    DatabaseUnusable,
    MessageFailed,
    OutcomeUnknown,
    ServiceError,
    StartupError,
    StorageFull,
    StorageUnavailable,
)
from reservation_service.storage import sqlite_files
from reservation_service.storage.connection import Connection, open_reader, open_writer
from reservation_service.storage.sqlite_errors import failure_before_commit, failure_of_commit
from reservation_service.storage.sqlite_files import SQLITE_MIN, make_durable, require_sqlite
from tests.support.harness import threads_accounted_for
from tests.support.waiting import bounded


@pytest.fixture
async def writer(database: Path) -> AsyncIterator[Connection]:
    connection = await open_writer(database)
    yield connection
    await connection.close()


def thread_name(connection: sqlite3.Connection) -> str:
    connection.execute("SELECT 1")
    return threading.current_thread().name


async def test_a_function_runs_on_the_connections_own_thread(writer: Connection) -> None:
    names = {await writer.run(thread_name) for _ in range(3)}
    assert len(names) == 1
    assert threading.current_thread().name not in names


async def test_a_function_gets_the_connection_and_its_arguments(writer: Connection) -> None:
    def add(connection: sqlite3.Connection, left: int, *, right: int) -> int:
        total: int = connection.execute("SELECT ? + ?", [left, right]).fetchone()[0]
        return total

    assert await writer.run(add, 2, right=3) == 5


async def test_functions_run_one_after_the_other(writer: Connection) -> None:
    order: list[int] = []

    def work(_: sqlite3.Connection, number: int) -> None:
        order.append(number)

    await bounded(asyncio.gather(*(writer.run(work, n) for n in range(20))), "all functions")
    assert order == list(range(20))


async def test_an_error_comes_back_to_the_caller(writer: Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await writer.run(lambda connection: connection.execute("SELECT * FROM nowhere"))


async def test_cancelling_does_not_stop_the_function(writer: Connection) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work(_: sqlite3.Connection) -> None:
        begun.set()
        assert go_on.wait(5)
        ended.set()

    task = asyncio.create_task(writer.run(work))
    assert await asyncio.to_thread(begun.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    assert await writer.run(lambda _: ended.wait(5))


def test_the_one_private_name_of_aiosqlite_is_where_it_was() -> None:
    assert asyncio.iscoroutinefunction(aiosqlite.Connection._execute)
    assert isinstance(aiosqlite.Connection._conn, property)


async def test_statements_are_not_wrapped_in_transactions_of_their_own(writer: Connection) -> None:
    assert await writer.run(lambda connection: connection.isolation_level) is None


async def test_a_durable_connection_syncs_every_commit(writer: Connection) -> None:
    def settings(connection: sqlite3.Connection) -> tuple[str, int]:
        make_durable(connection)
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
        return mode, connection.execute("PRAGMA synchronous").fetchone()[0]

    full = 2
    assert await writer.run(settings) == ("wal", full)


async def test_a_reader_cannot_write(writer: Connection, database: Path) -> None:
    await writer.run(lambda connection: connection.execute("CREATE TABLE a (x)"))
    reader = await open_reader(database)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        await reader.run(lambda connection: connection.execute("INSERT INTO a VALUES (1)"))
    await reader.close()


def names(directory: Path) -> list[str]:
    return [file.name for file in directory.iterdir()]


@pytest.mark.parametrize("name", ["what?mode=memory", "a#b", "per%cent", "spa ce"])
async def test_a_path_is_a_path_whatever_it_is_called(scratch: Path, name: str) -> None:
    connection = await open_writer(scratch / name)
    await connection.run(lambda c: c.execute("CREATE TABLE a (x)"))
    await connection.close()
    assert names(scratch) == [name]


async def test_a_missing_file_cannot_be_read_and_leaves_no_thread(scratch: Path) -> None:
    before = set(threading.enumerate())
    with pytest.raises(sqlite3.OperationalError):
        await open_reader(scratch / "missing.db")
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("passes", range(5))
async def test_an_opening_that_is_cancelled_leaves_nothing_open(
    database: Path, monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    opened: list[sqlite3.Connection] = []

    def remember(uri: str) -> sqlite3.Connection:
        opened.append(connect(uri))
        return opened[-1]

    connect = sqlite_files._connect
    monkeypatch.setattr(sqlite_files, "_connect", remember)
    with threads_accounted_for():
        opening = asyncio.create_task(open_writer(database))
        for _ in range(passes):
            await asyncio.sleep(0)
        opening.cancel()
        with suppress(asyncio.CancelledError):
            await (await bounded(opening, "the opening")).close()
    for one in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            one.execute("SELECT 1")


async def test_a_closing_that_is_cancelled_still_waits_for_the_thread(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await open_writer(database)
    go_on, stopping, stop = threading.Event(), asyncio.Event(), connection.stop

    def stop_late() -> "asyncio.Future[object] | None":
        connection._tx.put_nowait((None, go_on.wait))
        stopping.set()
        return stop()

    monkeypatch.setattr(connection, "stop", stop_late)
    closing = asyncio.create_task(connection.close())
    await bounded(stopping.wait(), "the connection to be closed")
    closing.cancel()
    await asyncio.wait([closing], timeout=0)
    await asyncio.sleep(0)
    was_done = closing.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await bounded(closing, "the closing to end")
    connection._thread.join(1)
    assert not was_done, "its thread had not said its last word yet"


def test_a_sqlite_too_old_is_refused_in_a_sentence() -> None:
    require_sqlite(SQLITE_MIN)
    with pytest.raises(StartupError, match=r"SQLite 3\.38\.0 or newer is needed.* 3\.37\.2"):
        require_sqlite((3, 37, 2))


def failure(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("as SQLite would say it")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (sqlite3.SQLITE_FULL, StorageFull),
        (sqlite3.SQLITE_BUSY, StorageUnavailable),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StorageUnavailable),
        (sqlite3.SQLITE_LOCKED, StorageUnavailable),
        (sqlite3.SQLITE_IOERR_WRITE, StorageUnavailable),
        (sqlite3.SQLITE_IOERR_READ, StorageUnavailable),
        (sqlite3.SQLITE_IOERR_FSYNC, OutcomeUnknown),
        (sqlite3.SQLITE_CANTOPEN, StorageUnavailable),
        (sqlite3.SQLITE_CORRUPT, DatabaseUnusable),
        (sqlite3.SQLITE_CORRUPT_INDEX, DatabaseUnusable),
        (sqlite3.SQLITE_NOTADB, DatabaseUnusable),
        (sqlite3.SQLITE_READONLY, DatabaseUnusable),
        (sqlite3.SQLITE_READONLY_DBMOVED, DatabaseUnusable),
        (sqlite3.SQLITE_CONSTRAINT_CHECK, MessageFailed),
        (sqlite3.SQLITE_CONSTRAINT_TRIGGER, MessageFailed),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, MessageFailed),
        (sqlite3.SQLITE_TOOBIG, MessageFailed),
        (sqlite3.SQLITE_ERROR, MessageFailed),
    ],
)
def test_an_error_before_commit_means(code: int, meaning: type[ServiceError]) -> None:
    assert type(failure_before_commit(failure(code))) is meaning


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (sqlite3.SQLITE_FULL, StorageFull),
        (sqlite3.SQLITE_BUSY, StorageUnavailable),
        (sqlite3.SQLITE_IOERR_WRITE, OutcomeUnknown),
        (sqlite3.SQLITE_IOERR_FSYNC, OutcomeUnknown),
        (sqlite3.SQLITE_CORRUPT, OutcomeUnknown),
        (sqlite3.SQLITE_ERROR, OutcomeUnknown),
    ],
)
def test_an_error_of_the_commit_itself_means(code: int, meaning: type[ServiceError]) -> None:
    assert type(failure_of_commit(failure(code))) is meaning


def test_an_error_without_a_code_blames_the_message() -> None:
    assert type(failure_before_commit(sqlite3.InterfaceError("bad binding"))) is MessageFailed


@pytest.mark.parametrize("error", [OutcomeUnknown(), DatabaseUnusable()])
def test_what_nobody_can_promise_any_more_is_fatal(error: ServiceError) -> None:
    assert error.fatal


@pytest.mark.parametrize("error", [StorageFull(), StorageUnavailable(), MessageFailed()])
def test_what_changed_nothing_is_not(error: ServiceError) -> None:
    assert not error.fatal


async def test_a_reader_that_is_given_up_ends_between_two_statements_too(database: Path) -> None:
    make_durable(sqlite3.connect(database))
    reader = await open_reader(database)
    reader.give_up()
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        await bounded(reader.run(lambda connection: connection.execute(endless).fetchone()), "it")
    await reader.close()
