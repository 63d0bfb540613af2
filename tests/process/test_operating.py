"""What operators type: against a running service, and against its file."""

import json
import re
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.process.commands import Ended, keys, run
from tests.process.conftest import MakeServer
from tests.process.server import Server, command, environment, eventually
from tests.support.invariants import violations


def ask(server: Server, *arguments: str, **variables: str) -> Ended:
    return run(*arguments, "--url", f"http://127.0.0.1:{server.port}", **variables)


def told(ended: Ended) -> Any:
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    return json.loads(ended.stdout)


def on_file(name: str, database: Path, *arguments: str) -> Ended:
    return run(name, *arguments, "--database", str(database))


def test_a_service_tells_how_it_is_and_what_it_has(make_server: MakeServer) -> None:
    server = make_server(reservations__ttl_seconds_min=1)
    token = keys(server.database, "add", "staff", "--scope", "operate")
    server.start()
    for number in range(3):
        body = {"ttlSeconds": 3600}
        server.call("POST", f"/reservations/seat-{number}", body, token=token)
    known = {"RESERVATION_SERVICE_KEY": token}

    status = told(ask(server, "status", "--json", **known))
    assert (status["ready"], status["alarms"]["pending"]) == (True, 3)
    assert status["transitions"] == {"held request": 3}
    shown = ask(server, "status", **known)
    assert "is ready" in shown.stdout
    assert "3 pending, 0 overdue" in shown.stdout

    found = told(ask(server, "list", "--json", "--limit", "2", **known))
    assert [row["reservationId"] for row in found["items"]] == ["seat-0", "seat-1"]
    listed = ask(server, "list", "--status", "held", "--id-prefix", "seat-2", **known).stdout
    assert "seat-2" in listed
    assert "seat-1" not in listed

    one = told(ask(server, "show", "seat-1", "--json", **known))
    assert one["reservation"]["status"] == "held"
    assert [event["type"] for event in one["events"]] == ["held"]
    first, held, alarm = ask(server, "show", "seat-1", **known).stdout.splitlines()
    assert first == "seat-1 is held"
    assert re.search(r"UTC  held +by request +generation 1$", held)
    assert re.search(r"UTC  alarm +in [\d,]+ s", alarm)


