"""The service with one planted bug, for controls: `python -m tests.torture.planted BUG serve …`.

The product has no switch for faults; each bug replaces a piece of its code before it starts.
"""

import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from reservation_service import cli, errors, waker
from reservation_service.alarms import _Pause
from reservation_service.errors import StorageTrouble, StorageUnavailable
from reservation_service.storage import remote_writer, sqlite, sqlite_start
from reservation_service.storage.sqlite_files import make_durable
from reservation_service.store import Result, StoreMessage

WRITER = "tests.torture.planted_writer"

Plant = Callable[[], None]
BUGS: dict[str, Plant] = {}


def bug(plant: Plant) -> Plant:
    """Register a bug under its function's name, spelled with hyphens."""
    BUGS[plant.__name__.replace("_", "-")] = plant
    return plant


_COMMITTED_AT_ONCE = 4


class _LateConnection:
    """Commits a few transactions as one, when the next one begins."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._begun = 0

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, sql: str, values: Mapping[str, object] | None = None) -> object:
        if sql == "COMMIT":
            return None
        if sql.startswith("BEGIN"):
            self._begun += 1
            if self.in_transaction and self._begun % _COMMITTED_AT_ONCE:
                return None
            if self.in_transaction:
                self._connection.execute("COMMIT")
        return self._connection.execute(sql, values or {})


@bug
def answer_before_commit() -> None:
    """Callers hear of a change while its transaction is still open."""
    run = sqlite.BatchTransaction.__call__
    late: list[_LateConnection] = []

    def run_late(
        self: sqlite.BatchTransaction,
        connection: sqlite3.Connection,
        messages: Sequence[StoreMessage],
    ) -> tuple[list[Result], int | None]:
        if not late:
            late.append(_LateConnection(connection))
        return run(self, late[0], messages)  # type: ignore[arg-type]

    sqlite.BatchTransaction.__call__ = run_late  # type: ignore[method-assign]


@bug
def commit_without_sync() -> None:
    """A commit does not wait for the disk."""
    _set("synchronous = NORMAL")


@bug
def never_checkpoint() -> None:
    """The write-ahead log only grows."""
    _set("wal_autocheckpoint = 0")


@bug
def keep_the_log() -> None:
    """A write-ahead log that has grown stays as long as it is."""
    _set("journal_size_limit = -1")


@bug
def survive_a_failed_sync() -> None:
    """A failed commit is taken for one that surely changed nothing."""
    _replace(sqlite, "failure_of_commit", lambda _error: StorageUnavailable())


@bug
def full_is_fatal() -> None:
    """A full disk ends the process."""
    errors.StorageFull.fatal = True


@bug
def oversleep() -> None:
    """The dispatcher looks once a minute when nobody wakes it."""
    waker.HEARTBEAT_S = 60.0


@bug
def blame_the_alarm() -> None:
    """An attempt that met a failing disk is a failed attempt."""

    async def fail(self: _Pause, trouble: StorageTrouble) -> None:
        raise trouble

    _Pause.wait_out = fail  # type: ignore[method-assign]


NOT_THE_WRITERS = {
    "admit-everybody",
    "blame-the-alarm",
    "buffer-without-bound",
    "keep-readers-at-a-stop",
    "linger-at-every-reader",
    "linger-in-attempts",
    "log-what-clients-say",
    "oversleep",
    "read-any-body",
    "remember-every-request",
    "resume-at-the-end",
    "resume-with-the-last",
    "wait-for-every-client",
}
"""Bugs of the process that answers: the other one starts sooner without them."""


def plant(name: str) -> None:
    """Plant the bug into this process and, if it is one of the writer's, there."""
    BUGS[name]()
    if name not in NOT_THE_WRITERS:
        remote_writer.COMMAND = (sys.executable, "-m", WRITER, name)


def _set(pragma: str) -> None:
    """Change the writer's connection after it was made durable."""

    def make_less_durable(connection: sqlite3.Connection) -> None:
        make_durable(connection)
        connection.execute(f"PRAGMA {pragma}")

    _replace(sqlite_start, "make_durable", make_less_durable)


def _replace(module: ModuleType, name: str, by: Callable[..., object]) -> None:
    """Replace what a module has imported from another one."""
    assert hasattr(module, name), name
    setattr(module, name, by)


if __name__ == "__main__":
    plant(sys.argv[1])
    cli.main(sys.argv[2:])
