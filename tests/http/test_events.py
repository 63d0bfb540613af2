"""The log over HTTP: pages and streams of all events, of some reservations, of one."""

import asyncio
import json
from typing import Any

import pytest

from reservation_service.web.answers import OF_ALL
from tests.conftest import StartService
from tests.http.answers import ID_SENTENCE, assert_problem
from tests.http.bookings import bring
from tests.support.clock import START
from tests.support.harness import ServiceHarness
from tests.support.rows import events
from tests.support.streams import Event, Frame

FIELDS = ["seq", "type", "reservation", "generation", "at", "trigger", "data"]
AFTER_SENTENCE = "after must be the seq of an event, 0, or latest."
RESUMED_SENTENCE = "Last-Event-ID must be the id of an event."
BAD_POSITIONS = ("", "-1", "+1", "1.0", "x", "%D9%A1", "0x5", "9" * 17, "9007199254740992", "%201")
DAY_MS = 86_400_000


@pytest.fixture
async def service(start_service: StartService) -> ServiceHarness:
    """What is committed is told at once."""
    return await start_service(feed={"coalesce_ms": 1})


def recorded(service: ServiceHarness, *names: str) -> list[Event]:
    """What the log has, as it should be told; rows of the table have their data as text."""
    return [
        {name: event[name] for name in FIELDS} | {"data": json.loads(event["data"] or "null")}
        for event in events(service.database)
        if not names or event["reservation"] in names
    ]


async def page(service: ServiceHarness, path: str = "/events") -> Any:
    answer = await service.get(path)
    assert answer.status == 200, answer
    assert list(answer.json) == ["items", "nextAfter", "reset"]
    return answer.json


async def some_holds(service: ServiceHarness, *names: str) -> None:
    for name in names:
        await service.hold(name)


# Pages


async def test_a_page_tells_what_happened_in_order(service: ServiceHarness) -> None:
    await service.hold("seat-1", 60)
    await service.advance(60_000)
    found = await page(service)
    assert [list(item) for item in found["items"]] == [FIELDS, FIELDS]
    assert found == {"items": recorded(service), "nextAfter": 2, "reset": False}
    held, expired = found["items"]
    assert (held["type"], held["at"], held["trigger"]) == ("held", START, "request")
    assert (expired["type"], expired["at"], expired["trigger"]) == (
        *("expired", START + 60_000, "alarm"),
    )


async def test_the_data_of_an_event_is_json_in_json(service: ServiceHarness) -> None:
    await bring(service, "released", "alice", ["seat-1"])
    body = {"holder": "alice"}
    assert (await service.post("/reservations/seat-1/confirm", body)).status == 410
    *_, rejected = (await page(service))["items"]
    assert (rejected["type"], rejected["data"]) == (
        *("confirm-rejected", {"code": "hold-released"}),
    )


async def test_a_page_goes_on_where_the_last_one_ended(service: ServiceHarness) -> None:
    await some_holds(service, *(f"seat-{number}" for number in range(7)))
    found, after = [], 0
    while items := (answer := await page(service, f"/events?after={after}&limit=3"))["items"]:
        found.append([item["seq"] for item in items])
        after = answer["nextAfter"]
    assert found == [[1, 2, 3], [4, 5, 6], [7]]
    await service.hold("seat-8")
    assert [item["seq"] for item in (await page(service, f"/events?after={after}"))["items"]] == [8]


async def test_a_page_is_of_50_unless_more_are_asked_for(service: ServiceHarness) -> None:
    await asyncio.gather(*(service.hold(f"seat-{number}") for number in range(60)))
    assert len((await page(service))["items"]) == 50
    assert len((await page(service, "/events?limit=500"))["items"]) == 60


@pytest.mark.parametrize(
    "path",
    [
        "/events?reservation=seat-1&reservation=seat-3",
        "/events?reservation=seat-3&reservation=seat-1&reservation=seat-3",
    ],
)
async def test_named_reservations_are_told_alone(service: ServiceHarness, path: str) -> None:
    await some_holds(service, "seat-1", "seat-2", "seat-3", "seat-1")
    assert (await page(service, path))["items"] == recorded(service, "seat-1", "seat-3")


async def test_one_reservation_tells_its_own(service: ServiceHarness) -> None:
    await some_holds(service, "seat-1", "seat-2", "seat-1")
    found = await page(service, "/reservations/seat-1/events")
    assert found == {"items": recorded(service, "seat-1"), "nextAfter": 3, "reset": False}
    assert (await page(service, "/reservations/never-held/events"))["items"] == []


async def test_the_latest_page_tells_where_the_log_ends(service: ServiceHarness) -> None:
    await some_holds(service, "seat-1", "seat-2")
    latest = {"items": [], "nextAfter": 2, "reset": False}
    assert await page(service, "/events?after=latest") == latest
    assert await page(service, "/reservations/seat-1/events?after=latest") == latest