def test_what_is_committed_is_told_as_it_comes(make_server: MakeServer) -> None:
    server = make_server().start()
    url = f"http://127.0.0.1:{server.port}"
    tail = subprocess.Popen(
        command("tail", "--url", url, "--json"),
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert tail.stdout is not None
    try:
        eventually(lambda: told(ask(server, "status", "--json"))["feedReaders"] == 1)
        server.hold("seat-1", 3600)
        event = json.loads(tail.stdout.readline())
    finally:
        tail.terminate()
        tail.communicate(timeout=10)
    assert (event["reservation"], event["type"], event["trigger"]) == ("seat-1", "held", "request")


def test_a_key_comes_from_a_file_too_and_one_that_is_wrong_is_told(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = make_server()
    key = tmp_path / "key"
    key.write_text(keys(server.database, "add", "staff", "--scope", "operate") + "\n")
    weak = keys(server.database, "add", "shop", "--scope", "reserve")
    server.start()
    assert ask(server, "list", "--key-file", str(key)).returncode == 0

    without = ask(server, "list")
    assert (without.returncode, without.stdout) == (1, "")
    assert "RESERVATION_SERVICE_KEY" in without.stderr
    refused = ask(server, "list", RESERVATION_SERVICE_KEY=weak)
    assert (refused.returncode, "scope operate" in refused.stderr) == (1, True)
    assert weak not in refused.stderr
    missing = ask(server, "list", "--key-file", str(tmp_path / "none"))
    assert (missing.returncode, "cannot be read" in missing.stderr) == (1, True)


@pytest.mark.parametrize("arguments", [["status"], ["list"], ["show", "seat-1"], ["tail"]])
def test_a_service_that_is_down_is_told_in_a_sentence(arguments: list[str], server: Server) -> None:
    server.start().stop()
    ended = ask(server, *arguments)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("reservation-service: Nothing listens at http://127.0.0.1:")
    assert len(ended.stderr.splitlines()) == 1


def test_a_service_that_is_not_ready_is_an_exit_status(make_server: MakeServer) -> None:
    server = make_server(server__drain_ms=15_000).start()
    server.send(signal.SIGTERM)
    server.line("service-stopping")
    ended = ask(server, "status")
    assert (ended.returncode, "not ready" in ended.stdout) == (1, True)
    assert "running: stopping" in ended.stdout
    server.kill()


# The file


def test_a_backup_under_load_has_every_hold_that_was_acknowledged_before_it_began(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = make_server(log__access="false").start()
    with holding(server) as acknowledged:
        while len(acknowledged) < 200:
            pass
        before = list(acknowledged)
        copied = told(on_file("backup", server.database, str(tmp_path / "copy.db"), "--json"))
        assert len(acknowledged) > len(before), "no load"
    assert copied["findings"] == []
    assert copied["reservations"] >= len(before)
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.glob("copy.db*")) == ["copy.db"]
    server.stop()

    assert violations(tmp_path / "copy.db") == []
    restored = make_server(tmp_path / "copy.db").start()
    assert {restored.read(name)["status"] for name in before} == {"held"}
    restored.stop()
    assert on_file("check", tmp_path / "copy.db").returncode == 0


def test_a_database_is_restored_from_a_backup(server: Server, tmp_path: Path) -> None:
    """As docs/operations.md tells it: stop, put the copy in place of all its files, start."""
    held = server.start().hold("seat-1", 3600)
    copy = tmp_path / "copy.db"
    assert on_file("backup", server.database, str(copy)).returncode == 0
    server.hold("later", 3600)
    server.kill()
    for file in server.database.parent.glob(server.database.name + "*"):
        file.unlink()
    copy.rename(server.database)
    server.start()
    assert server.read("seat-1") == held
    assert server.read("later")["status"] == "missing"
    server.hold("later", 3600)
    server.stop()
    assert on_file("check", server.database).returncode == 0


def test_a_backup_replaces_nothing(server: Server, tmp_path: Path) -> None:
    server.start().hold("seat-1", 3600)
    copy = tmp_path / "copy.db"
    copy.write_text("precious")
    ended = on_file("backup", server.database, str(copy))
    assert (ended.returncode, copy.read_text()) == (1, "precious")
    assert "exists already" in ended.stderr


def test_a_backup_that_cannot_be_written_leaves_nothing(server: Server, tmp_path: Path) -> None:
    server.start()
    ended = on_file("backup", server.database, str(tmp_path / "nowhere" / "copy.db"))
    assert (ended.returncode, "No such file" in ended.stderr) == (1, True)


DAMAGE = {
    "a status that its log does not know": "UPDATE reservation SET status = 'confirmed', "
    "confirmed_at = 5, alarm_at = NULL, alarm_dispatch_at = NULL",
    "an event too many": 'INSERT INTO event (reservation, generation, type, at, "trigger") '
    "VALUES ('seat-1', 1, 'released', 5, 'request')",
    "a row without events": "DELETE FROM event WHERE reservation = 'seat-1'",
    "a deadline that moved": "UPDATE reservation SET expires_at = expires_at + 1",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_check_finds_what_was_planted(damage: str, server: Server, tmp_path: Path) -> None:
    server.start().hold("first", 3600)
    server.hold("seat-1", 3600)
    server.stop()
    clean = on_file("check", server.database)
    assert (clean.returncode, "2 reservations and 2 events" in clean.stdout) == (0, True)
    server.change(DAMAGE[damage])
    ended = on_file("check", server.database)
    assert (ended.returncode, "seat-1: " in ended.stdout) == (1, True)
    found = on_file("check", server.database, "--json")
    assert found.returncode == 1
    assert json.loads(found.stdout)["findings"] != []

    copied = on_file("backup", server.database, str(tmp_path / "copy.db"))
    assert (copied.returncode, list(tmp_path.glob("copy.db*"))) == (1, [])
    assert "not kept" in copied.stderr


def test_check_finds_a_damaged_page(server: Server) -> None:
    server.start()
    for number in range(300):
        server.hold(f"seat-{number}", 3600)
    server.stop()
    with server.database.open("r+b") as file:
        file.seek(4096 * 9)
        file.write(b"\xff" * 4096)
    assert on_file("check", server.database).returncode == 1


def test_check_refuses_what_it_does_not_know(server: Server, tmp_path: Path) -> None:
    missing = on_file("check", tmp_path / "none.db")
    assert (missing.returncode, "Cannot open" in missing.stderr) == (1, True)
    assert not (tmp_path / "none.db").exists()
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    theirs = on_file("check", other)
    assert (theirs.returncode, "another program" in theirs.stderr) == (1, True)
    server.start().stop()
    server.change("PRAGMA user_version = 1")
    older = on_file("check", server.database)
    assert (older.returncode, "at schema 1, older" in older.stderr) == (1, True)


@contextmanager
def holding(server: Server) -> Iterator[list[str]]:
    """Holds go on in the background; the names of those that were acknowledged, as they are."""
    acknowledged: list[str] = []
    is_over = threading.Event()

    def hold() -> None:
        while not is_over.is_set():
            name = f"seat-{len(acknowledged)}"
            server.hold(name, 3600)
            acknowledged.append(name)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield acknowledged
    finally:
        is_over.set()
        thread.join()
