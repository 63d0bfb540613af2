"""The OpenAPI 3.1 document: made at start from the routes, the types and the table of errors."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

import msgspec

from reservation_service.access import Scope
from reservation_service.errors import ServiceError
from reservation_service.reservation import Status
from reservation_service.web.bodies import BODY_SENTENCE
from reservation_service.web.fields import ID_SENTENCE, Body
from reservation_service.web.guard import (
    ACCESS,
    Access,
    InsufficientScope,
    KeyRequired,
    UnknownKey,
    WrongHost,
)
from reservation_service.web.operations import Json, Operation, path_parameters
from reservation_service.web.problems import (
    PROBLEM_TYPE,
    STATUS_BY_CODE,
    Problem,
    RateLimited,
    problem_document,
)
from reservation_service.web.server import NOT_HTTP
from reservation_service.web.views import ReservationView

_REF = "#/components/schemas/{name}"
_KEY = "key"
_JSON_TYPE = "application/json"
_STREAM_TYPE = "text/event-stream"


def build_document(
    service_name: str,
    served: Mapping[str, Operation],
    *,
    asks_for_keys: bool,
    is_public: bool,
) -> Json:
    """The whole document. `served` is every call by method and path."""
    schemas = _Schemas()
    paths: dict[str, Json] = defaultdict(dict)
    for name, operation in served.items():
        method, path = name.split(" ")
        security = _security(ACCESS[name], asks_for_keys=asks_for_keys, is_public=is_public)
        paths[path][method.lower()] = _described(name, operation, security, schemas)
        if in_path := path_parameters(path):
            paths[path]["parameters"] = in_path
    return {
        "openapi": "3.1.0",
        "info": {
            "title": service_name,
            "version": metadata.version("reservation-service"),
            "description": "Reservations that release themselves. Times are epoch milliseconds.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas.components(),
            "securitySchemes": {_KEY: {"type": "http", "scheme": "bearer"}},
            "headers": _HEADERS,
            "examples": _examples(),
        },
    }


class _Schemas:
    """Schemas by reference, made by msgspec from the types themselves."""

    def __init__(self) -> None:
        self._types: list[Any] = [Problem]

    def reference(self, type_: Any) -> Json:
        self._types.append(type_)
        return {"$ref": _REF.format(name=type_.__name__)}

    def components(self) -> Json:
        return msgspec.json.schema_components(self._types, ref_template=_REF)[1]


def _security(access: Access, *, asks_for_keys: bool, is_public: bool) -> list[Json]:
    if not asks_for_keys or access in {Access.PROBE, Access.OPEN}:
        return []
    without: list[Json] = [{}] if access is Access.PUBLIC and is_public else []
    return [*without, {_KEY: []}]


def _described(name: str, operation: Operation, security: list[Json], schemas: _Schemas) -> Json:
    described: Json = {
        "operationId": name,
        "summary": operation.summary,
        "description": operation.description,
        "security": security,
        "parameters": list(operation.parameters),
        "responses": _responses(name, operation, security, schemas),
    }
    if operation.body is not None:
        described["requestBody"] = _request(operation, operation.body, schemas)
    return described


def _request(operation: Operation, body: type[Body], schemas: _Schemas) -> Json:
    content = {"schema": schemas.reference(body) | operation.rules, "example": operation.example}
    return {"required": True, "content": {_JSON_TYPE: content}}


def _responses(
    name: str, operation: Operation, security: list[Json], schemas: _Schemas
) -> dict[str, Json]:
    references = [schemas.reference(answer) for answer in operation.answers]
    schema = references[0] if len(references) == 1 else {"anyOf": references}
    content: Json = {"schema": schema}
    if ReservationView in operation.answers:
        content["examples"] = {"held": {"$ref": "#/components/examples/held"}}
    done: Json = {
        "description": operation.summary,
        "headers": _headers("Server-Time", *(["Location"] if operation.makes_a_hold else [])),
        "content": {_JSON_TYPE: content} if operation.answers else _TEXT,
    }
    if operation.is_streamed:
        done["content"][_STREAM_TYPE] = {"schema": {"type": "string"}}
    if operation.makes_a_hold:
        done["links"] = _LINKS
    statuses = ["201"] if operation.makes_a_hold else ["200"]
    if operation.makes_an_event:
        statuses.append("201")
    return dict.fromkeys(statuses, done) | _errors(_codes(name, operation, security))


def _codes(name: str, operation: Operation, security: Sequence[Json]) -> Iterator[str]:
    yield from operation.errors
    if security:
        yield from ("key-required", "unknown-key", "insufficient-scope")
    if ACCESS[name] is not Access.PROBE:
        yield from ("wrong-host", "rate-limited")
    yield from ("expectation-failed", "overloaded", "internal-error")


def _errors(codes: Iterator[str]) -> dict[str, Json]:
    by_status: dict[int, list[str]] = defaultdict(list)
    for code in codes:
        by_status[STATUS_BY_CODE[code]].append(code)
    return {str(int(status)): _error(found) for status, found in sorted(by_status.items())}


def _error(codes: Sequence[str]) -> Json:
    examples = {code: {"$ref": f"#/components/examples/{code}"} for code in codes}
    also = {"WWW-Authenticate"} if "key-required" in codes else set()
    if _WAIT.intersection(codes):
        also.add("Retry-After")
    return {
        "description": " or ".join(f"`{code}`" for code in codes),
        "headers": _headers("Server-Time", *sorted(also)),
        "content": {
            PROBLEM_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}, "examples": examples}
        },
    }


_TEXT: Json = {"text/plain": {"schema": {"type": "string"}}}

_WAIT = {
    *("already-held", "too-many-holds", "rate-limited", "overloaded"),
    *("storage-full", "storage-unavailable", "outcome-unknown", "too-many-readers"),
}


def _examples() -> Json:
    """A held reservation, and every error there is."""
    sentences = _sentences()
    errors = {
        code: {"value": msgspec.to_builtins(problem_document(code, sentences[code]))}
        for code in STATUS_BY_CODE
    }
    return {"held": {"value": msgspec.to_builtins(_HELD)}} | errors


def _sentences() -> dict[str, str]:
    """What each error says; where that differs from case to case, one case."""
    found = {kind.code: kind.sentence for kind in _kinds(ServiceError)}
    refused = {
        error.code: str(error)
        for error in (KeyRequired(), UnknownKey(), WrongHost(), RateLimited(1))
    }
    return found | refused | _OF_REQUESTS


_OF_REQUESTS = {
    "invalid-id": ID_SENTENCE,
    "invalid-body": BODY_SENTENCE,
    "invalid-field": "generation must be a positive integer.",
    "unknown-field": 'Unknown field "ttl".',
    "not-http": NOT_HTTP,
    "not-ready": "Not ready: running: stopping.",
    "not-found": "There is nothing at this path.",
    "method-not-allowed": "Method not allowed; use POST.",
    "insufficient-scope": str(InsufficientScope(Scope.OPERATE)),
    "body-too-slow": "The request body took too long to arrive.",
    "body-too-large": "The request body is too large.",
    "unsupported-media-type": "Send Content-Type: application/json.",
    "expectation-failed": "Only Expect: 100-continue is understood.",
}

_START = 1_795_971_600_000
_HELD = ReservationView(
    "seat-12",
    Status.HELD,
    _START,
    _START + 30_000,
    None,
    0,
    _START + 30_000,
    1,
    None,
    None,
    0,
    False,
)


def _kinds(kind: type[ServiceError]) -> Iterator[type[ServiceError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _kinds(narrower)


_HEADERS: Json = {
    "Server-Time": {
        "description": "The service's time, so that a countdown needs no other clock.",
        "required": True,
        "schema": {"type": "integer"},
    },
    "Location": {"required": True, "schema": {"type": "string"}},
    "Retry-After": {
        "description": "Whole seconds, where waiting helps.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "WWW-Authenticate": {"required": True, "schema": {"const": "Bearer"}},
}


def _headers(*names: str) -> Json:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


_LINKS: Json = {
    verb: {
        "operationId": f"{method} /reservations/{{id}}{suffix}",
        "parameters": {"id": "$response.body#/reservationId"},
    }
    | ({"requestBody": {"holder": "$request.body#/holder"}} if method == "POST" else {})
    for verb, method, suffix in (
        ("read", "GET", ""),
        ("extend", "POST", "/extend"),
        ("confirm", "POST", "/confirm"),
        ("release", "POST", "/release"),
    )
}
