"""SIGTERM and SIGINT: what was taken is answered, and the process ends whatever clients do."""

import signal
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from reservation_service.storage.sqlite_files import wal_of
from tests.process.conftest import MakeServer
from tests.process.server import PATIENCE_S, STOP_SECONDS_MAX, Line, Server

HEAD = b"POST /reservations/half HTTP/1.1\r\nHost: test\r\n"
HALF_A_HEADER = HEAD + b"Content-Ty"
HALF_A_BODY = HEAD + b'Content-Type: application/json\r\nContent-Length: 18\r\n\r\n{"ttlSec'
IDLE = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"


def whole_request(reservation_id: str) -> bytes:
    return HALF_A_BODY.replace(b"half", reservation_id.encode()) + b'onds": 60}'


class Clients:
    """Open connections, each with some bytes sent and no intention to go on."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open = ExitStack()

    def __enter__(self) -> "Clients":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def send(self, text: bytes) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self._port), PATIENCE_S)
        self._open.enter_context(client)
        client.sendall(text)
        return client


@pytest.fixture
def clients(server: Server) -> Iterator[Clients]:
    with Clients(server.start().port) as clients:
        yield clients


def check_the_hold_is_kept(server: Server, held: Line) -> None:
    """A clean stop leaves one file with everything in it, and nothing to recover."""
    assert not wal_of(server.database).exists()
    assert server.query("SELECT id, expires_at FROM reservation") == [
        (held["reservationId"], held["expiresAt"])
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_a_stop_ends_in_time_whatever_clients_do(
    number: signal.Signals, server: Server, clients: Clients
) -> None:
    held = server.hold("acknowledged", 3600)
    clients.send(HALF_A_HEADER)
    clients.send(HALF_A_BODY)
    idle = clients.send(IDLE)
    assert idle.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")

    assert server.stop(number) < STOP_SECONDS_MAX
    check_the_hold_is_kept(server, held)
    events = [line["event"] for line in server.lines]
    assert events[-2:] == ["service-stopping", "service-stopped"]


def test_requests_taken_before_the_stop_are_answered_and_kept(
    server: Server, clients: Clients
) -> None:
    with closing(sqlite3.connect(server.database, isolation_level=None)) as brake:
        brake.execute("BEGIN IMMEDIATE")  # what is taken now waits for the disk
        taken = [clients.send(whole_request(f"taken-{number}")) for number in range(20)]
        assert server.call("GET", "/").status == 200  # asked last, so the others are taken
        server.send(signal.SIGTERM)
        server.line("service-stopping")
        brake.execute("ROLLBACK")

    for client in taken:
        assert client.recv(4096).startswith(b"HTTP/1.1 201 Created\r\n")
    assert server.wait() == 0
    assert server.query("SELECT count(*) FROM reservation") == [(20,)]


def test_an_idle_service_stops_at_once(server: Server) -> None:
    assert server.start().stop() < 2


def test_a_stop_says_that_it_is_not_ready_before_the_listener_closes(
    make_server: MakeServer,
) -> None:
    server = make_server(server__drain_ms=1_000).start()
    assert server.call("GET", "/readyz").status == 200
    server.send(signal.SIGTERM)
    server.line("service-stopping")
    answer = server.call("GET", "/readyz")  # on a new connection
    assert (answer.status, answer.body["checks"]["running"]) == (503, "stopping")
    assert server.call("GET", "/healthz").status == 200
    held = server.hold("late", 3600)
    assert server.wait() == 0
    check_the_hold_is_kept(server, held)