async def test_200_names_are_taken_and_more_refused(service: ServiceHarness) -> None:
    names = [f"{number:040}" for number in range(201)]
    query = "&".join(f"reservation={name}" for name in names)
    answer = await service.get(f"/events?{query}")
    assert_problem(answer, 400, "invalid-field", "Ask for at most 200 reservations.")
    await service.hold(names[0])
    shorter = query.rpartition("&")[0]
    assert [
        item["reservation"] for item in (await page(service, f"/events?{shorter}"))["items"]
    ] == [names[0]]


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
@pytest.mark.parametrize(
    ("path", "code", "sentence"),
    [
        *((f"/events?after={bad}", "invalid-field", AFTER_SENTENCE) for bad in BAD_POSITIONS),
        ("/events?after=1&after=2", "invalid-field", "Give after once."),
        ("/events?reservation=X", "invalid-id", ID_SENTENCE),
        ("/events?reservation=", "invalid-id", ID_SENTENCE),
        ("/reservations/s%0at/events", "invalid-id", ID_SENTENCE),
        ("/events?id=seat-1", "unknown-field", 'Unknown field "id".'),
        (
            "/reservations/seat-1/events?reservation=seat-2",
            *("unknown-field", 'Unknown field "reservation".'),
        ),
    ],
)
async def test_a_bad_question_is_refused_page_or_stream(
    service: ServiceHarness, accept: str, path: str, code: str, sentence: str
) -> None:
    answer = await service.request("GET", path, headers={"Accept": accept})
    assert_problem(answer, 400, code, sentence)


@pytest.mark.parametrize("bad", ["-1", "x", "1.0", "9007199254740992"])
async def test_a_bad_last_event_id_is_refused(service: ServiceHarness, bad: str) -> None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": bad}
    answer = await service.request("GET", "/events", headers=headers)
    assert_problem(answer, 400, "invalid-field", RESUMED_SENTENCE)


@pytest.mark.parametrize("bad", ["0", "501", "x"])
async def test_a_bad_limit_is_refused(service: ServiceHarness, bad: str) -> None:
    answer = await service.get(f"/events?limit={bad}")
    assert_problem(answer, 400, "invalid-field", "limit must be an integer from 1 through 500.")


async def test_a_stream_has_no_limit(service: ServiceHarness) -> None:
    headers = {"Accept": "text/event-stream"}
    answer = await service.request("GET", "/events?limit=5", headers=headers)
    assert_problem(answer, 400, "unknown-field", 'Unknown field "limit".')


async def test_the_head_of_a_stream_ends(service: ServiceHarness) -> None:
    headers = {"Accept": "text/event-stream"}
    answer = await service.request("HEAD", "/events", headers=headers)
    assert (answer.status, answer.body) == (200, b"")


# Streams


async def test_a_stream_tells_what_was_and_what_comes(service: ServiceHarness) -> None:
    await some_holds(service, "seat-1", "seat-2")
    async with service.follow("/events") as stream:
        assert await stream.events(2) == recorded(service)
        await service.hold("seat-3")
        assert await stream.event() == recorded(service)[2]
        await service.advance(60_000)
        expired = await stream.events(3)
        assert expired == recorded(service)[3:]
        assert {event["type"] for event in expired} == {"expired"}


async def test_a_stream_has_the_head_that_readers_and_proxies_need(
    service: ServiceHarness,
) -> None:
    async with service.follow("/events") as stream:
        head = stream.response.headers
        assert stream.response.status == 200
        assert head["Content-Type"] == "text/event-stream"
        assert {name: head.getall(name) for name in OF_ALL} == {n: [v] for n, v in OF_ALL.items()}
        assert head["Server-Time"] == str(START)
        assert head["X-Request-ID"]
        assert head["X-Accel-Buffering"] == "no"


@pytest.mark.parametrize(
    "accept",
    ["text/event-stream", "application/json, TEXT/event-stream;q=0.5", "text/event-stream, */*"],
)
async def test_a_stream_is_asked_for_by_accept(service: ServiceHarness, accept: str) -> None:
    async with service.follow("/events", accept=accept) as stream:
        assert stream.response.headers["Content-Type"] == "text/event-stream"


@pytest.mark.parametrize("accept", ["*/*", "text/*", "application/json", ""])
async def test_whoever_takes_anything_gets_a_page(service: ServiceHarness, accept: str) -> None:
    answer = await service.request("GET", "/events", headers={"Accept": accept})
    assert answer.headers["Content-Type"] == "application/json"


async def test_the_latest_stream_tells_only_what_comes(service: ServiceHarness) -> None:
    await some_holds(service, "seat-1", "seat-2")
    async with service.follow("/events?after=latest") as stream:
        assert await stream.frame() == Frame(2)
        await service.hold("seat-3")
        assert (await stream.event())["seq"] == 3


async def test_named_streams_tell_their_own_and_keep_their_place_in_the_log(
    service: ServiceHarness,
) -> None:
    await some_holds(service, "seat-1", "seat-2", "seat-3")
    async with (
        service.follow("/reservations/seat-2/events") as one,
        service.follow("/events?reservation=seat-1&reservation=seat-2") as two,
    ):
        assert [(await one.event())["seq"], (await two.events(2))[1]["seq"]] == [2, 2]
        assert (await one.frame(), await two.frame()) == (Frame(3), Frame(3))
        await some_holds(service, "seat-3", "seat-1", "seat-2")
        assert (await one.event())["seq"] == 6
        assert [event["seq"] for event in await two.events(2)] == [5, 6]


