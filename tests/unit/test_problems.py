"""Errors as problem documents, and the one table from code to HTTP status."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

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
from reservation_service.reservation import AlreadyConfirmed, Refused, Reservation, Status
from reservation_service.web.problems import STATUS_BY_CODE, problem, problem_of

ABSTRACT = {StorageTrouble, Refused}


def kinds(kind: type[ServiceError] = ServiceError) -> Iterator[type[ServiceError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from kinds(narrower)


def document(response: web.Response) -> dict[str, Any]:
    assert isinstance(response.body, bytes)
    decoded: dict[str, Any] = json.loads(response.body)
    return decoded


@pytest.mark.parametrize("kind", set(kinds()) - ABSTRACT, ids=lambda kind: kind.__name__)
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
    assert response.content_type == "application/problem+json"
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
    response = problem_of(error)
    assert response.status == document(response)["status"] == status
    assert document(response)["code"] == code
    assert response.headers.get("Retry-After") == retry_after


@pytest.mark.parametrize("error", [MessageFailed("SELECT secret"), StorageFull("/var/lib/x.db")])
def test_a_cause_never_gets_into_an_answer(error: ServiceError) -> None:
    assert str(error) not in str(document(problem_of(error)))


def test_an_unknown_outcome_is_told_as_one() -> None:
    assert document(problem_of(OutcomeUnknown()))["outcome"] == "unknown"
    assert "outcome" not in document(problem_of(StorageFull()))


def test_a_refusal_is_told_in_its_own_sentence() -> None:
    row = Reservation("seat-1", Status.CONFIRMED, 1, 0, 1, None, 1, None, 0, None, 0, False)
    response = problem_of(AlreadyConfirmed("Taken for good.", row))
    assert response.status == 409
    assert document(response)["error"] == "Taken for good."
