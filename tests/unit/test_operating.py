"""What operators' commands ask of a service, against one that says what the test wants."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from io import StringIO
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from rich.console import Console

from reservation_service.operating import remote as remote_module
from reservation_service.operating.following import follow
from reservation_service.operating.remote import Remote, RemoteError
from reservation_service.operating.timeline import event_line, find, history, show_history
from tests.support.clock import START

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def event(seq: int, kind: str = "held", data: object = None) -> dict[str, Any]:
    return {
        "seq": seq,
        "type": kind,
        "reservation": "seat-1",
        "generation": 1,
        "at": START + seq,
        "trigger": "request",
        "data": data,
    }


ROW = {
    "reservationId": "seat-1",
    "status": "held",
    "expiresAt": START + 60_000,
    "alarmAt": START + 60_000,
    "generation": 1,
    "alarmRetryCount": 2,
    "alarmStuck": True,
}


class Told:
    """A service of the test's own, and the requests that it got."""

    def __init__(self) -> None:
        self.app = web.Application()
        self.requests: list[web.Request] = []
        self._server = TestServer(self.app)

    def answer(self, path: str, handler: Handler) -> None:
        async def remembered(request: web.Request) -> web.StreamResponse:
            self.requests.append(request)
            return await handler(request)

        self.app.router.add_get(path, remembered)

    async def remote(self, key: str | None = None) -> Remote:
        await self._server.start_server()
        return Remote(str(self._server.make_url("/")), key)

    async def close(self) -> None:
        await self._server.close()


@pytest.fixture
async def service() -> AsyncIterator[Told]:
    told = Told()
    yield told
    await told.close()


async def test_a_list_is_read_page_by_page_up_to_its_limit(service: Told) -> None:
    async def page(request: web.Request) -> web.Response:
        first = int(request.query.get("cursor", "0"))
        size = min(int(request.query["limit"]), 400)
        items = [{"reservationId": f"seat-{first + number}"} for number in range(size)]
        return web.json_response({"items": items, "nextCursor": str(first + size)})

    service.answer("/reservations", page)
    async with await service.remote("secret") as remote:
        found = await find(remote, 900, status="held", id_prefix="seat")
    names = [row["reservationId"] for row in found["items"]]
    assert names == [f"seat-{number}" for number in range(900)]
    assert found["nextCursor"] == "900"
    asked = [dict(request.query) for request in service.requests]
    assert [one["limit"] for one in asked] == ["500", "500", "100"]
    assert all(one["status"] == "held" and one["idPrefix"] == "seat" for one in asked)
    assert {request.headers["Authorization"] for request in service.requests} == {"Bearer secret"}


async def test_a_history_is_read_to_its_end_and_shown_as_a_timeline(service: Told) -> None:
    async def row(_request: web.Request) -> web.Response:
        return web.json_response(ROW, headers={"Server-Time": str(START + 50_000)})

    async def page(request: web.Request) -> web.Response:
        after, limit = int(request.query["after"]), int(request.query["limit"])
        last = min(after + limit, 501)
        items = [event(seq, "extended") for seq in range(after + 1, last + 1)]
        return web.json_response({"items": items, "nextAfter": last, "reset": False})

    service.answer("/reservations/seat-1", row)
    service.answer("/reservations/seat-1/events", page)
    async with await service.remote() as remote:
        told = await history(remote, "seat-1")
    assert [one["seq"] for one in told["events"]] == [*range(1, 502)]
    text = StringIO()
    show_history(told, START + 50_000, Console(file=text, width=120))
    lines = text.getvalue().splitlines()
    assert lines[0] == "seat-1 is held, its alarm is stuck"
    assert lines[1].split() == (
        ["2027-01-15", "08:00:00.001", "UTC", "extended", "by", "request", "generation", "1"]
    )
    assert "in 10 s" in lines[-1]
    assert "2 retries so far" in lines[-1]


