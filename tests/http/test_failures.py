"""What callers are told when something is full, broken or gone, and what ends the process."""

import asyncio
import re
from pathlib import Path

import pytest

from reservation_service import service as composition
from reservation_service.errors import (
    DatabaseUnusable,
    MessageFailed,
    OutcomeUnknown,
    ServiceError,
    StartupError,
    StorageFull,
    StorageUnavailable,
)
from reservation_service.reservation import Hold
from reservation_service.storage.sqlite_engine import SqliteEngine
from reservation_service.store import Claim
from tests.conftest import StartService
from tests.http.answers import assert_problem
from tests.support.clock import START, FakeClock
from tests.support.harness import Answer, ServiceHarness, settings_for, threads_accounted_for
from tests.support.recorder import Recorder
from tests.support.rows import events, rows
from tests.support.waiting import bounded

HOLD = "/reservations/seat-1"


def is_hold(message: object) -> bool:
    return isinstance(message, Hold)


def is_claim(message: object) -> bool:
    return isinstance(message, Claim)


def hold(service: ServiceHarness, name: str) -> "asyncio.Task[Answer]":
    return asyncio.create_task(service.post(f"/reservations/{name}", {"ttlSeconds": 60}))


async def test_a_full_queue_refuses_requests_and_changes_nothing(
    start_service: StartService,
) -> None:
    service = await start_service(writer={"queue_max": 2})
    gate = service.gates.batch(lambda batch: is_hold(batch[0]))
    arrived = service.gates.count(is_hold)
    taken = [hold(service, "seat-0")]
    await gate.reached()
    taken += [hold(service, "seat-1"), hold(service, "seat-2")]
    await arrived.reached(3)
    refused = await service.post("/reservations/seat-3", {"ttlSeconds": 60})
    assert_problem(refused, 503, "overloaded")
    assert refused.headers["Retry-After"] == "1"
    assert refused.headers["Server-Time"] == str(START)
    gate.open()
    answers = await bounded(asyncio.gather(*taken), "those that were taken")
    assert [answer.status for answer in answers] == [201, 201, 201]
    assert [row["id"] for row in rows(service.database)] == ["seat-0", "seat-1", "seat-2"]
    await service.hold("seat-3")


async def test_reads_are_answered_while_the_queue_of_writes_is_full(
    start_service: StartService,
) -> None:
    service = await start_service(writer={"queue_max": 1})
    gate = service.gates.batch(lambda batch: is_hold(batch[0]))
    writing = hold(service, "seat-1")
    await gate.reached()
    assert (await service.status("seat-1"))["status"] == "missing"
    gate.open()
    await bounded(writing, "the hold")


async def test_more_requests_at_once_than_allowed_are_refused_unread(
    start_service: StartService,
) -> None:
    page = "https://shop.example"
    service = await start_service(server={"requests_max": 1}, cors={"origins": [page]})
    gate = service.gates.before(is_hold)
    writing = hold(service, "seat-1")
    await gate.reached()
    refused = await service.request("GET", "/", headers={"Origin": page})
    assert_problem(refused, 503, "overloaded")
    assert refused.headers["Retry-After"] == "1"
    assert refused.headers["Access-Control-Allow-Origin"] == page
    assert_problem(await service.get("/nowhere"), 503, "overloaded")
    gate.open()
    await bounded(writing, "the hold")
    assert (await service.get("/")).status == 200


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (StorageFull(), 507, "storage-full"),
        (StorageUnavailable(), 503, "storage-unavailable"),
        (MessageFailed(), 500, "internal-error"),
    ],
    ids=["full", "unavailable", "failed"],
)
async def test_a_write_that_fails_is_told_and_the_next_one_is_tried(
    service: ServiceHarness, failure: ServiceError, status: int, code: str
) -> None:
    with service.gates.failing(failure):
        answer = await service.post(HOLD, {"ttlSeconds": 5})
        assert_problem(answer, status, code)
        assert (await service.status("seat-1"))["status"] == "missing"
    await service.hold("seat-1")


@pytest.mark.parametrize("failure", [StorageFull(), StorageUnavailable()])
async def test_trouble_of_the_store_says_when_to_try_again(
    service: ServiceHarness, failure: ServiceError
) -> None:
    with service.gates.failing(failure):
        answer = await service.post(HOLD, {"ttlSeconds": 5})
    assert answer.headers["Retry-After"] == "1"


async def test_a_read_that_fails_is_told(service: ServiceHarness) -> None:
    service.gates.read_failure = StorageUnavailable()
    assert_problem(await service.get(HOLD), 503, "storage-unavailable")
    service.gates.read_failure = None
    assert (await service.get(HOLD)).status == 200


