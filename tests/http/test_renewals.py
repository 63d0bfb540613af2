"""Who moves a deadline, and how: renewals, extensions, the anonymous reset, and the one slot."""

from typing import Any

import pytest

from tests.conftest import StartService
from tests.http.answers import assert_problem
from tests.http.bookings import (
    DEADLINE,
    TTL_MS,
    alarms_held_back,
    changed,
    confirm,
    everything,
    extend,
    held,
    hold,
    release,
    slot,
    unchanged,
)
from tests.support.clock import START
from tests.support.harness import ServiceHarness
from tests.support.rows import history, row

ALICE, BOB = "alice-4711", "bob-0815"
CAPPED: dict[str, object] = {"ttl_seconds_max": 60, "max_hold_seconds": 100}
CAP = START + 100_000


def kinds(service: ServiceHarness, name: str = "seat-1") -> list[str]:
    return [kind for _, kind, _ in history(service.database, name)]


async def test_a_holders_second_hold_renews_the_first(service: ServiceHarness) -> None:
    first = held(await hold(service, "seat-1", ALICE))
    await service.advance(10_000)
    answer = await hold(service, "seat-1", ALICE)
    assert answer.headers["Location"] == "/reservations/seat-1"
    moved = {"expiresAt": DEADLINE + 10_000, "alarmAt": DEADLINE + 10_000}
    assert held(answer) == first | moved
    assert history(service.database, "seat-1") == [
        (1, "held", "request"),
        (1, "renewed", "request"),
    ]
    assert slot(service, "seat-1") == (DEADLINE + 10_000, DEADLINE + 10_000, 0, None)


async def test_a_shorter_renewal_keeps_the_later_deadline(service: ServiceHarness) -> None:
    first = held(await hold(service, "seat-1", ALICE))
    assert held(await hold(service, "seat-1", ALICE, ttl=5)) == first
    assert kinds(service) == ["held", "renewed"]
    assert slot(service, "seat-1") == (DEADLINE, DEADLINE, 0, None)


async def test_a_renewal_at_the_cap_is_granted_and_moves_nothing(
    start_service: StartService,
) -> None:
    service = await start_service(reservations=CAPPED)
    held(await hold(service, "seat-1", ALICE))
    await service.advance(59_999)
    assert held(await hold(service, "seat-1", ALICE))["expiresAt"] == CAP
    await service.advance(40_000)
    assert held(await hold(service, "seat-1", ALICE))["expiresAt"] == CAP
    await service.advance(1)
    assert (await service.status("seat-1"))["expiredAt"] == CAP
    assert kinds(service) == ["held", "renewed", "renewed", "expired"]


async def test_an_anonymous_second_hold_is_a_reset_even_to_an_earlier_deadline(
    start_service: StartService,
) -> None:
    service = await start_service(reservations=CAPPED)
    held(await hold(service, "seat-1"))
    await service.advance(10_000)
    again = held(await hold(service, "seat-1", ttl=5))
    assert (again["generation"], again["createdAt"]) == (2, START + 10_000)
    assert again["expiresAt"] == again["alarmAt"] == START + 15_000
    await service.advance(4_000)
    third = held(await hold(service, "seat-1", ttl=60))
    assert (third["generation"], third["expiresAt"]) == (3, START + 74_000)
    assert history(service.database, "seat-1") == [(n, "held", "request") for n in (1, 2, 3)]


async def test_resets_have_no_cap_since_each_is_a_new_hold(start_service: StartService) -> None:
    service = await start_service(reservations=CAPPED)
    for number in range(1, 5):
        assert held(await hold(service, "seat-1"))["generation"] == number
        await service.advance(59_000)
    assert (await service.status("seat-1"))["status"] == "held"


@pytest.mark.parametrize("holder", [ALICE, None], ids=["named", "anonymous"])
async def test_an_extension_moves_the_deadline_and_its_alarm(
    service: ServiceHarness, holder: str | None
) -> None:
    first = held(await hold(service, "seat-1", holder))
    await service.advance(10_000)
    moved = {"expiresAt": DEADLINE + 10_000, "alarmAt": DEADLINE + 10_000, "changed": True}
    assert changed(await extend(service, "seat-1", holder)) == first | moved
    await service.advance(TTL_MS - 1)
    assert (await service.status("seat-1"))["status"] == "held"
    await service.advance(1)
    assert (await service.status("seat-1"))["expiredAt"] == DEADLINE + 10_000
    assert history(service.database, "seat-1") == [
        (1, "held", "request"),
        (1, "extended", "request"),
        (1, "expired", "alarm"),
    ]


