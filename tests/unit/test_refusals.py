"""Why a message that changed nothing was refused: holder, then generation, then state, then time.

Every line is a row, who asks, and what is said; None is no refusal: the work was done before.
"""

import re
from collections.abc import Callable

import pytest

from reservation_service.refusals import (
    AlreadyConfirmed,
    AlreadyHeld,
    ExtensionLimit,
    GenerationMismatch,
    HoldExpired,
    HoldReleased,
    NoHold,
    NotYourHold,
    Refused,
    Taken,
    TooManyHolds,
    why_not_confirmed,
    why_not_extended,
    why_not_held,
    why_not_released,
)
from reservation_service.reservation import Confirm, Extend, Outcome, Release, Reservation, Status

DEADLINE, GENERATION = 6_000, 3
LIVE, OVER = DEADLINE - 1, DEADLINE
HOLDER = b"h" * 32
Expected = type[Refused] | None
Case = tuple[Status, int, bool, Expected]


def row(status: Status) -> Reservation:
    if status is Status.MISSING:
        return Reservation("seat-1", status, 0, None, None, None, None, None, 0, None, 0, False)
    return Reservation(
        "seat-1", status, GENERATION, 1_000, DEADLINE, None, None, None, 0, None, 0, False
    )


def outcome(status: Status, now: int, *, is_own: bool) -> Outcome:
    return Outcome(changed=False, is_own=is_own, now=now, reservation=row(status))


def extend(generation: int | None = None, ttl_ms: int = 1) -> Callable[[Outcome], Refused | None]:
    message = Extend("seat-1", ttl_ms, 7_200_000, HOLDER, generation)
    return lambda met: why_not_extended(message, met)


def confirm(
    generation: int | None = None, *, if_still_free: bool = False
) -> Callable[[Outcome], Refused | None]:
    message = Confirm("seat-1", HOLDER, generation, if_still_free)
    return lambda met: why_not_confirmed(message, met)


def release(generation: int | None = None) -> Callable[[Outcome], Refused | None]:
    return lambda met: why_not_released(Release("seat-1", HOLDER, generation), met)


MISSING, HELD, EXPIRED = Status.MISSING, Status.HELD, Status.EXPIRED
RELEASED, CONFIRMED = Status.RELEASED, Status.CONFIRMED

EXTENDED: list[Case] = [
    (HELD, LIVE, True, None),
    (HELD, OVER, True, HoldExpired),
    (EXPIRED, OVER, True, HoldExpired),
    (RELEASED, LIVE, True, HoldReleased),
    (CONFIRMED, LIVE, True, AlreadyConfirmed),
    (MISSING, LIVE, False, NoHold),
]
CONFIRMED_: list[Case] = [
    (HELD, OVER, True, HoldExpired),
    (EXPIRED, OVER, True, HoldExpired),
    (RELEASED, LIVE, True, HoldReleased),
    (CONFIRMED, LIVE, True, None),
    (MISSING, LIVE, False, NoHold),
]
RELEASED_: list[Case] = [
    (HELD, OVER, True, None),
    (EXPIRED, OVER, True, None),
    (RELEASED, LIVE, True, None),
    (CONFIRMED, LIVE, True, AlreadyConfirmed),
    (MISSING, LIVE, False, None),
]
STRANGERS = [
    (status, now)
    for status in sorted(set(Status) - {MISSING})
    for now in (LIVE, OVER, DEADLINE + 1)
]


def kind(refused: Refused | None) -> Expected:
    return None if refused is None else type(refused)


@pytest.mark.parametrize(("status", "now", "is_own", "expected"), EXTENDED)
def test_an_extension_of_ones_own(
    status: Status, now: int, is_own: bool, expected: Expected
) -> None:
    assert kind(extend()(outcome(status, now, is_own=is_own))) is expected


