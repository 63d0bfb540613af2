"""Who is let in: keys, public calls and rates, put together from the settings."""

from reservation_service.config import Settings
from reservation_service.errors import StartupError
from reservation_service.keys.key_file import KeyFile, KeyFileError
from reservation_service.keys.key_ring import KeyRing
from reservation_service.web.addresses import is_loopback
from reservation_service.web.guard import Doorkeeper
from reservation_service.web.server import Observe


class Admission:
    """The keys in force, and the doorkeeper who asks for them; `open` before anything else."""

    def __init__(self, settings: Settings, observe: Observe) -> None:
        self._auth = settings.auth
        self._host = settings.server.host
        self._ring = KeyRing(KeyFile(settings.storage.database), observe)
        never = self._auth.mode == "none"
        self.doorkeeper = Doorkeeper(
            self._ring.find,
            (lambda: False) if never else (lambda: self._ring.is_required),
            never_required=never,
            is_public=self._auth.public,
        )

    async def open(self) -> None:
        """Put the keys in force. Raises StartupError, also where everybody could do everything."""
        try:
            self._ring.load()
        except KeyFileError as error:
            raise StartupError(str(error)) from error
        if self._auth.mode == "keys" and self._ring.is_empty and not await self._is_private():
            raise StartupError(
                f"Without keys the service is for this machine alone, and not for {self._host}: "
                "add a key (reservation-service keys add NAME --scope operate), serve on "
                '127.0.0.1, or set auth.mode = "none" to let everybody do everything.'
            )

    async def watch(self) -> None:
        """Follow the key file, until cancelled."""
        await self._ring.watch()

    async def _is_private(self) -> bool:
        try:
            return await is_loopback(self._host)
        except OSError as error:
            raise StartupError(f"Cannot listen on {self._host}: {error.strerror}.") from error