@pytest.mark.parametrize("ttl", [5, 49, 50])
async def test_an_extension_that_ends_no_later_moves_nothing(
    service: ServiceHarness, ttl: int
) -> None:
    first = held(await hold(service, "seat-1", ALICE))
    await service.advance(10_000)
    before = everything(service)
    assert unchanged(await extend(service, "seat-1", ALICE, ttl)) == first | {"changed": False}
    assert everything(service) == before


async def test_an_extension_of_one_millisecond_is_one(service: ServiceHarness) -> None:
    held(await hold(service, "seat-1", ALICE))
    await service.advance(1)
    assert changed(await extend(service, "seat-1", ALICE))["expiresAt"] == DEADLINE + 1


async def test_a_hold_lasts_no_longer_than_the_cap_however_often_it_is_extended(
    start_service: StartService,
) -> None:
    service = await start_service(reservations=CAPPED)
    held(await hold(service, "seat-1", ALICE))
    granted = []
    for _ in range(99):
        await service.advance(1_000)
        answer = await extend(service, "seat-1", ALICE)
        assert answer.status in {200, 409}, answer
        granted.append(answer.status == 200)
    assert granted == [True] * 40 + [False] * 59
    assert (await service.status("seat-1"))["expiresAt"] == CAP
    await service.advance(1_000)
    assert (await service.status("seat-1"))["status"] == "expired"
    assert kinds(service) == ["held"] + ["extended"] * 40 + ["expired"]


async def test_the_limit_is_named_only_when_nothing_else_kept_the_deadline(
    start_service: StartService,
) -> None:
    service = await start_service(reservations=CAPPED)
    held(await hold(service, "seat-1", ALICE))
    await service.advance(50_000)
    assert changed(await extend(service, "seat-1", ALICE))["expiresAt"] == CAP
    before = everything(service)
    unchanged(await extend(service, "seat-1", ALICE, 49))
    unchanged(await extend(service, "seat-1", ALICE, 50))
    answer = await extend(service, "seat-1", ALICE, 51)
    assert_problem(answer, 409, "extension-limit")
    assert answer.json["reservation"] == await service.status("seat-1")
    assert "Retry-After" not in answer.headers
    assert everything(service) == before


async def test_a_cap_that_was_lowered_takes_nothing_from_a_running_hold(
    start_service: StartService,
) -> None:
    service = await start_service()
    first = held(await hold(service, "seat-1", ALICE, ttl=3_600))
    await service.stop()
    service.sections = {"reservations": CAPPED}
    await service.start()
    unchanged(await extend(service, "seat-1", ALICE))
    assert held(await hold(service, "seat-1", ALICE)) == first


