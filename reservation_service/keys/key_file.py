"""The file of the keys, beside the database: read whole, replaced whole, never the tokens in it.

A token has 256 random bits, is shown once, and only its SHA-256 is kept: nothing is gained by
reading the file, and no slow hash is needed for what nobody can guess. Writers take turns by a lock
on the directory. A new file is on the disk before it takes the name of the old one.
"""

import fcntl
import hashlib
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec

from reservation_service.access import Scope

FILE_BYTES_MAX = 1_048_576
KEYS_MAX = 1_000

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_TOKEN_PREFIX = "rsk_"  # noqa: S105 - not a secret: by it a leaked token is found in a search
_TOKEN_BYTES = 32
_MINE_ALONE = 0o600
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Name = Annotated[str, msgspec.Meta(pattern=rf"^(?:{_NAME.pattern})\Z")]


class KeyFileError(Exception):
    """The file cannot be used, or not be changed as asked; the message is a sentence."""


class Key(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One key: what it is called, what it is for, the SHA-256 of its token, since when."""

    name: Name
    scope: Scope
    sha256: Digest
    created_at: int


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: Annotated[tuple[Key, ...], msgspec.Meta(max_length=KEYS_MAX)]


Signature = tuple[int, int, int, int]
"""Differs when the file was replaced or written to."""


class KeyFile:
    """The keys of one database. Every method raises KeyFileError for what it cannot do."""

    def __init__(self, database: Path) -> None:
        resolved = database.resolve()  # like the lock's: aliases share one file
        self.path = resolved.with_name(resolved.name + ".keys")

    def signature(self) -> Signature | None:
        """What to compare with an earlier one; None while there is no such file."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error.strerror) from error
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size

    def read(self) -> tuple[Key, ...] | None:
        """All keys in the order of their names; None when there is no such file."""
        try:
            with self.path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error.strerror) from error
        if mode & _WRITABLE_BY_OTHERS:
            raise self._unusable("others may write to it (chmod 600)")
        return self._decoded(text)

    def add(self, name: str, scope: Scope, now: int) -> str:
        """A new key's token, which nobody can find out later."""
        if not _NAME.fullmatch(name):
            raise KeyFileError(
                "A key's name is 1 to 40 lowercase letters, digits or hyphens, "
                "no hyphen at either end."
            )
        with self._alone():
            keys = self.read() or ()
            if name in {key.name for key in keys}:
                raise KeyFileError(f"There is a key called {name}; revoke it or choose another.")
            if len(keys) >= KEYS_MAX:
                raise KeyFileError(f"There are {KEYS_MAX} keys; revoke one first.")
            token = _TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
            self._replace([*keys, Key(name, scope, digest(token).hex(), now)])
        return token

    def revoke(self, name: str) -> None:
        """Take a key back; its token is worth nothing any more."""
        with self._alone():
            keys = self.read() or ()
            left = [key for key in keys if key.name != name]
            if len(left) == len(keys):
                raise KeyFileError("There is no key of that name.")
            self._replace(left)

    def _decoded(self, text: bytes) -> tuple[Key, ...]:
        try:
            keys = _decode(text).keys
        except (ValueError, RecursionError) as error:
            raise self._unusable("it is torn or damaged") from error
        if len({key.name for key in keys}) < len(keys):
            raise self._unusable("it has two keys of one name")
        return keys

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One writer at a time; the lock needs no file of its own."""
        try:
            directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._unusable(error.strerror) from error
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield
        finally:
            os.close(directory)

    def _replace(self, keys: Sequence[Key]) -> None:
        document = _Document(tuple(sorted(keys, key=lambda key: key.name)))
        text = msgspec.json.format(msgspec.json.encode(document)) + b"\n"
        try:
            _replace_durably(self.path, text)
        except OSError as error:
            raise self._unusable(error.strerror) from error

    def _unusable(self, reason: str | None) -> KeyFileError:
        return KeyFileError(f"Cannot use the key file {self.path}: {reason}.")


def digest(token: str) -> bytes:
    """What is kept of a token, also of one that came in bytes that are no text."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


_decode = msgspec.json.Decoder(_Document).decode


def _replace_durably(path: Path, text: bytes) -> None:
    """A crash leaves the old file or the new one, and never a part of either."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, _MINE_ALONE)
            _give_to_the_owner_of(path.parent, handle)
            file.write(text)
            file.flush()
            os.fsync(handle)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _give_to_the_owner_of(directory: Path, handle: int) -> None:
    """Root adds keys for a service that runs as somebody else, and must be able to read them."""
    if os.geteuid() == 0:
        owner = directory.stat()
        os.fchown(handle, owner.st_uid, owner.st_gid)