async def test_a_bug_is_answered_without_its_trace_and_told_to_the_operator(
    service: ServiceHarness,
) -> None:
    def bug(message: object) -> bool:
        if is_hold(message):
            raise ZeroDivisionError("a secret of the code")
        return False

    service.gates.before(bug)
    answer = await service.post(HOLD, {"ttlSeconds": 5})
    assert_problem(answer, 500, "internal-error")
    assert b"secret" not in answer.body
    assert b"ZeroDivision" not in answer.body
    (event,) = service.recorder.of("request-failed")
    assert event["path"] == HOLD
    assert re.fullmatch(r"ZeroDivisionError at actor\.py:\d+", event["error"])


@pytest.mark.parametrize(
    ("failure", "code"),
    [(OutcomeUnknown(), "outcome-unknown"), (DatabaseUnusable(), "storage-unavailable")],
    ids=["unknown", "unusable"],
)
async def test_a_writer_that_can_promise_nothing_ends_the_process(
    service: ServiceHarness, failure: ServiceError, code: str
) -> None:
    service.gates.write_failure = failure
    answer = await service.post(HOLD, {"ttlSeconds": 5})
    assert_problem(answer, 503, code)
    assert answer.json.get("outcome") == ("unknown" if code == "outcome-unknown" else None)
    assert await service.exited() == 1
    (event,) = service.recorder.of("service-failed")
    assert str(failure) in event["reason"]
    assert (await service.post(HOLD, {"ttlSeconds": 5})).status == 503


def lose(database: Path) -> None:
    database.rename(database.with_name("elsewhere.db"))


async def test_a_database_that_is_gone_ends_the_process_before_a_promise(
    service: ServiceHarness,
) -> None:
    lose(service.database)
    assert_problem(await service.post(HOLD, {"ttlSeconds": 5}), 503, "storage-unavailable")
    assert await service.exited() == 1


async def test_a_finding_of_the_integrity_check_ends_the_process(
    start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find(_: SqliteEngine) -> None:
        raise DatabaseUnusable

    monkeypatch.setattr(SqliteEngine, "check_integrity", find)
    service = await start_service()
    assert await service.exited() == 1


async def test_the_integrity_check_runs_behind_the_traffic(service: ServiceHarness) -> None:
    await service.recorder.seen("integrity-checked")
    assert (await service.get("/")).status == 200


async def test_a_dispatcher_that_cannot_claim_ends_the_process(service: ServiceHarness) -> None:
    def refuse(message: object) -> bool:
        if is_claim(message):
            raise MessageFailed
        return False

    service.gates.before(refuse)
    service.waker.tick()
    assert await service.exited() == 1


async def test_a_requested_stop_ends_with_success(service: ServiceHarness) -> None:
    await service.hold("seat-1")
    await service.recorder.seen("integrity-checked")
    assert await service.stop() == 0
    assert [event.name for event in service.recorder.events][-2:] == [
        "service-stopping",
        "service-stopped",
    ]


async def test_a_stopped_service_leaves_no_thread(start_service: StartService) -> None:
    with threads_accounted_for():
        service = await start_service()
        await service.hold("seat-1")
        await service.stop()


async def test_a_second_service_on_the_same_database_is_refused(
    service: ServiceHarness, clock: FakeClock
) -> None:
    second = ServiceHarness(service.database, clock, Recorder())
    with threads_accounted_for(), pytest.raises(StartupError, match="Another process"):
        await second.start()
    await service.hold("seat-1")


async def test_a_refused_start_leaves_nothing_open(
    service: ServiceHarness, scratch: Path, clock: FakeClock
) -> None:
    settings = settings_for(scratch / "another.db")
    taken = settings.server.model_copy(update={"port": service.port})
    refused = composition.Service(
        settings.model_copy(update={"server": taken}), clock, Recorder().observe
    )
    with threads_accounted_for(), pytest.raises(StartupError, match=r"listen|port"):
        await refused.start()
    again = ServiceHarness(scratch / "another.db", clock, Recorder())
    assert await (await again.start()).stop() == 0


@pytest.fixture
async def destroyed(database: Path, start_service: StartService) -> ServiceHarness:
    service = await start_service()
    await service.hold("seat-1", 5)
    await service.stop()
    assert await composition.destroy(settings_for(database)) == 1
    return await service.start()


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize(
    "path", ["/", HOLD, f"{HOLD}/replay-alarm", "/reservations/BAD/", "/nowhere/at%2fall", "//"]
)
async def test_a_destroyed_namespace_is_gone_on_every_path_and_method(
    destroyed: ServiceHarness, method: str, path: str
) -> None:
    answer = await destroyed.request(method, path, data=b"x" * 20_000)
    assert answer.status == 410
    assert answer.headers["Server-Time"] == str(START)
    assert answer.headers["Cache-Control"] == "no-store"
    if method != "HEAD":
        assert answer.json == {"status": "cleanup"}


async def test_a_destroyed_namespace_stays_gone_and_rings_no_alarm(
    destroyed: ServiceHarness,
) -> None:
    destroyed.clock.advance(60_000)
    await destroyed.stop()
    await destroyed.start()
    assert (await destroyed.get("/")).status == 410
    assert (rows(destroyed.database), events(destroyed.database)) == ([], [])
