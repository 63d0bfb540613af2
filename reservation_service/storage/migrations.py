"""Applies `migrations/<engine>/NNNN_name.sql` in order, one transaction each.

It refuses a database that is newer than the code, and one that is not ours.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reservation_service.errors import StartupError
from reservation_service.storage.sqlite_files import APPLICATION_ID

_PACKAGE = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Migration:
    """One file; `version` is what the database is at once it was applied."""

    version: int
    name: str
    sql: str


def load_migrations(engine: str, directory: Path | None = None) -> list[Migration]:
    """The migrations of one engine, in order. Numbers start at 1 and leave no gap.

    Raises StartupError when there are none.
    """
    folder = directory or _directory(engine)
    files = sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    if not files:
        raise StartupError(f"The program's own files are missing: {folder}; install it again.")
    migrations = [Migration(int(f.name[:4]), f.stem, f.read_text("utf-8")) for f in files]
    versions = [migration.version for migration in migrations]
    assert versions == list(range(1, len(files) + 1)), versions
    return migrations


def _directory(engine: str) -> Path:
    """Inside an installed wheel, or at the top of a checkout."""
    installed = _PACKAGE / "migrations" / engine
    return installed if installed.is_dir() else _PACKAGE.parent / "migrations" / engine


def migrate(connection: sqlite3.Connection, migrations: list[Migration]) -> list[str]:
    """Bring the database up to date; the names of what was applied. Raises StartupError."""
    version = check_origin(connection, len(migrations))
    pending = migrations[version:]
    for migration in pending:
        _apply(connection, migration)
    return [migration.name for migration in pending]


def check_origin(connection: sqlite3.Connection, newest: int) -> int:
    """The schema version of the database, 0 when it is empty. Raises StartupError."""
    application_id = _pragma(connection, "application_id")
    version = _pragma(connection, "user_version")
    is_empty = connection.execute("SELECT count(*) = 0 FROM sqlite_schema").fetchone()[0]
    if application_id != APPLICATION_ID and not (is_empty and application_id == version == 0):
        raise StartupError("The database was made by another program; choose another file.")
    if version > newest:
        raise StartupError(
            f"The database is at schema {version}, newer than this program's {newest}; upgrade it."
        )
    return version


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in _statements(migration.sql):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {migration.version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _statements(sql: str) -> Iterator[str]:
    """Split a script at the semicolons that end a statement: executescript is not atomic."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value
