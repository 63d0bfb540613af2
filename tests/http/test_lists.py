"""Many reservations in one call: the seat map by name, and the operator's list page by page."""

import base64
import json
from typing import Any

import pytest

from reservation_service.errors import StorageUnavailable
from tests.http.answers import FIELDS, ID_SENTENCE, assert_problem
from tests.http.bookings import (
    TTL_MS,
    alarms_held_back,
    bring,
    confirm,
    everything,
    held,
    hold,
    release,
)
from tests.support.clock import START
from tests.support.harness import Answer, ServiceHarness

SEATS = "/reservations"
BAD_LIMITS = ("0", "501", "-1", "+5", "5.0", "x", "", "1e2", "%D9%A1", "0x5", "%205", "99999999")
LIMIT_SENTENCE = "limit must be an integer from 1 through 500."
STATUS_SENTENCE = "status must be one of held, confirmed, released, expired."
CURSOR_SENTENCE = "cursor must be a nextCursor of this list."


def seat_map(*names: str) -> str:
    return f"{SEATS}?{'&'.join(f'id={name}' for name in names)}"


def listed(answer: Answer) -> list[str]:
    assert answer.status == 200, answer
    return [item["reservationId"] for item in answer.json["items"]]


async def pages(service: ServiceHarness, query: str = "") -> list[list[str]]:
    """The names of every page from the first to the last, as a client walks them."""
    found, cursor = [], ""
    for _ in range(100):
        answer = await service.get(f"{SEATS}?{query}{cursor}")
        found.append(listed(answer))
        assert list(answer.json) == ["items", "nextCursor"]
        if answer.json["nextCursor"] is None:
            return found
        cursor = f"&cursor={answer.json['nextCursor']}"
    raise AssertionError("a list without an end")


async def test_a_seat_map_shows_each_seat_as_it_shows_itself(service: ServiceHarness) -> None:
    for state in ("held", "released", "confirmed"):
        await bring(service, state, "alice", [state])
    answer = await service.get(seat_map("released", "missing", "held", "confirmed"))
    assert answer.status == 200
    assert list(answer.json) == ["items"]
    assert [item["status"] for item in answer.json["items"]] == listed(answer)
    for item in answer.json["items"]:
        assert item == await service.status(item["reservationId"])
        assert list(item) == FIELDS


async def test_a_seat_map_keeps_the_order_and_the_repetitions_of_its_question(
    service: ServiceHarness,
) -> None:
    await bring(service, "held", None, ["bbb", "aaa"])
    asked = ["bbb", "zzz", "aaa", "bbb", "zzz"]
    answer = await service.get(seat_map(*asked))
    assert listed(answer) == asked
    assert answer.json["items"][0] == answer.json["items"][3]
    assert [item["status"] for item in answer.json["items"]] == [
        *("held", "missing", "held", "held", "missing")
    ]


async def test_a_seat_map_makes_no_row_and_changes_none(service: ServiceHarness) -> None:
    await bring(service, "overdue", None, ["seat-1"])
    before = everything(service)
    batches = len(service.gates.batches)
    assert listed(await service.get(seat_map("seat-1", "seat-2"))) == ["seat-1", "seat-2"]
    assert everything(service) == before
    assert len(service.gates.batches) == batches


async def test_a_seat_map_takes_200_of_the_longest_names(service: ServiceHarness) -> None:
    names = [f"{number:040}" for number in range(200)]
    assert listed(await service.get(seat_map(*names))) == names


async def test_a_seat_map_of_more_is_refused(service: ServiceHarness) -> None:
    names = [f"seat-{number}" for number in range(201)]
    answer = await service.get(seat_map(*names))
    assert_problem(answer, 400, "invalid-field", "Ask for at most 200 IDs in one call.")
    assert len(listed(await service.get(seat_map(*names[:200])))) == 200


@pytest.mark.parametrize(
    "bad", ["", "X", "ab", "seat_1", "a" * 41, "seat%0a", "-seat", "s%C3%A9at"]
)
async def test_one_bad_name_refuses_the_whole_map(service: ServiceHarness, bad: str) -> None:
    for names in ((bad,), ("seat-1", bad), (bad, "seat-1")):
        answer = await service.get(seat_map(*names))
        assert_problem(answer, 400, "invalid-id", ID_SENTENCE)


