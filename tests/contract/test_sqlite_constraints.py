"""SQLite: the CHECKs hold in every reachable state, and each of them refuses its violation."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reservation_service.storage.migrations import load_migrations, migrate
from tests.contract.engines import CONFIRMED, EXPIRED, RELEASED, Row, planted

HELD: Row = {}

VIOLATIONS: list[tuple[str, Row, Row]] = [
    (
        "status IN ('held', 'confirmed', 'released', 'expired')",
        EXPIRED,
        {"status": "pending"},
    ),
    ("length(holder) IN (0, 32)", HELD, {"holder": b"\0"}),
    ("changed_by IN ('request', 'alarm', 'replay')", HELD, {"changed_by": "somebody"}),
    ("generation >= 1", HELD, {"generation": 0}),
    ("created_at < expires_at", HELD, {"created_at": 6_000}),
    ("expiration_count IN (0, 1)", RELEASED, {"expiration_count": 2}),
    ("(expiration_count = 1) = (expired_at IS NOT NULL)", RELEASED, {"expired_at": 6_000}),
    ("(expiration_count = 1) = (expired_at IS NOT NULL)", RELEASED, {"expiration_count": 1}),
    (
        "status <> 'expired' OR expiration_count = 1",
        EXPIRED,
        {"expiration_count": 0, "expired_at": None},
    ),
    (
        "status <> 'held' OR expiration_count = 0",
        HELD,
        {"expiration_count": 1, "expired_at": 6_000},
    ),
    ("status <> 'confirmed' OR confirmed_at IS NOT NULL", CONFIRMED, {"confirmed_at": None}),
    ("status NOT IN ('held', 'expired') OR confirmed_at IS NULL", HELD, {"confirmed_at": 5_000}),
    ("status NOT IN ('held', 'expired') OR confirmed_at IS NULL", EXPIRED, {"confirmed_at": 1}),
    ("(status = 'released') = (released_at IS NOT NULL)", CONFIRMED, {"released_at": 5_000}),
    ("(status = 'released') = (released_at IS NOT NULL)", RELEASED, {"released_at": None}),
    (
        "status <> 'held' OR (alarm_at IS NOT NULL AND alarm_at <= expires_at)",
        HELD,
        {"alarm_at": 6_001, "alarm_dispatch_at": 6_001},
    ),
    (
        "status <> 'held' OR (alarm_at IS NOT NULL AND alarm_at <= expires_at)",
        HELD,
        {"alarm_at": None, "alarm_dispatch_at": None},
    ),
    (
        "status IN ('held', 'confirmed') OR alarm_at IS NULL",
        EXPIRED,
        {"alarm_at": 7_000, "alarm_dispatch_at": 7_000},
    ),
    (
        "(alarm_at IS NULL) = (alarm_dispatch_at IS NULL)",
        CONFIRMED,
        {"alarm_at": 7_000, "alarm_attempts": 1},
    ),
    ("alarm_dispatch_at >= alarm_at", HELD, {"alarm_dispatch_at": 5_999, "alarm_attempts": 1}),
    ("alarm_attempts >= 0", HELD, {"alarm_attempts": -1}),
    ("alarm_attempts > 0 OR alarm_dispatch_at IS alarm_at", HELD, {"alarm_dispatch_at": 6_001}),
    ("alarm_attempts = 0 OR alarm_at IS NOT NULL", EXPIRED, {"alarm_attempts": 1}),
    ("alarm_claim IS NULL OR alarm_attempts > 0", HELD, {"alarm_claim": 7}),
]
"""A CHECK, a lawful row, and what makes it break this CHECK and no other."""

PLAN: Row = {
    "reservation": "seat-1",
    "event_id": "call",
    "generation": 1,
    "run_at": 9_000,
    "first_at": 5_000,
    "repeat_ms": 2_000,
}
PLAN_VIOLATIONS: list[tuple[str, Row]] = [
    ("generation >= 1", {"generation": 0}),
    ("run_at >= 1", {"run_at": 0, "first_at": 0}),
    ("run_at >= first_at", {"run_at": 4_999}),
    ("repeat_ms >= 1", {"repeat_ms": 0}),
    ("repeat_ms IS NOT NULL OR run_at = first_at", {"repeat_ms": None}),
]

COLUMNS_NEVER_NULL = [
    "id",
    "status",
    "holder",
    "generation",
    "created_at",
    "expires_at",
    "expiration_count",
    "alarm_attempts",
    "batch",
    "changed_by",
]


@pytest.fixture
def connection(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        migrate(connection, load_migrations("sqlite"))
        yield connection


def insert(connection: sqlite3.Connection, row: Row, table: str = "reservation") -> None:
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))


def checks(connection: sqlite3.Connection, table: str) -> set[str]:
    """The expressions of a table's CHECKs, as the schema spells them."""
    (sql,) = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", [table]
    ).fetchone()
    bare = re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", sql))
    return {inside(bare, match.end()) for match in re.finditer(r"CHECK \(", bare)}


