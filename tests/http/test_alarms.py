"""Holds that free themselves: on time, once, alone, and without anybody asking."""

import asyncio

import pytest

from reservation_service.reservation import Expire, Hold, Trigger
from reservation_service.store import Claim, Retry
from tests.conftest import StartService
from tests.support.clock import START
from tests.support.harness import Answer, ServiceHarness
from tests.support.rows import events, history, row, rows
from tests.support.waiting import bounded

DEADLINE = START + 5_000


def is_alarm(message: object) -> bool:
    return isinstance(message, Expire) and message.trigger is Trigger.ALARM


def is_retry(message: object) -> bool:
    return isinstance(message, Retry)


def is_claim(message: object) -> bool:
    return isinstance(message, Claim)


def is_hold(message: object) -> bool:
    return isinstance(message, Hold)


def hold(service: ServiceHarness, name: str, ttl_seconds: int = 60) -> "asyncio.Task[Answer]":
    return asyncio.create_task(service.post(f"/reservations/{name}", {"ttlSeconds": ttl_seconds}))


async def test_a_hold_frees_itself_at_its_deadline_and_not_a_millisecond_early(
    service: ServiceHarness,
) -> None:
    held = await service.hold("seat-1", 5)
    await service.advance(4_999)
    await service.look()
    assert await service.status("seat-1") == held
    assert service.recorder.of("reservation-alarm") == []
    await service.advance(1)
    freed = await service.status("seat-1")
    assert (freed["status"], freed["expiredAt"]) == ("expired", DEADLINE)
    assert (freed["expirationCount"], freed["alarmAt"]) == (1, None)


async def test_a_hold_frees_itself_although_nobody_ever_calls_again(
    service: ServiceHarness,
) -> None:
    await service.hold("seat-1", 5)
    await service.advance(5_000)
    assert history(service.database, "seat-1") == [(1, "held", "request"), (1, "expired", "alarm")]


async def test_an_alarm_needs_no_heartbeat_to_be_on_time(service: ServiceHarness) -> None:
    await service.hold("seat-1", 5)
    assert service.waker.armed_at == DEADLINE
    service.clock.advance(5_000)
    await service.recorder.seen("reservation-alarm", reservation_id="seat-1")


async def test_an_earlier_alarm_moves_the_next_wake(service: ServiceHarness) -> None:
    await service.hold("seat-1", 60)
    await service.hold("seat-2", 5)
    await service.advance(5_000)
    assert (await service.status("seat-2"))["status"] == "expired"
    assert (await service.status("seat-1"))["status"] == "held"
    await service.advance(55_000)
    assert (await service.status("seat-1"))["status"] == "expired"


@pytest.mark.parametrize("claim_max", [1, 7, 1_000])
async def test_many_with_one_due_time_all_fire(start_service: StartService, claim_max: int) -> None:
    service = await start_service(alarms={"claim_max": claim_max})
    names = [f"seat-{number}" for number in range(60)]
    await bounded(asyncio.gather(*(service.hold(name, 5) for name in names)), "all holds")
    await service.advance(5_000)
    found = rows(service.database)
    assert {one["status"] for one in found} == {"expired"}
    assert {one["expired_at"] for one in found} == {DEADLINE}
    assert len(service.recorder.of("reservation-alarm", outcome="ok")) == 60


async def test_more_than_there_is_room_for_all_fire(start_service: StartService) -> None:
    service = await start_service(alarms={"in_flight_max": 3})
    names = [f"seat-{number}" for number in range(20)]
    await bounded(asyncio.gather(*(service.hold(name, 5) for name in names)), "all holds")
    service.clock.advance(5_000)
    await service.recorder.seen("reservation-alarm", count=20, outcome="ok")
    assert {one["status"] for one in rows(service.database)} == {"expired"}


async def test_each_attempt_logs_one_event_with_all_its_fields(service: ServiceHarness) -> None:
    await service.hold("seat-1", 5)
    gate = service.gates.before(is_claim)
    service.clock.advance(5_070)
    await gate.reached()
    gate.open()
    await service.quiet()
    assert service.recorder.of("reservation-alarm") == [
        {
            "reservation_id": "seat-1",
            "is_retry": False,
            "retry_count": 0,
            "outcome": "ok",
            "lateness_ms": 70,
        }
    ]


