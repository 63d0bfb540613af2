"""Alive, and ready: to commit, to dispatch, and not far behind."""

import asyncio

import pytest

from reservation_service.errors import StorageFull
from reservation_service.readiness import GOOD_FOR_MS, SILENCE_MS_MAX
from reservation_service.storage.sqlite_files import wal_of
from reservation_service.store import Claim, Probe
from tests.conftest import StartService
from tests.http.answers import assert_problem
from tests.support.harness import Answer, ServiceHarness

ALL_OK = {"running": "ok", "commit": "ok", "dispatcher": "ok", "overdue": "ok"}


async def ready(service: ServiceHarness) -> Answer:
    """A look that is not the last one's."""
    service.clock.advance(GOOD_FOR_MS)
    return await service.get("/readyz")


def failing(answer: Answer) -> dict[str, str]:
    assert_problem(answer, 503, "not-ready")
    found = {name: why for name, why in answer.json["checks"].items() if why != "ok"}
    for name, why in found.items():
        assert f"{name}: {why}" in answer.json["detail"]
    return found


async def test_it_is_alive_and_ready_once_it_listens(service: ServiceHarness) -> None:
    alive = await service.get("/healthz")
    assert (alive.status, alive.json) == (200, {"status": "alive"})
    answer = await service.get("/readyz")
    assert (answer.status, answer.json) == (200, {"status": "ready", "checks": ALL_OK})


async def test_a_store_that_cannot_commit_is_not_ready_until_it_can(
    service: ServiceHarness,
) -> None:
    with service.gates.failing(StorageFull()):
        assert failing(await ready(service)) == {"commit": "storage-full"}
        assert (await service.get("/healthz")).status == 200
    assert (await ready(service)).status == 200


async def test_being_ready_is_proved_by_a_commit_of_its_own(service: ServiceHarness) -> None:
    wal = wal_of(service.database)
    before = wal.read_bytes()
    assert (await ready(service)).status == 200
    assert wal.read_bytes() != before


async def test_a_dispatcher_that_does_not_look_is_not_ready(service: ServiceHarness) -> None:
    service.clock.advance(SILENCE_MS_MAX)
    answer = await service.get("/readyz")
    assert failing(answer) == {"dispatcher": f"silent for {SILENCE_MS_MAX} ms"}
    await service.look()
    assert (await ready(service)).status == 200


@pytest.mark.parametrize(("late_ms", "verdict"), [(7_000, "ok"), (7_001, "by 7001 ms")])
async def test_alarms_that_are_far_behind_are_not_ready(
    start_service: StartService, late_ms: int, verdict: str
) -> None:
    service = await start_service(alarms={"overdue_max_seconds": 7})
    await service.hold("seat-1", 60)
    door = service.gates.before(lambda message: isinstance(message, Claim))
    service.clock.advance(60_000 + late_ms)
    await door.reached()
    assert (await service.get("/readyz")).json["checks"]["overdue"] == verdict
    door.open()
    await service.quiet()
    assert (await ready(service)).status == 200


async def test_an_alarm_that_waits_after_a_failure_makes_nothing_unready(
    service: ServiceHarness,
) -> None:
    await service.hold("seat-1", 60)
    service.poison.plant("seat-1")
    for _ in range(4):
        await service.advance(60_000)
        await service.look()
    assert (await service.status("seat-1"))["alarmRetryCount"] > 0
    assert (await ready(service)).status == 200


async def test_however_many_ask_one_commit_answers_them_for_a_second(
    service: ServiceHarness,
) -> None:
    answers = await asyncio.gather(*(service.get("/readyz") for _ in range(30)))
    service.clock.advance(GOOD_FOR_MS - 1)
    answers.append(await service.get("/readyz"))
    assert {answer.status for answer in answers} == {200}
    assert probes(service) == 1
    service.clock.advance(1)
    await service.get("/readyz")
    assert probes(service) == 2


def probes(service: ServiceHarness) -> int:
    return sum(isinstance(message, Probe) for batch in service.gates.batches for message in batch)


async def test_a_stop_that_has_begun_is_not_ready_and_still_answers(
    service: ServiceHarness,
) -> None:
    running, _, _ = service._parts()
    running.request_stop()
    assert failing(await service.get("/readyz")) == {"running": "stopping"}
    assert (await service.get("/healthz")).status == 200
    await service.hold("seat-1", 60)
