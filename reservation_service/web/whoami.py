"""`GET /whoami`: whether a key is good, and for what. Without a key it says so and is no error."""

from collections.abc import Callable
from typing import Literal

import msgspec
from aiohttp import web

from reservation_service.access import VISITOR, Caller, Scope
from reservation_service.web.answers import Answer
from reservation_service.web.guard import UnknownKey, caller_of, token_of


class Identity(msgspec.Struct, rename="camel"):
    """Who calls; `logged_in` and `auth_type` are what earlier clients of this API look at."""

    authenticated: bool
    logged_in: bool
    name: str | None
    scopes: tuple[Scope, ...]
    auth_type: Literal["bearer"] | None


class WhoAmI:
    """The handler; `is_required` tells whether callers without a key have any scope."""

    def __init__(self, is_required: Callable[[], bool]) -> None:
        self._is_required = is_required

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application's router."""
        return [web.get("/whoami", self.tell)]

    async def tell(self, request: web.Request) -> Answer:
        caller = caller_of(request)
        if caller.name is None and token_of(request) is not None:
            raise UnknownKey
        return Answer(msgspec.json.encode(self._identity(caller)))

    def _identity(self, caller: Caller) -> Identity:
        known = caller.name is not None
        scopes = VISITOR.scopes if not known and self._is_required() else caller.scopes
        return Identity(known, known, caller.name, scopes, "bearer" if known else None)
