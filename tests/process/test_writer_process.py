"""The writer's own process: what is called there, and how it ends when the service does."""

import asyncio
import gc
import os
import re
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from urllib.request import urlopen

import pytest

from reservation_service.clock import BootClock
from reservation_service.errors import DatabaseUnusable, MessageFailed, OutcomeUnknown, StartupError
from reservation_service.reservation import Expire, Hold, Outcome, Trigger
from reservation_service.storage import remote_writer
from reservation_service.storage.calls import Answer, Call, pack_call, read_call
from reservation_service.storage.lock import DatabaseLock
from reservation_service.storage.remote_writer import RemoteWriter
from reservation_service.storage.sqlite_engine import SqliteEngine
from reservation_service.storage.sqlite_files import WAL_PAGES, wal_of
from reservation_service.storage.sqlite_start import Recovery
from reservation_service.storage.sqlite_tally import Tally
from reservation_service.store import Claim, Probe, Probed, Purge, Purged
from tests.process.server import (
    PATIENCE_S,
    ROOT,
    STOP_SECONDS_MAX,
    Server,
    eventually,
    family,
    is_free,
)
from tests.support.waiting import bounded

EXPIRE = Expire("seat-1", Trigger.ALARM)
MUCH = 1_000_000
"""Bytes: more than a socket takes at once."""


def one(connection: sqlite3.Connection, *, more: int = 0) -> int:
    value: int = connection.execute("SELECT 1").fetchone()[0]
    return value + more


def length(_: sqlite3.Connection, text: str) -> int:
    return len(text)


def text_of(_: sqlite3.Connection, size: int) -> str:
    return "x" * size


def process_id(_: sqlite3.Connection) -> int:
    return os.getpid()


def fail(connection: sqlite3.Connection) -> None:
    connection.execute("SELECT * FROM nowhere")


def fail_for_a_reason(connection: sqlite3.Connection) -> None:
    try:
        fail(connection)
    except sqlite3.Error as error:
        raise MessageFailed from error


def secret(_: sqlite3.Connection) -> object:
    return lambda: None  # cannot be pickled


class SecretError(Exception):
    """Can be pickled, and not be made again."""

    def __init__(self, secret: str, more: str) -> None:
        super().__init__(secret + more)


def fail_for_a_secret_reason(_: sqlite3.Connection) -> None:
    raise MessageFailed from SecretError("se", "cret")


def make_a_file(_: sqlite3.Connection, path: Path) -> None:
    path.touch()


def wait_for_a_file(_: sqlite3.Connection, path: Path) -> str:
    """Until it is there; whoever tests that makes it."""
    path.with_name("waiting").touch()
    while not path.exists():
        time.sleep(0.005)
    return path.name


