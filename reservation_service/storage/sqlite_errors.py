"""What an error of SQLite means for those whose messages were in the transaction."""

import sqlite3
from typing import Any

from reservation_service.errors import (
    DatabaseUnusable,
    MessageFailed,
    OutcomeUnknown,
    ServiceError,
    StorageFull,
    StorageUnavailable,
)

_TROUBLE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
}
_UNUSABLE = {
    sqlite3.SQLITE_CORRUPT,  # also SQLite's word for EIO while reading: nobody can tell them apart
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
}


def failure_before_commit(error: sqlite3.Error) -> ServiceError:
    """What an error means while the transaction can still be rolled back."""
    code = _primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return StorageFull()
    if _extended_code(error) == sqlite3.SQLITE_IOERR_FSYNC:
        return OutcomeUnknown()
    if code in _UNUSABLE:
        return DatabaseUnusable()
    if code in _TROUBLE:
        return StorageUnavailable()
    return MessageFailed()


def failure_of_commit(error: sqlite3.Error) -> ServiceError:
    """What an error of COMMIT itself means: only FULL and BUSY surely changed nothing."""
    code = _primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return StorageFull()
    if code == sqlite3.SQLITE_BUSY:
        return StorageUnavailable()
    return OutcomeUnknown()


def _primary_code(error: sqlite3.Error) -> int:
    return _extended_code(error) & 0xFF


def _extended_code(error: sqlite3.Error) -> int:
    code: Any = getattr(error, "sqlite_errorcode", None)
    return code if isinstance(code, int) else sqlite3.SQLITE_ERROR
