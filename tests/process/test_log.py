"""Standard output is one JSON object a line, whatever clients send."""

import socket
from contextlib import closing

from tests.process.server import PATIENCE_S, Server

HOSTILE = [
    b"GET /reservations/abc%0a%7b%22event%22:%22forged%22%7d HTTP/1.1\r\nHost: test\r\n\r\n",
    b"GET /reservations/\xff\xfe HTTP/1.1\r\nHost: test\r\n\r\n",
    b"BREW /\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"POST /reservations/abc HTTP/1.1\r\nHost: test\r\nContent-Length: -1\r\n\r\n",
]


def test_every_line_of_the_log_is_one_json_object(server: Server) -> None:
    server.start()
    for text in HOSTILE:
        with closing(socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)) as client:
            client.sendall(text)
            assert b" 40" in client.recv(4096).splitlines()[0]
    server.stop()  # fails on a line that is not JSON
    assert all(type(line["event"]) is str for line in server.lines)
    assert all(type(line["timestamp"]) is int for line in server.lines)
    assert server.seen("forged") == []
