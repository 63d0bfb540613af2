"""No key and no holder is where somebody else may look: log, answers, arguments, files."""

import socket
from contextlib import closing
from pathlib import Path

import pytest

from tests.process.commands import keys
from tests.process.server import PATIENCE_S, Server

HOLDER = "holder-that-nobody-else-may-see"


def raw(server: Server, text: bytes) -> bytes:
    with closing(socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)) as client:
        client.sendall(text)
        answer = b""
        while more := client.recv(65_536):
            answer += more
        return answer


def not_http(secret: bytes) -> list[bytes]:
    """Requests that are broken just where the secret stands."""
    post = b"POST /reservations/seat-1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return [
        b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + secret + b"\x01\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization Bearer " + secret + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: " + 300 * (secret + b" ") + b"\r\n\r\n",
        b"GET /?key=" + secret + b" \x01 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"BREW\x01 /" + secret + b" HTTP/1.1\r\n\r\n",
        post + b'Transfer-Encoding: chunked\r\n\r\nzz{"holder":"' + secret + b'"}\r\n\r\n',
        post + b"Content-Length: x" + secret + b"\r\n\r\n",
        post + b"Reservation-Holder: " + secret + b"\x00\r\n\r\n",
    ]


def test_what_is_no_http_is_answered_without_a_word_of_it(server: Server) -> None:
    server.start()
    for text in not_http(HOLDER.encode()):
        answer = raw(server, text)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b" 400 " in head.splitlines()[0], answer
        assert b'"code":"not-http"' in body
        assert b"Server-Time: " in head
        assert b"X-Content-Type-Options: nosniff" in head
        assert HOLDER.encode() not in answer
    server.stop()
    assert HOLDER not in str(server.lines)
    assert len(server.seen("http-error")) >= len(not_http(b"")) - 2


def test_no_key_and_no_holder_is_in_the_log_or_an_answer(server: Server) -> None:
    token = keys(server.database, "add", "staff", "--scope", "operate")
    server.start()
    body = {"ttlSeconds": 60, "holder": HOLDER}
    answers = [
        server.call("POST", "/reservations/seat-1", body, token=token),
        server.call(
            "POST", "/reservations/seat-1", body | {"holder": f"not {HOLDER}"}, token=token
        ),
        server.call("POST", "/reservations/seat-1", body, token=f"{token}x"),
        server.call("POST", "/reservations/seat-1", body | {"more": 1}, token=token),
        server.call("POST", "/reservations/seat-1", body | {"ttlSeconds": HOLDER}, token=token),
        server.call("GET", f"/reservations/seat-1?holder={HOLDER}&key={token}", token=token),
        server.call("GET", f"/reservations?{HOLDER[:1]}={token}", token=token),
        server.call("GET", "/reservations", token=token),
        server.call("GET", "/whoami", token=token),
        server.call("GET", "/whoami", token=f"{token}x"),
        server.call("POST", "/reservations/seat-1/confirm", {"holder": HOLDER}, token=token),
    ]
    assert {answer.status for answer in answers} == {200, 201, 400, 401, 409}
    broken = [raw(server, text) for text in not_http(token.encode())]
    server.stop()
    seen = f"{answers} {broken} {server.lines} {server.complaints()}"
    assert token not in seen
    assert HOLDER not in seen


def test_no_key_is_among_the_arguments_or_in_the_environment_of_a_process(server: Server) -> None:
    token = keys(server.database, "add", "staff", "--scope", "operate")
    server.start()
    assert server.call("GET", "/whoami", token=token).status == 200
    if not Path(f"/proc/{server.pid}").exists():
        pytest.skip("this system does not show processes as files")
    for pid in (server.pid, server.writer_pid):
        for name in ("cmdline", "environ"):
            assert token.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()


def test_no_line_of_the_log_can_be_forged(server: Server) -> None:
    server.start()
    forged = [
        '%0a{"event":"forged"}',
        "%E2%80%A8forged",
        "%C2%85forged",
        "%C2%9B2Jforged",
        "%1b[2J",
    ]
    for text in forged:
        path = f"/reservations/{text}".replace('"', "%22").replace("{", "%7b").replace("}", "%7d")
        assert server.call("GET", path).status == 400
    server.stop()
    assert server.seen("forged") == []
    assert all(line.isascii() and line.decode().isprintable() for line in server.written)
