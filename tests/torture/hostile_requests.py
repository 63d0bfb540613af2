"""Hostile HTTP, one request at a time: each gets a clear 4xx or a closed connection, soon.

None is answered by a 5xx, none leaves a forged line in the log or memory behind, and the service
goes on answering everybody else.
"""

import gzip
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import NamedTuple

from tests.torture.clients import HOST, get, post
from tests.torture.report import Harness, Report
from tests.torture.scratch import allowed, resident_mib, scratch
from tests.torture.target import Target

ANSWER_SECONDS_MAX = 1.0
CLOSED_SECONDS_MAX = 25.0
GROWN_MIB_MAX = 32
BODY_BYTES_MAX = 16_384
ROUNDS = 20
CLOSED = 0
"""The status of an attack whose connection was closed without an answer."""

BAD, UNSUPPORTED, LARGE = {400}, {415}, {413}
REFUSED = {400, 404, 405, 413, 414, 415, 417, 431, 501, 505}
_PATH = "/reservations/hostile"
_FORGED = "%0a%7b%22event%22:%22forged%22%7d"
_RAW = b'"event":"forged"'


class Attack(NamedTuple):
    """What is sent, and the statuses that are a clear answer to it; `CLOSED` is allowed as well."""

    name: str
    text: bytes
    statuses: set[int]


def _body(name: str, body: bytes, statuses: set[int], *headers: str) -> Attack:
    return Attack(f"body: {name}", post(_PATH, body, *headers), statuses)


def _head(name: str, head: bytes, statuses: set[int] = REFUSED) -> Attack:
    return Attack(f"head: {name}", head, statuses)


def _path(name: str, path: bytes, statuses: set[int] = REFUSED) -> Attack:
    return Attack(
        f"path: {name}", b"GET /reservations/" + path + b" HTTP/1.1\r\nHost: x\r\n\r\n", statuses
    )


def _post_head(*headers: bytes) -> bytes:
    lines = [f"POST {_PATH} HTTP/1.1".encode(), b"Host: x", b"Content-Type: application/json"]
    return b"\r\n".join([*lines, *headers]) + b"\r\n\r\n"


def bodies() -> Iterator[Attack]:
    yield _body("empty", b"", BAD)
    yield _body("NaN", b'{"ttlSeconds":NaN}', BAD)
    yield _body("Infinity", b'{"ttlSeconds":-Infinity}', BAD)
    yield _body("1e999", b'{"ttlSeconds":1e999}', BAD)
    yield _body("10,000 digits", b'{"ttlSeconds":%s}' % (b"9" * 10_000), BAD)
    yield _body("10,000 digits after the point", b'{"ttlSeconds":5.%s}' % (b"0" * 10_000), {201})
    yield _body("a huge exponent", b'{"ttlSeconds":1e%s}' % (b"9" * 10_000), BAD)
    yield _body("not UTF-8", b'{"ttlSeconds":"\xff\xfe"}', BAD)
    yield _body("half a surrogate", b'{"ttlSeconds":"\\ud800"}', BAD)
    yield _body("half a surrogate as a name", b'{"\\udfff":1}', BAD)
    yield _body("a line end in a name", b'{"ttl\\n%s":1}' % _RAW.replace(b'"', b'\\"'), BAD)
    yield _body("NUL", b'{"ttlSeconds":5}\0', BAD)
    yield _body("a byte order mark", b'\xef\xbb\xbf{"ttlSeconds":5}', BAD)
    yield _body("UTF-16", '{"ttlSeconds":5}'.encode("utf-16"), BAD)
    yield _body("an array", b"[5]", BAD)
    yield _body("two documents", b'{"ttlSeconds":5}{"ttlSeconds":5}', BAD)
    yield _body("deep arrays", b"[" * 8000 + b"]" * 8000, BAD)
    yield _body("deep objects", b'{"a":' * 2500 + b"1" + b"}" * 2500, BAD)
    yield _body("deeper than allowed in size", b"[" * 100_000, LARGE)
    yield _body(
        "1,000 unknown fields", b"{%s}" % b",".join(b'"f%d":1' % n for n in range(1000)), BAD
    )
    yield _body("a byte too long", b" " * (BODY_BYTES_MAX - 15) + b'{"ttlSeconds":5}', LARGE)
    yield _body("a megabyte", b'"%s"' % (b"a" * (1 << 20)), LARGE)
    yield _body("plain text", b'{"ttlSeconds":5}', UNSUPPORTED | BAD, "Content-Type: text/plain")
    for coding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
        bomb = pack(b'"%s"' % (b"a" * (10 << 20)))
        yield _body(f"a {coding} bomb", bomb, LARGE | BAD, f"Content-Encoding: {coding}")
    twice = gzip.compress(gzip.compress(b"a" * (10 << 20)))
    yield _body("a bomb in a bomb", twice, REFUSED, "Content-Encoding: gzip, gzip")
    yield _body("no gzip at all", b'{"ttlSeconds":5}', REFUSED, "Content-Encoding: gzip")
    yield _body("an unknown coding", b'{"ttlSeconds":5}', REFUSED | {201}, "Content-Encoding: zzz")
    yield _body("expecting the impossible", b'{"ttlSeconds":5}', {417}, "Expect: a-miracle")


