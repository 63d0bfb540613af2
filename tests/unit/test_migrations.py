"""Migrations: in order, each of them whole or not at all, and only on databases of ours."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reservation_service.errors import StartupError
from reservation_service.storage.migrations import Migration, check_origin, load_migrations, migrate
from reservation_service.storage.sqlite_files import APPLICATION_ID
from tests.conftest import OpenEngine
from tests.support.harness import threads_accounted_for

FIRST = Migration(1, "0001_first", "CREATE TABLE a (x);\nCREATE TABLE b (x);")
SECOND = Migration(2, "0002_second", "ALTER TABLE a ADD COLUMN y;")


@pytest.fixture
def connection(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        yield connection


def content(database: Path) -> bytes:
    return database.read_bytes()


def tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}


def pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def test_they_are_applied_in_order_and_named(connection: sqlite3.Connection) -> None:
    assert migrate(connection, [FIRST, SECOND]) == ["0001_first", "0002_second"]
    assert [row[1] for row in connection.execute("PRAGMA table_info(a)")] == ["x", "y"]
    assert pragma(connection, "user_version") == 2
    assert pragma(connection, "application_id") == APPLICATION_ID


def test_an_up_to_date_database_is_left_alone(connection: sqlite3.Connection) -> None:
    migrate(connection, [FIRST])
    assert migrate(connection, [FIRST]) == []
    assert not connection.in_transaction


def test_an_older_database_gets_what_it_lacks(connection: sqlite3.Connection) -> None:
    migrate(connection, [FIRST])
    assert migrate(connection, [FIRST, SECOND]) == ["0002_second"]


@pytest.mark.parametrize(
    "broken",
    [
        "CREATE TABLE c (x);\nINSERT INTO nowhere VALUES (1);",
        "CREATE TABLE c (x);\nCREATE TABEL d (x);",
        "CREATE TABLE c (x);\nCREATE TABLE d (x)\n",
        "CREATE TABLE c (x);\nCREATE TABLE a (x);",
    ],
    ids=["fails", "misspelt", "fails-unterminated", "fails-late"],
)
def test_a_broken_statement_leaves_nothing_of_its_migration(
    connection: sqlite3.Connection, broken: str
) -> None:
    migrate(connection, [FIRST])
    if broken.endswith("\n"):
        broken += "CREATE TABLE e (x);"
    with pytest.raises(sqlite3.Error):
        migrate(connection, [FIRST, Migration(2, "0002_broken", broken)])
    assert not connection.in_transaction
    assert tables(connection) == {"a", "b"}
    assert pragma(connection, "user_version") == 1


def test_a_last_statement_may_lack_its_semicolon(connection: sqlite3.Connection) -> None:
    migrate(connection, [Migration(1, "0001_first", "CREATE TABLE a (x);\nCREATE TABLE b (x)\n")])
    assert tables(connection) == {"a", "b"}


def test_a_semicolon_inside_a_statement_does_not_split_it(connection: sqlite3.Connection) -> None:
    sql = """
    -- a comment; with a semicolon
    CREATE TABLE a (x TEXT DEFAULT ';');
    CREATE TRIGGER t AFTER INSERT ON a BEGIN
        UPDATE a SET x = ';';
        DELETE FROM a;
    END;
    """
    migrate(connection, [Migration(1, "0001_first", sql)])
    assert tables(connection) == {"a", "t"}


def test_a_newer_database_is_refused(connection: sqlite3.Connection) -> None:
    migrate(connection, [FIRST, SECOND])
    with pytest.raises(StartupError, match="schema 2, newer than this program's 1"):
        migrate(connection, [FIRST])


@pytest.mark.parametrize(
    "foreign",
    [
        "CREATE TABLE theirs (x)",
        "PRAGMA application_id = 1234",
        "PRAGMA user_version = 1",
    ],
)
def test_a_database_of_another_program_is_refused(
    connection: sqlite3.Connection, foreign: str
) -> None:
    connection.execute(foreign)
    with pytest.raises(StartupError, match="another program"):
        check_origin(connection, newest=1)


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
async def test_a_database_of_another_program_is_untouched_byte_for_byte(
    open_engine: OpenEngine, database: Path, journal_mode: str
) -> None:
    with closing(sqlite3.connect(database)) as theirs:
        theirs.execute(f"PRAGMA journal_mode = {journal_mode}")
        theirs.executescript("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1);")
    before = content(database)
    with threads_accounted_for():
        engine = await open_engine(database)
        with pytest.raises(StartupError):
            await engine.migrate()
        await engine.close()
    assert content(database) == before


async def test_a_newer_database_is_untouched_byte_for_byte(
    open_engine: OpenEngine, database: Path
) -> None:
    newest = load_migrations("sqlite")
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        migrate(connection, newest)
        connection.execute(f"PRAGMA user_version = {len(newest) + 1}")
    before = content(database)
    engine = await open_engine(database)
    with pytest.raises(StartupError, match="newer than this program"):
        await engine.migrate()
    await engine.close()
    assert content(database) == before


@pytest.fixture
def diary(database: Path) -> Path:
    database.write_text("Dear diary,\n" * 1_000)
    return database


async def test_a_text_file_is_refused_and_untouched(open_engine: OpenEngine, diary: Path) -> None:
    before = content(diary)
    engine = await open_engine(diary)
    with pytest.raises(StartupError):
        await engine.migrate()
    await engine.close()
    assert content(diary) == before


@pytest.mark.parametrize("numbers", [[1, 3], [2], [0, 1], [1, 1]])
def test_a_gap_in_the_numbers_is_a_bug(tmp_path: Path, numbers: list[int]) -> None:
    for position, number in enumerate(numbers):
        (tmp_path / f"{number:04}_{position}.sql").write_text("SELECT 1;")
    with pytest.raises(AssertionError):
        load_migrations("sqlite", tmp_path)


def test_other_files_are_no_migrations(tmp_path: Path) -> None:
    for name in ("0001_first.sql", "README.md", "1_short.sql", "0002_second.sql.orig"):
        (tmp_path / name).write_text("SELECT 1;")
    assert [one.name for one in load_migrations("sqlite", tmp_path)] == ["0001_first"]


def test_every_engine_has_its_migrations_in_the_checkout() -> None:
    assert load_migrations("sqlite")[0].name == "0001_reservation"


def test_event_numbers_are_never_given_out_again(connection: sqlite3.Connection) -> None:
    migrate(connection, load_migrations("sqlite"))
    insert = """INSERT INTO event (reservation, generation, type, at, "trigger")
                VALUES ('seat-1', 1, 'held', 1, 'request') RETURNING seq"""
    first = connection.execute(insert).fetchone()[0]
    connection.execute("DELETE FROM event")
    assert connection.execute(insert).fetchone()[0] > first


def test_a_program_without_its_migrations_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"missing: .*/nowhere; install it"):
        load_migrations("sqlite", tmp_path / "nowhere")
