"""A payment that arrives after the deadline: confirmed while nobody took it, else told to staff."""

import json
from itertools import product

import pytest

from tests.http.answers import assert_problem
from tests.http.bookings import (
    DEADLINE,
    TTL_MS,
    alarms_held_back,
    bring,
    changed,
    confirm,
    everything,
    held,
    hold,
    release,
    slot,
    unchanged,
)
from tests.support.harness import Answer, ServiceHarness
from tests.support.rows import events, history

ALICE, BOB = "alice-4711", "bob-0815"


async def confirm_late(
    service: ServiceHarness, name: str, holder: str | None = ALICE, **fields: object
) -> Answer:
    return await confirm(service, name, holder, ifStillFree=True, **fields)


def rejections(service: ServiceHarness, name: str = "seat-1") -> list[tuple[int, str]]:
    """The generation and the code of each rejected confirmation in the log."""
    return [
        (event["generation"], json.loads(event["data"])["code"])
        for event in events(service.database, name)
        if event["type"] == "confirm-rejected"
    ]


async def test_a_payment_25_minutes_late_is_kept_when_nobody_took_the_seat(
    service: ServiceHarness,
) -> None:
    held(await hold(service, "seat-1", ALICE))
    await service.advance(TTL_MS)
    await service.advance(1_500_000)
    assert_problem(await confirm(service, "seat-1", ALICE), 410, "hold-expired")
    late = changed(await confirm_late(service, "seat-1"))
    assert (late["status"], late["confirmedAt"]) == ("confirmed", DEADLINE + 1_500_000)
    assert (late["expirationCount"], late["expiredAt"]) == (1, DEADLINE)
    assert history(service.database, "seat-1") == [
        (1, "held", "request"),
        (1, "expired", "alarm"),
        (1, "confirm-rejected", "request"),
        (1, "confirmed", "request"),
    ]
    unchanged(await confirm_late(service, "seat-1"))
    assert_problem(await hold(service, "seat-1", BOB), 409, "already-confirmed")


async def test_a_late_payment_that_overtakes_the_alarm_leaves_it_nothing_to_do(
    service: ServiceHarness,
) -> None:
    held(await hold(service, "seat-1", ALICE))
    with alarms_held_back(service):
        service.clock.advance(TTL_MS)
        late = changed(await confirm_late(service, "seat-1"))
    await service.quiet()
    await service.advance(3_600_000)
    assert (late["expirationCount"], late["expiredAt"], late["alarmAt"]) == (0, None, None)
    assert slot(service, "seat-1") == (None, None, 0, None)
    assert history(service.database, "seat-1") == [
        (1, "held", "request"),
        (1, "confirmed", "request"),
    ]


async def test_a_payment_in_time_needs_nothing_special(service: ServiceHarness) -> None:
    held(await hold(service, "seat-1", ALICE))
    assert changed(await confirm_late(service, "seat-1"))["status"] == "confirmed"
    assert rejections(service) == []


@pytest.mark.parametrize("taker", [BOB, None], ids=["named", "anonymous"])
@pytest.mark.parametrize("is_confirmed", [False, True], ids=["held", "confirmed"])
async def test_a_late_payment_for_a_seat_that_somebody_took_is_told_as_taken(
    service: ServiceHarness, taker: str | None, is_confirmed: bool
) -> None:
    held(await hold(service, "seat-1", ALICE))
    await service.advance(TTL_MS)
    held(await hold(service, "seat-1", taker))
    if is_confirmed:
        changed(await confirm(service, "seat-1", taker))
    rows, _ = everything(service)
    answer = await confirm_late(service, "seat-1")
    assert_problem(answer, 409, "taken")
    assert answer.json["reservation"] == await service.status("seat-1")
    assert everything(service)[0] == rows
    assert rejections(service) == [(2, "taken")]


async def test_a_stranger_cannot_confirm_what_is_free_however_it_asks(
    service: ServiceHarness,
) -> None:
    for state in ("expired", "released", "overdue"):
        await bring(service, state, ALICE, [state])
        assert_problem(await confirm_late(service, state, BOB), 403, "not-your-hold")
        assert_problem(await confirm(service, state, BOB), 403, "not-your-hold")
        assert rejections(service, state) == []


async def test_a_released_hold_is_not_confirmed_late(service: ServiceHarness) -> None:
    held(await hold(service, "seat-1", ALICE))
    changed(await release(service, "seat-1", ALICE))
    assert_problem(await confirm_late(service, "seat-1"), 410, "hold-released")
    assert rejections(service) == [(1, "hold-released")]


