"""One process per database: the lock's own file, never the database."""

import asyncio
import fcntl
import os
from pathlib import Path

import pytest

from reservation_service.errors import StartupError
from reservation_service.storage.lock import DatabaseLock, lock_path
from tests.support.waiting import bounded


def test_a_second_user_of_a_database_is_refused(database: Path) -> None:
    lock = DatabaseLock(database)
    with pytest.raises(StartupError, match="Another process is using the database"):
        DatabaseLock(database)
    lock.release()


def test_a_refused_one_leaves_the_first_its_lock(database: Path) -> None:
    lock = DatabaseLock(database)
    for _ in range(2):
        with pytest.raises(StartupError):
            DatabaseLock(database)
    lock.release()


def test_a_released_lock_can_be_taken_again(database: Path) -> None:
    first = DatabaseLock(database)
    first.release()
    first.release()
    DatabaseLock(database).release()


def test_two_databases_in_one_directory_do_not_meet(tmp_path: Path) -> None:
    locks = [DatabaseLock(tmp_path / name) for name in ("a.db", "b.db")]
    for lock in locks:
        lock.release()


def test_the_database_itself_is_never_locked(database: Path) -> None:
    database.touch()
    lock = DatabaseLock(database)
    with database.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert lock_path(database) != database
    lock.release()


def test_the_lock_is_private_and_not_inherited(database: Path) -> None:
    lock = DatabaseLock(database)
    assert lock_path(database).stat().st_mode & 0o777 == 0o600
    assert not os.get_inheritable(lock.file)
    lock.release()


def test_a_directory_that_cannot_be_written_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="Cannot open the lock file"):
        DatabaseLock(tmp_path / "missing" / "reservations.db")


async def test_a_lock_that_becomes_free_soon_is_waited_for(database: Path) -> None:
    held = DatabaseLock(database)
    taking = asyncio.create_task(DatabaseLock.take(database))
    await asyncio.sleep(0)
    assert not taking.done()
    held.release()
    taken = await bounded(taking, "the lock")
    with pytest.raises(StartupError, match="Another process"):
        DatabaseLock(database)
    taken.release()
