"""Alarms that fail: retried alone and for ever, counted, shown as stuck, and healed."""

import asyncio
import json

import pytest

from reservation_service.errors import ServiceError, StorageFull, StorageUnavailable
from reservation_service.reservation import Expire, Trigger
from tests.conftest import StartService
from tests.http.answers import assert_problem
from tests.support.clock import START
from tests.support.harness import ServiceHarness
from tests.support.rows import events, history, row, rows
from tests.support.waiting import bounded

DEADLINE = START + 5_000
DELAYS = [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]


def is_alarm(message: object) -> bool:
    return isinstance(message, Expire) and message.trigger is Trigger.ALARM


async def poisoned(service: ServiceHarness, *names: str) -> None:
    """Each of them is due, and its first attempt has failed."""
    service.poison.plant(*names)
    for name in names:
        await service.hold(name, 5)
    await service.advance(5_000)


async def test_a_poison_alarm_is_retried_for_ever_with_doubling_delays_up_to_the_cap(
    service: ServiceHarness,
) -> None:
    await poisoned(service, "poison")
    due = DEADLINE
    for retry, delay_ms in enumerate(DELAYS):
        attempts = service.recorder.of("reservation-alarm", reservation_id="poison")
        assert len(attempts) == retry + 1
        assert (attempts[-1]["retry_count"], attempts[-1]["outcome"]) == (retry, "failed")
        assert attempts[-1]["is_retry"] is (retry > 0)
        assert attempts[-1]["lateness_ms"] == due - DEADLINE
        assert attempts[-1]["error"] == "planted"
        due += delay_ms
        assert row(service.database, "poison")["alarm_dispatch_at"] == due
        await service.advance(delay_ms - 1)
        assert len(service.recorder.of("reservation-alarm")) == retry + 1
        await service.advance(1)
    assert len(service.recorder.of("reservation-alarm")) == len(DELAYS) + 1


async def test_a_poison_alarm_delays_no_other(service: ServiceHarness) -> None:
    service.poison.plant("poison-1", "poison-2")
    names = [f"seat-{number}" for number in range(10)]
    for number, name in enumerate(["poison-1", "poison-2", *names]):
        await service.hold(name, 5 + number)
    for _ in range(20):
        await service.advance(1_000)
    on_time = service.recorder.of("reservation-alarm", outcome="ok")
    assert [event["reservation_id"] for event in on_time] == names
    assert {event["lateness_ms"] for event in on_time} == {0}
    statuses = {one["id"]: one["status"] for one in rows(service.database)}
    assert [name for name, status in statuses.items() if status == "held"] == [
        "poison-1",
        "poison-2",
    ]


async def test_a_poison_alarm_due_with_others_spoils_none_of_them(
    service: ServiceHarness,
) -> None:
    service.poison.plant("seat-13")
    names = [f"seat-{number}" for number in range(30)]
    await bounded(asyncio.gather(*(service.hold(name, 5) for name in names)), "all holds")
    await service.advance(5_000)
    held = [one["id"] for one in rows(service.database) if one["status"] == "held"]
    assert held == ["seat-13"]
    assert len(service.recorder.of("reservation-alarm", outcome="ok", lateness_ms=0)) == 29


async def test_an_alarm_is_stuck_after_six_failures_and_is_still_retried(
    service: ServiceHarness,
) -> None:
    await poisoned(service, "poison")
    for failures, delay_ms in enumerate(DELAYS[:7], start=1):
        shown = await service.status("poison")
        assert shown["alarmStuck"] is (failures >= 6), failures
        assert shown["alarmRetryCount"] == failures - 1
        assert (shown["status"], shown["alarmAt"]) == ("held", DEADLINE)
        assert len(service.recorder.of("alarm-stuck")) == (failures >= 6)
        await service.advance(delay_ms)
    assert service.recorder.of("alarm-stuck") == [{"reservation_id": "poison", "failures": 6}]
    assert len(service.recorder.of("reservation-alarm")) == 8


async def test_the_sixth_attempt_is_not_stuck_while_it_is_at_work(
    service: ServiceHarness,
) -> None:
    await poisoned(service, "poison")
    for delay_ms in DELAYS[:4]:
        await service.advance(delay_ms)
    gate = service.gates.before(is_alarm)
    service.clock.advance(DELAYS[4])
    await gate.reached()
    shown = await service.status("poison")
    assert (shown["alarmRetryCount"], shown["alarmStuck"]) == (5, False)
    gate.open()
    await service.quiet()
    assert (await service.status("poison"))["alarmStuck"] is True


async def test_the_threshold_is_configuration(start_service: StartService) -> None:
    service = await start_service(alarms={"stuck_after": 2})
    await poisoned(service, "poison")
    assert (await service.status("poison"))["alarmStuck"] is False
    await service.advance(2_000)
    assert (await service.status("poison"))["alarmStuck"] is True


async def test_a_stuck_alarm_heals_when_its_cause_is_gone(service: ServiceHarness) -> None:
    await poisoned(service, "poison")
    for delay_ms in DELAYS[:6]:
        await service.advance(delay_ms)
    service.poison.drop()
    await service.advance(DELAYS[6] - 1)
    assert (await service.status("poison"))["status"] == "held"
    await service.advance(1)
    healed = await service.status("poison")
    assert (healed["status"], healed["expirationCount"]) == ("expired", 1)
    assert healed["expiredAt"] == DEADLINE + sum(DELAYS[:7])
    assert (healed["alarmRetryCount"], healed["alarmStuck"], healed["alarmAt"]) == (0, False, None)
    (ok,) = service.recorder.of("reservation-alarm", outcome="ok")
    assert (ok["retry_count"], ok["is_retry"]) == (7, True)
    await service.advance(3_600_000)
    assert [kind for _, kind, _ in history(service.database, "poison")].count("expired") == 1


