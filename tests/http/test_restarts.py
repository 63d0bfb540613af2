"""What a stop, a crash and a start leave as it was, and what they bring back to life."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from reservation_service.reservation import Expire, Hold, Trigger
from reservation_service.store import Retry
from tests.support.clock import START
from tests.support.harness import Answer, ServiceHarness
from tests.support.rows import events, history, row, rows
from tests.support.waiting import bounded

DEADLINE = START + 5_000

End = Callable[[ServiceHarness], Awaitable[object]]

either_end = pytest.mark.parametrize(
    "end", [ServiceHarness.stop, ServiceHarness.crash], ids=["stop", "crash"]
)


def is_alarm(message: object) -> bool:
    return isinstance(message, Expire) and message.trigger is Trigger.ALARM


def is_hold(message: object) -> bool:
    return isinstance(message, Hold)


def is_retry(message: object) -> bool:
    return isinstance(message, Retry)


def hold(service: ServiceHarness, name: str) -> "asyncio.Task[Answer]":
    return asyncio.create_task(service.post(f"/reservations/{name}", {"ttlSeconds": 5}))


@either_end
async def test_a_restart_moves_no_deadline(service: ServiceHarness, end: End) -> None:
    held = await service.hold("seat-1", 5)
    before = row(service.database, "seat-1")
    for _ in range(3):
        service.clock.advance(1_000)
        await end(service)
        await service.start()
    assert await service.status("seat-1") == held
    assert row(service.database, "seat-1") == before
    await service.advance(1_999)
    assert (await service.status("seat-1"))["status"] == "held"
    await service.advance(1)
    assert (await service.status("seat-1"))["expiredAt"] == DEADLINE


@either_end
async def test_a_hold_that_ran_out_in_the_dark_expires_once_without_a_request(
    service: ServiceHarness, end: End
) -> None:
    await service.hold("seat-1", 5)
    safe = await service.hold("seat-2", 3_600)
    await end(service)
    service.clock.advance(60_000)
    await service.start()
    await service.recorder.seen("reservation-alarm", reservation_id="seat-1")
    await service.quiet()
    assert history(service.database, "seat-1") == [(1, "held", "request"), (1, "expired", "alarm")]
    assert row(service.database, "seat-1")["expired_at"] == START + 60_000
    (event,) = service.recorder.of("reservation-alarm")
    assert (event["lateness_ms"], event["is_retry"]) == (55_000, False)
    assert await service.status("seat-2") == safe


async def test_a_start_tells_what_it_reloaded(service: ServiceHarness) -> None:
    for number in range(3):
        await service.hold(f"seat-{number}", 5)
    await service.hold("later", 600)
    await service.stop()
    service.clock.advance(60_000)
    await service.start()
    assert service.recorder.of("alarms-reloaded") == [
        {"overdue": 0, "claims_voided": 0, "next_due_at": None},
        {"overdue": 3, "claims_voided": 0, "next_due_at": DEADLINE},
    ]


async def test_an_overdue_alarm_is_never_dropped_for_being_late(service: ServiceHarness) -> None:
    await service.hold("seat-1", 5)
    await service.stop()
    service.clock.advance(400 * 86_400_000)
    await service.start()
    await service.recorder.seen("reservation-alarm", reservation_id="seat-1", outcome="ok")


async def test_many_overdue_at_start_all_fire_once_while_reads_are_answered(
    service: ServiceHarness,
) -> None:
    names = [f"seat-{number}" for number in range(200)]
    await bounded(asyncio.gather(*(service.hold(name, 5) for name in names)), "all holds")
    await service.stop()
    service.clock.advance(60_000)
    await service.start()
    assert (await service.get("/reservations/seat-1")).status == 200
    await service.recorder.seen("reservation-alarm", count=200, outcome="ok")
    assert [event["type"] for event in events(service.database)].count("expired") == 200
    assert {one["expiration_count"] for one in rows(service.database)} == {1}


@either_end
async def test_the_retry_count_and_the_backoff_are_kept(service: ServiceHarness, end: End) -> None:
    await service.hold("poison", 5)
    service.poison.plant("poison")
    await service.advance(5_000)
    await service.advance(2_000)
    before = row(service.database, "poison")
    assert (before["alarm_attempts"], before["alarm_dispatch_at"]) == (2, DEADLINE + 6_000)
    await end(service)
    service.clock.advance(1_000)
    await service.start()
    assert row(service.database, "poison") == before
    assert (await service.status("poison"))["alarmRetryCount"] == 1
    await service.advance(2_999)
    assert len(service.recorder.of("reservation-alarm")) == 2
    await service.advance(1)
    last = service.recorder.of("reservation-alarm")[-1]
    assert (last["retry_count"], last["is_retry"]) == (2, True)
    service.poison.heal("poison")
    await service.advance(8_000)
    assert (await service.status("poison"))["status"] == "expired"


@either_end
async def test_a_backoff_that_ran_out_in_the_dark_is_tried_at_once(
    service: ServiceHarness, end: End
) -> None:
    await service.hold("poison", 5)
    service.poison.plant("poison")
    await service.advance(5_000)
    await end(service)
    service.clock.advance(2_000)
    service.poison.heal("poison")
    await service.start()
    await service.recorder.seen("reservation-alarm", outcome="ok", retry_count=1)


async def test_a_crash_in_the_handler_counts_as_an_attempt_and_it_runs_again_at_once(
    service: ServiceHarness,
) -> None:
    await service.hold("seat-1", 5)
    gate = service.gates.before(is_alarm)
    service.clock.advance(5_000)
    await gate.reached()
    await service.crash()
    cut_short = row(service.database, "seat-1")
    assert (cut_short["status"], cut_short["alarm_attempts"]) == ("held", 1)
    assert cut_short["alarm_claim"] is not None
    await service.start()
    (event,) = await service.recorder.seen("reservation-alarm")
    assert (event["retry_count"], event["is_retry"], event["outcome"]) == (1, True, "ok")
    assert service.recorder.of("alarms-reloaded")[-1]["claims_voided"] == 1
    assert row(service.database, "seat-1")["status"] == "expired"


async def test_a_handler_that_always_kills_the_process_neither_spins_nor_is_forgotten(
    service: ServiceHarness,
) -> None:
    await service.hold("seat-1", 5)
    service.clock.advance(5_000)
    for attempt in range(1, 5):
        gate = service.gates.before(is_alarm)
        if attempt > 1:
            service.clock.advance(4_000)
        await gate.reached()
        await service.crash()
        assert row(service.database, "seat-1")["alarm_attempts"] == attempt
        await service.start()
        if attempt > 1:
            await service.waker.asleep()
            wait = row(service.database, "seat-1")["alarm_dispatch_at"] - service.clock.now()
            assert 2_000 <= wait < 4_000
    await service.advance(4_000)
    (event,) = service.recorder.of("reservation-alarm")
    assert (event["retry_count"], event["outcome"]) == (4, "ok")


async def test_a_crash_between_the_effect_and_its_announcement_repeats_nothing(
    service: ServiceHarness,
) -> None:
    await service.hold("seat-1", 5)
    gate = service.gates.after(is_alarm)
    service.clock.advance(5_000)
    await gate.reached()
    await service.crash()
    before = row(service.database, "seat-1")
    await service.start()
    await service.look()
    assert row(service.database, "seat-1") == before
    assert history(service.database, "seat-1") == [(1, "held", "request"), (1, "expired", "alarm")]
    assert service.recorder.of("reservation-alarm") == []


async def test_a_crash_between_a_failed_attempt_and_its_settle_keeps_the_count(
    service: ServiceHarness,
) -> None:
    await service.hold("poison", 5)
    service.poison.plant("poison")
    gate = service.gates.before(is_retry)
    service.clock.advance(5_000)
    await gate.reached()
    await service.crash()
    await service.start()
    await service.recorder.seen("reservation-alarm", count=2)
    retry_counts = [event["retry_count"] for event in service.recorder.of("reservation-alarm")]
    assert retry_counts == [0, 1]


async def test_a_crash_before_the_commit_leaves_nothing_of_the_hold(
    service: ServiceHarness,
) -> None:
    gate = service.gates.before(is_hold)
    waiting = hold(service, "seat-1")
    await gate.reached()
    await service.crash()
    await bounded(asyncio.wait([waiting]), "the client to notice")
    assert waiting.exception() is not None
    assert rows(service.database) == []
    await service.start()
    assert (await service.status("seat-1"))["status"] == "missing"


async def test_a_hold_whose_answer_was_lost_may_be_repeated(service: ServiceHarness) -> None:
    gate = service.gates.after(is_hold)
    waiting = hold(service, "seat-1")
    await gate.reached()
    await service.crash()
    await bounded(asyncio.wait([waiting]), "the client to notice")
    assert waiting.exception() is not None
    await service.start()
    assert (await service.status("seat-1"))["status"] == "held"
    assert (await service.hold("seat-1", 5))["generation"] == 2


async def test_a_stop_answers_what_was_taken(service: ServiceHarness) -> None:
    gate = service.gates.batch(lambda batch: is_hold(batch[0]))
    waiting = hold(service, "seat-1")
    await gate.reached()
    stopping = asyncio.create_task(service.stop())
    await service.recorder.seen("service-stopping")
    gate.open()
    assert (await bounded(waiting, "the answer")).status == 201
    assert await bounded(stopping, "the stop") == 0
    assert row(service.database, "seat-1")["status"] == "held"


async def test_a_stop_lets_an_attempt_at_work_end(service: ServiceHarness) -> None:
    await service.hold("seat-1", 5)
    gate = service.gates.before(is_alarm)
    service.clock.advance(5_000)
    await gate.reached()
    stopping = asyncio.create_task(service.stop())
    await service.recorder.seen("service-stopping")
    gate.open()
    await bounded(stopping, "the stop")
    assert row(service.database, "seat-1")["status"] == "expired"


@either_end
async def test_a_clock_set_back_over_a_restart_frees_nothing_early(
    service: ServiceHarness, end: End
) -> None:
    await service.hold("seat-1", 5)
    await end(service)
    service.clock.step(-3_600_000)
    await service.start()
    await service.advance(3_604_999)
    assert (await service.status("seat-1"))["status"] == "held"
    await service.advance(1)
    assert (await service.status("seat-1"))["expiredAt"] == DEADLINE


@either_end
async def test_a_backoff_does_not_outlive_the_cap_after_the_clock_was_set_back(
    service: ServiceHarness, end: End
) -> None:
    await service.hold("poison", 5)
    service.poison.plant("poison")
    await service.advance(5_000)
    await service.advance(3_600_000)
    await end(service)
    service.clock.step(-3_600_000)
    service.poison.heal("poison")
    await service.start()
    await service.advance(60_000)
    assert (await service.status("poison"))["status"] == "expired"


async def test_nothing_looks_like_running_after_a_crash(service: ServiceHarness) -> None:
    for number in range(5):
        await service.hold(f"seat-{number}", 5)
    gate = service.gates.before(is_alarm)
    service.clock.advance(5_000)
    await gate.reached(5)
    await service.crash()
    assert [one["alarm_claim"] is None for one in rows(service.database)] == [False] * 5
    await service.start()
    await service.recorder.seen("reservation-alarm", count=5, outcome="ok")
    await service.quiet()
    assert [one["alarm_claim"] for one in rows(service.database)] == [None] * 5


@either_end
async def test_events_are_numbered_on_over_a_restart(service: ServiceHarness, end: End) -> None:
    await service.hold("seat-1", 5)
    await end(service)
    await service.start()
    await service.hold("seat-1", 5)
    assert [event["seq"] for event in events(service.database)] == [1, 2]
