"""The writing end of one stream."""

from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from reservation_service.web.streams import StreamLimits, StreamReader
from tests.support.clock import START


async def test_a_reader_that_goes_while_its_headers_are_sent_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    request = make_mocked_request("GET", "/events")
    limits = StreamLimits(buffer_bytes=1, heartbeat_s=3_600)
    reader = StreamReader(request, limits, lambda name, **_: told.append(name))

    prepare = reader.response.prepare

    async def go_meanwhile(request: web.Request) -> None:
        await prepare(request)
        cast("Any", request.protocol).transport = None

    monkeypatch.setattr(reader.response, "prepare", go_meanwhile)
    with pytest.raises(ConnectionResetError):
        await reader.begin(START)
    assert told == []
    await reader.response.wait()
    assert not reader.response.is_connected()
