"""A database in memory as a disk that a crash interrupts, that fills up, and that loses a COMMIT.

The connection is a plain one on which the real transaction runs. Faults strike at its statements;
what a crash keeps is what was committed, and nothing else.
"""

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.torture.simulator_world import World

PLANTED = "planted"
"""What every planted error says."""

_UNDONE_PART = 0.5
_UNAVAILABLE = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM)

# A temporary trigger belongs to the connection: the image has the product's own schema only.
# A message stamps the rows that it changes with its batch; claims and settles are let through.
_PLANTS = (
    """
CREATE TEMP TRIGGER planted_insert BEFORE INSERT ON main.reservation
WHEN planted(NEW.id, NEW.status, NEW.changed_by)
BEGIN SELECT RAISE(ABORT, 'planted'); END
""",
    """
CREATE TEMP TRIGGER planted_update BEFORE UPDATE ON main.reservation
WHEN NEW.batch <> OLD.batch AND planted(NEW.id, NEW.status, NEW.changed_by)
BEGIN SELECT RAISE(ABORT, 'planted'); END
""",
    """
CREATE TEMP TRIGGER planted_event BEFORE INSERT ON main.event
WHEN NEW.type = 'scheduled-event' AND planted(NEW.reservation, 'event', NEW."trigger")
BEGIN SELECT RAISE(ABORT, 'planted'); END
""",
)


class Crashed(BaseException):
    """The process is gone; its code does not get to handle that."""


class Disk(sqlite3.Connection):
    """The writer's connection; faults strike at it once it is attached to a world."""

    _world: World | None = None
    _crash: Callable[[str], None]
    _committed: Callable[[], None]
    _is_on = True

    def attach(
        self, world: World, crash: Callable[[str], None], committed: Callable[[], None]
    ) -> None:
        """Faults may strike from now on; `crash` is told where one ended the process.

        `committed` is told of each COMMIT before anything can go wrong behind it.
        """
        self.create_function("planted", 3, partial(_is_planted, world))
        for plant in _PLANTS:
            super().execute(plant)
        self._world, self._crash, self._committed = world, crash, committed

    @property
    def in_transaction(self) -> bool:
        return self._is_on and super().in_transaction

    def power_off(self) -> bytes:
        """What is on the disk at this moment; nobody gets at it any more."""
        self._is_on = False
        if self.in_transaction:
            super().execute("ROLLBACK")
        image = self.serialize()
        self.close()
        return image

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if not self._is_on:
            raise Crashed
        if self._world is None or sql == "ROLLBACK":
            return super().execute(sql, parameters)
        if sql == "COMMIT":
            return self._commit(self._world)
        self._meet_trouble(self._world, _UNAVAILABLE)
        return super().execute(sql, parameters)

    def peek(self, sql: str, *values: object) -> tuple[Any, ...] | None:
        """One row as it is now, for whoever stands outside of the simulated world."""
        row: tuple[Any, ...] | None = super().execute(sql, values).fetchone()
        return row

    def _commit(self, world: World) -> sqlite3.Cursor:
        if world.strikes("crash-before-commit"):
            self._die("before COMMIT")
        if world.strikes("commit-unknown"):
            self._end(world.chance.choice(("COMMIT", "ROLLBACK")))
            raise _error(sqlite3.SQLITE_IOERR_FSYNC)
        self._meet_trouble(world, (sqlite3.SQLITE_BUSY,))
        cursor = self._end("COMMIT")
        if world.strikes("crash-after-commit"):
            self._die("after COMMIT")
        return cursor

    def _end(self, how: str) -> sqlite3.Cursor:
        cursor = super().execute(how)
        if how == "COMMIT":
            self._committed()
        return cursor

    def _die(self, where: str) -> None:
        self._crash(where)
        raise Crashed

    def _meet_trouble(self, world: World, unavailable: Sequence[int]) -> None:
        """Raise while the disk has a bad time; some errors undo the transaction themselves."""
        trouble = world.trouble()
        if not trouble:
            return
        if self.in_transaction and world.chance.random() < _UNDONE_PART:
            super().execute("ROLLBACK")
        full = trouble == "disk-full"
        raise _error(sqlite3.SQLITE_FULL if full else world.chance.choice(unavailable))


def _is_planted(world: World, name: str, status: str, changed_by: str) -> bool:
    kind = "alarm" if (status, changed_by) == ("expired", "alarm") else status
    return (name, kind) in world.failing


def open_disk(image: bytes | None) -> Disk:
    """A disk with this image, or an empty one."""
    disk = sqlite3.connect(":memory:", isolation_level=None, factory=Disk)
    if image is not None:
        disk.deserialize(image)
    return disk


def _error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(PLANTED)
    error.sqlite_errorcode = code
    return error
