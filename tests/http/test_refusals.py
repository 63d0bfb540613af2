"""The contract's table of refusals, line by line, and the order in which they are checked."""

import asyncio
import gzip
import json
from typing import Any

import pytest

from reservation_service.web import bodies
from tests.conftest import StartService
from tests.http.answers import (
    BODY_SENTENCE,
    ID_SENTENCE,
    NOW_SENTENCE,
    TTL_SENTENCE,
    assert_problem,
)
from tests.support.harness import Answer, ServiceHarness
from tests.support.rows import rows
from tests.support.waiting import bounded

JSON = {"Content-Type": "application/json"}
HOLD = "/reservations/seat-1"
REPLAY = "/reservations/seat-1/replay-alarm"

BAD_IDS = [
    "a",
    "ab",
    "a" * 41,
    "a" * 4_000,
    "Seat-1",
    "SEAT",
    "-seat",
    "seat-",
    "seat_1",
    "seat.1",
    "s%C3%A9at",
    "seat%2f1",
    "%2fetc%2fpasswd",
    "seat%0a",
    "%0aseat",
    "seat%00",
    "seat%20",
    "se%25at",
    "%ff%fe",
    "..%2f..",
    "%D9%A1%D9%A2%D9%A3",
    "%7bid%7d",
    "seat{1}",
]

BAD_BODIES = [
    b"",
    b" ",
    b"ttlSeconds=5",
    b"{",
    b'{"ttlSeconds": 5',
    b'{"ttlSeconds": 5}}',
    b"{'ttlSeconds': 5}",
    b'{"ttlSeconds": 05}',
    b'{"ttlSeconds": NaN}',
    b'{"ttlSeconds": Infinity}',
    b'{"ttlSeconds": -Infinity}',
    b"NaN",
    b"[]",
    b'[{"ttlSeconds": 5}]',
    b"5",
    b"null",
    b"true",
    b'"ttlSeconds"',
    b'{"ttlSeconds": "\xff"}',
    b"\xff\xfe{\x00}\x00",
    b'\xef\xbb\xbf{"ttlSeconds": 5}',
    b'{"\\ud800": 5}',
    b"[" * 10_000,
    b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
    b'{"ttlSeconds": ' + b"1" * 10_000 + b"}",
    b"1" * 10_000,
]

BAD_TTLS = [
    "4",
    "3601",
    "0",
    "-5",
    "5.5",
    "5.0000001",
    '"5"',
    "true",
    "null",
    "[]",
    "{}",
    "1e999",
    "-1e999",
    "1e300",
    "99999999999999999999999999",
    '"9e9"',
]

BAD_TIMES = [
    "0",
    "-1",
    "1.5",
    '"1800000000000"',
    "true",
    "null",
    "[1]",
    "9007199254740992",
    "1e400",
    "1e17",
    "-0.0",
]

UNKNOWN_PATHS = [
    "/nowhere",
    "/reservations/",
    "/reservations/seat-1/",
    "/reservations/seat-1/replay-alarm/",
    "/reservations/seat-1/extend/",
    "/reservations/seat-1/confirm/now",
    "/reservation",
    "/reservations/seat-1/replay",
    "/reservations/seat-1/replay-alarm/now",
    "/reservations//seat-1",
    "//",
    "/%2e%2e/",
    "/Reservations/seat-1",
    "/favicon.ico",
]


async def post(service: ServiceHarness, path: str, body: bytes | str, **headers: str) -> Answer:
    sent: dict[str, str] = JSON | {key.replace("_", "-"): value for key, value in headers.items()}
    return await service.request("POST", path, data=body, headers=sent)


