"""The calls of the contract when all is well: shapes, times, and what they change."""

import asyncio

import pytest

from reservation_service.store import Claim
from tests.conftest import StartService
from tests.http.answers import FIELDS, NOW_SENTENCE, TTL_SENTENCE, assert_problem
from tests.support.clock import START
from tests.support.harness import ServiceHarness
from tests.support.rows import confirm, events, history, row, rows
from tests.support.waiting import bounded

CALLS = [
    ("GET", "/", None, 200),
    ("HEAD", "/", None, 200),
    ("GET", "/reservations/seat-1", None, 200),
    ("HEAD", "/reservations/seat-1", None, 200),
    ("POST", "/reservations/seat-1", {"ttlSeconds": 60}, 201),
    ("POST", "/reservations/seat-1/replay-alarm", {"now": 1}, 200),
    ("GET", "/nowhere", None, 404),
    ("DELETE", "/", None, 405),
    ("GET", "/reservations/X", None, 400),
    ("POST", "/reservations/seat-1", None, 415),
    ("POST", "/reservations/seat-1", {}, 400),
]


async def test_the_root_says_what_it_is(service: ServiceHarness) -> None:
    answer = await service.get("/")
    assert (answer.status, answer.json) == (200, {"service": "reservation-expiry"})
    assert answer.headers["Content-Type"].startswith("application/json")


async def test_the_root_says_the_configured_name(start_service: StartService) -> None:
    service = await start_service(service={"name": "cinema-3"})
    assert (await service.get("/")).json == {"service": "cinema-3"}


async def test_a_hold_answers_with_all_twelve_fields(service: ServiceHarness) -> None:
    answer = await service.post("/reservations/seat-1", {"ttlSeconds": 30})
    assert answer.status == 201
    assert answer.headers["Location"] == "/reservations/seat-1"
    assert answer.headers["Content-Type"].startswith("application/json")
    assert list(answer.json) == FIELDS
    assert answer.json == {
        "reservationId": "seat-1",
        "status": "held",
        "createdAt": START,
        "expiresAt": START + 30_000,
        "expiredAt": None,
        "expirationCount": 0,
        "alarmAt": START + 30_000,
        "generation": 1,
        "confirmedAt": None,
        "releasedAt": None,
        "alarmRetryCount": 0,
        "alarmStuck": False,
    }


async def test_a_held_one_is_shown_as_it_was_answered(service: ServiceHarness) -> None:
    held = await service.hold("seat-1", 30)
    assert await service.status("seat-1") == held


async def test_a_name_that_was_never_held_is_missing(service: ServiceHarness) -> None:
    answer = await service.get("/reservations/seat-1")
    assert answer.status == 200
    assert list(answer.json) == FIELDS
    assert answer.json == dict.fromkeys(FIELDS) | {
        "reservationId": "seat-1",
        "status": "missing",
        "expirationCount": 0,
        "generation": 0,
        "alarmRetryCount": 0,
        "alarmStuck": False,
    }


async def test_an_expired_one_stays_readable(service: ServiceHarness) -> None:
    await service.hold("seat-1", 30)
    await service.advance(30_000)
    await service.advance(86_400_000)
    assert await service.status("seat-1") == {
        "reservationId": "seat-1",
        "status": "expired",
        "createdAt": START,
        "expiresAt": START + 30_000,
        "expiredAt": START + 30_000,
        "expirationCount": 1,
        "alarmAt": None,
        "generation": 1,
        "confirmedAt": None,
        "releasedAt": None,
        "alarmRetryCount": 0,
        "alarmStuck": False,
    }


async def test_a_hold_of_an_anonymous_hold_resets_it(service: ServiceHarness) -> None:
    await service.hold("seat-1", 3_600)
    await service.advance(1_000)
    again = await service.hold("seat-1", 5)
    assert (again["generation"], again["createdAt"]) == (2, START + 1_000)
    assert again["expiresAt"] == again["alarmAt"] == START + 6_000


