"""`/openapi.json` and `/docs`: the description of the API, and a page that shows it.

The page needs nothing from elsewhere: its script and style come with swagger-ui-py. It runs no
script of its own text, so that it can forbid all others.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec
from aiohttp import web

from reservation_service.web.answers import Answer
from reservation_service.web.operations import Json

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Reservation service</title>
<link rel="icon" href="docs/favicon-32x32.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</html>
"""
_START = b"""SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: "none",
});
"""
_TYPES = {
    "favicon-32x32.png": "image/png",
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Documentation:
    """The handlers; the document is made by `describe` when somebody first asks for it."""

    def __init__(self, describe: Callable[[], Json]) -> None:
        self._describe = describe
        self._document = b""

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application's router."""
        return [
            web.get("/openapi.json", self.document),
            web.get("/docs", self.page),
            web.get("/docs/{asset}", self.asset),
        ]

    async def document(self, _request: web.Request) -> Answer:
        self._document = self._document or msgspec.json.encode(self._describe())
        return Answer(self._document)

    async def page(self, _request: web.Request) -> web.Response:
        headers = {"Content-Security-Policy": _POLICY}
        return web.Response(text=_PAGE, content_type="text/html", headers=headers)

    async def asset(self, request: web.Request) -> web.Response:
        name = request.match_info["asset"]
        if name == "start.js":
            return web.Response(body=_START, content_type="text/javascript")
        if name not in _TYPES:
            raise web.HTTPNotFound
        return web.Response(body=_static(name), content_type=_TYPES[name])


@cache
def _static(name: str) -> bytes:
    """The package is found and not imported: its code is for other servers than this."""
    package = find_spec("swagger_ui")
    assert package is not None
    assert package.submodule_search_locations is not None
    return (Path(package.submodule_search_locations[0]) / "static" / name).read_bytes()
