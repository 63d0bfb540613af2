"""The shortcut past aiohttp's router finds what the router would have found."""

import re
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import example, given
from hypothesis import strategies as st

from reservation_service.web.api import RESERVATION
from reservation_service.web.cors import allow_origins
from reservation_service.web.guard import ACCESS
from reservation_service.web.routing import UNROUTED, Routing

METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "post"]
SHORT = "POST", "/reservations/seat-1/confirm"

words = {word for name in ACCESS for word in re.findall(r"[a-z-]+", name)}
segments = st.text("az09-AZ.%2f éß~_+;:@", max_size=6) | st.sampled_from(
    [*sorted(words), "seat-1", "..", "%2F"]
)
paths = st.lists(segments, max_size=4).map(lambda parts: "/" + "/".join(parts).lstrip("/"))
of_one = st.lists(segments, max_size=3).map(lambda parts: "/reservations/" + "/".join(parts))
queries = st.sampled_from(["", "", "?", "?id=seat-1", "#there"])


async def answer(_request: web.Request) -> web.Response:
    raise AssertionError("nothing is called here")


async def ask_the_router(_request: web.Request) -> web.Response:
    raise AssertionError("nothing is called here")


@pytest.fixture(scope="module", params=[(), ("https://shop.example",)])
def app(request: pytest.FixtureRequest) -> web.Application:
    app = web.Application()
    for name in ACCESS:
        method, path = name.split(" ")
        path = path.replace("/reservations/{id}", RESERVATION)
        app.router.add_route(method, path, answer)
        if method == "GET":
            app.router.add_route("HEAD", path, answer)
    allow_origins(app, request.param)
    return app


@pytest.fixture(scope="module")
def routing(app: web.Application) -> Routing:
    return Routing(app, ask_the_router)


def found(match: Any) -> tuple[Any, dict[str, str]]:
    return match.route, dict(match)


@given(st.sampled_from(METHODS), paths | of_one, queries)
@example(*SHORT, "")
@example("GET", "/reservations/seat-1/nothing", "")
@example("POST", "/reservations/seat-1/", "")
@example("GET", "/reservations/seat-1%0A", "")
async def test_a_shortcut_leads_where_the_router_leads(
    app: web.Application, routing: Routing, method: str, path: str, query: str
) -> None:
    request = make_mocked_request(method, path + query)
    if routing.find(request) is ask_the_router:
        return
    assert found(request.match_info) == found(await app.router.resolve(request))
    assert request.app is app


@pytest.mark.parametrize("name", [name for name in ACCESS if "/{id}" in name])
def test_a_reservations_own_calls_take_the_shortcut(routing: Routing, name: str) -> None:
    method, path = name.split(" ")
    request = make_mocked_request(method, path.replace("{id}", "seat-1"))
    is_short = "{eventId}" not in path
    assert (routing.find(request) is answer) is is_short
    if is_short:
        assert routing.name_of(request) == name


def test_who_asks_whether_to_send_a_body_is_answered_by_aiohttp(routing: Routing) -> None:
    request = make_mocked_request(*SHORT, headers={"Expect": "100-continue"})
    assert routing.find(request) is ask_the_router


def test_what_would_be_walked_around_is_refused(app: web.Application) -> None:
    @web.middleware
    async def look(request: web.Request, handler: Any) -> web.StreamResponse:
        raise AssertionError("it is not called")

    with pytest.raises(AssertionError, match="walked around"):
        Routing(web.Application(middlewares=[look]), ask_the_router)
    plain = web.Application()
    plain.router.add_get("/reservations/export", answer)
    with pytest.raises(AssertionError, match="never be found"):
        Routing(plain, ask_the_router)


async def test_the_route_can_be_found_without_calling_it(routing: Routing) -> None:
    request = make_mocked_request(*SHORT)
    await routing.route_only(request)
    assert routing.name_of(request) == "POST /reservations/{id}/confirm"
    astray = make_mocked_request("POST", "/nowhere")
    await routing.route_only(astray)
    assert routing.name_of(astray) == UNROUTED
