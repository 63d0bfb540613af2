"""Which other sites' pages may call from a browser: those that are configured, on every answer."""

import pytest

from tests.conftest import StartService
from tests.http.bookings import bring, hold
from tests.support.harness import Answer, ServiceHarness

SHOP, OTHER = "https://shop.example", "https://evil.example"
SETTINGS: dict[str, object] = {"origins": [SHOP, "http://localhost:5173"]}
EXPOSED = {"Location", "Retry-After", "Server-Time", "X-Request-ID"}

ANSWERS: list[tuple[str, str, object, int]] = [
    ("GET", "/", None, 200),
    ("GET", "/reservations/seat-1", None, 200),
    ("GET", "/reservations", None, 200),
    ("GET", "/reservations?id=seat-1&id=seat-9", None, 200),
    ("GET", "/events", None, 200),
    ("GET", "/events?after=x", None, 400),
    ("POST", "/reservations/seat-9", {"ttlSeconds": 60}, 201),
    ("POST", "/reservations/seat-9/release", {}, 200),
    ("POST", "/reservations/seat-1", {"ttlSeconds": 60}, 409),
    ("POST", "/reservations/seat-1/confirm", {}, 403),
    ("POST", "/reservations/seat-1/extend", {"ttlSeconds": 60}, 403),
    ("POST", "/reservations/seat-5/confirm", {}, 410),
    ("POST", "/reservations/seat-1", {"ttlSeconds": 4}, 400),
    ("PUT", "/reservations/seat-5/schedule/call", {"runAt": 1}, 410),
    ("GET", "/reservations/seat-1/schedule", None, 403),
    ("DELETE", "/reservations/seat-5/schedule/call", None, 404),
    ("GET", "/reservations/X", None, 400),
    ("GET", "/reservations?limit=0", None, 400),
    ("POST", "/reservations/seat-1", None, 415),
]


def granted(answer: Answer) -> dict[str, str]:
    """What this answer lets a browser do."""
    return {
        name: value
        for name, value in answer.headers.items()
        if name.lower().startswith("access-control-")
    }


def words(text: str) -> set[str]:
    return {word.strip() for word in text.split(",")}


async def call(
    service: ServiceHarness, method: str, path: str, document: object, origin: str | None
) -> Answer:
    headers = {"Origin": origin} if origin else {}
    if document is None:
        return await service.request(method, path, headers=headers)
    return await service.request(method, path, json=document, headers=headers)


async def preflight(
    service: ServiceHarness, path: str, origin: str, method: str = "POST"
) -> Answer:
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "content-type,reservation-holder",
    }
    return await service.request("OPTIONS", path, headers=asked)


@pytest.fixture
async def service(start_service: StartService) -> ServiceHarness:
    service = await start_service(cors=SETTINGS)
    await bring(service, "held", "alice", ["seat-1"])
    return service


@pytest.mark.parametrize(("method", "path", "document", "status"), ANSWERS)
async def test_a_configured_page_may_read_every_answer_refusals_too(
    service: ServiceHarness, method: str, path: str, document: object, status: int
) -> None:
    answer = await call(service, method, path, document, SHOP)
    if path.startswith("/reservations/seat-9/"):
        assert answer.json["status"] == "missing"
    assert answer.status == status
    assert answer.headers["Access-Control-Allow-Origin"] == SHOP
    assert words(answer.headers["Access-Control-Expose-Headers"]) == EXPOSED
    assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize("origin", [OTHER, "null", f"{SHOP}.evil.example", f"{SHOP}:8443", None])
async def test_any_other_page_is_granted_nothing(
    service: ServiceHarness, origin: str | None
) -> None:
    for method, path, document, status in ANSWERS:
        answer = await call(service, method, path, document, origin)
        assert (answer.status, granted(answer)) == (status, {}), (method, path)


@pytest.mark.parametrize(
    "path",
    [
        "/reservations/seat-1",
        *(
            f"/reservations/seat-1/{verb}"
            for verb in ("extend", "confirm", "release", "replay-alarm")
        ),
    ],
)
async def test_a_browser_may_ask_before_it_posts_json(service: ServiceHarness, path: str) -> None:
    for origin in (SHOP, "http://localhost:5173"):
        answer = await preflight(service, path, origin)
        assert answer.status == 200
        assert answer.headers["Access-Control-Allow-Origin"] == origin
        assert "POST" in words(answer.headers["Access-Control-Allow-Methods"])
        assert "CONTENT-TYPE" in words(answer.headers["Access-Control-Allow-Headers"].upper())
        assert answer.headers["Access-Control-Max-Age"] == "600"
        assert answer.headers["Server-Time"]


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_a_browser_may_ask_before_it_plans_or_cancels(
    service: ServiceHarness, method: str
) -> None:
    answer = await preflight(service, "/reservations/seat-1/schedule/call", SHOP, method)
    assert answer.status == 200
    assert method in words(answer.headers["Access-Control-Allow-Methods"])
    assert "RESERVATION-HOLDER" in words(answer.headers["Access-Control-Allow-Headers"].upper())


async def test_a_question_of_an_unknown_page_is_granted_nothing(service: ServiceHarness) -> None:
    for origin in (OTHER, "null"):
        answer = await preflight(service, "/reservations/seat-1", origin)
        assert answer.status >= 400
        assert granted(answer) == {}


async def test_a_question_for_a_method_that_is_not_there_is_granted_nothing(
    service: ServiceHarness,
) -> None:
    answer = await preflight(service, "/reservations/seat-1", SHOP, method="DELETE")
    assert answer.status >= 400
    assert granted(answer) == {}


async def test_a_page_can_read_how_long_to_wait(service: ServiceHarness) -> None:
    answer = await call(service, "POST", "/reservations/seat-1", {"ttlSeconds": 60}, SHOP)
    assert answer.headers["Retry-After"] == "60"
    assert answer.headers["Server-Time"] == str(service.clock.now())


async def test_without_configured_origins_nobody_is_granted_anything(
    start_service: StartService,
) -> None:
    service = await start_service()
    answer = await hold(service, "seat-1")
    assert granted(answer) == {}
    answer = await call(service, "GET", "/reservations/seat-1", None, SHOP)
    assert (answer.status, granted(answer)) == (200, {})
    answer = await preflight(service, "/reservations/seat-1", SHOP)
    assert (answer.status, granted(answer)) == (405, {})


async def test_a_configured_page_may_follow_a_stream(service: ServiceHarness) -> None:
    async with service.follow("/events", origin=SHOP) as stream:
        assert stream.response.headers["Access-Control-Allow-Origin"] == SHOP
    async with service.follow("/events", origin=OTHER) as stream:
        assert "Access-Control-Allow-Origin" not in stream.response.headers
