"""The checker that other harnesses rely on must find every violation that is planted."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reservation_service.storage.migrations import load_migrations, migrate
from tests.support.invariants import PLAN_RULES, ROW_RULES, violations

HOLD = """
INSERT INTO reservation VALUES ('live', 'held', x'', 2, 1000, 6000, NULL, NULL, NULL, 0,
                                6000, 8000, 2, NULL, 9, 'request')
"""
OVER = """
INSERT INTO reservation VALUES ('over', 'expired', x'', 1, 1000, 6000, 6001, NULL, NULL, 1,
                                NULL, NULL, 0, NULL, 9, 'alarm')
"""
KEPT = """
INSERT INTO reservation VALUES ('kept', 'confirmed', x'', 1, 1000, 6000, 6001, 6500, NULL, 1,
                                NULL, NULL, 0, NULL, 9, 'request')
"""
EVENTS = """
INSERT INTO event (reservation, generation, type, at, "trigger", data) VALUES
    ('live', 1, 'held', 500, 'request', NULL),
    ('live', 2, 'held', 1000, 'request', NULL),
    ('live', 2, 'alarm-failed', 6000, 'alarm', '{"scheduledTime": 6000, "retryCount": 0}'),
    ('live', 2, 'alarm-failed', 7000, 'alarm', '{"scheduledTime": 6000, "retryCount": 1}'),
    ('over', 1, 'held', 1000, 'request', NULL),
    ('over', 1, 'expired', 6001, 'alarm', NULL),
    ('kept', 1, 'held', 1000, 'request', NULL),
    ('kept', 1, 'renewed', 2000, 'request', NULL),
    ('kept', 1, 'extended', 3000, 'request', NULL),
    ('kept', 1, 'expired', 6001, 'alarm', NULL),
    ('kept', 1, 'confirm-rejected', 6400, 'request', '{"code": "hold-expired"}'),
    ('kept', 1, 'confirmed', 6500, 'request', NULL)
"""
REJECTED = "INSERT INTO confirm_rejection VALUES ('kept', 1, x'', 'hold-expired')"

PLANS = """
INSERT INTO schedule (id, reservation, event_id, generation, run_at, first_at, repeat_ms, data)
VALUES (1, 'live', 'tick', 2, 9000, 5000, 2000, '{}'),
       (2, 'live', 'call', 2, 7000, 7000, NULL, NULL),
       (3, 'over', 'call', 1, 7000, 7000, NULL, NULL)
"""
FIRED = """
INSERT INTO event (reservation, generation, type, at, "trigger", data, planned, run_at)
VALUES ('live', 2, 'scheduled-event', 8100, 'alarm',
        '{"eventId": "tick", "scheduledTime": 5000, "lateness": 3100, "missed": 1}', 1, 5000)
