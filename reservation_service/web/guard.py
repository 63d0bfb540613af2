"""Who may make which call: the one table of routes, and the check in front of each handler.

A route that is not in the table cannot be served. The check comes after path and method and before
everything else, so that without a key every reservation looks the same, held, missing or misspelt.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from reservation_service.access import EVERYBODY, VISITOR, Caller, Scope
from reservation_service.web.addresses import is_own_name
from reservation_service.web.problems import BadRequest

if TYPE_CHECKING:
    from reservation_service.web.rates import Rates


class Access(Enum):
    """What a route asks for, where keys are required."""

    PROBE = auto()
    """Nothing, and is not counted: whoever looks after the service gets an answer."""
    OPEN = auto()
    """Nothing."""
    PUBLIC = auto()
    """`reserve`, or nothing if `auth.public` is on."""
    RESERVE = auto()
    OPERATE = auto()


ACCESS: Mapping[str, Access] = {
    "GET /": Access.PROBE,
    "GET /healthz": Access.PROBE,
    "GET /readyz": Access.PROBE,
    "GET /openapi.json": Access.OPEN,
    "GET /docs": Access.OPEN,
    "GET /docs/{asset}": Access.OPEN,
    "GET /whoami": Access.OPEN,
    "GET /reservations": Access.PUBLIC,  # by name; its handler asks for OPERATE for the list
    "GET /reservations/{id}": Access.PUBLIC,
    "POST /reservations/{id}": Access.PUBLIC,
    "POST /reservations/{id}/extend": Access.PUBLIC,
    "POST /reservations/{id}/release": Access.PUBLIC,
    "POST /reservations/{id}/confirm": Access.RESERVE,
    "POST /reservations/{id}/replay-alarm": Access.OPERATE,
    "GET /reservations/{id}/events": Access.PUBLIC,
    "GET /events": Access.PUBLIC,  # by name; its handler asks for OPERATE for the whole feed
    "GET /reservations/{id}/schedule": Access.RESERVE,  # other people's: its handler, OPERATE
    "PUT /reservations/{id}/schedule/{eventId}": Access.RESERVE,
    "DELETE /reservations/{id}/schedule/{eventId}": Access.RESERVE,
    "GET /metrics": Access.OPERATE,
    "GET /dashboard": Access.OPERATE,
}
"""Method and path → access. HEAD is GET."""

CALLER: web.RequestKey[Caller] = web.RequestKey("CALLER", Caller)

_CHALLENGE = {"WWW-Authenticate": "Bearer"}


class UnknownKey(BadRequest):
    """A key was presented that is none, or none any more."""

    def __init__(self) -> None:
        sentence = "This key is unknown or was revoked; send another as Authorization: Bearer."
        super().__init__("unknown-key", sentence, _CHALLENGE)


class KeyRequired(BadRequest):
    """No key was presented."""

    def __init__(self) -> None:
        super().__init__("key-required", "Send a key as Authorization: Bearer.", _CHALLENGE)


class WrongHost(BadRequest):
    """The page that calls may be from anywhere: its own name leads here."""

    def __init__(self) -> None:
        sentence = "This service is not known by that name; add it to server.hosts."
        super().__init__("wrong-host", sentence)


class InsufficientScope(BadRequest):
    """The key is for something else."""

    def __init__(self, scope: Scope) -> None:
        super().__init__("insufficient-scope", f"This call needs a key with the scope {scope}.")


@dataclass(frozen=True, slots=True)
class Doorkeeper:
    """How callers are known: `find` by a token; `is_required` is asked at every call.

    `never_required` is known in advance, `is_public` is `auth.public`. Where no key is required, a
    browser must at least mean this service: `names` are its own with a dot in them. Calls are
    counted by `rates` before they are refused, so that nobody may guess without end.
    """

    find: Callable[[str], Caller | None]
    is_required: Callable[[], bool]
    never_required: bool = False
    is_public: bool = False
    rates: "Rates | None" = None
    names: frozenset[str] = frozenset()

    def protect(self, routes: Sequence[web.RouteDef]) -> list[web.RouteDef]:
        """The same routes, each behind its check. An unknown one is a bug: KeyError."""
        return [self._protected(route) for route in routes]

    def _protected(self, route: web.RouteDef) -> web.RouteDef:
        access = ACCESS[f"{route.method} {shown_path(route.path)}"]
        if access is Access.PROBE:
            return route

        async def checked(request: web.Request) -> web.StreamResponse:
            request[CALLER] = self._admitted(request, access)
            response: web.StreamResponse = await route.handler(request)
            return response

        return web.RouteDef(route.method, route.path, checked, route.kwargs)

    def _admitted(self, request: web.Request, access: Access) -> Caller:
        token = token_of(request)
        caller = None if token is None else self.find(token)
        if self.rates is not None:
            self.rates.count(request, caller)
        if not self.is_required():
            if not is_own_name(request.headers.get(hdrs.HOST, ""), self.names):
                raise WrongHost
            return caller or EVERYBODY
        if access is Access.OPEN:
            return caller or EVERYBODY
        if caller is None:
            if token is not None:
                raise UnknownKey
            if not (access is Access.PUBLIC and self.is_public):
                raise KeyRequired
            return VISITOR
        if access is Access.OPERATE:
            _require(caller, Scope.OPERATE)
        return caller


def caller_of(request: web.Request) -> Caller:
    """Who makes this request."""
    caller: Caller = request.get(CALLER, EVERYBODY)
    return caller


def require_operator(request: web.Request) -> None:
    """For a handler of which only some calls are for `operate`. Raises like the check itself."""
    caller = caller_of(request)
    if caller is VISITOR:
        raise KeyRequired
    _require(caller, Scope.OPERATE)


def token_of(request: web.Request) -> str | None:
    """What was presented as a key, None when nothing was; another scheme is a wrong key."""
    given = request.headers.get(hdrs.AUTHORIZATION)
    if given is None:
        return None
    scheme, _, token = given.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def shown_path(pattern: str) -> str:
    """A route's path without what its parameters must match."""
    return re.sub(r"\{(\w+):[^}]*\}", r"{\1}", pattern)


def _require(caller: Caller, scope: Scope) -> None:
    if scope not in caller.scopes:
        raise InsufficientScope(scope)