def lengths() -> Iterator[Attack]:
    """Where a request ends, told in contradictory ways: what smuggles requests past a proxy."""
    smuggled = b"0\r\n\r\n" + get("/reservations/smuggled")
    both = _post_head(b"Content-Length: 3", b"Transfer-Encoding: chunked")
    yield _head("length and chunks", both + smuggled)
    yield _head(
        "chunks and length", _post_head(b"Transfer-Encoding: chunked", b"Content-Length: 3")
    )
    yield _head("two lengths", _post_head(b"Content-Length: 5", b"Content-Length: 6") + b"12345")
    yield _head("a list of lengths", _post_head(b"Content-Length: 5, 5") + b"12345")
    for value in (b"-1", b"+5", b"0x10", b"5 5", b"", b"9" * 30, b"\xb2"):
        yield _head(f"length {value!r}", _post_head(b"Content-Length: " + value) + b"12345")
    for value in (
        b"xchunked",
        b"chunked, gzip",
        b"gzip, chunked",
        b"chunked, chunked",
        b"\x0bchunked",
    ):
        yield _head(f"coding {value!r}", _post_head(b"Transfer-Encoding: " + value) + smuggled)
    chunked = _post_head(b"Transfer-Encoding: chunked")
    for size in (b"zz", b"-5", b"0x5", b"f" * 20, b"5;" + b"a" * 10_000, b"5\n"):
        yield _head(f"chunk size {size[:8]!r}", chunked + size + b"\r\n12345\r\n0\r\n\r\n")
    yield _head("2 MB in chunks", chunked + (b"1000\r\n" + b"a" * 4096 + b"\r\n") * 512, LARGE)
    yield _head("200 MB announced", _post_head(b"Content-Length: 200000000"), LARGE)