class Counter:
    """Remembers how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, _: sqlite3.Connection) -> int:
        self.calls += 1
        return self.calls


@pytest.fixture
async def writer(database: Path) -> AsyncIterator[RemoteWriter]:
    lock = DatabaseLock(database)
    writer = await RemoteWriter.open(database, lock.file)
    yield writer
    await bounded(writer.close(), "the writer to close")
    lock.release()
    assert family(os.getpid()) == [os.getpid()]


async def test_a_function_runs_in_another_process(writer: RemoteWriter) -> None:
    assert await writer.run(one, more=1) == 2
    assert await writer.run(process_id) in family(os.getpid())[1:]


async def test_an_error_comes_back_with_its_code_and_what_it_came_from(
    writer: RemoteWriter,
) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table") as failure:
        await writer.run(fail)
    assert failure.value.sqlite_errorcode == sqlite3.SQLITE_ERROR
    with pytest.raises(MessageFailed) as failed:
        await writer.run(fail_for_a_reason)
    assert isinstance(failed.value.__cause__, sqlite3.OperationalError)
    assert await writer.run(one) == 1


async def test_what_cannot_be_told_is_an_error_and_no_end(writer: RemoteWriter) -> None:
    with pytest.raises(RuntimeError, match="function secret"):
        await writer.run(secret)
    assert await writer.run(one) == 1


async def test_much_goes_both_ways(writer: RemoteWriter) -> None:
    lengths = [writer.run(length, "x" * size) for size in (0, MUCH, 1)]
    assert await bounded(asyncio.gather(*lengths), "all lengths") == [0, MUCH, 1]
    texts = [writer.run(text_of, size) for size in (0, MUCH, 1)]
    found = await bounded(asyncio.gather(*texts), "all texts")
    assert [len(text) for text in found] == [0, MUCH, 1]


async def test_a_function_that_is_kept_remembers(writer: RemoteWriter) -> None:
    counters = [await writer.keep(Counter()), await writer.keep(Counter())]
    counted = [await writer.run(counters[number]) for number in (0, 0, 1)]
    assert counted == [1, 2, 1]


async def test_cancelling_does_not_stop_the_function(writer: RemoteWriter, scratch: Path) -> None:
    counter = await writer.keep(Counter())
    waiting = asyncio.create_task(writer.run(wait_for_a_file, scratch / "go-on"))
    counting = asyncio.create_task(writer.run(counter))
    await asyncio.sleep(0)
    for task in (waiting, counting):
        task.cancel()
    (scratch / "go-on").touch()
    assert await bounded(writer.run(counter), "the next call") == 2
    assert waiting.cancelled()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_it_leaves_it_to_the_service_when_to_end(
    writer: RemoteWriter, number: signal.Signals
) -> None:
    os.kill(await writer.run(process_id), number)
    assert await writer.run(one) == 1


async def test_what_was_called_when_it_was_killed_has_an_unknown_outcome(
    writer: RemoteWriter, scratch: Path
) -> None:
    pid = await writer.run(process_id)
    calls = [
        asyncio.create_task(writer.run(wait_for_a_file, scratch / "never")),
        asyncio.create_task(writer.run(one)),
    ]
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    await bounded(asyncio.wait(calls), "both calls to fail")
    assert {type(call.exception()) for call in calls} == {OutcomeUnknown}
    with pytest.raises(DatabaseUnusable):
        await bounded(writer.lost(), "the loss")
    with pytest.raises(DatabaseUnusable):
        await writer.run(one)


async def test_it_ends_when_nobody_is_left_to_serve(database: Path) -> None:
    lock = DatabaseLock(database)
    writer = await RemoteWriter.open(database, lock.file)
    await writer.run(one)
    lock.release()
    assert not is_free(database)
    assert writer._transport is not None
    assert writer._process is not None
    writer._transport.abort()  # as if this process had been killed
    assert await bounded(writer._process.wait(), "its end") == 0
    assert is_free(database)


async def test_of_what_is_on_its_way_only_what_was_begun_is_done_for_nobody(
    database: Path, scratch: Path
) -> None:
    lock = DatabaseLock(database)
    writer = await RemoteWriter.open(database, lock.file)
    calls = [
        asyncio.create_task(writer.run(wait_for_a_file, scratch / "go-on")),
        asyncio.create_task(writer.run(make_a_file, scratch / "made")),
    ]
    await asyncio.sleep(0)
    eventually((scratch / "waiting").exists)
    assert writer._transport is not None
    assert writer._process is not None
    writer._transport.abort()
    (scratch / "go-on").touch()
    assert await bounded(writer._process.wait(), "its end") == 0
    assert not (scratch / "made").exists()
    await asyncio.wait(calls)
    lock.release()


def test_half_a_call_is_the_end_and_no_error() -> None:
    whole = pack_call(Call(make_a_file, ["x" * 100], {}))
    for text in (b"", whole[:50]):
        with pytest.raises(EOFError):
            read_call(BytesIO(text))
    assert read_call(BytesIO(whole)).function is make_a_file


async def test_a_cause_that_cannot_be_told_does_not_change_the_error(writer: RemoteWriter) -> None:
    with pytest.raises(MessageFailed) as failed:
        await writer.run(fail_for_a_secret_reason)
    assert "SecretError" in str(failed.value.__cause__)


async def test_a_database_that_cannot_be_opened_leaves_no_process(scratch: Path) -> None:
    lock = DatabaseLock(scratch / "reservations.db")
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        await RemoteWriter.open(scratch / "missing" / "reservations.db", lock.file)
    lock.release()
    assert family(os.getpid()) == [os.getpid()]


async def test_a_process_that_does_not_begin_is_told(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: complaints.append(found))
    monkeypatch.setattr(remote_writer, "COMMAND", ("false",))
    with pytest.raises(StartupError, match="ended before it had begun"):
        await SqliteEngine.open(database, own_process=True)
    assert is_free(database)
    monkeypatch.setattr(remote_writer, "COMMAND", (str(database / "nothing"),))
    with pytest.raises(StartupError, match="Cannot open the database"):
        await SqliteEngine.open(database, own_process=True)
    assert is_free(database)
    gc.collect()
    assert complaints == []


async def test_an_opening_that_is_cancelled_as_it_ends_leaves_nothing(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give = RemoteWriter._give

    def give_and_cancel(self: RemoteWriter, answer: Answer) -> None:
        give(self, answer)
        opening.cancel()

    monkeypatch.setattr(RemoteWriter, "_give", give_and_cancel)
    opening = asyncio.create_task(SqliteEngine.open(database, own_process=True))
    with pytest.raises(asyncio.CancelledError):
        await bounded(opening, "the opening")
    assert is_free(database)
    assert family(os.getpid()) == [os.getpid()]


@pytest.mark.parametrize("passes", range(12))
async def test_an_opening_that_is_cancelled_leaves_nothing(database: Path, passes: int) -> None:
    opening = asyncio.create_task(SqliteEngine.open(database, own_process=True))
    for _ in range(passes):
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bounded(opening, "the opening")
    assert is_free(database)
    assert family(os.getpid()) == [os.getpid()]


async def test_an_engine_works_with_it_as_with_a_thread(database: Path) -> None:
    engine = await SqliteEngine.open(database, own_process=True)
    assert await engine.migrate()
    await engine.start(BootClock(), Recovery(2_000, 60_000, 0))
    results, next_due_at = await engine.write([Hold("seat-1", 60_000, 60_000)])
    assert next_due_at == results[0].reservation.expires_at  # type: ignore[union-attr]
    assert [row.status for row in await engine.read(["seat-1"])] == ["held"]
    claimed, probed, expired, purged = (
        await engine.write([Claim(10, 10_000, []), Probe(), EXPIRE, Purge(10, 0, 0)])
    )[0]
    assert (claimed, probed, purged) == ([], Probed(), Purged(0, 0, None))
    assert isinstance(expired, Outcome)
    assert not expired.changed
    assert await engine.tally() == Tally(1, {("held", "request"): 1})
    await engine.optimize()
    assert await engine.empty_wal(BootClock().now()) == 0  # something was changed meanwhile
    assert await engine.empty_wal(BootClock().now()) > 0
    await engine.check_integrity()
    await engine.close()
    assert {path.name for path in database.parent.iterdir()} == {
        "reservations.db",
        "reservations.db.lock",
    }
    assert family(os.getpid()) == [os.getpid()]


async def test_a_claim_waits_in_the_process_for_its_time(database: Path) -> None:
    engine = await SqliteEngine.open(database, own_process=True)
    await engine.migrate()
    await engine.start(BootClock(), Recovery(2_000, 60_000, 0))
    (held,), expires_at = await engine.write([Hold("seat-1", 4, 60_000)])
    assert isinstance(held, Outcome)
    (claimed,), _ = await engine.write([Claim(10, 10_000, [], not_before=expires_at)])
    assert isinstance(claimed, list)
    (one,) = claimed
    assert expires_at is not None
    assert expires_at <= one.claimed_at < expires_at + 1_000
    await engine.close()


async def test_the_process_reserves_the_room_of_the_log(tmp_path: Path) -> None:
    database = tmp_path / "reservations.db"
    engine = await SqliteEngine.open(database, own_process=True)
    await engine.migrate()
    await engine.start(BootClock(), Recovery(2_000, 60_000, 0))
    try:
        assert wal_of(database).stat().st_size >= WAL_PAGES * 4096
    finally:
        await engine.close()


def test_a_service_whose_writer_was_killed_ends_and_has_lost_nothing(server: Server) -> None:
    server.start().hold("seat-1", 3600)
    os.kill(server.writer_pid, signal.SIGKILL)
    assert server.wait() == 1
    (failed,) = server.seen("service-failed")
    assert failed["reason"].endswith("(the writer's process ended)")
    assert server.start().read("seat-1")["status"] == "held"
    server.stop()


def test_a_scrape_tells_of_the_writers_process_too(server: Server) -> None:
    server.start()
    address = f"http://127.0.0.1:{server.port}/metrics"
    with urlopen(address, timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    for name in ("process_resident_memory_bytes", "process_cpu_seconds_total"):
        ours, writers = (
            float(re.findall(rf"^{prefix}{name} (\S+)$", text, re.MULTILINE)[0])
            for prefix in ("", "reservation_writer_")
        )
        assert 0 < writers < ours
    server.stop()


@pytest.mark.parametrize("is_there", [False, True])
def test_modules_of_the_current_directory_are_used_only_if_the_package_is_there(
    server: Server, is_there: bool
) -> None:
    folder = server.database.parent
    if is_there:
        for name in ("reservation_service", "migrations"):
            (folder / name).symlink_to(ROOT / name)
    else:
        (folder / "pickle.py").write_text("raise SystemExit(3)")
        script = Path(sys.executable).with_name("reservation-service")
        server.command = [str(script), *server.command[3:]]
    server.start()
    process = Path(f"/proc/{server.writer_pid}")
    assert b"-P" in (process / "cmdline").read_bytes().split(b"\0")
    found_in = str(folder if is_there else ROOT).encode()
    assert b"PYTHONPATH=" + found_in + b":" in (process / "environ").read_bytes()
    server.stop()


def test_a_stop_does_not_wait_for_a_writer_that_hangs(server: Server) -> None:
    server.start().hold("seat-1", 3600)
    writer = server.writer_pid
    os.kill(writer, signal.SIGSTOP)
    try:
        began = time.monotonic()
        server.send(signal.SIGTERM)
        assert server.wait() == 1
        assert time.monotonic() - began < STOP_SECONDS_MAX
        assert server.seen("service-failed", reason="the stop took too long")
    finally:
        os.kill(writer, signal.SIGCONT)
    eventually(lambda: is_free(server.database))


def test_a_killed_service_can_be_started_at_once(server: Server) -> None:
    server.start().hold("seat-1", 3600)
    writer = server.writer_pid
    server.send(signal.SIGKILL)
    server.wait()
    assert server.start().read("seat-1")["status"] == "held"
    assert server.writer_pid != writer
    server.stop()


def test_what_a_killed_service_has_left_is_waited_for_and_then_told(server: Server) -> None:
    server.start().hold("seat-1", 3600)
    writer = server.writer_pid
    os.kill(writer, signal.SIGSTOP)  # as if the disk did not come back
    server.send(signal.SIGKILL)
    server.wait()
    try:
        server._spawn()
        assert server.wait() == 1
        assert "Another process is using the database" in server.complaints()
    finally:
        os.kill(writer, signal.SIGCONT)
    eventually(lambda: is_free(server.database))
    assert server.start().read("seat-1")["status"] == "held"
    server.stop()


def test_without_a_process_of_its_own_the_writer_is_a_thread(tmp_path: Path) -> None:
    server = Server(tmp_path, writer__own_process=False)
    try:
        server.start().hold("seat-1", 3600)
        assert family(server.pid) == [server.pid]
        server.stop()
    finally:
        server.end()