"""

BROKEN_ROWS = {
    "status IN ('held', 'confirmed', 'released', 'expired')": ("live", "status = 'pending'"),
    "length(holder) IN (0, 32)": ("live", "holder = x'00'"),
    "generation >= 1": ("live", "generation = 0"),
    "created_at < expires_at": ("live", "created_at = 6000"),
    "expiration_count IN (0, 1)": ("over", "expiration_count = 2"),
    "(expiration_count = 1) = (expired_at IS NOT NULL)": ("over", "expired_at = NULL"),
    "status <> 'expired' OR expiration_count = 1": ("over", "expiration_count = 0"),
    "status <> 'held' OR expiration_count = 0": ("live", "expiration_count = 1"),
    "status <> 'confirmed' OR confirmed_at IS NOT NULL": ("over", "status = 'confirmed'"),
    "status NOT IN ('held', 'expired') OR confirmed_at IS NULL": ("over", "confirmed_at = 5000"),
    "(status = 'released') = (released_at IS NOT NULL)": ("over", "status = 'released'"),
    "status <> 'held' OR (alarm_at IS NOT NULL AND alarm_at <= expires_at)": (
        "live",
        "alarm_at = NULL",
    ),
    "status IN ('held', 'confirmed') OR alarm_at IS NULL": ("over", "alarm_at = 6000"),
    "(alarm_at IS NULL) = (alarm_dispatch_at IS NULL)": ("live", "alarm_dispatch_at = NULL"),
    "alarm_dispatch_at >= alarm_at": ("live", "alarm_dispatch_at = 5999"),
    "alarm_attempts >= 0": ("live", "alarm_attempts = -1"),
    "alarm_attempts > 0 OR alarm_dispatch_at IS alarm_at": ("live", "alarm_attempts = 0"),
    "alarm_attempts = 0 OR alarm_at IS NOT NULL": ("over", "alarm_attempts = 1"),
    "alarm_claim IS NULL OR alarm_attempts > 0": ("over", "alarm_claim = 7"),
    "changed_by IN ('request', 'alarm', 'replay')": ("over", "changed_by = 'somebody'"),
    "expired_at >= expires_at": ("over", "expired_at = 5999"),
}

BROKEN_PLANS = {
    "generation >= 1": "generation = 0",
    "run_at >= first_at": "first_at = 9001",
    "repeat_ms >= 1000": "repeat_ms = 999",
    "length(data) <= 2048": "data = '\"' || hex(zeroblob(1024)) || '\"'",
    "run_at = first_at OR (run_at - first_at) % repeat_ms = 0": "run_at = 8999",
    "repeat_ms IS NOT NULL OR run_at = first_at": "repeat_ms = NULL",
    "id <= (SELECT seq FROM sqlite_sequence WHERE name = 'schedule')": "id = 1000",
}

_EVENT = """INSERT INTO event (reservation, generation, type, at, "trigger", data) VALUES """
BROKEN_HISTORIES = {
    "over: held follows confirmed": "UPDATE event SET type = 'confirmed' WHERE type = 'expired';"
    + _EVENT
    + "('over', 2, 'held', 9000, 'request', NULL)",
    "over: confirmed follows released": "UPDATE event SET type = 'released' WHERE type = 'expired';"
    + _EVENT
    + "('over', 1, 'confirmed', 9000, 'request', NULL)",
    "over: extended follows expired": _EVENT + "('over', 1, 'extended', 9000, 'request', NULL)",
    "over: expired follows expired": "DROP INDEX event_expired_once;"
    + _EVENT
    + "('over', 1, 'expired', 9000, 'alarm', NULL)",
    "over: the row counts 1 expiries, the log 0": "DELETE FROM event WHERE type = 'expired'",
    "over: the row is expired, the log says held": "DELETE FROM event WHERE type = 'expired'",
    "over: expired follows ": "DELETE FROM event WHERE reservation = 'over' AND type = 'held'",
    "over: alarm-failed follows expired": _EVENT
    + """('over', 1, 'alarm-failed', 9, 'alarm', '{"scheduledTime": 6000, "retryCount": 0}')""",
    "over: expired at 6001 by the log, at 6005 by the row": (
        "UPDATE reservation SET expired_at = 6005 WHERE id = 'over'"
    ),
    "over: expired 1 ms early by alarm": (
        "UPDATE reservation SET expires_at = 6002 WHERE id = 'over'"
    ),
    "over: renewed follows expired": _EVENT + "('over', 1, 'renewed', 9000, 'request', NULL)",
    "over: released follows expired": _EVENT + "('over', 1, 'released', 9000, 'request', NULL)",
    "kept: confirmed follows confirmed": _EVENT + "('kept', 1, 'confirmed', 9, 'request', NULL)",
    "kept: extended follows confirmed": _EVENT + "('kept', 1, 'extended', 9, 'request', NULL)",
    "kept: expired follows confirmed": "DROP INDEX event_expired_once;"
    + _EVENT
    + "('kept', 1, 'expired', 9000, 'alarm', NULL)",
    "kept: confirmed by alarm": "UPDATE event SET \"trigger\" = 'alarm' WHERE type = 'confirmed'",
    "kept: extended of generation 2 in generation 1": (
        "UPDATE event SET generation = 2 WHERE type = 'extended'"
    ),
    "kept: confirmed at [6500] by the log, at [6501] by the row": (
        "UPDATE reservation SET confirmed_at = 6501 WHERE id = 'kept'"
    ),
    "kept: released at [9000] by the log, at [] by the row": _EVENT
    + "('kept', 1, 'released', 9000, 'request', NULL)",
    "kept: confirmed at [] by the log, at [6500] by the row": (
        "DELETE FROM event WHERE type = 'confirmed'"
    ),
    "kept: confirm-rejected as hold-released follows expired": (
        "UPDATE event SET data = '{\"code\": \"hold-released\"}' WHERE type = 'confirm-rejected'"
    ),
    "kept: confirm-rejected as sold-out follows expired": (
        "UPDATE event SET data = '{\"code\": \"sold-out\"}' WHERE type = 'confirm-rejected'"
    ),
    "kept: 0 rejections recorded, 1 remembered": "DELETE FROM event WHERE at = 6400",
    "kept: 1 rejections recorded, 0 remembered": "DELETE FROM confirm_rejection",
    "kept: 21 rejections of generation 1": """
        WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 20)
        INSERT INTO confirm_rejection SELECT 'kept', 1, randomblob(32), 'taken' FROM n""",
    "live: the slot is set to 5999, planned is 6000": (
        "UPDATE reservation SET alarm_at = 5999 WHERE id = 'live'"
    ),
    "live: the slot is set to 6000, planned is 5000": (
        "UPDATE schedule SET run_at = 5000, first_at = 5000 WHERE event_id = 'tick'"
    ),
    "kept: the slot is set to None, planned is 9000": (
        "UPDATE schedule SET reservation = 'kept', generation = 1 WHERE event_id = 'tick'"
    ),
    "kept: the slot is set to 9000, planned is None": (
        "UPDATE reservation SET alarm_at = 9000, alarm_dispatch_at = 9000 WHERE id = 'kept'"
    ),
    "live: 101 planned events": """
        WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 99)
        INSERT INTO schedule (reservation, event_id, generation, run_at, first_at)
        SELECT 'live', 'event-' || i, 2, 7000, 7000 FROM n""",
    "live: call is planned on generation 1, the row is at 2": (
        "UPDATE schedule SET generation = 1 WHERE id = 2"
    ),
    "gone: call is planned on generation 1, the row is at None": (
        "UPDATE schedule SET reservation = 'gone' WHERE id = 3"
    ),
    "live: tick of 5000 happened 2 times": "DROP INDEX event_fired_once;" + FIRED,
    "live: tick of 5000 happened early, at 4999": (
        "UPDATE event SET at = 4999 WHERE type = 'scheduled-event'"
    ),
    "live: tick of 5000 happened and is planned for 5000": (
        "UPDATE schedule SET run_at = 5000 WHERE id = 1"
    ),
    "live: tick of 5000 happened and is planned": (
        "UPDATE schedule SET repeat_ms = NULL WHERE id = 1"
    ),
    "live: tick of 5000 at 8100 missed 0": (
        "UPDATE event SET data = replace(data, '\"missed\": 1', '\"missed\": 0')"
    ),
    "live: tick of 5001 at 8100 says {'eventId': 'tick', 'scheduledTime': 5000,"
    " 'lateness': 3100, 'missed': 1}": "UPDATE event SET run_at = 5001 WHERE planned = 1",
    "live: scheduled-event by request": (
        "UPDATE event SET \"trigger\" = 'request' WHERE planned = 1"
    ),
    "gone: rejections without a row": (
        "INSERT INTO confirm_rejection VALUES ('gone', 1, x'', 'taken')"
    ),
    "over: held at 1000, created at 1001": (
        "UPDATE reservation SET created_at = 1001 WHERE id = 'over'"
    ),
    "over: a row without events": "DELETE FROM event WHERE reservation = 'over'",
    "gone: events without a row": _EVENT + "('gone', 1, 'held', 9000, 'request', NULL)",
    "live: generation 3 follows 1": (
        "UPDATE event SET generation = 3 WHERE reservation = 'live' AND at = 1000"
    ),
    "live: the row is at generation 3, the log at 2": (
        "UPDATE reservation SET generation = 3 WHERE id = 'live'"
    ),
    "live: alarm-failed of generation 1 in generation 2": (
        "UPDATE event SET generation = 1 WHERE at = 7000"
    ),
    "live: retry 0 after retry 1": _EVENT
    + """('live', 2, 'alarm-failed', 9, 'alarm', '{"scheduledTime": 6000, "retryCount": 0}')""",
}


@pytest.fixture
def healthy(database: Path) -> Iterator[sqlite3.Connection]:
    """A live hold with a failing alarm, one that is over, one confirmed late; CHECKs are off."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        migrate(connection, load_migrations("sqlite"))
        for statement in (
            HOLD,
            OVER,
            KEPT,
            EVENTS,
            REJECTED,
            PLANS,
            FIRED,
            "PRAGMA ignore_check_constraints = ON",
        ):
            connection.execute(statement)
        yield connection