async def test_a_service_without_a_log_still_shows_the_row(service: Told) -> None:
    async def row(_request: web.Request) -> web.Response:
        return web.json_response(ROW)

    service.answer("/reservations/seat-1", row)
    async with await service.remote() as remote:
        told = await history(remote, "seat-1")
    assert told == {"reservation": ROW, "events": None}


async def test_a_stream_that_breaks_is_taken_up_where_it_was(service: Told) -> None:
    parts = [
        [b"id: 7\n\n", b'id: 8\nevent: held\ndata: {"seq":8}\n\n', b": still here\n\n"],
        [b"id: 9\nevent: expired\nda", b'ta: {"seq":9}\n\nid: 10\nevent: lost\ndata: {"se'],
        [b'id: 10\nevent: reset\ndata: {"oldest":11}\n\n'],
    ]

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in parts[len(service.requests) - 1]:
            await response.write(part)
        return response

    service.answer("/events", stream)
    seen = []
    async with (
        await service.remote() as remote,
        aclosing(follow(remote, ["seat-1", "seat-2"], "latest", again_s=0)) as events,
    ):
        async for kind, document in events:
            seen.append((kind, document))
            if kind == "reset":
                break
    assert seen == [
        ("held", {"seq": 8}),
        ("broken", {"reason": "the stream ended"}),
        ("expired", {"seq": 9}),
        ("broken", {"reason": "the stream ended"}),
        ("reset", {"oldest": 11}),
    ]
    resumed = [request.headers.get("Last-Event-ID") for request in service.requests]
    assert resumed == [None, "8", "9"]
    for request in service.requests:
        assert request.query.getall("reservation") == ["seat-1", "seat-2"]
        assert (request.query["after"], request.headers["Accept"]) == (
            "latest",
            "text/event-stream",
        )


async def test_a_stream_that_cannot_begin_is_refused(service: Told) -> None:
    async with await service.remote() as remote:
        with pytest.raises(RemoteError, match="has no /events"):
            await anext(follow(remote, [], "latest"))


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (503, '{"detail": "The service is overloaded."}', "answered 503: The service is overload"),
        (403, '{"detail": "This call needs a key."}', "answered 403: This call needs a key."),
        (401, '{"detail": "Send a key."}', r"wants another key \(Send a key.\)"),
        (410, '{"status": "cleanup"}', "was destroyed"),
        (500, "<html>", "answered 500: this is no reservation service"),
        (302, "", "answered 302"),
        (200, "<html>", "is no reservation service"),
        (500, '{"detail": "\\u001b[2J"}', r"answered 500: \\x1b\[2J"),
    ],
)
async def test_what_the_service_refuses_is_told(
    service: Told, status: int, body: str, sentence: str
) -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return web.Response(status=status, text=body, headers={"Location": "/elsewhere"})

    service.answer("/reservations/seat-1", refuse)
    async with await service.remote() as remote:
        with pytest.raises(RemoteError) as refusal:
            await remote.document("/reservations/seat-1")
    told = str(refusal.value)
    assert told.isprintable()
    refusal.match(sentence)


async def test_a_service_that_hangs_is_told(service: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_module, "SECONDS_MAX", 0.05)

    async def hang(_request: web.Request) -> web.Response:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    service.answer("/", hang)
    async with await service.remote() as remote:
        with pytest.raises(RemoteError, match="did not answer within"):
            await remote.document("/")


@pytest.mark.parametrize(
    "url", ["", "seat", "ftp://127.0.0.1", "http://", "http://[::1", "http://h:x"]
)
def test_an_address_that_is_none_is_told(url: str) -> None:
    with pytest.raises(RemoteError, match="is no address"):
        Remote(url, None)


def test_what_a_client_wrote_cannot_steer_the_terminal() -> None:
    line = event_line(event(1, data={"eventId": "\x1b[2J\n\u202e"}))
    assert line.isprintable()
    assert line.isascii()
