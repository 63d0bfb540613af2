"""Planned events that happen: on time, once, in order, over restarts, whatever else goes wrong.

The first three are the examples that come with the alarms of Durable Objects: an alarm that a
request sets, many events on one alarm, and a handler that asks how often it was tried.
"""

import asyncio

import pytest

from reservation_service.errors import StorageFull
from reservation_service.reservation import Fire
from reservation_service.store import Claim, Retry
from tests.http.bookings import DEADLINE, TTL_MS, bring, confirm, hold, path, release, slot
from tests.http.schedules import DAY, SECOND, cancel, happened, plan, planned, shown, times
from tests.support.clock import START
from tests.support.harness import ServiceHarness
from tests.support.invariants import violations
from tests.support.rows import history, row
from tests.support.waiting import bounded


def is_fire(message: object) -> bool:
    return isinstance(message, Fire)


def is_retry(message: object) -> bool:
    return isinstance(message, Retry)


def is_claim(message: object) -> bool:
    return isinstance(message, Claim)


@pytest.fixture
async def service(service: ServiceHarness) -> ServiceHarness:
    """`seat-1` is held for a minute by anybody."""
    await bring(service, "held", None, ["seat-1"])
    return service


async def test_an_event_that_a_request_set_for_ten_seconds_ahead_wakes_its_actor_then(
    service: ServiceHarness,
) -> None:
    assert await shown(service) == []
    await planned(service, "wake-up", runAt=START + 10 * SECOND)
    assert (await service.status("seat-1"))["alarmAt"] == START + 10 * SECOND
    await service.advance(10 * SECOND - 1)
    assert happened(service) == []
    await service.advance(1)
    assert times(service) == [("wake-up", 10 * SECOND)]
    assert (await service.status("seat-1"))["alarmAt"] == DEADLINE


async def test_single_and_recurring_events_share_the_one_alarm(service: ServiceHarness) -> None:
    await planned(service, "report", runAt=START + 4_500)
    await planned(service, "poll", runAt=START + 2_000, repeatMs=2_000)
    await planned(service, "greet", runAt=START + 1_000)
    for alarm_at in (1_000, 2_000, 4_000, 4_500, 6_000):
        assert (await service.status("seat-1"))["alarmAt"] == START + alarm_at
        await service.advance(START + alarm_at - service.clock.now())
    assert times(service) == [
        ("greet", 1_000),
        ("poll", 2_000),
        ("poll", 4_000),
        ("report", 4_500),
        ("poll", 6_000),
    ]
    assert await shown(service) == [("poll", START + 8_000)]


async def test_a_handler_is_told_how_often_its_alarm_was_tried_before(
    service: ServiceHarness,
) -> None:
    await planned(service, "call")
    service.poison.plant("call")
    await service.advance(SECOND)
    await service.advance(2 * SECOND)
    assert (await service.status("seat-1"))["alarmRetryCount"] == 1
    service.poison.heal("call")
    await service.advance(4 * SECOND)
    (data,) = happened(service)
    assert (data["retryCount"], data["isRetry"]) == (2, True)
    assert (data["scheduledTime"], data["lateness"]) == (START + SECOND, 6 * SECOND)
    tried = service.recorder.of("reservation-alarm", reservation_id="seat-1")
    assert [(one["outcome"], one["retry_count"]) for one in tried] == [
        ("failed", 0),
        ("failed", 1),
        ("ok", 2),
    ]


async def test_an_event_happens_without_any_request(service: ServiceHarness) -> None:
    await planned(service, "call")
    assert service.waker.armed_at == START + SECOND
    service.clock.advance(SECOND)
    await service.recorder.seen("reservation-alarm", reservation_id="seat-1", outcome="ok")
    assert times(service) == [("call", SECOND)]


async def test_a_time_in_the_past_happens_at_once(service: ServiceHarness) -> None:
    await planned(service, "call", runAt=1)
    await service.quiet()
    (data,) = happened(service)
    assert (data["scheduledTime"], data["lateness"]) == (1, START - 1)


async def test_a_hundred_due_events_are_one_attempt_each_in_order(
    service: ServiceHarness,
) -> None:
    for number in range(100):
        await planned(service, f"event-{number}", runAt=START + 100 - number)
    await service.advance(SECOND)
    assert times(service) == [(f"event-{99 - n}", n + 1) for n in range(100)]
    tried = service.recorder.of("reservation-alarm")
    assert [(one["outcome"], one["retry_count"]) for one in tried] == [("ok", 0)]
    assert slot(service, "seat-1") == (DEADLINE, DEADLINE, 0, None)