async def test_nothing_is_announced_before_it_is_committed(service: ServiceHarness) -> None:
    held = await service.hold("seat-1", 5)
    gate = service.gates.batch(lambda batch: any(is_alarm(message) for message in batch))
    service.clock.advance(5_000)
    await gate.reached()
    assert service.recorder.of("reservation-alarm") == []
    assert await service.status("seat-1") == held
    assert len(events(service.database)) == 1
    gate.open()
    await service.recorder.seen("reservation-alarm")
    assert (await service.status("seat-1"))["status"] == "expired"


async def test_a_hold_right_after_the_announcement_succeeds(service: ServiceHarness) -> None:
    await service.hold("seat-1", 5)
    service.clock.advance(5_000)
    await service.recorder.seen("reservation-alarm", outcome="ok")
    assert (await service.hold("seat-1", 5))["generation"] == 2
    assert [kind for _, kind, _ in history(service.database, "seat-1")] == [
        "held",
        "expired",
        "held",
    ]


async def test_the_slot_is_shown_until_the_effect_is_committed(service: ServiceHarness) -> None:
    await service.hold("seat-1", 5)
    gate = service.gates.before(is_alarm)
    service.clock.advance(5_000)
    await gate.reached()
    shown = await service.status("seat-1")
    assert (shown["status"], shown["alarmAt"], shown["alarmRetryCount"]) == ("held", DEADLINE, 0)
    gate.open()
    await service.quiet()
    assert (await service.status("seat-1"))["alarmAt"] is None


async def test_an_attempt_is_counted_before_its_handler_runs(service: ServiceHarness) -> None:
    await service.hold("seat-1", 5)
    gate = service.gates.before(is_alarm)
    service.clock.advance(5_000)
    await gate.reached()
    counted = row(service.database, "seat-1")
    assert (counted["alarm_attempts"], counted["alarm_claim"] is not None) == (1, True)
    gate.open()
    await service.quiet()


async def test_a_hold_waits_for_the_alarm_of_its_id_and_then_succeeds(
    service: ServiceHarness,
) -> None:
    await service.hold("seat-1", 5)
    gate = service.gates.before(is_alarm)
    service.clock.advance(5_000)
    await gate.reached()
    waiting = hold(service, "seat-1")
    assert (await service.hold("seat-2"))["generation"] == 1
    assert not waiting.done()
    gate.open()
    answer = await bounded(waiting, "the hold")
    assert (answer.status, answer.json["generation"]) == (201, 2)
    assert history(service.database, "seat-1") == [
        (1, "held", "request"),
        (1, "expired", "alarm"),
        (2, "held", "request"),
    ]


async def test_a_takeover_of_an_overdue_hold_records_its_end_first(
    service: ServiceHarness,
) -> None:
    await service.hold("seat-1", 5)
    gate = service.gates.before(is_claim)
    service.clock.advance(5_500)
    await gate.reached()
    assert (await service.hold("seat-1", 5))["generation"] == 2
    gate.open()
    await service.quiet()
    assert history(service.database, "seat-1") == [
        (1, "held", "request"),
        (1, "expired", "request"),
        (2, "held", "request"),
    ]
    assert service.recorder.of("reservation-alarm") == []


async def test_a_reset_just_before_the_deadline_beats_the_alarm(service: ServiceHarness) -> None:
    await service.hold("seat-1", 5)
    await service.advance(4_999)
    await service.hold("seat-1", 5)
    await service.advance(1)
    assert (await service.status("seat-1"))["status"] == "held"
    await service.advance(4_999)
    assert (await service.status("seat-1"))["status"] == "expired"
    assert service.recorder.of("reservation-alarm") == [
        {
            "reservation_id": "seat-1",
            "is_retry": False,
            "retry_count": 0,
            "outcome": "ok",
            "lateness_ms": 0,
        }
    ]


async def test_a_hold_replayed_while_its_alarm_is_claimed_expires_once(
    service: ServiceHarness,
) -> None:
    await service.hold("seat-1", 5)
    gate = service.gates.after(is_claim)
    service.clock.advance(5_000)
    await gate.reached()
    assert (await service.replay("seat-1", DEADLINE))["changed"] is True
    gate.open()
    await service.quiet()
    assert history(service.database, "seat-1") == [
        (1, "held", "request"),
        (1, "expired", "replay"),
    ]
    (event,) = service.recorder.of("reservation-alarm")
    assert event["outcome"] == "nothing-due"
    assert row(service.database, "seat-1")["alarm_at"] is None


