"""A database lost or damaged while it is served ends the process; nothing is promised then."""

import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from tests.process.commands import run
from tests.process.server import PATIENCE_S, Server

HALF_A_BODY = (
    b"POST /reservations/half HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
    b'Content-Length: 18\r\n\r\n{"ttlSec'
)


def check_it_ends_with(server: Server, reason: str) -> None:
    failed = server.line("service-failed")
    assert reason in failed["reason"]
    assert server.wait() == 1


def test_a_deleted_database_ends_the_process_and_nothing_is_acknowledged(server: Server) -> None:
    server.start().hold("before", 3600)
    server.database.unlink()

    assert set(statuses_until_it_ends(server)) <= {503}
    check_it_ends_with(server, "The database cannot be used any more")


def statuses_until_it_ends(server: Server) -> Iterator[int]:
    """What is answered to one hold after another, until nobody answers."""
    with suppress(OSError):
        for number in range(1000):
            yield server.call("POST", f"/reservations/after-{number}", {"ttlSeconds": 60}).status


def test_a_lost_database_ends_the_process_soon_whatever_clients_have_half_sent(
    server: Server,
) -> None:
    server.start().hold("before", 3600)
    with closing(socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)) as client:
        client.sendall(HALF_A_BODY)
        server.database.unlink()
        met = server.call("POST", "/reservations/after", {"ttlSeconds": 60})
        began = time.monotonic()
        assert met.status == 503
        check_it_ends_with(server, "The database cannot be used any more")
        assert time.monotonic() - began < 2


def test_a_deleted_database_ends_an_idle_process(server: Server) -> None:
    server.start().database.unlink()
    check_it_ends_with(server, "The database cannot be used any more")
    assert server.seen("request") == []


def test_a_replaced_database_ends_the_process(server: Server) -> None:
    server.start().hold("before", 3600)
    other = server.database.with_name("other")
    other.write_bytes(server.database.read_bytes())
    other.replace(server.database)
    check_it_ends_with(server, "The database cannot be used any more")


def corrupt_a_page_of(database: Path, name: str) -> None:
    with closing(sqlite3.connect(database)) as connection:
        find = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
        (page,) = connection.execute(find, [name]).fetchone()
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    with database.open("r+b") as file:
        file.seek((page - 1) * page_bytes)
        file.write(b"\xff" * page_bytes)


def test_a_corrupt_page_is_found_behind_the_traffic_and_ends_the_process(server: Server) -> None:
    server.start().hold("before", 3600)
    server.stop()
    corrupt_a_page_of(server.database, "event_reservation")
    server.start()
    check_it_ends_with(server, "*** in database main ***")


def test_a_corrupt_page_that_a_start_looks_at_is_told_at_once(server: Server) -> None:
    server.start().hold("before", 3600)
    server.stop()
    corrupt_a_page_of(server.database, "event")
    refused = run("serve", "--database", str(server.database), "--port", "0")
    assert refused.returncode == 1
    assert "malformed" in refused.stderr
