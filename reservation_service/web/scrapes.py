"""`/metrics`: what Prometheus comes for."""

from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Scrapes:
    """The handler; `scrape` gives the text."""

    def __init__(self, scrape: Callable[[], Awaitable[bytes]]) -> None:
        self._scrape = scrape

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application's router."""
        return [web.get("/metrics", self.read)]

    async def read(self, _request: web.Request) -> web.Response:
        body = await self._scrape()
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})