def inside(text: str, start: int) -> str:
    """From behind an opening bracket to its closing one."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position]
    raise AssertionError(text)


def test_every_check_has_its_violation(connection: sqlite3.Connection) -> None:
    assert checks(connection, "reservation") == {expression for expression, _, _ in VIOLATIONS}


@pytest.mark.parametrize("lawful", [HELD, CONFIRMED, RELEASED, EXPIRED])
def test_a_lawful_row_is_taken(connection: sqlite3.Connection, lawful: Row) -> None:
    insert(connection, planted("seat-1", **lawful))


@pytest.mark.parametrize(
    ("expression", "lawful", "change"), VIOLATIONS, ids=[violation[0] for violation in VIOLATIONS]
)
def test_a_check_refuses_its_violation_on_its_own(
    connection: sqlite3.Connection, expression: str, lawful: Row, change: Row
) -> None:
    row = planted("seat-1", **lawful | change)
    with pytest.raises(sqlite3.IntegrityError) as refusal:
        insert(connection, row)
    assert str(refusal.value) == f"CHECK constraint failed: {expression}"
    others = " AND ".join(
        f"coalesce(({other}), 1)" for other in checks(connection, "reservation") - {expression}
    )
    connection.execute("PRAGMA ignore_check_constraints = ON")
    insert(connection, row)
    assert connection.execute(f"SELECT {others} FROM reservation").fetchone() == (1,)


@pytest.mark.parametrize(
    ("lawful", "change"),
    [(lawful, change) for _, lawful, change in VIOLATIONS if "status" not in change],
)
def test_an_update_is_checked_as_well(
    connection: sqlite3.Connection, lawful: Row, change: Row
) -> None:
    insert(connection, planted("seat-1", **lawful))
    assignments = ", ".join(f"{name} = ?" for name in change)
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(f"UPDATE reservation SET {assignments}", list(change.values()))


@pytest.mark.parametrize("column", COLUMNS_NEVER_NULL)
def test_a_column_that_always_has_a_value_refuses_null(
    connection: sqlite3.Connection, column: str
) -> None:
    with pytest.raises(sqlite3.IntegrityError, match=f"NOT NULL .*{column}"):
        insert(connection, planted("seat-1", **{column: None}))


@pytest.mark.parametrize("column", ["expires_at", "generation", "alarm_dispatch_at"])
def test_a_number_is_a_number(connection: sqlite3.Connection, column: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="cannot store TEXT value"):
        insert(connection, planted("seat-1", **{column: "soon"}))


def test_an_id_has_one_row(connection: sqlite3.Connection) -> None:
    insert(connection, planted("seat-1"))
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        insert(connection, planted("seat-1"))


def test_a_generation_expires_once_in_the_log_too(connection: sqlite3.Connection) -> None:
    insert_event = """INSERT INTO event (reservation, generation, type, at, "trigger")
                      VALUES ('seat-1', ?, ?, 1, 'alarm')"""
    for generation, kind in [(1, "held"), (1, "held"), (1, "expired"), (2, "expired")]:
        connection.execute(insert_event, [generation, kind])
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        connection.execute(insert_event, [1, "expired"])


def test_every_check_of_a_plan_has_its_violation(connection: sqlite3.Connection) -> None:
    assert checks(connection, "schedule") == {expression for expression, _ in PLAN_VIOLATIONS}


@pytest.mark.parametrize(("expression", "change"), PLAN_VIOLATIONS)
def test_a_check_of_a_plan_refuses_its_violation(
    connection: sqlite3.Connection, expression: str, change: Row
) -> None:
    insert(connection, PLAN, "schedule")
    with pytest.raises(sqlite3.IntegrityError) as refusal:
        insert(connection, PLAN | {"event_id": "other"} | change, "schedule")
    assert str(refusal.value) == f"CHECK constraint failed: {expression}"


def test_an_event_is_planned_once_on_a_reservation(connection: sqlite3.Connection) -> None:
    insert(connection, PLAN, "schedule")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        insert(connection, PLAN | {"generation": 2}, "schedule")


def test_an_occurrence_happens_once_in_the_log_too(connection: sqlite3.Connection) -> None:
    insert_event = """INSERT INTO event (reservation, generation, type, at, "trigger", planned,
                                         run_at)
                      VALUES ('seat-1', 1, 'scheduled-event', 1, 'alarm', ?, ?)"""
    for planned_as, run_at in [(1, 10), (1, 20), (2, 10)]:
        connection.execute(insert_event, [planned_as, run_at])
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        connection.execute(insert_event, [1, 20])


def test_an_event_has_a_known_trigger(connection: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        connection.execute(
            """INSERT INTO event (reservation, generation, type, at, "trigger")
               VALUES ('seat-1', 1, 'held', 1, 'magic')"""
        )


def test_there_is_one_namespace(connection: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute("INSERT INTO namespace (singleton, epoch) VALUES (2, 0)")
    assert connection.execute("SELECT count(*) FROM namespace").fetchone() == (1,)