@pytest.mark.parametrize(("status", "now", "is_own", "expected"), CONFIRMED_)
def test_a_confirmation_of_ones_own(
    status: Status, now: int, is_own: bool, expected: Expected
) -> None:
    assert kind(confirm()(outcome(status, now, is_own=is_own))) is expected


@pytest.mark.parametrize(("status", "now", "is_own", "expected"), RELEASED_)
def test_a_release_of_ones_own(status: Status, now: int, is_own: bool, expected: Expected) -> None:
    assert kind(release()(outcome(status, now, is_own=is_own))) is expected


@pytest.mark.parametrize(("status", "now"), STRANGERS)
@pytest.mark.parametrize("generation", [None, GENERATION, GENERATION + 1])
@pytest.mark.parametrize("ask", [extend, confirm, release])
def test_the_holder_comes_first(
    ask: Callable[[int | None], Callable[[Outcome], Refused | None]],
    generation: int | None,
    status: Status,
    now: int,
) -> None:
    assert kind(ask(generation)(outcome(status, now, is_own=False))) is NotYourHold


@pytest.mark.parametrize("status", sorted(set(Status) - {MISSING}))
@pytest.mark.parametrize("ask", [extend, confirm, release])
def test_the_generation_comes_before_the_state(
    ask: Callable[[int | None], Callable[[Outcome], Refused | None]], status: Status
) -> None:
    met = outcome(status, OVER, is_own=True)
    assert kind(ask(GENERATION - 1)(met)) is GenerationMismatch
    assert kind(ask(GENERATION)(met)) is kind(ask(None)(met))


@pytest.mark.parametrize(
    ("status", "now", "expected"),
    [
        (HELD, LIVE, Taken),
        (CONFIRMED, LIVE, Taken),
        (HELD, OVER, NotYourHold),
        (EXPIRED, OVER, NotYourHold),
        (RELEASED, LIVE, NotYourHold),
        (MISSING, LIVE, NoHold),
    ],
)
def test_a_late_confirmation_learns_whether_somebody_has_the_thing(
    status: Status, now: int, expected: Expected
) -> None:
    assert kind(confirm(if_still_free=True)(outcome(status, now, is_own=False))) is expected


def test_an_extension_that_only_the_cap_kept_back_is_refused() -> None:
    met = outcome(HELD, 5_000, is_own=True)
    assert kind(extend(ttl_ms=1_000)(met)) is None
    assert kind(extend(ttl_ms=1_001)(met)) is ExtensionLimit


@pytest.mark.parametrize(
    ("status", "expected"), [(HELD, AlreadyHeld), (CONFIRMED, AlreadyConfirmed)]
)
def test_a_refused_hold_says_why_and_shows_the_row(status: Status, expected: type[Refused]) -> None:
    met = outcome(status, LIVE, is_own=False)
    refused = why_not_held(met)
    assert type(refused) is expected
    assert refused.reservation is met.reservation


@pytest.mark.parametrize(("now", "seconds"), [(5_999, 1), (5_000, 1), (4_999, 2), (1_000, 5)])
def test_nobody_is_told_to_come_back_too_early(now: int, seconds: int) -> None:
    assert why_not_held(outcome(HELD, now, is_own=False)).retry_after_s == seconds


def test_one_who_has_too_many_is_told_when_the_first_of_them_ends() -> None:
    limited = Outcome(False, is_own=False, now=1_000, reservation=row(MISSING), limited_until=3_500)
    refused = why_not_held(limited)
    assert type(refused) is TooManyHolds
    assert refused.retry_after_s == 3


def test_refusing_a_hold_for_no_reason_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        why_not_held(outcome(EXPIRED, OVER, is_own=True))


@pytest.mark.parametrize("refusal", Refused.__subclasses__(), ids=lambda one: one.code)
def test_a_sentence_tells_what_happened_and_what_to_do(refusal: type[Refused]) -> None:
    assert re.fullmatch(r"[A-Z][^;.]+; [^;.]+\.", refusal.sentence)
