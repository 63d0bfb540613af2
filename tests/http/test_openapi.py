"""The description of the API: complete, made from what is served, and shown without the world."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reservation_service.web.guard import ACCESS, Access
from reservation_service.web.problems import STATUS_BY_CODE, Problem
from reservation_service.web.views import ReservationView
from tests.conftest import StartService
from tests.http.answers import assert_problem
from tests.http.callers import CALLS
from tests.support.harness import ServiceHarness

ABOUT_ITSELF = {"GET /openapi.json", "GET /docs", "GET /docs/{asset}"}
OF_THE_ROUTER = {"not-found", "method-not-allowed", "not-http"}


async def document(service: ServiceHarness) -> Any:
    answer = await service.get("/openapi.json")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    return answer.json


def described(api: Any) -> dict[str, Any]:
    return {
        f"{method.upper()} {path}": operation
        for path, item in api["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    }


async def test_every_call_is_described(service: ServiceHarness) -> None:
    api = await document(service)
    assert api["openapi"] == "3.1.0"
    assert described(api).keys() == CALLS.keys() - ABOUT_ITSELF


async def test_a_closed_door_is_not_described(start_service: StartService) -> None:
    service = await start_service(reservations={"replay_alarm": False})
    assert "/reservations/{id}/replay-alarm" not in (await document(service))["paths"]


async def test_every_error_is_described_with_an_example(service: ServiceHarness) -> None:
    api = await document(service)
    named = {
        code
        for operation in described(api).values()
        for answer in operation["responses"].values()
        for content in answer["content"].values()
        for code in content.get("examples", {})
    }
    assert named - {"held"} == STATUS_BY_CODE.keys() - OF_THE_ROUTER
    for code, example in api["components"]["examples"].items():
        if code == "held":
            msgspec.convert(example["value"], ReservationView)
        else:
            problem = msgspec.convert(example["value"], Problem)
            assert (problem.code, problem.status) == (code, STATUS_BY_CODE[code])


async def test_every_reference_leads_somewhere(service: ServiceHarness) -> None:
    answer = await service.get("/openapi.json")
    api = answer.json
    found = set(re.findall(r'"\$ref":"#/([^"]+)"', answer.body.decode()))
    assert len(found) > 20
    for reference in found:
        place = api
        for step in reference.split("/"):
            place = place[step]
    operations = {operation["operationId"] for operation in described(api).values()}
    links = api["paths"]["/reservations/{id}"]["post"]["responses"]["201"]["links"]
    assert {link["operationId"] for link in links.values()} <= operations


async def test_the_bounds_are_those_of_the_configuration(start_service: StartService) -> None:
    bounds = {"ttl_seconds_min": 7, "ttl_seconds_max": 70, "require_holder": True}
    service = await start_service(reservations=bounds)
    api = await document(service)
    schemas = api["components"]["schemas"]
    for name in ("HoldBody", "ExtendBody"):
        ttl = schemas[name]["properties"]["ttlSeconds"]
        assert (ttl["type"], ttl["minimum"], ttl["maximum"]) == ("integer", 7, 70)
        assert schemas[name]["additionalProperties"] is False
    hold = api["paths"]["/reservations/{id}"]["post"]["requestBody"]["content"]
    assert "holder" in hold["application/json"]["schema"]["required"]


@pytest.mark.parametrize(
    ("auth", "public"), [({}, [{"key": []}]), ({"public": True}, [{}, {"key": []}])]
)
async def test_what_needs_a_key_says_so(
    start_service: StartService, auth: dict[str, object], public: list[object]
) -> None:
    service = await start_service(auth=auth)
    for name, operation in described(await document(service)).items():
        expected = {
            Access.PROBE: [],
            Access.OPEN: [],
            Access.PUBLIC: public,
            Access.RESERVE: [{"key": []}],
            Access.OPERATE: [{"key": []}],
        }
        assert operation["security"] == expected[ACCESS[name]], name
        assert ("401" in operation["responses"]) == bool(operation["security"]) or (
            name == "GET /whoami"
        )


async def test_where_nobody_is_asked_no_call_needs_a_key(start_service: StartService) -> None:
    service = await start_service(auth={"mode": "none"})
    operations = described(await document(service)).values()
    assert [operation["security"] for operation in operations] == [[]] * len(operations)


# The page


async def test_the_page_has_all_it_needs_from_here(service: ServiceHarness) -> None:
    page = await service.get("/docs")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    needed = re.findall(r'(?:src|href)="([^"]+)"', page.body.decode())
    assert needed == [
        "docs/favicon-32x32.png",
        "docs/swagger-ui.css",
        "docs/swagger-ui-bundle.js",
        "docs/start.js",
    ]
    for path in needed:
        asset = await service.get(f"/{path}")
        assert asset.status == 200
        assert asset.headers["Content-Type"].startswith(("text/", "image/png"))
    assert b"//" not in page.body
    assert "'unsafe-inline'" not in page.headers["Content-Security-Policy"].split("style-src")[0]


@pytest.mark.parametrize(
    "name", ["index.html", "..%2fcore.py", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "LICENSE", "%00"]
)
async def test_nothing_else_of_the_package_is_served(service: ServiceHarness, name: str) -> None:
    assert_problem(await service.get(f"/docs/{name}"), 404, "not-found")


def test_the_page_is_not_made_of_the_package_s_code() -> None:
    sources = Path(__file__).parents[2].joinpath("reservation_service").rglob("*.py")
    assert [path for path in sources if "import swagger_ui" in path.read_text()] == []