async def test_parallel_holds_of_one_id_take_turns(service: ServiceHarness) -> None:
    holds = [service.hold("seat-1", 60) for _ in range(20)]
    documents = await bounded(asyncio.gather(*holds), "all holds")
    assert sorted(document["generation"] for document in documents) == list(range(1, 21))
    assert (await service.status("seat-1"))["generation"] == 20


async def test_parallel_holds_of_many_ids_share_transactions(service: ServiceHarness) -> None:
    gate = service.gates.batch(lambda batch: batch[0].id == "seat-0")
    first = asyncio.create_task(service.hold("seat-0"))
    await gate.reached()
    others = [asyncio.create_task(service.hold(f"seat-{number}")) for number in range(1, 31)]
    await service.recorder.seen("service-started")
    gate.open()
    await bounded(asyncio.gather(first, *others), "all holds")
    assert len(rows(service.database)) == 31
    assert len(service.gates.batches) < 31


async def test_a_confirmed_one_is_taken_for_good(service: ServiceHarness) -> None:
    await service.hold("seat-1", 30)
    confirm(service.database, "seat-1", at=START + 1)
    shown = await service.status("seat-1")
    assert (shown["status"], shown["confirmedAt"], shown["alarmAt"]) == (
        "confirmed",
        START + 1,
        None,
    )
    answer = await service.post("/reservations/seat-1", {"ttlSeconds": 30})
    assert_problem(answer, 409, "already-confirmed")
    await service.advance(3_600_000)
    assert await service.status("seat-1") == shown


async def test_a_replay_before_the_deadline_changes_nothing(service: ServiceHarness) -> None:
    held = await service.hold("seat-1", 30)
    assert await service.replay("seat-1", START + 29_999) == held | {"changed": False}


async def test_a_replay_at_the_deadline_expires_the_hold_before_its_time(
    service: ServiceHarness,
) -> None:
    held = await service.hold("seat-1", 30)
    replayed = await service.replay("seat-1", START + 30_000)
    assert list(replayed) == [*FIELDS, "changed"]
    assert replayed == held | {
        "status": "expired",
        "expiredAt": START + 30_000,
        "expirationCount": 1,
        "alarmAt": None,
        "changed": True,
    }
    assert history(service.database, "seat-1") == [(1, "held", "request"), (1, "expired", "replay")]


async def test_a_second_replay_changes_nothing(service: ServiceHarness) -> None:
    held = await service.hold("seat-1", 180)
    now = held["expiresAt"] + 1
    first = await service.replay("seat-1", now)
    second = await service.replay("seat-1", now)
    third = await service.replay("seat-1", now + 1_000)
    assert (first["changed"], second["changed"], third["changed"]) == (True, False, False)
    assert second == third == first | {"changed": False}
    assert second["expirationCount"] == 1


async def test_an_alarm_after_a_replay_changes_nothing(service: ServiceHarness) -> None:
    await service.hold("seat-1", 30)
    replayed = await service.replay("seat-1", START + 30_000)
    await service.advance(60_000)
    assert await service.status("seat-1") | {"changed": True} == replayed
    assert len(events(service.database)) == 2


async def test_a_replay_of_an_unknown_name_says_missing(service: ServiceHarness) -> None:
    replayed = await service.replay("seat-1", START)
    assert (replayed["status"], replayed["changed"]) == ("missing", False)
    assert rows(service.database) == []


async def test_a_replay_can_be_closed_by_configuration(start_service: StartService) -> None:
    service = await start_service(reservations={"replay_alarm": False})
    await service.hold("seat-1")
    for method in ("POST", "GET"):
        answer = await service.request(
            method, "/reservations/seat-1/replay-alarm", json={"now": START + 60_000}
        )
        assert_problem(answer, 404, "not-found")
    assert (await service.status("seat-1"))["status"] == "held"


async def test_a_read_changes_nothing_not_even_of_an_overdue_hold(service: ServiceHarness) -> None:
    held = await service.hold("seat-1", 5)
    gate = service.gates.before(lambda message: isinstance(message, Claim))
    service.clock.advance(6_000)
    await gate.reached()
    before, batches = row(service.database, "seat-1"), len(service.gates.batches)
    for _ in range(3):
        assert await service.status("seat-1") == held
        assert (await service.status("seat-2"))["status"] == "missing"
        await service.request("HEAD", "/reservations/seat-1")
    assert row(service.database, "seat-1") == before
    assert len(service.gates.batches) == batches
    assert len(events(service.database)) == 1
    gate.open()
    await service.quiet()
    assert (await service.status("seat-1"))["status"] == "expired"