def test_a_healthy_database_has_no_violation(healthy: sqlite3.Connection, database: Path) -> None:
    assert violations(database) == []


def test_every_rule_has_a_planted_violation() -> None:
    assert set(BROKEN_ROWS) == set(ROW_RULES)
    assert set(BROKEN_PLANS) == set(PLAN_RULES)


@pytest.mark.parametrize("rule", BROKEN_ROWS)
def test_a_planted_row_is_found(healthy: sqlite3.Connection, database: Path, rule: str) -> None:
    name, change = BROKEN_ROWS[rule]
    healthy.execute(f"UPDATE reservation SET {change} WHERE id = '{name}'")
    assert f"{name}: {rule}" in violations(database)


@pytest.mark.parametrize("rule", BROKEN_PLANS)
def test_a_planted_plan_is_found(healthy: sqlite3.Connection, database: Path, rule: str) -> None:
    healthy.execute(f"UPDATE schedule SET {BROKEN_PLANS[rule]} WHERE id = 1")
    assert f"live: planned tick: {rule}" in violations(database)


@pytest.mark.parametrize("complaint", BROKEN_HISTORIES)
def test_a_planted_history_is_found(
    healthy: sqlite3.Connection, database: Path, complaint: str
) -> None:
    healthy.executescript(BROKEN_HISTORIES[complaint])
    assert complaint in violations(database)