async def failing_live_hold(service: ServiceHarness, holder: str | None) -> None:
    """A live hold whose alarm has failed once: only a clock set back by a restart makes one."""
    service.poison.plant("seat-1")
    held(await hold(service, "seat-1", holder))
    await service.advance(TTL_MS)
    await service.stop()
    service.clock.step(-TTL_MS // 2)
    await service.start()
    assert (await service.status("seat-1"))["status"] == "held"


async def test_a_renewal_that_moves_nothing_keeps_the_slot_with_its_attempts(
    service: ServiceHarness,
) -> None:
    await failing_live_hold(service, ALICE)
    before = slot(service, "seat-1")
    assert before[2] == 1
    renewed = held(await hold(service, "seat-1", ALICE, ttl=5))
    assert renewed["expiresAt"] == DEADLINE
    assert slot(service, "seat-1") == before
    assert kinds(service)[-1] == "renewed"


@pytest.mark.parametrize("call", [hold, extend])
async def test_a_deadline_that_moves_is_a_new_alarm_without_attempts(
    service: ServiceHarness, call: Any
) -> None:
    await failing_live_hold(service, ALICE)
    answer = await call(service, "seat-1", ALICE)
    later = DEADLINE + TTL_MS // 2
    assert answer.json["expiresAt"] == later
    assert answer.json["alarmRetryCount"] == 0
    assert slot(service, "seat-1") == (later, later, 0, None)


async def test_a_hold_made_anew_during_a_failing_attempt_keeps_its_new_alarm(
    service: ServiceHarness,
) -> None:
    service.poison.plant("seat-1")
    held(await hold(service, "seat-1", ALICE))
    attempt = service.gates.ring()
    service.clock.advance(TTL_MS)
    await attempt.reached()
    again = held(await hold(service, "seat-1", ALICE))
    attempt.open()
    await service.quiet()
    assert slot(service, "seat-1") == (DEADLINE + TTL_MS, DEADLINE + TTL_MS, 0, None)
    assert await service.status("seat-1") == again
    service.poison.heal("seat-1")
    await service.advance(TTL_MS)
    assert history(service.database, "seat-1") == [
        (1, "held", "request"),
        (1, "expired", "request"),
        (2, "held", "request"),
        (2, "expired", "alarm"),
    ]


@pytest.mark.parametrize("call", [confirm, release])
async def test_an_ending_clears_the_slot_and_no_alarm_comes(
    service: ServiceHarness, call: Any
) -> None:
    held(await hold(service, "seat-1", ALICE))
    ended = changed(await call(service, "seat-1", ALICE))
    assert (ended["alarmAt"], ended["expirationCount"]) == (None, 0)
    assert slot(service, "seat-1") == (None, None, 0, None)
    before = everything(service)
    await service.advance(86_400_000)
    assert everything(service) == before
    assert service.recorder.of("reservation-alarm") == []


async def test_confirming_and_releasing_say_when_they_were_done(service: ServiceHarness) -> None:
    for name in ("seat-1", "seat-2"):
        held(await hold(service, name, ALICE))
    await service.advance(1_234)
    first = changed(await confirm(service, "seat-1", ALICE))
    second = changed(await release(service, "seat-2", ALICE))
    assert (first["confirmedAt"], first["releasedAt"]) == (START + 1_234, None)
    assert (second["confirmedAt"], second["releasedAt"]) == (None, START + 1_234)
    assert kinds(service, "seat-1") == ["held", "confirmed"]
    assert kinds(service, "seat-2") == ["held", "released"]


@pytest.mark.parametrize("call", [confirm, release])
async def test_a_call_may_be_repeated_after_a_time_out(service: ServiceHarness, call: Any) -> None:
    held(await hold(service, "seat-1", ALICE))
    first = changed(await call(service, "seat-1", ALICE))
    before = everything(service)
    await service.advance(5_000)
    for _ in range(3):
        assert unchanged(await call(service, "seat-1", ALICE)) == first | {"changed": False}
    assert everything(service) == before


async def test_no_refused_call_ever_moves_a_deadline(service: ServiceHarness) -> None:
    held(await hold(service, "seat-1", ALICE))
    before = everything(service)
    for _ in range(5):
        await service.advance(5_000)
        for call in (hold, extend, confirm, release):
            assert (await call(service, "seat-1", BOB)).status in {403, 409}
            assert (await call(service, "seat-1")).status in {403, 409}
        assert_problem(
            await confirm(service, "seat-1", ALICE, generation=2), 409, "generation-mismatch"
        )
        assert everything(service) == before
    await service.advance(TTL_MS - 25_000)
    assert (await service.status("seat-1"))["expiredAt"] == DEADLINE


async def test_a_restart_keeps_every_deadline_and_its_cap(start_service: StartService) -> None:
    service = await start_service(reservations=CAPPED)
    held(await hold(service, "seat-1", ALICE))
    await service.advance(50_000)
    extended = changed(await extend(service, "seat-1", ALICE))
    await service.stop()
    await service.start()
    assert await service.status("seat-1") | {"changed": True} == extended
    assert_problem(await extend(service, "seat-1", ALICE), 409, "extension-limit")


async def test_an_overdue_hold_can_be_ended_by_its_alarm_alone(service: ServiceHarness) -> None:
    held(await hold(service, "seat-1", ALICE))
    with alarms_held_back(service):
        service.clock.advance(TTL_MS)
        for call in (extend, confirm):
            assert_problem(await call(service, "seat-1", ALICE), 410, "hold-expired")
        unchanged(await release(service, "seat-1", ALICE))
        assert row(service.database, "seat-1")["status"] == "held"
    await service.quiet()
    assert row(service.database, "seat-1")["changed_by"] == "alarm"
    assert service.recorder.of("reservation-alarm", outcome="ok") != []
