"""Errors as `application/problem+json` (RFC 9457), and the one table from code to HTTP status.

`error` repeats `detail`: it is the field that the first clients of this API read. A sentence is
written for front-end developers; causes go to the log, never into an answer.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Literal

import msgspec
from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from reservation_service.errors import ServiceError
from reservation_service.refusals import Refused
from reservation_service.web.answers import Answer
from reservation_service.web.views import ReservationView, view

STATUS_BY_CODE: Mapping[str, HTTPStatus] = {
    "not-http": HTTPStatus.BAD_REQUEST,
    "invalid-id": HTTPStatus.BAD_REQUEST,
    "invalid-body": HTTPStatus.BAD_REQUEST,
    "invalid-field": HTTPStatus.BAD_REQUEST,
    "unknown-field": HTTPStatus.BAD_REQUEST,
    "key-required": HTTPStatus.UNAUTHORIZED,
    "unknown-key": HTTPStatus.UNAUTHORIZED,
    "insufficient-scope": HTTPStatus.FORBIDDEN,
    "wrong-host": HTTPStatus.MISDIRECTED_REQUEST,
    "not-found": HTTPStatus.NOT_FOUND,
    "no-event": HTTPStatus.NOT_FOUND,
    "method-not-allowed": HTTPStatus.METHOD_NOT_ALLOWED,
    "body-too-slow": HTTPStatus.REQUEST_TIMEOUT,
    "not-your-hold": HTTPStatus.FORBIDDEN,
    "already-held": HTTPStatus.CONFLICT,
    "already-confirmed": HTTPStatus.CONFLICT,
    "generation-mismatch": HTTPStatus.CONFLICT,
    "extension-limit": HTTPStatus.CONFLICT,
    "taken": HTTPStatus.CONFLICT,
    "too-many-events": HTTPStatus.CONFLICT,
    "no-hold": HTTPStatus.GONE,
    "hold-expired": HTTPStatus.GONE,
    "hold-released": HTTPStatus.GONE,
    "rate-limited": HTTPStatus.TOO_MANY_REQUESTS,
    "too-many-holds": HTTPStatus.TOO_MANY_REQUESTS,
    "body-too-large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "unsupported-media-type": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "expectation-failed": HTTPStatus.EXPECTATION_FAILED,
    "not-ready": HTTPStatus.SERVICE_UNAVAILABLE,
    "internal-error": HTTPStatus.INTERNAL_SERVER_ERROR,
    "overloaded": HTTPStatus.SERVICE_UNAVAILABLE,
    "too-many-readers": HTTPStatus.SERVICE_UNAVAILABLE,
    "storage-unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "outcome-unknown": HTTPStatus.SERVICE_UNAVAILABLE,
    "storage-full": HTTPStatus.INSUFFICIENT_STORAGE,
}

PROBLEM_TYPE = "application/problem+json"

_encode = msgspec.json.Encoder().encode


class Problem(Struct):
    """An error: `code` is stable, `detail` and `error` are its sentence for developers."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    error: str
    reservation: ReservationView | UnsetType = UNSET
    outcome: Literal["unknown"] | UnsetType = UNSET
    checks: dict[str, str] | UnsetType = UNSET


class BadRequest(Exception):
    """The request itself is wrong; `code` is one of the table's."""

    def __init__(self, code: str, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.headers = headers


class RateLimited(BadRequest):
    """Too many calls in this window; `Retry-After` says when the next one begins."""

    def __init__(self, seconds: int) -> None:
        sentence = "Too many calls; try again later."
        super().__init__("rate-limited", sentence, {"Retry-After": str(seconds)})


def problem(
    code: str, sentence: str, *, headers: Mapping[str, str] | None = None, **members: Any
) -> Answer:
    """A problem document; `members` are those that only some have."""
    document = problem_document(code, sentence, **members)
    return Answer(
        _encode(document), status=document.status, content_type=PROBLEM_TYPE, headers=headers
    )


def problem_document(code: str, sentence: str, **members: Any) -> Problem:
    """What is said of an error with this code."""
    status = STATUS_BY_CODE[code]
    type_ = f"urn:reservation-service:problem:{code}"
    return Problem(type_, status.phrase, int(status), sentence, code, sentence, **members)


def problem_of(error: ServiceError, stuck_after: int) -> Answer:
    """The answer to a caller whose message ended in this error; a related hold is in it."""
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    members: dict[str, Any] = {}
    if isinstance(error, Refused):
        members["reservation"] = view(error.reservation, stuck_after)
    if error.code == "outcome-unknown":
        members["outcome"] = "unknown"
    return problem(error.code, error.sentence, headers=headers, **members)


def problem_of_http(error: web.HTTPException) -> Answer:
    """What aiohttp itself refused: path, method, size or Expect header."""
    if isinstance(error, web.HTTPMethodNotAllowed):
        allow = ", ".join(sorted(error.allowed_methods))
        sentence = f"Method not allowed; use {allow}."
        return problem("method-not-allowed", sentence, headers={"Allow": allow})
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return problem("body-too-large", "The request body is too large.")
    if isinstance(error, web.HTTPExpectationFailed):
        return problem("expectation-failed", "Only Expect: 100-continue is understood.")
    return problem("not-found", "There is nothing at this path.")
