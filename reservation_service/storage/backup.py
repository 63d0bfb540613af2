"""A copy of a database that may be in use, and what `check` looks at: read-only, all of it.

The copy is the state of one moment: whatever is committed meanwhile is not in it, and what was
acknowledged before it began is. Nothing is at its place before it was verified and is on the disk.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from reservation_service.errors import StartupError
from reservation_service.storage.invariants import found_in
from reservation_service.storage.migrations import check_origin, load_migrations
from reservation_service.storage.sqlite_files import connect_to_read

FINDINGS_MAX = 100
"""More of them tell nothing new."""

_PAGES_AT_ONCE = 1_000

Tell = Callable[[int, int], None]
"""Pages done, of how many."""


@dataclass(frozen=True, slots=True)
class Checked:
    """How much was looked at, and what is wrong: nothing, if all is well."""

    reservations: int
    events: int
    findings: list[str]


def check_database(database: Path) -> Checked:
    """Every page and every invariant. Raises StartupError for what is no database of ours."""
    with _opened(database) as connection:
        return _checked(connection)


def back_up(database: Path, target: Path, tell: Tell) -> Checked:
    """Copy `database` to `target`, a file that is not there yet, verified; what the copy has in it.

    Where it has findings, or is not whole, there is no copy. Raises StartupError.
    """
    if target.exists():
        raise StartupError(f"{target} exists already; choose another name.")
    part = target.with_name(target.name + ".part")
    try:
        _create_private(part)
        try:
            checked = _copy(database, part, tell)
            if not checked.findings:
                _put_in_place(part, target)
            return checked
        finally:
            part.unlink(missing_ok=True)
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StartupError(f"Cannot copy {database} to {target}: {reason}.") from error


def _copy(database: Path, part: Path, tell: Tell) -> Checked:
    with _opened(database) as source, closing(sqlite3.connect(part)) as copy:
        source.execute("BEGIN")  # without it, each commit of the service would begin the copy anew
        expected = _counts(source)
        source.backup(
            copy,
            pages=_PAGES_AT_ONCE,
            progress=lambda _, remaining, total: tell(total - remaining, total),
            sleep=0,
        )
        source.execute("ROLLBACK")
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, with everything in it
    checked = check_database(part)
    if not checked.findings and (checked.reservations, checked.events) != expected:
        raise StartupError(f"The copy of {database} is not whole; try again.")
    return checked


def _checked(connection: sqlite3.Connection) -> Checked:
    connection.execute("BEGIN")
    findings = list(islice(_findings(connection), FINDINGS_MAX))
    counts = (0, 0) if findings else _counts(connection)
    connection.execute("ROLLBACK")
    return Checked(*counts, findings)


def _findings(connection: sqlite3.Connection) -> Iterator[str]:
    try:
        found = [told for (told,) in connection.execute(f"PRAGMA integrity_check({FINDINGS_MAX})")]
    except sqlite3.DatabaseError as error:
        found = [str(error)]
    if found != ["ok"]:
        yield from found
    else:
        yield from found_in(connection)


def _counts(connection: sqlite3.Connection) -> tuple[int, int]:
    counts = "SELECT (SELECT count(*) FROM reservation), (SELECT count(*) FROM event)"
    reservations, events = connection.execute(counts).fetchone()
    return reservations, events


@contextmanager
def _opened(database: Path) -> Iterator[sqlite3.Connection]:
    """The database, read-only. Raises StartupError where it is not one of this program's schema."""
    try:
        connection = connect_to_read(database)
    except sqlite3.Error as error:
        raise StartupError(f"Cannot open the database {database}: {error}.") from error
    with closing(connection):
        try:
            newest = len(load_migrations("sqlite"))
            version = check_origin(connection, newest)
        except sqlite3.Error as error:
            raise StartupError(f"Cannot read the database {database}: {error}.") from error
        if version < newest:
            raise StartupError(
                f"{database} is at schema {version}, older than this program's {newest}: use the "
                "program that wrote it, or migrate it first."
            )
        yield connection


def _create_private(part: Path) -> None:
    part.unlink(missing_ok=True)  # of a backup that was killed
    os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _put_in_place(part: Path, target: Path) -> None:
    _sync(part)
    os.link(part, target)  # unlike a rename it replaces nothing
    _sync(target.parent)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
