"""Errors as problem documents, and the one table from code to HTTP status."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from reservation_service.errors import (
    DatabaseUnusable,
    MessageFailed,
    OutcomeUnknown,
    Overloaded,
    ServiceError,
    StorageFull,
    StorageTrouble,
    StorageUnavailable,
)
from reservation_service.refusals import AlreadyConfirmed, AlreadyHeld, NoHold, Refused
from reservation_service.reservation import Reservation, Status
from reservation_service.web.answers import Answer
from reservation_service.web.problems import STATUS_BY_CODE, problem, problem_of

STUCK_AFTER = 6
ABSTRACT = {StorageTrouble, Refused}


def kinds(kind: type[ServiceError] = ServiceError) -> Iterator[type[ServiceError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from kinds(narrower)


def document(response: Answer) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(response.body)
    return decoded


@pytest.mark.parametrize(
    "kind", [kind for kind in kinds() if kind not in ABSTRACT], ids=lambda kind: kind.__name__
)
def test_every_error_has_a_status(kind: type[ServiceError]) -> None:
    assert kind.code in STATUS_BY_CODE


def test_a_problem_says_everything_about_itself() -> None:
    response = problem("invalid-field", "Do better.")
    assert document(response) == {
        "type": "urn:reservation-service:problem:invalid-field",
        "title": "Bad Request",
        "status": 400,
        "detail": "Do better.",
        "code": "invalid-field",
        "error": "Do better.",
    }
    assert response.media_type == "application/problem+json"
    assert response.status == 400


@pytest.mark.parametrize(
    ("error", "status", "code", "retry_after"),
    [
        (Overloaded(), 503, "overloaded", "1"),
        (StorageUnavailable(), 503, "storage-unavailable", "1"),
        (DatabaseUnusable(), 503, "storage-unavailable", "1"),
        (OutcomeUnknown(), 503, "outcome-unknown", "1"),
        (StorageFull(), 507, "storage-full", "1"),
        (MessageFailed(), 500, "internal-error", None),
        (ServiceError(), 500, "internal-error", None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ServiceError) else None,
)
def test_an_error_becomes(
    error: ServiceError, status: int, code: str, retry_after: str | None
) -> None:
    response = problem_of(error, STUCK_AFTER)
    assert response.status == document(response)["status"] == status
    assert document(response)["code"] == code
    assert response.headers.get("Retry-After") == retry_after


@pytest.mark.parametrize("error", [MessageFailed("SELECT secret"), StorageFull("/var/lib/x.db")])
def test_a_cause_never_gets_into_an_answer(error: ServiceError) -> None:
    assert str(error) not in str(document(problem_of(error, STUCK_AFTER)))


def test_an_unknown_outcome_is_told_as_one() -> None:
    assert document(problem_of(OutcomeUnknown(), STUCK_AFTER))["outcome"] == "unknown"
    assert "outcome" not in document(problem_of(StorageFull(), STUCK_AFTER))


def test_a_refusal_is_told_in_its_own_sentence_with_the_hold_that_it_met() -> None:
    row = Reservation("seat-1", Status.CONFIRMED, 2, 0, 1, None, 1, None, 0, None, 0, False)
    response = problem_of(AlreadyConfirmed(row), STUCK_AFTER)
    assert response.status == 409
    assert document(response)["error"] == AlreadyConfirmed.sentence
    assert document(response)["reservation"] == {
        "reservationId": "seat-1",
        "status": "confirmed",
        "createdAt": 0,
        "expiresAt": 1,
        "expiredAt": None,
        "expirationCount": 0,
        "alarmAt": None,
        "generation": 2,
        "confirmedAt": 1,
        "releasedAt": None,
        "alarmRetryCount": 0,
        "alarmStuck": False,
    }


def test_a_refusal_shows_whether_the_alarm_of_the_hold_is_stuck() -> None:
    row = Reservation("seat-1", Status.HELD, 1, 0, 1, None, None, None, 0, 1, STUCK_AFTER, False)
    shown = document(problem_of(NoHold(row), STUCK_AFTER))["reservation"]
    assert (shown["alarmRetryCount"], shown["alarmStuck"]) == (STUCK_AFTER - 1, True)
    shown = document(problem_of(NoHold(row), STUCK_AFTER + 1))["reservation"]
    assert shown["alarmStuck"] is False


def test_a_hold_that_will_end_says_when_to_come_back() -> None:
    row = Reservation("seat-1", Status.HELD, 1, 0, 9_001, None, None, None, 0, 1, 0, False)
    assert problem_of(AlreadyHeld(row, 5_000), STUCK_AFTER).headers["Retry-After"] == "5"


def test_a_failure_of_the_service_shows_no_hold() -> None:
    assert "reservation" not in document(problem_of(StorageFull(), STUCK_AFTER))
