"""The keys that are in force: those of the file, read again whenever it changes.

Once there was a file, keys are required for as long as the process lives. What comes in its place
and is no key file, or nothing at all, changes nothing: the old keys stay in force and the log says
so, since an open door would be the worse mistake.
"""

import asyncio
from collections.abc import Callable, Iterable

from reservation_service.access import SCOPES, Caller
from reservation_service.keys.key_file import Key, KeyFile, KeyFileError, Signature, digest

LOOK_SECONDS = 0.25
"""How often the file is looked at; a change is in force within a second."""


class KeyRing:
    """Finds callers by their tokens; `load` before anything else, then `watch`."""

    def __init__(self, file: KeyFile, observe: Callable[..., None]) -> None:
        self._file = file
        self._observe = observe
        self._seen: Signature | None = None
        self._callers: dict[bytes, Caller] | None = None

    @property
    def is_required(self) -> bool:
        """Whether there are keys to ask for; a file in which all are revoked still asks."""
        return self._callers is not None

    @property
    def is_empty(self) -> bool:
        """No key at all is in force."""
        return not self._callers

    def find(self, token: str) -> Caller | None:
        """Whose token this is. Digests are looked up: how long that takes tells no secret."""
        return (self._callers or {}).get(digest(token))

    def load(self) -> None:
        """Read the file, if there is one. Raises KeyFileError, and then nothing has changed."""
        signature = self._file.signature()
        if signature == self._seen:
            return
        keys = self._file.read()
        if keys is None:
            raise KeyFileError(f"The key file {self._file.path} is gone.")
        self._seen = signature  # only now: what could not be read is read again
        self._callers = _callers(keys)
        self._observe("keys-loaded", keys=len(keys))

    async def watch(self) -> None:
        """Keep up with the file, until cancelled; a complaint is told once."""
        complaint = None
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            before, complaint = complaint, self._complaint()
            if complaint not in {None, before}:
                self._observe("keys-refused", reason=complaint)

    def _complaint(self) -> str | None:
        try:
            self.load()
        except KeyFileError as error:
            return str(error)
        return None


def _callers(keys: Iterable[Key]) -> dict[bytes, Caller]:
    return {bytes.fromhex(key.sha256): Caller(key.name, SCOPES[key.scope]) for key in keys}
