"""Every request has an ID: its own if it is fit for a log, else one from here; all repeat it."""

import asyncio
import json
from io import BytesIO

import pytest

from reservation_service.telemetry import Telemetry
from reservation_service.web.api import Api
from tests.conftest import StartService
from tests.support.clock import FakeClock
from tests.support.harness import ServiceHarness
from tests.support.recorder import Recorder

HEADER = "X-Request-ID"


async def test_an_answer_repeats_the_request_s_own_id(service: ServiceHarness) -> None:
    for path in ("/", "/reservations/seat-1", "/nowhere", "/reservations/NO", "/healthz"):
        answer = await service.request("GET", path, headers={HEADER: "shop-7:a.b_c"})
        assert answer.headers[HEADER] == "shop-7:a.b_c"


@pytest.mark.parametrize("unfit", ["", "a b", "x" * 65, '"}{', "ä", "a\tb"])
async def test_an_id_that_is_missing_or_unfit_is_replaced(
    service: ServiceHarness, unfit: str
) -> None:
    headers = {HEADER: unfit} if unfit else {}
    answers = await asyncio.gather(
        *(service.request("GET", "/", headers=headers) for _ in range(20))
    )
    given = {answer.headers[HEADER] for answer in answers}
    assert len(given) == 20
    assert unfit not in given


async def test_every_line_of_a_request_has_its_id(
    start_service: StartService,
    clock: FakeClock,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where many are answered at once, on connections that are used again."""
    log = BytesIO()
    monkeypatch.setattr(recorder, "observe", Telemetry(clock, log).observe)
    monkeypatch.setattr(Api, "describe", fail)
    service = await start_service(log={"access": True})
    given = {f"{turn}-{number}" for turn in range(3) for number in range(10)}
    for turn in range(3):
        ids = sorted(one for one in given if one.startswith(f"{turn}-"))
        await asyncio.gather(*(service.request("GET", "/", headers={HEADER: one}) for one in ids))
    await service.stop()
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    for event in ("request-failed", "request"):
        told = [line["requestId"] for line in lines if line["event"] == event]
        assert (set(told), len(told)) == (given, len(given))
    others = [line for line in lines if line["event"] not in {"request", "request-failed"}]
    assert len(others) > 3
    assert not any("requestId" in line for line in others)


async def fail(*_: object) -> None:
    raise RuntimeError