async def test_a_poison_event_delays_neither_its_siblings_nor_the_expiry(
    service: ServiceHarness,
) -> None:
    service.poison.plant("poison")
    await planned(service, "poison", runAt=START + SECOND)
    await planned(service, "good", runAt=START + SECOND)
    await planned(service, "later", runAt=START + 50 * SECOND)
    await service.advance(SECOND)
    assert times(service) == [("good", SECOND)]
    for _ in range(50):
        await service.advance(SECOND)
    assert times(service) == [("good", SECOND), ("later", 50 * SECOND)]
    assert happened(service)[-1]["lateness"] == 0
    await service.advance(DEADLINE - service.clock.now())
    assert history(service.database, "seat-1")[-1] == (1, "expired", "alarm")
    assert (await service.status("seat-1"))["expiredAt"] == DEADLINE


async def test_a_failing_event_is_recorded_as_a_failed_alarm_until_it_is_stuck(
    service: ServiceHarness,
) -> None:
    await confirm(service, "seat-1")
    service.poison.plant("poison")
    await planned(service, "poison")
    for _ in range(8):
        await service.advance(60 * SECOND)
    failures = [kind for _, kind, _ in history(service.database, "seat-1") if kind[0] == "a"]
    assert failures == ["alarm-failed"] * 6
    status = await service.status("seat-1")
    assert (status["alarmStuck"], status["status"]) == (True, "confirmed")
    assert (await cancel(service, "poison")).json["alarmStuck"] is False


@pytest.mark.parametrize("point", ["before", "after"])
async def test_an_occurrence_over_a_crash_is_recorded_once(
    service: ServiceHarness, point: str
) -> None:
    await planned(service, "tick", repeatMs=5 * SECOND)
    gate = service.gates.before(is_fire) if point == "before" else service.gates.after(is_fire)
    service.clock.advance(SECOND)
    await gate.reached()
    await service.crash()
    await service.start()
    await service.look()
    assert times(service) == [("tick", SECOND)]
    await service.advance(5 * SECOND)
    assert times(service) == [("tick", SECOND), ("tick", 6 * SECOND)]


async def test_what_was_missed_while_no_process_lived_happens_once_and_says_how_much(
    service: ServiceHarness,
) -> None:
    await planned(service, "tick", repeatMs=2 * SECOND)
    await service.crash()
    service.clock.advance(30 * SECOND)
    await service.start()
    await service.look()
    (data,) = happened(service)
    assert (data["scheduledTime"], data["missed"]) == (START + SECOND, 14)
    assert await shown(service) == [("tick", START + 31 * SECOND)]


async def test_an_event_planned_during_a_failing_attempt_stands(service: ServiceHarness) -> None:
    service.poison.plant("poison")
    await planned(service, "poison")
    gate = service.gates.before(is_retry)
    service.clock.advance(SECOND)
    await gate.reached()
    await planned(service, "earlier", runAt=START + 1)
    await service.recorder.seen("reservation-alarm", count=2)
    gate.open()
    await service.quiet()
    assert times(service) == [("earlier", 1)]


async def test_an_event_planned_anew_while_it_is_fired_happens_as_it_was_planned_last(
    service: ServiceHarness,
) -> None:
    await planned(service, "call", data=1)
    gate = service.gates.before(is_fire)
    service.clock.advance(SECOND)
    await gate.reached()
    await planned(service, "call", data=2)
    gate.open()
    await service.look()
    assert [data["data"] for data in happened(service)] == [2]


@pytest.mark.parametrize("ending", ["expiry", "release"])
async def test_an_ending_silences_what_was_planned(service: ServiceHarness, ending: str) -> None:
    await planned(service, "call", runAt=DEADLINE + SECOND)
    await planned(service, "tick", runAt=START + 59 * SECOND, repeatMs=SECOND)
    if ending == "release":
        await release(service, "seat-1")
    await service.advance(TTL_MS)
    before = times(service)
    assert await shown(service) == []
    await service.advance(DAY)
    assert times(service) == before
    assert (await service.status("seat-1"))["alarmAt"] is None


