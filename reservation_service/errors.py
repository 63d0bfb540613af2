"""What can go wrong, by meaning. Each error has a stable code; HTTP statuses live in `web`.

A `ServiceError` is an answer to one caller. `fatal` ones also end the process: nobody may be
promised anything by a writer that no longer knows what is on the disk.
"""

from typing import ClassVar


class StartupError(Exception):
    """The service refuses to start; the message is the one sentence shown to the operator."""


class ServiceError(Exception):
    """Base of every error that a caller may be answered with.

    `code` is stable and documented; `retry_after_s` is whole seconds, or None when waiting
    alone does not help; the message is a sentence a front-end developer can act on.
    """

    code: ClassVar[str] = "internal-error"
    sentence: ClassVar[str] = "The service failed; the outcome is unknown, repeat the call."
    fatal: ClassVar[bool] = False
    retry_after_s: int | None = None

    def __init__(self, sentence: str | None = None) -> None:
        super().__init__(sentence or self.sentence)


class Overloaded(ServiceError):
    """The queue is full: the message was not taken."""

    code = "overloaded"
    sentence = "The service is overloaded; nothing was changed, try again later."
    retry_after_s = 1


class TooManyReaders(ServiceError):
    """The feed has as many readers as it may have."""

    code = "too-many-readers"
    sentence = "The feed has too many readers; read its pages, or try again later."
    retry_after_s = 5


class MessageFailed(ServiceError):
    """This one message made its transaction fail; it was rolled back, others were not touched."""


class StorageTrouble(ServiceError):
    """The store cannot commit now: rolled back, nothing changed, no message is to blame."""

    retry_after_s = 1


class StorageFull(StorageTrouble):
    """No space left on the device."""

    code = "storage-full"
    sentence = "The disk is full; nothing was changed, try again when there is space."


class StorageUnavailable(StorageTrouble):
    """Busy, or an I/O error before COMMIT."""

    code = "storage-unavailable"
    sentence = "The store is unavailable; nothing was changed, try again later."


class OutcomeUnknown(ServiceError):
    """COMMIT itself failed: nobody knows what is on the disk, so the process must end."""

    code = "outcome-unknown"
    sentence = "The commit failed; the outcome is unknown, repeat the call with the same holder."
    fatal = True
    retry_after_s = 1


class DatabaseUnusable(ServiceError):
    """The database was deleted, replaced, corrupted or made read-only: the process must end."""

    code = "storage-unavailable"
    sentence = "The database cannot be used any more; nothing was changed."
    fatal = True
    retry_after_s = 1