async def test_failures_are_recorded_until_the_alarm_is_stuck(service: ServiceHarness) -> None:
    await poisoned(service, "poison")
    for delay_ms in DELAYS:
        await service.advance(delay_ms)
    recorded = [event for event in events(service.database) if event["type"] == "alarm-failed"]
    assert [json.loads(event["data"])["retryCount"] for event in recorded] == list(range(6))
    assert {event["trigger"] for event in recorded} == {"alarm"}


async def test_a_failing_alarm_keeps_the_deadline_and_lets_requests_through(
    service: ServiceHarness,
) -> None:
    await poisoned(service, "poison")
    assert (await service.status("poison"))["expiresAt"] == DEADLINE
    assert (await service.replay("poison", DEADLINE))["changed"] is True
    await service.advance(60_000)
    assert history(service.database, "poison")[-1] == (1, "expired", "replay")
    assert row(service.database, "poison")["expiration_count"] == 1


async def test_a_new_hold_starts_counting_anew(service: ServiceHarness) -> None:
    await poisoned(service, "poison")
    await service.advance(2_000)
    assert (await service.status("poison"))["alarmRetryCount"] == 1
    again = await service.hold("poison", 5)
    assert (again["alarmRetryCount"], again["alarmStuck"]) == (0, False)
    await service.advance(5_000)
    last = service.recorder.of("reservation-alarm")[-1]
    assert (last["retry_count"], last["is_retry"], last["lateness_ms"]) == (0, False, 0)


@pytest.mark.parametrize("trouble", [StorageFull(), StorageUnavailable()])
async def test_a_store_that_was_away_costs_no_attempt_and_due_alarms_then_fire(
    service: ServiceHarness, trouble: ServiceError
) -> None:
    for number in range(3):
        await service.hold(f"seat-{number}", 5)
    with service.gates.failing(trouble):
        service.clock.advance(5_000)
        await service.recorder.seen("dispatch-paused", reason=trouble.code)
        await service.waker.asleep()
        answer = await service.post("/reservations/seat-9", {"ttlSeconds": 5})
        assert_problem(answer, 507 if trouble.code == "storage-full" else 503, trouble.code)
        assert (await service.status("seat-0"))["status"] == "held"
        for _ in range(3):
            await service.look()
    service.clock.advance(70)
    await service.look()
    await service.recorder.seen("dispatch-resumed")
    fired = service.recorder.of("reservation-alarm")
    assert [(event["outcome"], event["retry_count"]) for event in fired] == [("ok", 0)] * 3
    assert len(service.recorder.of("dispatch-paused")) == 1
    assert [event["type"] for event in events(service.database)] == ["held"] * 3 + ["expired"] * 3


async def test_trouble_in_the_middle_of_attempts_is_waited_out(service: ServiceHarness) -> None:
    for number in range(3):
        await service.hold(f"seat-{number}", 5)
    gate = service.gates.before(is_alarm)
    service.clock.advance(5_000)
    await gate.reached(3)
    with service.gates.failing(StorageFull()):
        gate.open()
        await service.recorder.seen("dispatch-paused")
        service.waker.tick()
        await service.waker.asleep()
    service.waker.tick()
    await service.recorder.seen("reservation-alarm", count=3, outcome="ok")
    await service.quiet()
    assert len(service.recorder.of("reservation-alarm")) == 3
    assert {one["status"] for one in rows(service.database)} == {"expired"}


async def test_a_request_that_gets_through_ends_the_pause(service: ServiceHarness) -> None:
    await service.hold("seat-1", 5)
    with service.gates.failing(StorageFull()):
        service.clock.advance(5_000)
        await service.recorder.seen("dispatch-paused")
        await service.waker.asleep()
    await service.hold("seat-2", 60)
    await service.recorder.seen("reservation-alarm", reservation_id="seat-1", outcome="ok")


async def test_an_attempt_that_takes_too_long_is_retried_like_a_failed_one(
    start_service: StartService,
) -> None:
    service = await start_service(alarms={"attempt_timeout_ms": 10})
    await service.hold("seat-1", 5)
    gate = service.gates.before(is_alarm)
    service.clock.advance(5_000)
    await service.recorder.seen("reservation-alarm", outcome="timed-out", retry_count=0)
    await service.quiet()
    assert row(service.database, "seat-1")["alarm_dispatch_at"] == DEADLINE + 2_000
    gate.open()
    await service.advance(2_000)
    await service.recorder.seen("reservation-alarm", outcome="ok", retry_count=1)


async def test_an_attempt_that_took_too_long_to_hear_of_its_success_changes_nothing_more(
    start_service: StartService,
) -> None:
    service = await start_service(alarms={"attempt_timeout_ms": 10})
    await service.hold("seat-1", 5)
    gate = service.gates.after(is_alarm)
    service.clock.advance(5_000)
    await gate.reached()
    await service.recorder.seen("reservation-alarm", outcome="timed-out")
    await service.quiet()
    await service.advance(60_000)
    assert history(service.database, "seat-1") == [(1, "held", "request"), (1, "expired", "alarm")]
    assert len(service.recorder.of("reservation-alarm")) == 1