async def test_a_stream_resumes_behind_its_last_event(service: ServiceHarness) -> None:
    await some_holds(service, "seat-1", "seat-2", "seat-3")
    async with service.follow("/events", resumed=1) as stream:
        assert [event["seq"] for event in await stream.events(2)] == [2, 3]
    async with service.follow("/events?after=2") as stream:
        assert (await stream.event())["seq"] == 3


async def test_whoever_comes_again_knows_better_than_its_address(service: ServiceHarness) -> None:
    await some_holds(service, "seat-1", "seat-2", "seat-3")
    async with service.follow("/events?after=latest", resumed=1) as stream:
        assert [event["seq"] for event in await stream.events(2)] == [2, 3]


@pytest.mark.parametrize("way", ["stop", "crash"])
async def test_a_stream_resumes_over_a_restart(service: ServiceHarness, way: str) -> None:
    await service.hold("seat-1", 60)
    async with service.follow("/events?after=latest") as stream:
        assert await stream.frame() == Frame(1)
        position = stream.position
        await getattr(service, way)()
    service.clock.advance(60_000)
    await service.start()
    await service.quiet()
    async with service.follow("/events?after=latest", resumed=position) as stream:
        assert (await stream.event())["type"] == "expired"


async def test_nothing_is_told_before_it_is_committed(service: ServiceHarness) -> None:
    async with service.follow("/events") as stream:
        await stream.frame()
        gate = service.gates.batch(lambda _: True)
        holding = asyncio.create_task(service.hold("seat-1"))
        await gate.reached()
        reading = asyncio.create_task(stream.event())
        await page(service)
        assert not reading.done()
        gate.open()
        assert (await reading)["reservation"] == "seat-1"
        await holding


async def test_what_is_told_as_free_can_be_had(service: ServiceHarness) -> None:
    await service.hold("seat-1", 60)
    async with service.follow("/events?after=latest") as stream:
        service.clock.advance(60_000)
        assert (await stream.event())["type"] == "expired"
        assert (await service.hold("seat-1"))["generation"] == 2


async def test_more_than_a_page_of_the_log_is_sent_in_order(service: ServiceHarness) -> None:
    for number in range(12):
        await asyncio.gather(*(service.hold(f"s-{number}-{one}") for one in range(100)))
    async with service.follow("/events") as stream:
        assert [event["seq"] for event in await stream.events(1_200)] == list(range(1, 1_201))


async def test_no_answer_has_a_holder_in_it(service: ServiceHarness) -> None:
    secret = "a-very-secret-holder"
    async with service.follow("/events") as stream:
        body = {"ttlSeconds": 60, "holder": secret}
        assert (await service.post("/reservations/seat-1", body)).status == 201
        told = str(await stream.event()) + str(await page(service))
    assert "holder" not in told
    assert secret not in told


# Retention


async def test_a_position_older_than_the_log_begins_anew(service: ServiceHarness) -> None:
    for name in ("seat-1", "seat-2", "seat-1", "seat-1"):
        await service.hold(name)
        service.clock.advance(1_000)
    await service.purge(events_before=START + 2_000)
    left = recorded(service)
    assert [event["seq"] for event in left] == [3, 4]
    for lost in (0, 1, 99):
        found = await page(service, f"/events?after={lost}")
        assert found == {"items": left, "nextAfter": 4, "reset": True}
        async with service.follow("/events", resumed=lost) as stream:
            assert await stream.frame() == Frame(2, "reset", {"oldest": 3})
            assert await stream.events(2) == left
    for kept in (2, 3, 4):
        assert (await page(service, f"/events?after={kept}"))["reset"] is False
        async with service.follow("/events", resumed=kept) as stream:
            assert (await stream.frame()).event != "reset"


async def test_whoever_asks_for_all_gets_what_is_left_without_a_reset(
    service: ServiceHarness,
) -> None:
    await some_holds(service, "seat-1", "seat-2")
    await service.purge(events_before=START + 1)
    assert await page(service) == {"items": [], "nextAfter": 2, "reset": False}
    async with service.follow("/events") as stream:
        assert await stream.frame() == Frame(2)
        await service.hold("seat-3")
        assert (await stream.event())["seq"] == 3


async def test_a_row_stays_readable_while_its_events_are(service: ServiceHarness) -> None:
    await service.hold("seat-1", 60)
    await service.advance(60_000)
    later = service.clock.advance(DAY_MS)
    await service.purge(events_before=START, reservations_before=later)
    assert (await service.status("seat-1"))["status"] == "expired"
    await service.purge(events_before=later, reservations_before=later)
    assert (await service.status("seat-1"))["status"] == "missing"
    assert (await page(service, "/reservations/seat-1/events?after=0"))["reset"] is True
