"""What an answer looks like on the wire: the same as one that aiohttp writes from a dictionary."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from reservation_service.correlation import REQUEST_ID
from reservation_service.web.answers import Answer, finish
from tests.support.waiting import bounded

BODY = '{"name":"Zoë"}'.encode()
NOW = 1_795_971_630_000
Make = Callable[[], web.StreamResponse]
Ask = Callable[[str], Awaitable[bytes]]


def ours() -> web.StreamResponse:
    return Answer(BODY, status=201, headers={"Location": "/reservations/seat-1"})


def theirs() -> web.StreamResponse:
    return web.Response(
        body=BODY,
        status=201,
        content_type="application/json",
        headers={"Location": "/reservations/seat-1"},
    )


@asynccontextmanager
async def serving(make: Make) -> AsyncIterator[Ask]:
    """`ask` sends what it is given; all that is answered until the connection is closed."""

    async def handle(_request: web.Request) -> web.StreamResponse:
        REQUEST_ID.set("abc-1")
        answer = make()
        finish(answer, NOW)
        return answer

    async def add_vary(_request: web.Request, answer: web.StreamResponse) -> None:
        answer.headers["Vary"] = "Origin"

    app = web.Application()
    app.router.add_get("/", handle)
    app.on_response_prepare.append(add_vary)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()

    async def ask(head: str) -> bytes:
        reader, writer = await asyncio.open_connection(*runner.addresses[0][:2])
        writer.write(head.encode())
        answered = await bounded(reader.read(), "the connection to end")
        writer.close()
        await writer.wait_closed()
        return answered

    try:
        yield ask
    finally:
        await runner.cleanup()


def told(answered: bytes) -> list[tuple[str, list[str], bytes]]:
    """Of each answer the status line, the names and values in order, and the body."""
    told = []
    for answer in answered.split(b"HTTP/")[1:]:
        head, _, body = answer.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        fields = sorted(line for line in lines if not line.startswith("Date: "))
        assert len(fields) == len(lines) - 1
        told.append((status, fields, body))
    return told


@pytest.mark.parametrize(
    "head",
    [
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "HEAD / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    ],
)
async def test_an_answer_is_what_aiohttp_would_have_written(head: str) -> None:
    async with serving(ours) as ask:
        our_answers = told(await ask(head))
    async with serving(theirs) as ask:
        their_answers = told(await ask(head))
    assert our_answers == their_answers
    assert len(our_answers) == head.count("HTTP/1.")


async def test_a_line_break_in_a_header_reaches_nobody() -> None:
    async with serving(lambda: Answer(BODY, headers={"Location": "/\r\nSet-Cookie: a=b"})) as ask:
        answered = await ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert b"Set-Cookie" not in answered
