"""What a browser can be made to do: nothing by simple requests; no answer is more than data."""

from pathlib import Path

import pytest

from reservation_service.web.answers import NO_CONTENT_RUNS, OF_ALL
from tests.conftest import StartService
from tests.http.answers import assert_problem
from tests.http.bookings import bring
from tests.http.callers import CALLS, make, new_key
from tests.support.harness import Answer, ServiceHarness
from tests.support.rows import rows

SIMPLE = [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    None,
]
"""What a page of another site may send without asking first."""


def assert_protected(answer: Answer) -> None:
    policy = {"Content-Security-Policy": NO_CONTENT_RUNS}
    for name, value in (OF_ALL | policy).items():
        assert answer.headers.getall(name) == [value], name
    assert answer.headers["Server-Time"].isdigit()


async def test_every_answer_says_what_a_browser_must_not_make_of_it(
    service: ServiceHarness,
) -> None:
    for name, call in CALLS.items():
        if name != "GET /docs":
            assert_protected(await make(service, call))
    for method, path in [("GET", "/nowhere"), ("PUT", "/"), ("POST", "/reservations/seat-1")]:
        answer = await service.request(method, path)
        assert answer.status in {404, 405, 415}
        assert_protected(answer)


async def test_refusals_at_the_door_say_it_too(start_service: StartService, database: Path) -> None:
    new_key(database, "reserve")
    service = await start_service(rate_limit={"per_address": "1/second"})
    refused = [await service.get("/reservations/seat-1") for _ in range(2)]
    assert [answer.status for answer in refused] == [401, 429]
    for answer in refused:
        assert_protected(answer)


@pytest.mark.parametrize("content_type", SIMPLE)
@pytest.mark.parametrize("body", [b"", b"{}", b'{"ttlSeconds": 60, "now": 1}'])
async def test_no_simple_request_of_another_site_changes_anything(
    start_service: StartService, content_type: str | None, body: bytes
) -> None:
    service = await start_service(cors={"origins": ["https://shop.example"]})
    await bring(service, "held", None, ["seat-1"])
    before = rows(service.database)
    headers = {"Origin": "https://evil.example"}
    if content_type is not None:
        headers["Content-Type"] = content_type
    for name, call in CALLS.items():
        if call.method == "POST":
            answer = await service.request(
                "POST",
                call.path,
                data=body,
                headers=headers,
                skip_auto_headers=["Content-Type"],
            )
            assert_problem(answer, 415, "unsupported-media-type")
            assert "Access-Control-Allow-Origin" not in answer.headers, name
    assert rows(service.database) == before


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_what_a_link_or_an_image_can_ask_for_changes_nothing(
    service: ServiceHarness, method: str
) -> None:
    await bring(service, "held", None, ["seat-1"])
    before = rows(service.database)
    for call in CALLS.values():
        await service.request(method, call.path)
    assert rows(service.database) == before


async def test_a_page_of_another_origin_cannot_send_a_key(start_service: StartService) -> None:
    """Keys are for servers; a page that had one would show it to everybody who looks."""
    service = await start_service(cors={"origins": ["https://shop.example"]})
    asked = {
        "Origin": "https://shop.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    answer = await service.request("OPTIONS", "/reservations/seat-1/confirm", headers=asked)
    assert answer.status >= 400
    assert "Access-Control-Allow-Headers" not in answer.headers


READ = CALLS["GET /reservations/{id}"]


async def called_by(service: ServiceHarness, host: str) -> Answer:
    return await service.request("GET", READ.path, headers={"Host": host})


@pytest.mark.parametrize("auth", [{}, {"mode": "none"}])
async def test_a_page_whose_name_was_made_to_lead_here_is_refused(
    start_service: StartService, auth: dict[str, object]
) -> None:
    service = await start_service(auth=auth, server={"hosts": ["booking.example"]})
    for host in ("evil.example", "evil.example:8787", "127.0.0.1.evil.example", "1.evil", "x.y."):
        assert_problem(await called_by(service, host), 421, "wrong-host")
    for method, path in [("POST", "/reservations/seat-1"), ("GET", "/docs"), ("GET", "/whoami")]:
        answer = await service.request(method, path, headers={"Host": "evil.example"})
        assert_problem(answer, 421, "wrong-host")
    assert (await service.request("GET", "/", headers={"Host": "evil.example"})).status == 200


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:8787", "LOCALHOST", "127.0.0.1", "127.0.0.1:8787", "192.0.2.7"),
        *("[::1]:8787", "[2001:db8::1]", "reservation-service:8787", "app.localhost:1", ""),
        *("booking.example", "BOOKING.example.", "booking.example:443"),
    ],
)
async def test_the_service_knows_its_own_names(start_service: StartService, host: str) -> None:
    service = await start_service(server={"hosts": ["booking.example"]})
    assert (await called_by(service, host)).status == 200


async def test_where_keys_are_required_any_name_will_do(
    start_service: StartService, database: Path
) -> None:
    token = new_key(database, "reserve")
    service = await start_service()
    given = {"Host": "booking.example", "Authorization": f"Bearer {token}"}
    assert (await service.request("GET", READ.path, headers=given)).status == 200