async def send(service: ServiceHarness, *parts: bytes) -> tuple[int, bytes]:
    """Bytes over a bare socket; the status and body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        head = await bounded(reader.readuntil(b"\r\n\r\n"), "an answer")
        (length,) = (
            int(line.split(b":")[1])
            for line in head.splitlines()
            if line.lower().startswith(b"content-length:")
        )
        return int(head.split()[1]), await bounded(reader.readexactly(length), "its body")
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("name", BAD_IDS)
async def test_a_bad_id_is_refused_by_every_call(service: ServiceHarness, name: str) -> None:
    for answer in (
        await service.get(f"/reservations/{name}"),
        await service.post(f"/reservations/{name}", {"ttlSeconds": 5}),
        await service.post(f"/reservations/{name}/replay-alarm", {"now": 5}),
    ):
        assert_problem(answer, 400, "invalid-id", ID_SENTENCE)
    assert rows(service.database) == []


@pytest.mark.parametrize("path", [HOLD, REPLAY])
@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda body: repr(body[:30]))
async def test_what_is_no_json_object_is_refused(
    service: ServiceHarness, path: str, body: bytes
) -> None:
    assert_problem(await post(service, path, body), 400, "invalid-body", BODY_SENTENCE)
    assert service.recorder.of("request-failed") == []


@pytest.mark.parametrize("value", BAD_TTLS)
async def test_a_bad_time_to_live_is_refused(service: ServiceHarness, value: str) -> None:
    answer = await post(service, HOLD, f'{{"ttlSeconds": {value}}}')
    assert_problem(answer, 400, "invalid-field", TTL_SENTENCE)


async def test_a_missing_time_to_live_is_refused(service: ServiceHarness) -> None:
    assert_problem(await post(service, HOLD, "{}"), 400, "invalid-field", TTL_SENTENCE)


@pytest.mark.parametrize("value", BAD_TIMES)
async def test_a_bad_time_is_refused(service: ServiceHarness, value: str) -> None:
    answer = await post(service, REPLAY, f'{{"now": {value}}}')
    assert_problem(answer, 400, "invalid-field", NOW_SENTENCE)


async def test_a_missing_time_is_refused(service: ServiceHarness) -> None:
    assert_problem(await post(service, REPLAY, "{}"), 400, "invalid-field", NOW_SENTENCE)


@pytest.mark.parametrize("name", ["Holder", "generation", "ttlseconds", "now", "", "ttlSeconds "])
async def test_an_unknown_field_is_refused_by_name(service: ServiceHarness, name: str) -> None:
    answer = await service.post(HOLD, {"ttlSeconds": 5, name: 1})
    assert_problem(answer, 400, "unknown-field")
    assert json.dumps(name) in answer.json["error"]
    assert rows(service.database) == []


@pytest.mark.parametrize("name", ["x" * 5_000, "a\nb", "\x00", "💺" * 50])
async def test_an_unknown_field_is_named_within_bounds(service: ServiceHarness, name: str) -> None:
    answer = await service.post(HOLD, {"ttlSeconds": 5, name: 1})
    assert_problem(answer, 400, "unknown-field")
    assert len(answer.json["error"]) < 200
    assert "\n" not in answer.json["error"]


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonp",
        "application/problem+json",
        "application/octet-stream",
        "json",
        "",
    ],
)
@pytest.mark.parametrize("path", [HOLD, REPLAY])
async def test_a_body_that_is_not_declared_as_json_is_refused(
    service: ServiceHarness, path: str, content_type: str
) -> None:
    answer = await service.request(
        "POST", path, data=b'{"ttlSeconds": 5}', headers={"Content-Type": content_type}
    )
    assert_problem(answer, 415, "unsupported-media-type")


async def test_a_body_that_is_not_declared_at_all_is_refused(service: ServiceHarness) -> None:
    status, body = await send(
        service, b"POST /reservations/seat-1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert (status, json.loads(body)["code"]) == (415, "unsupported-media-type")


async def test_a_body_may_be_as_large_as_the_limit_and_no_larger(service: ServiceHarness) -> None:
    body = b'{"ttlSeconds": 5}'.ljust(16_384)
    assert (await post(service, HOLD, body)).status == 201
    assert_problem(await post(service, HOLD, body + b" "), 413, "body-too-large")


async def test_a_body_of_unknown_length_is_bounded_too(service: ServiceHarness) -> None:
    async def spaces() -> Any:
        for _ in range(20):
            yield b" " * 1_024

    answer = await service.request("POST", HOLD, data=spaces(), headers=JSON)
    assert_problem(answer, 413, "body-too-large")


async def test_the_limit_of_the_body_is_configuration(start_service: StartService) -> None:
    service = await start_service(server={"body_bytes_max": 256})
    assert (await post(service, HOLD, b'{"ttlSeconds": 5}'.ljust(256))).status == 201
    answer = await post(service, HOLD, b'{"ttlSeconds": 5}'.ljust(257))
    assert_problem(answer, 413, "body-too-large")


async def test_a_compressed_body_cannot_grow_beyond_the_limit(service: ServiceHarness) -> None:
    bomb = gzip.compress(b'{"ttlSeconds": 5}'.ljust(10_000_000))
    assert_problem(await post(service, HOLD, bomb, Content_Encoding="gzip"), 413, "body-too-large")


async def test_a_broken_compression_is_refused(service: ServiceHarness) -> None:
    answer = await post(service, HOLD, b"this is no gzip", Content_Encoding="gzip")
    assert_problem(answer, 400, "invalid-body", BODY_SENTENCE)


async def test_a_half_sent_body_is_not_waited_for_without_end(
    service: ServiceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS_MAX", 0.02)
    status, body = await send(
        service,
        b"POST /reservations/seat-1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b'Content-Length: 17\r\n\r\n{"ttlSec',
    )
    assert (status, json.loads(body)["code"]) == (408, "body-too-slow")
    assert rows(service.database) == []


@pytest.mark.parametrize("path", UNKNOWN_PATHS)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_unknown_path_is_not_found(
    service: ServiceHarness, method: str, path: str
) -> None:
    answer = await service.request(method, path, json={"ttlSeconds": 5})
    assert_problem(answer, 404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/", "GET, HEAD"),
        ("DELETE", "/", "GET, HEAD"),
        ("PUT", HOLD, "GET, HEAD, POST"),
        ("DELETE", HOLD, "GET, HEAD, POST"),
        ("PATCH", HOLD, "GET, HEAD, POST"),
        ("OPTIONS", HOLD, "GET, HEAD, POST"),
        ("PROPFIND", HOLD, "GET, HEAD, POST"),
        ("GET", REPLAY, "POST"),
        ("HEAD", REPLAY, "POST"),
        ("PUT", REPLAY, "POST"),
        ("POST", "/reservations", "GET, HEAD"),
        ("DELETE", "/reservations", "GET, HEAD"),
        ("GET", f"{HOLD}/extend", "POST"),
        ("PUT", f"{HOLD}/confirm", "POST"),
        ("DELETE", f"{HOLD}/release", "POST"),
    ],
)
async def test_another_method_is_refused_with_those_that_are_allowed(
    service: ServiceHarness, method: str, path: str, allow: str
) -> None:
    answer = await service.request(method, path)
    assert answer.headers["Allow"] == allow
    if method != "HEAD":
        assert_problem(answer, 405, "method-not-allowed")
    assert answer.status == 405


@pytest.mark.parametrize(
    ("call", "content_type", "body", "code"),
    [
        (("PUT", "/reservations/X/"), "text/plain", b"", "not-found"),
        (("PUT", "/reservations/X"), "text/plain", b"", "method-not-allowed"),
        (("POST", "/reservations/X"), "text/plain", b" " * 20_000, "invalid-id"),
        (("POST", HOLD), "text/plain", b" " * 20_000, "unsupported-media-type"),
        (("POST", HOLD), "application/json", b"{" * 20_000, "body-too-large"),
        (("POST", HOLD), "application/json", b'{"x": 1', "invalid-body"),
        (("POST", HOLD), "application/json", b'{"ttlSeconds": 1, "x": 1}', "unknown-field"),
        (("POST", HOLD), "application/json", b'{"ttlSeconds": 1}', "invalid-field"),
    ],
)
async def test_checks_come_in_the_order_of_the_contract(
    service: ServiceHarness, call: tuple[str, str], content_type: str, body: bytes, code: str
) -> None:
    answer = await service.request(*call, data=body, headers={"Content-Type": content_type})
    assert answer.json["code"] == code


async def test_a_field_that_is_given_twice_counts_once(service: ServiceHarness) -> None:
    answer = await post(service, HOLD, '{"ttlSeconds": 9000, "ttlSeconds": 5}')
    assert answer.status == 201


async def test_a_hostile_path_is_logged_as_what_it_is(start_service: StartService) -> None:
    service = await start_service(log={"access": True})
    await service.get("/reservations/seat%0a%7b%22event%22:%22forged%22%7d")
    (event,) = await service.recorder.seen("request")
    assert (event["status"], event["method"]) == (400, "GET")


HEAD = b"POST /reservations/seat-1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nnot a chunk\r\n",
        HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /reservations/s\xc3\xa9at HTTP/1.1\r\nHost: x\r\n\r\n",
        b"BREW /reservations/seat-1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 20_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
    ids=["chunk", "two-lengths", "raw-path", "unknown-method", "long-header", "tls"],
)
async def test_what_is_no_http_is_the_clients_mistake(
    service: ServiceHarness, request_bytes: bytes
) -> None:
    status, body = await send(service, request_bytes)
    assert status == 400
    assert b"Traceback" not in body
    assert service.recorder.of("request-failed") == []
    await service.hold("seat-2")