async def test_anonymous_clients_must_say_which_hold_they_paid_for(
    service: ServiceHarness,
) -> None:
    held(await hold(service, "seat-1"))
    for _ in range(2):
        answer = await confirm_late(service, "seat-1", None)
        assert_problem(answer, 400, "invalid-field")
        assert "generation" in answer.json["error"]
        await service.advance(TTL_MS)
    held(await hold(service, "seat-1"))
    await service.advance(TTL_MS)
    answer = await confirm_late(service, "seat-1", None, generation=1)
    assert_problem(answer, 409, "generation-mismatch")
    assert changed(await confirm_late(service, "seat-1", None, generation=2))["generation"] == 2


async def test_a_named_holder_needs_no_generation_and_may_give_one(
    service: ServiceHarness,
) -> None:
    await bring(service, "expired", ALICE, ["seat-1", "seat-2"])
    answer = await confirm_late(service, "seat-1", generation=2)
    assert_problem(answer, 409, "generation-mismatch")
    assert rejections(service) == []
    changed(await confirm_late(service, "seat-1", generation=1))
    changed(await confirm_late(service, "seat-2"))


async def test_asking_with_false_is_asking_without(service: ServiceHarness) -> None:
    await bring(service, "expired", None, ["seat-1"])
    answer = await confirm(service, "seat-1", None, ifStillFree=False)
    assert_problem(answer, 410, "hold-expired")


async def test_a_rejected_payment_is_recorded_once_per_hold_holder_and_reason(
    service: ServiceHarness,
) -> None:
    await bring(service, "expired", ALICE, ["seat-1"])
    for _ in range(3):
        assert_problem(await confirm(service, "seat-1", ALICE), 410, "hold-expired")
    assert rejections(service) == [(1, "hold-expired")]
    held(await hold(service, "seat-1", BOB))
    for _ in range(3):
        assert_problem(await confirm_late(service, "seat-1"), 409, "taken")
        assert_problem(await confirm_late(service, "seat-1", "carol"), 409, "taken")
    assert rejections(service)[1:] == [(2, "taken"), (2, "taken")]
    changed(await release(service, "seat-1", BOB))
    for _ in range(2):
        assert_problem(await confirm(service, "seat-1", BOB), 410, "hold-released")
    held(await hold(service, "seat-1", BOB))
    assert_problem(await confirm_late(service, "seat-1"), 409, "taken")
    assert rejections(service)[3:] == [(2, "hold-released"), (3, "taken")]


async def test_a_rejection_is_remembered_across_a_restart(service: ServiceHarness) -> None:
    await bring(service, "expired", ALICE, ["seat-1"])
    assert_problem(await confirm(service, "seat-1", ALICE), 410, "hold-expired")
    await service.stop()
    await service.start()
    assert_problem(await confirm(service, "seat-1", ALICE), 410, "hold-expired")
    assert rejections(service) == [(1, "hold-expired")]


async def test_strangers_cannot_fill_the_log_with_rejected_payments(
    service: ServiceHarness,
) -> None:
    held(await hold(service, "seat-1", BOB))
    held(await hold(service, "seat-2", BOB))
    for number, name in product(range(25), ("seat-1", "seat-2")):
        assert_problem(await confirm_late(service, name, f"made-up-{number}"), 409, "taken")
    assert rejections(service, "seat-1") == [(1, "taken")] * 20
    assert rejections(service, "seat-2") == [(1, "taken")] * 20
    changed(await release(service, "seat-1", BOB))
    held(await hold(service, "seat-1", BOB))
    assert_problem(await confirm_late(service, "seat-1", "made-up-1"), 409, "taken")
    assert rejections(service, "seat-1")[20:] == [(2, "taken")]


async def test_only_refusals_of_late_payments_are_recorded(service: ServiceHarness) -> None:
    held(await hold(service, "seat-1", ALICE))
    assert_problem(await confirm(service, "seat-1", BOB), 403, "not-your-hold")
    assert_problem(await confirm(service, "seat-2", BOB), 410, "no-hold")
    answer = await confirm(service, "seat-1", ALICE, generation=7)
    assert_problem(answer, 409, "generation-mismatch")
    changed(await confirm(service, "seat-1", ALICE))
    unchanged(await confirm(service, "seat-1", ALICE))
    assert history(service.database, "seat-1") == [
        (1, "held", "request"),
        (1, "confirmed", "request"),
    ]
    assert events(service.database, "seat-2") == []
