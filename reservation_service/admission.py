"""Who is let in: keys, public calls and rates, put together from the settings."""

from collections.abc import Sequence
from ipaddress import ip_network
from typing import TYPE_CHECKING

from aiohttp import web

from reservation_service.clock import Clock
from reservation_service.config import Settings
from reservation_service.errors import StartupError
from reservation_service.keys.key_file import KeyFile, KeyFileError
from reservation_service.keys.key_ring import KeyRing
from reservation_service.web.addresses import is_loopback
from reservation_service.web.api import ApiLimits
from reservation_service.web.documentation import Documentation
from reservation_service.web.guard import Doorkeeper, shown_path
from reservation_service.web.openapi import build_document
from reservation_service.web.operations import Json, operations
from reservation_service.web.server import Observe
from reservation_service.web.whoami import WhoAmI

if TYPE_CHECKING:
    from reservation_service.web.rates import Rates


class Admission:
    """The keys in force, and the doorkeeper who asks for them; `open` before anything else."""

    def __init__(self, settings: Settings, clock: Clock, observe: Observe) -> None:
        self._auth = settings.auth
        self._server = settings.server
        self._ring = KeyRing(KeyFile(settings.storage.database), observe)
        never = self._auth.mode == "none"
        self._doorkeeper = Doorkeeper(
            self._ring.find,
            (lambda: False) if never else (lambda: self._ring.is_required),
            never_required=never,
            is_public=self._auth.public,
            rates=_rates(settings, clock),
            names=frozenset(settings.server.hosts),
        )

    async def open(self) -> None:
        """Put the keys in force. Raises StartupError, also where everybody could do everything."""
        try:
            self._ring.load()
        except KeyFileError as error:
            raise StartupError(str(error)) from error
        if self._auth.mode == "keys" and self._ring.is_empty:
            await self._require_privacy()

    async def watch(self) -> None:
        """Follow the key file, until cancelled."""
        await self._ring.watch()

    def protect(self, routes: Sequence[web.RouteDef], limits: ApiLimits) -> list[web.RouteDef]:
        """These routes, those about callers and the API itself, each behind its check."""
        documentation = Documentation(lambda: self._describe(every, limits))
        every = [*routes, *WhoAmI(self._doorkeeper.is_required).routes(), *documentation.routes()]
        return self._doorkeeper.protect(every)

    def _describe(self, routes: Sequence[web.RouteDef], limits: ApiLimits) -> Json:
        known = operations(limits)
        served = [f"{route.method} {shown_path(route.path)}" for route in routes]
        return build_document(
            limits.service_name,
            {name: known[name] for name in served if name in known},
            asks_for_keys=not self._doorkeeper.never_required,
            is_public=self._doorkeeper.is_public,
        )

    async def _require_privacy(self) -> None:
        """Without keys nobody else may get here, not by a proxy either. Raises StartupError."""
        server = self._server
        others = "those behind a proxy" if server.trusted_proxies else server.host
        if server.trusted_proxies or not await _is_loopback(server.host):
            raise StartupError(
                f"Without keys the service is for this machine alone, and not for {others}: "
                "add a key (reservation-service keys add NAME --scope operate), serve on "
                '127.0.0.1, or set auth.mode = "none" to let everybody do everything.'
            )


async def _is_loopback(host: str) -> bool:
    try:
        return await is_loopback(host)
    except OSError as error:
        raise StartupError(f"Cannot listen on {host}: {error.strerror}.") from error


def _rates(settings: Settings, clock: Clock) -> "Rates | None":
    """None where nothing is limited: then nothing is counted."""
    limit = settings.rate_limit
    if not limit.per_key and not limit.per_address:
        return None
    from limits import parse  # noqa: PLC0415 - most services limit nothing, and start sooner

    from reservation_service.web.rates import Rates  # noqa: PLC0415

    return Rates(
        clock.now,
        parse(limit.per_key) if limit.per_key else None,
        parse(limit.per_address) if limit.per_address else None,
        [ip_network(text) for text in settings.server.trusted_proxies],
    )