PURGED = {
    "live: the row is at generation 2, the log at 3": (
        "UPDATE event SET generation = 3 WHERE reservation = 'live'"
    ),
    "kept: extended follows confirmed": BROKEN_HISTORIES["kept: extended follows confirmed"],
    "over: the row is expired, the log says released": (
        "UPDATE event SET type = 'released', \"trigger\" = 'request' WHERE at = 6001"
    ),
    "gone: events without a row": BROKEN_HISTORIES["gone: events without a row"],
    "kept: 1 rejections recorded, 0 remembered": "DELETE FROM confirm_rejection",
}


@pytest.mark.parametrize("first", range(1, 14))
def test_a_log_may_have_lost_its_head(
    healthy: sqlite3.Connection, database: Path, first: int
) -> None:
    healthy.execute("DELETE FROM event WHERE seq < ?", [first])
    assert violations(database) == []


@pytest.mark.parametrize("complaint", PURGED)
def test_a_planted_history_is_found_behind_a_lost_head(
    healthy: sqlite3.Connection, database: Path, complaint: str
) -> None:
    healthy.execute("DELETE FROM event WHERE seq < 2")
    healthy.executescript(PURGED[complaint])
    assert complaint in violations(database)


def test_a_damaged_file_is_found(healthy: sqlite3.Connection, database: Path) -> None:
    healthy.close()
    page = 4096
    with database.open("r+b") as file:
        file.seek(2 * page)
        file.write(b"\xff" * page)
    assert violations(database)[0].startswith("the file is damaged: ")


def test_a_file_that_is_no_database_is_found(database: Path) -> None:
    database.write_bytes(b"\xff" * 8192)
    assert violations(database) == ["the file cannot be read: file is not a database"]


def test_the_files_of_a_killed_process_can_be_read(
    healthy: sqlite3.Connection, database: Path, scratch: Path
) -> None:
    healthy.execute("PRAGMA journal_mode = WAL")
    healthy.execute("UPDATE reservation SET changed_by = 'somebody' WHERE id = 'over'")
    left = scratch / "left"
    left.mkdir()
    for file in scratch.glob("reservations.db*"):
        shutil.copy(file, left)
    copy = left / database.name
    assert sorted(f.name for f in left.iterdir()) == [
        "reservations.db",
        "reservations.db-shm",
        "reservations.db-wal",
    ]
    assert violations(copy) == ["over: changed_by IN ('request', 'alarm', 'replay')"]
