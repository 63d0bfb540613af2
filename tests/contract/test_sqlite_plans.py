"""SQLite: no statement looks at more rows than it has to, however many there are."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reservation_service.storage import (
    sqlite,
    sqlite_alarms,
    sqlite_bookings,
    sqlite_events,
    sqlite_purge,
    sqlite_reads,
    sqlite_schedule,
)
from reservation_service.storage.migrations import load_migrations, migrate
from reservation_service.storage.sqlite_messages import create_message_table

MODULES = (
    sqlite,
    sqlite_alarms,
    sqlite_bookings,
    sqlite_events,
    sqlite_purge,
    sqlite_reads,
    sqlite_schedule,
)
STATEMENTS = {
    name: sql
    for module in MODULES
    for name, sql in vars(module).items()
    if name.isupper() and name[0] != "_"
    if isinstance(sql, str) and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", sql)
}

MAY_BE_SCANNED = re.compile(
    # the messages of a batch, and what is derived from each of them
    r"SCAN (m|n|s|c|x|json_each|\(subquery-\d+\)|namespace|sqlite_sequence"
    # what a start has to look at is all that is in this index
    r"|reservation USING (COVERING )?INDEX reservation_attempted)( VIRTUAL TABLE .*)?"
)


ENDS_AT_ITS_LIMIT = {"DELETE_EVENTS": ["SCAN event", "SCAN event"]}
"""Statements that read a table from its head, in its own order, and stop after some rows."""


class Anything(dict[str, int]):
    """Parameters of any name."""

    def __missing__(self, name: str) -> int:
        return 0


@pytest.fixture
def connection(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        migrate(connection, load_migrations("sqlite"))
        create_message_table(connection)
        yield connection


def plan(connection: sqlite3.Connection, sql: str) -> list[str]:
    rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", Anything())
    return [detail for *_, detail in rows]


def scans(lines: list[str]) -> list[str]:
    return [line for line in lines if "SCAN" in line and not MAY_BE_SCANNED.fullmatch(line)]


def test_the_statements_are_found() -> None:
    assert {
        "EXPIRE",
        "HOLD",
        "RENEW",
        "EXTEND",
        "CONFIRM",
        "RELEASE",
        "SORT_NAMED",
    } <= STATEMENTS.keys()
    assert {"SORT_PLANS", "PLAN_PUT", "PLAN", "PLAN_FIRED", "FIRE", "PLANNED"} <= STATEMENTS.keys()
    assert {"RETRY", "CLAIM", "RECOVER", "NEXT_DUE", "FIND", "DELETE_ROWS"} <= STATEMENTS.keys()
    assert {"READ_ALL", "READ_NAMED"} <= STATEMENTS.keys()


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_scans_a_table(connection: sqlite3.Connection, name: str) -> None:
    found = scans(plan(connection, STATEMENTS[name]))
    assert found == ENDS_AT_ITS_LIMIT.get(name, [])


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_plan_depends_on_statistics(connection: sqlite3.Connection, name: str) -> None:
    for number in range(200):
        connection.execute(
            """INSERT INTO reservation VALUES (?, 'held', x'', 1, 1, 2, NULL, NULL, NULL, 0,
                                               2, 2, 0, NULL, 1, 'request')""",
            [f"seat-{number}"],
        )
        connection.execute(
            """INSERT INTO schedule (reservation, event_id, generation, run_at, first_at)
               VALUES (?, 'reminder', 1, 1, 1)""",
            [f"seat-{number}"],
        )
    connection.execute("ANALYZE")
    found = scans(plan(connection, STATEMENTS[name]))
    assert found == ENDS_AT_ITS_LIMIT.get(name, [])


@pytest.mark.parametrize("name", ["DUE", "NEXT_DUE", "COUNT_OVERDUE"])
def test_what_is_due_comes_from_its_index(connection: sqlite3.Connection, name: str) -> None:
    lines = plan(connection, STATEMENTS[name])
    assert any(re.search(r"SEARCH reservation USING .*reservation_due", line) for line in lines)
    assert not any("TEMP B-TREE" in line for line in lines)


@pytest.mark.parametrize("name", ["RECOVER", "COUNT_CLAIMED"])
def test_a_start_looks_at_nothing_but_attempted_alarms(
    connection: sqlite3.Connection, name: str
) -> None:
    lines = plan(connection, STATEMENTS[name])
    assert all("reservation_attempted" in line for line in lines if "reservation" in line)


def test_the_events_of_a_reservation_come_from_its_index_behind_the_position(
    connection: sqlite3.Connection,
) -> None:
    lines = plan(connection, STATEMENTS["READ_NAMED"])
    searched = "SEARCH event USING COVERING INDEX event_reservation (reservation=? AND rowid>?)"
    assert searched in lines


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM reservation WHERE status = 'held'",
        "UPDATE reservation AS r SET batch = 1 WHERE r.created_at < 5",
        "SELECT count(*) FROM event",
        "SELECT id FROM reservation ORDER BY expires_at",
    ],
)
def test_a_planted_scan_is_caught(connection: sqlite3.Connection, sql: str) -> None:
    assert scans(plan(connection, sql)) != []