@pytest.mark.parametrize(("method", "path", "document", "status"), CALLS)
async def test_every_answer_carries_the_servers_time_and_is_not_stored(
    service: ServiceHarness, method: str, path: str, document: object, status: int
) -> None:
    service.clock.advance(4_711)
    answer = await service.request(method, path, **({"json": document} if document else {}))
    assert answer.status == status or document == {}
    assert answer.headers["Server-Time"] == str(START + 4_711)
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/reservations/seat-1"])
async def test_head_answers_like_get_without_a_body(service: ServiceHarness, path: str) -> None:
    head, get = await service.request("HEAD", path), await service.get(path)
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(get.body))
    assert head.headers["Content-Type"] == get.headers["Content-Type"]


@pytest.mark.parametrize("spelled", ["5.0", "5e0", "0.5e1", "50e-1", "5.000"])
async def test_an_integer_may_be_spelled_as_json_likes(
    service: ServiceHarness, spelled: str
) -> None:
    answer = await service.request(
        "POST",
        "/reservations/seat-1",
        data=f'{{"ttlSeconds": {spelled}}}',
        headers={"Content-Type": "application/json"},
    )
    assert answer.status == 201
    assert answer.json["expiresAt"] == START + 5_000


@pytest.mark.parametrize("seconds", [5, 3_600])
async def test_the_limits_themselves_are_allowed(service: ServiceHarness, seconds: int) -> None:
    assert (await service.hold("seat-1", seconds))["expiresAt"] == START + seconds * 1_000


@pytest.mark.parametrize("name", ["abc", "a-b", "000", "a" * 40, "0-9", "a--b"])
async def test_an_id_within_the_rules_is_taken(service: ServiceHarness, name: str) -> None:
    answer = await service.post(f"/reservations/{name}", {"ttlSeconds": 5})
    assert answer.status == 201
    assert answer.headers["Location"] == f"/reservations/{name}"


async def test_an_id_may_be_spelled_with_escapes(service: ServiceHarness) -> None:
    await service.hold("abc")
    assert (await service.status("%61b%63"))["status"] == "held"


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON"]
)
async def test_json_may_be_declared_in_any_of_its_spellings(
    service: ServiceHarness, content_type: str
) -> None:
    answer = await service.request(
        "POST",
        "/reservations/seat-1",
        data=b'{"ttlSeconds": 5}',
        headers={"Content-Type": content_type},
    )
    assert answer.status == 201


async def test_the_limits_are_those_of_the_configuration(start_service: StartService) -> None:
    service = await start_service(reservations={"ttl_seconds_min": 1, "ttl_seconds_max": 7})
    await service.hold("seat-1", 1)
    await service.hold("seat-1", 7)
    answer = await service.post("/reservations/seat-1", {"ttlSeconds": 8})
    sentence = "ttlSeconds must be an integer from 1 through 7."
    assert_problem(answer, 400, "invalid-field", sentence)


async def test_the_largest_exact_integer_is_a_time(service: ServiceHarness) -> None:
    await service.hold("seat-1")
    assert (await service.replay("seat-1", 2**53 - 1))["expiredAt"] == 2**53 - 1


async def test_a_refused_call_moves_no_deadline(service: ServiceHarness) -> None:
    held = await service.hold("seat-1", 30)
    await service.advance(1_000)
    for document, sentence in [({"ttlSeconds": 4}, TTL_SENTENCE), ({"ttlSeconds": "9"}, None)]:
        answer = await service.post("/reservations/seat-1", document)
        assert_problem(answer, 400, "invalid-field", sentence)
    answer = await service.post("/reservations/seat-1/replay-alarm", {"now": 0})
    assert_problem(answer, 400, "invalid-field", NOW_SENTENCE)
    await service.replay("seat-1", START + 29_999)
    assert await service.status("seat-1") == held