async def test_a_slot_set_anew_while_its_alarm_is_claimed_stands(service: ServiceHarness) -> None:
    await service.hold("seat-1", 5)
    gate = service.gates.after(is_claim)
    service.clock.advance(5_000)
    await gate.reached()
    again = await service.hold("seat-1", 30)
    gate.open()
    await service.quiet()
    assert await service.status("seat-1") == again
    stands = row(service.database, "seat-1")
    assert stands["alarm_dispatch_at"] == stands["alarm_at"] == DEADLINE + 30_000
    assert (stands["alarm_attempts"], stands["alarm_claim"]) == (0, None)
    await service.advance(30_000)
    assert (await service.status("seat-1"))["status"] == "expired"


async def test_a_slot_set_anew_while_its_failed_attempt_settles_stands(
    service: ServiceHarness,
) -> None:
    await service.hold("seat-1", 5)
    service.poison.plant("seat-1")
    gate = service.gates.before(is_retry)
    service.clock.advance(5_000)
    await gate.reached()
    again = await service.hold("seat-1", 7)
    before = row(service.database, "seat-1")
    gate.open()
    await service.quiet()
    assert row(service.database, "seat-1") == before
    assert await service.status("seat-1") == again
    assert "alarm-failed" not in [kind for _, kind, _ in history(service.database, "seat-1")]
    service.poison.heal("seat-1")
    await service.advance(6_999)
    assert (await service.status("seat-1"))["status"] == "held"
    await service.advance(1)
    assert (await service.status("seat-1"))["status"] == "expired"
    (ok,) = service.recorder.of("reservation-alarm", outcome="ok")
    assert (ok["is_retry"], ok["retry_count"], ok["lateness_ms"]) == (False, 0, 0)


async def test_requests_and_alarms_both_make_progress_when_both_queues_are_full(
    start_service: StartService,
) -> None:
    service = await start_service(writer={"batch_max": 4, "queue_max": 40})
    overdue = [f"due-{number}" for number in range(12)]
    await bounded(asyncio.gather(*(service.hold(name, 5) for name in overdue)), "the holds")
    gate = service.gates.batch(lambda batch: is_hold(batch[0]) and batch[0].id == "first")
    alarms, requests = service.gates.count(is_alarm), service.gates.count(is_hold)
    first = hold(service, "first")
    await gate.reached()
    claims = service.gates.after(is_claim)
    service.clock.advance(5_000)
    gate.open()
    await claims.reached()
    full = service.gates.batch(lambda batch: is_hold(batch[0]) and batch[0].id == "second")
    second = hold(service, "second")
    await full.reached()
    claims.open()
    await alarms.reached(12)
    late = [hold(service, f"late-{number}") for number in range(12)]
    await requests.reached(14)
    begun = len(service.gates.batches)
    full.open()
    answers = await bounded(asyncio.gather(first, second, *late), "all requests")
    await service.recorder.seen("reservation-alarm", count=12, outcome="ok")
    assert {answer.status for answer in answers} == {201}
    shared = service.gates.batches[begun : begun + 6]
    holds = [sum(map(is_hold, batch)) for batch in shared]
    assert holds == [2] * 6
    assert [len(batch) - held for batch, held in zip(shared, holds, strict=True)] == [2] * 6


async def test_alarms_fire_while_requests_are_refused_for_a_full_queue(
    start_service: StartService,
) -> None:
    service = await start_service(writer={"queue_max": 1, "batch_max": 2})
    await service.hold("due", 5)
    claims = service.gates.after(is_claim)
    service.clock.advance(5_000)
    await claims.reached()
    full = service.gates.batch(lambda batch: is_hold(batch[0]) and batch[0].id == "first")
    requests = service.gates.count(is_hold)
    first = hold(service, "first")
    await full.reached()
    second = hold(service, "second")
    await requests.reached(2)
    assert (await bounded(hold(service, "third"), "a refusal")).status == 503
    alarms = service.gates.count(is_alarm)
    claims.open()
    await alarms.reached()
    full.open()
    await service.recorder.seen("reservation-alarm", reservation_id="due", outcome="ok")
    await bounded(asyncio.gather(first, second), "those that were taken")
