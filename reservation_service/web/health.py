"""`/healthz`: the process lives. `/readyz`: calls may be sent here, and if not, why."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import msgspec
from aiohttp import web

from reservation_service.web.answers import Answer
from reservation_service.web.problems import problem

_OK = "ok"


class Alive(msgspec.Struct):
    """The process lives and answers."""

    status: Literal["alive"]


class Ready(msgspec.Struct):
    """Calls may be sent here; each check by its name."""

    status: Literal["ready"]
    checks: dict[str, str]


class Health:
    """The handlers; `look` gives every check by name, `ok` or what is wrong."""

    def __init__(self, look: Callable[[], Awaitable[Mapping[str, str]]]) -> None:
        self._look = look

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application's router."""
        return [web.get("/healthz", self.alive), web.get("/readyz", self.ready)]

    async def alive(self, _request: web.Request) -> Answer:
        return Answer(msgspec.json.encode(Alive("alive")))

    async def ready(self, _request: web.Request) -> Answer:
        checks = dict(await self._look())
        if failing := {name: why for name, why in checks.items() if why != _OK}:
            told = ", ".join(f"{name}: {why}" for name, why in failing.items())
            return problem("not-ready", f"Not ready: {told}.", checks=checks)
        return Answer(msgspec.json.encode(Ready("ready", checks)))
