"""Which other sites' pages may call from a browser: only those that are configured."""

from collections.abc import Sequence

import aiohttp_cors
from aiohttp import web

EXPOSED = ("Location", "Retry-After", "Server-Time", "X-Request-ID")
"""Headers that a page's script may read, beside those it always may."""

ALLOWED = ("Content-Type", "Reservation-Holder", "Last-Event-ID", "X-Request-ID")
PREFLIGHT_SECONDS = 600
"""How long a browser may remember the answer."""


def allow_origins(app: web.Application, origins: Sequence[str]) -> None:
    """Let pages of these origins call every route of `app`; without any nothing is added."""
    if not origins:
        return
    options = aiohttp_cors.ResourceOptions(  # type: ignore[no-untyped-call]  # it has no types
        expose_headers=EXPOSED, allow_headers=ALLOWED, max_age=PREFLIGHT_SECONDS
    )
    cors = aiohttp_cors.setup(app, defaults=dict.fromkeys(origins, options))
    for route in list(app.router.routes()):
        cors.add(route)