@pytest.mark.parametrize("more", ["status=held", "limit=5", "cursor=x", "idPrefix=a", "x=1"])
async def test_a_seat_map_knows_nothing_but_names(service: ServiceHarness, more: str) -> None:
    answer = await service.get(f"{seat_map('seat-1')}&{more}")
    name, _, _ = more.partition("=")
    assert_problem(answer, 400, "unknown-field", f'Unknown field "{name}".')


async def test_an_empty_list_is_one_empty_page(service: ServiceHarness) -> None:
    assert (await service.get(SEATS)).json == {"items": [], "nextCursor": None}


async def test_the_list_is_in_the_order_of_deadlines_then_names(service: ServiceHarness) -> None:
    for name, ttl in (("late", 90), ("bbb", 60), ("early", 30), ("aaa", 60), ("b-a", 60)):
        held(await hold(service, name, ttl=ttl))
    answer = await service.get(SEATS)
    assert listed(answer) == ["early", "aaa", "b-a", "bbb", "late"]
    for item in answer.json["items"]:
        assert item == await service.status(item["reservationId"])


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 8])
async def test_pages_put_together_are_the_whole_list(service: ServiceHarness, limit: int) -> None:
    names = [f"seat-{number}" for number in range(7)]
    for number, name in enumerate(names):
        held(await hold(service, name, ttl=60 + number // 3))
    found = await pages(service, f"limit={limit}")
    assert [name for page in found for name in page] == names
    assert all(len(page) == limit for page in found[:-1])
    assert len(found) == -(-7 // limit)


async def test_a_page_has_50_items_unless_asked_and_500_at_most(service: ServiceHarness) -> None:
    for number in range(51):
        held(await hold(service, f"seat-{number}"))
    assert [len(page) for page in await pages(service)] == [50, 1]
    assert [len(page) for page in await pages(service, "limit=500")] == [51]
    for limit in BAD_LIMITS:
        answer = await service.get(f"{SEATS}?limit={limit}")
        assert_problem(answer, 400, "invalid-field", LIMIT_SENTENCE)


async def test_the_list_can_be_filtered_by_status(service: ServiceHarness) -> None:
    for state in ("held", "released", "confirmed"):
        await bring(service, state, "alice", [f"{state}-{number}" for number in range(2)])
    held(await hold(service, "expired-0", ttl=5))
    await service.advance(5_000)
    for status, count in (("held", 2), ("released", 2), ("confirmed", 2), ("expired", 1)):
        answer = await service.get(f"{SEATS}?status={status}")
        assert listed(answer) == [f"{status}-{number}" for number in range(count)]
        assert {item["status"] for item in answer.json["items"]} == {status}
    for bad in ("missing", "", "HELD", "held,expired", "%00"):
        answer = await service.get(f"{SEATS}?status={bad}")
        assert_problem(answer, 400, "invalid-field", STATUS_SENTENCE)


async def test_the_list_can_be_filtered_by_the_beginning_of_the_name(
    service: ServiceHarness,
) -> None:
    for name in ("hall-1-a", "hall-1-b", "hall-2-a", "hall"):
        held(await hold(service, name))
    assert await pages(service, "idPrefix=hall-1&limit=1") == [
        ["hall-1-a"],
        ["hall-1-b"],
    ]
    assert await pages(service, "idPrefix=hall") == [["hall", "hall-1-a", "hall-1-b", "hall-2-a"]]
    assert await pages(service, "idPrefix=") == await pages(service)
    assert await pages(service, "idPrefix=all") == [[]]
    assert await pages(service, "idPrefix=hall-2&status=held") == [["hall-2-a"]]
    assert await pages(service, "idPrefix=hall-2&status=expired") == [[]]
    for bad in ("H", "%25", "_", "hall%20", "*", "%C3%A9", "%27"):
        answer = await service.get(f"{SEATS}?idPrefix={bad}")
        assert_problem(
            answer, 400, "invalid-field", "idPrefix must be lowercase letters, digits, or hyphens."
        )


def forged(document: Any) -> str:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


FORGED_CURSORS = [
    "",
    "x",
    "%00",
    "%C3%A9",
    "a%20b",
    "AAAA",
    "=" * 4,
    "A" * 2_000,
    forged(b"\xff\xfe"),
    forged([]),
    forged({}),
    forged(None),
    forged({"expires_at": 5}),
    forged({"expires_at": "5", "reservation_id": "seat-1"}),
    forged({"expires_at": 5.5, "reservation_id": "seat-1"}),
    forged({"expires_at": None, "reservation_id": "seat-1"}),
    forged({"expires_at": 5, "reservation_id": 5}),
    forged({"expires_at": 2**63, "reservation_id": "seat-1"}),
    forged({"expires_at": -(2**63) - 1, "reservation_id": "seat-1"}),
    forged({"expires_at": 10**30, "reservation_id": "seat-1"}),
]


@pytest.mark.parametrize("cursor", FORGED_CURSORS, ids=range(len(FORGED_CURSORS)))
async def test_a_cursor_that_is_none_of_ours_is_refused(
    service: ServiceHarness, cursor: str
) -> None:
    answer = await service.get(f"{SEATS}?cursor={cursor}")
    assert_problem(answer, 400, "invalid-field", CURSOR_SENTENCE)


async def test_a_cursor_can_be_put_into_an_address_as_it_is(service: ServiceHarness) -> None:
    for number in range(3):
        held(await hold(service, f"seat-{number}"))
    cursor = (await service.get(f"{SEATS}?limit=1")).json["nextCursor"]
    assert cursor.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize("field", ["status=held", "idPrefix=a", "limit=5", "cursor=x"])
async def test_a_parameter_is_given_once(service: ServiceHarness, field: str) -> None:
    answer = await service.get(f"{SEATS}?{field}&{field}")
    name, _, _ = field.partition("=")
    assert_problem(answer, 400, "invalid-field", f"Give {name} once.")


@pytest.mark.parametrize("query", ["x=1", "Limit=5", "holder=alice", "status=held&offset=5"])
async def test_an_unknown_parameter_is_refused_by_name(service: ServiceHarness, query: str) -> None:
    answer = await service.get(f"{SEATS}?{query}")
    name = query.rpartition("&")[2].partition("=")[0]
    assert_problem(answer, 400, "unknown-field", f'Unknown field "{name}".')


async def test_a_row_beyond_the_cursor_appears_and_one_before_it_does_not(
    service: ServiceHarness,
) -> None:
    for number, ttl in enumerate((30, 60, 90)):
        held(await hold(service, f"seat-{number}", ttl=ttl))
    first = (await service.get(f"{SEATS}?limit=2")).json
    held(await hold(service, "before", ttl=40))
    held(await hold(service, "beyond", ttl=80))
    answer = await service.get(f"{SEATS}?limit=2&cursor={first['nextCursor']}")
    assert listed(answer) == ["beyond", "seat-2"]


async def test_expired_and_released_ones_stay_readable(service: ServiceHarness) -> None:
    held(await hold(service, "seat-1"))
    await bring(service, "released", None, ["seat-2"])
    await service.advance(TTL_MS)
    for _ in range(24):
        await service.advance(86_400_000)
    assert await pages(service) == [["seat-1", "seat-2"]]
    statuses = [item["status"] for item in (await service.get(SEATS)).json["items"]]
    assert statuses == ["expired", "released"]
    assert (await service.status("seat-1"))["expiredAt"] == START + TTL_MS


async def test_a_seat_is_shown_free_only_once_it_can_be_held(service: ServiceHarness) -> None:
    held(await hold(service, "seat-1", "alice"))
    with alarms_held_back(service):
        service.clock.advance(TTL_MS)
        (shown,) = (await service.get(seat_map("seat-1"))).json["items"]
        assert shown["status"] == "held"
        assert held(await hold(service, "seat-1", "bob"))["generation"] == 2
    await service.advance(TTL_MS)
    (shown,) = (await service.get(seat_map("seat-1"))).json["items"]
    assert shown["status"] == "expired"
    assert held(await hold(service, "seat-1", "carol"))["generation"] == 3


async def test_reading_lists_needs_get(service: ServiceHarness) -> None:
    for method in ("POST", "PUT", "DELETE"):
        answer = await service.request(method, SEATS)
        assert_problem(answer, 405, "method-not-allowed")
    assert (await service.request("HEAD", SEATS)).status == 200
    assert_problem(await service.get(f"{SEATS}/"), 404, "not-found")


async def test_a_list_says_when_the_store_is_in_trouble(service: ServiceHarness) -> None:
    held(await hold(service, "seat-1"))
    service.gates.read_failure = StorageUnavailable()
    answer = await service.get(seat_map("seat-1"))
    assert_problem(answer, 503, "storage-unavailable")
    assert answer.headers["Retry-After"] == "1"
    service.gates.read_failure = None
    await confirm(service, "seat-1")
    await release(service, "seat-1")
    assert listed(await service.get(SEATS)) == ["seat-1"]