def heads() -> Iterator[Attack]:
    line = b"GET / HTTP/1.1\r\n"
    yield _head("no Host", line + b"\r\n")
    yield _head("two Hosts", line + b"Host: x\r\nHost: y\r\n\r\n")
    yield _head("a header of 9,000 bytes", line + b"Host: x\r\nX: " + b"a" * 9000 + b"\r\n\r\n")
    many = b"".join(b"X%d: a\r\n" % number for number in range(10_000))
    yield _head("10,000 headers", line + b"Host: x\r\n" + many + b"\r\n")
    yield _head("a header of a megabyte", line + b"Host: x\r\nX: " + b"a" * (1 << 20))
    yield _head("a request line of 9,000 bytes", b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n")
    yield _head("bare line feeds", b"GET / HTTP/1.1\nHost: x\n\n", REFUSED)
    yield _head("a folded header", line + b"Host: x\r\nX: a\r\n b\r\n\r\n")
    yield _head("a space before the colon", line + b"Host : x\r\n\r\n")
    yield _head("NUL in a header", line + b"Host: x\r\nX: a\0b\r\n\r\n")
    yield _head("a header without a name", line + b"Host: x\r\n: a\r\n\r\n")
    yield _head("HTTP/0.9", b"GET /\r\n\r\n", REFUSED | {200})
    yield _head("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    yield _head("HTTP/9.9", b"GET / HTTP/9.9\r\nHost: x\r\n\r\n")
    yield _head("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200))
    yield _head("noise", bytes(range(256)) * 4)
    yield _head("an unknown method", b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n")
    yield _head("TRACE", b"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n")
    yield _head("CONNECT", b"CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n")
    yield _head("OPTIONS *", b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
    yield _head(
        "an upgrade nobody offers",
        line + b"Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + bytes(1000),
        REFUSED | {200},
    )


def paths() -> Iterator[Attack]:
    for name, path in (
        ("NUL", b"abc%00d"),
        ("a line end", b"abc%0ad"),
        ("a line end at the end", b"abc%0a"),
        ("a slash", b"abc%2fd"),
        ("a forged log line", b"abc" + _FORGED.encode()),
        ("no UTF-8", b"abc%ff"),
        ("raw bytes", b"abc\xff\xfe"),
        ("letters of another width", b"%ef%bd%81bc"),
        ("8,000 letters", b"a" * 8000),
        ("a way up", b"../../etc/passwd"),
        ("half an escape", b"abc%2"),
        ("no escape", b"abc%zz"),
        ("escape codes of a terminal", b"abc%1b%5b2J"),
        ("SQL", b"a'%3bdrop%20table%20reservation--"),
    ):
        yield _path(name, path)


def attacks() -> list[Attack]:
    return [*bodies(), *lengths(), *heads(), *paths()]


def run(scale: float, *, bug: str | None = None) -> Report:
    """The whole table, again and again."""
    report, rounds = Report(), max(1, round(ROUNDS * scale))
    with scratch(bug=bug, log__access=True) as target:
        target.start()
        table = attacks()
        for attack in table:  # what is made once need not be called a leak
            if bug is not None and report.violations:
                break
            _attempt(target, report, attack, allowed(ANSWER_SECONDS_MAX, scale))
        before_mib = resident_mib(target)
        for attack in table * rounds:
            if bug is not None and report.violations:
                break
            _attempt(target, report, attack, allowed(ANSWER_SECONDS_MAX, scale))
        report.figures["attacks"] = len(table) * (rounds + 1)
        grown = resident_mib(target) - before_mib
        report.figures["memory grown MiB"] = grown
        report.require(grown <= GROWN_MIB_MAX, f"the memory has grown by {grown} MiB")
        _check_the_log(target, report)
    return report


def _attempt(target: Target, report: Report, attack: Attack, seconds_max: float) -> None:
    began = time.monotonic()
    status = _exchange(target.port, attack.text, seconds_max)
    seconds = round(time.monotonic() - began, 2)
    report.figures["slowest answer s"] = max(
        seconds, float(report.figures.get("slowest answer s", 0))
    )
    told = "no answer" if status is None else f"{status}"
    report.require(
        status is not None and status in attack.statuses | {CLOSED}, f"{attack.name}: {told}"
    )


def _exchange(port: int, text: bytes, seconds_max: float) -> int | None:
    """The status of the first answer, `CLOSED`, or None when nothing happens in time."""
    with closing(socket.create_connection((HOST, port), seconds_max)) as client:
        try:
            client.sendall(text)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has refused the rest already
        except TimeoutError:
            return None
        answer = b""
        while b"\r\n" not in answer:
            try:
                more = client.recv(4096)
            except ConnectionResetError:
                return CLOSED
            except TimeoutError:
                return None
            if not more:
                return CLOSED
            answer += more
    return int(answer.split(b" ", 2)[1])


_EXPECTED_EVENTS = {
    "migrations-applied",
    "alarms-reloaded",
    "service-started",
    "integrity-checked",
    "reservation-alarm",
    "request",
    "http-error",
    "service-stopping",
    "service-stopped",
}


def _check_the_log(target: Target, report: Report) -> None:
    """Every line is one of ours, and JSON, which the reader of the log checks at the end."""
    answer = target.call("GET", "/")
    report.require(answer.status == 200, f"afterwards / answers {answer.status}")
    try:
        target.stop()
    except AssertionError:
        report.violations.append(f"the log is broken: {target._not_json[:1]}")
        target._not_json.clear()
        target.end()
    others = {line["event"] for line in target.lines} - _EXPECTED_EVENTS
    report.require(not others, f"the log has lines of {others}")


HARNESS = Harness(
    name="hostile-requests",
    promise="hostile requests get a clear 4xx or a closed connection at once, and leave no trace",
    run=run,
    controls={
        bug: partial(run, 0.01, bug=bug) for bug in ("read-any-body", "log-what-clients-say")
    },
    short=0.05,
)