async def test_nothing_happens_on_a_hold_that_is_over_though_its_alarm_has_not_run(
    service: ServiceHarness,
) -> None:
    await planned(service, "call", runAt=START + 59 * SECOND)
    gate = service.gates.before(is_claim)
    service.clock.advance(TTL_MS)
    assert await shown(service) == []
    gate.open()
    await service.quiet()
    assert history(service.database, "seat-1") == [(1, "held", "request"), (1, "expired", "alarm")]


async def test_a_confirmed_one_is_reminded_days_ahead(service: ServiceHarness) -> None:
    await planned(service, "reminder", runAt=START + 5 * DAY)
    await confirm(service, "seat-1")
    await service.advance(5 * DAY - 1)
    assert happened(service) == []
    await service.advance(1)
    assert [data["lateness"] for data in happened(service)] == [0]
    assert (await service.status("seat-1"))["alarmAt"] is None


async def test_a_late_confirmation_takes_up_what_was_planned(service: ServiceHarness) -> None:
    await bring(service, "held", "alice", ["seat-2"])
    for event_id, run_at in (("missed", DEADLINE + SECOND), ("to-come", DEADLINE + DAY)):
        await planned(service, event_id, name="seat-2", runAt=run_at, holder="alice")
    await service.advance(TTL_MS + 5 * SECOND)
    assert (await confirm(service, "seat-2", "alice", ifStillFree=True)).status == 200
    await service.quiet()
    assert times(service, "seat-2") == [("missed", TTL_MS + SECOND)]
    assert (await service.status("seat-2"))["alarmAt"] == DEADLINE + DAY


async def test_the_next_hold_begins_with_an_empty_schedule(service: ServiceHarness) -> None:
    await planned(service, "call", runAt=DEADLINE + SECOND)
    await service.advance(TTL_MS)
    await hold(service, "seat-1")
    assert await shown(service) == []
    await service.advance(2 * SECOND)
    assert happened(service) == []


async def test_a_store_that_was_away_loses_no_event_and_costs_no_attempt(
    service: ServiceHarness,
) -> None:
    await planned(service, "first", runAt=START + 1)
    await planned(service, "second", runAt=START + 2)
    gate = service.gates.before(is_fire)
    service.clock.advance(SECOND)
    await gate.reached()
    with service.gates.failing(StorageFull()):
        gate.open()
        await service.recorder.seen("dispatch-paused")
        await service.waker.asleep()
    await service.look()
    assert times(service) == [("first", 1), ("second", 2)]
    assert [data["retryCount"] for data in happened(service)] == [0, 0]


async def test_events_of_many_reservations_share_transactions(service: ServiceHarness) -> None:
    names = [f"seat-{number}" for number in range(2, 52)]
    await bring(service, "held", None, names)
    await asyncio.gather(*[planned(service, "call", name=name) for name in names])
    before = len(service.gates.batches)
    await service.advance(SECOND)
    assert all(times(service, name) == [("call", SECOND)] for name in names)
    assert len(service.gates.batches) - before < 20


async def test_a_call_may_be_planned_again_after_a_time_out(service: ServiceHarness) -> None:
    gate = service.gates.after(lambda message: getattr(message, "event_id", "") == "tick")
    waiting = asyncio.create_task(plan(service, "tick", repeatMs=SECOND))
    await gate.reached()
    await service.crash()
    await bounded(asyncio.wait([waiting]), "the client to notice")
    assert waiting.exception() is not None
    await service.start()
    await service.advance(SECOND)
    assert (await plan(service, "tick", repeatMs=SECOND)).status == 200
    await service.quiet()
    assert times(service) == [("tick", SECOND)]


async def test_an_event_planned_anew_for_the_same_time_is_counted_anew(
    service: ServiceHarness,
) -> None:
    service.poison.plant("call")
    await planned(service, "call")
    await service.advance(SECOND)
    await service.advance(2 * SECOND)
    await planned(service, "call", data="mended")
    await service.quiet()
    tried = service.recorder.of("reservation-alarm")
    assert [one["retry_count"] for one in tried] == [0, 1, 0]
    assert violations(service.database) == []


async def test_a_replay_expires_and_fires_nothing(service: ServiceHarness) -> None:
    await planned(service, "call")
    answer = await service.post(path("seat-1", "replay-alarm"), {"now": START + SECOND})
    assert answer.json["changed"] is False
    assert happened(service) == []
    assert row(service.database, "seat-1")["alarm_at"] == START + SECOND
