"""The SQLite engine: one set-based statement per kind of message, one transaction per batch.

Every guard stands in a WHERE; a row that does not match is a message that came too late. The
statements are those of the slot protocol (docs/architecture.md): held means that the slot is set,
the effect itself clears or moves the slot, and an old claim never touches a new alarm.
"""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from reservation_service.clock import Clock
from reservation_service.errors import DatabaseUnusable, MessageFailed, ServiceError
from reservation_service.reservation import Expire, Hold, Outcome, Reservation
from reservation_service.storage.connection import failure_before_commit, failure_of_commit
from reservation_service.store import Claim, Claimed, Result, Retry, StoreMessage

EXPIRE = """
UPDATE reservation AS r
SET status = 'expired', expired_at = m.now, expiration_count = r.expiration_count + 1,
    alarm_at = NULL, alarm_dispatch_at = NULL, alarm_attempts = 0, alarm_claim = NULL,
    batch = :batch, changed_by = m.changed_by
FROM (SELECT value->>'id' AS id, value->>'trigger' AS changed_by,
             coalesce(value->>'now', :now) AS now
      FROM json_each(:messages)) AS m
WHERE r.id = m.id AND r.status = 'held' AND r.expires_at <= m.now
"""

HOLD = """
INSERT INTO reservation (id, status, holder, generation, created_at, expires_at, expiration_count,
                         alarm_at, alarm_dispatch_at, alarm_attempts, batch, changed_by)
SELECT value->>'id', 'held', x'', 1, :now, :now + (value->>'ttl_ms'), 0,
       :now + (value->>'ttl_ms'), :now + (value->>'ttl_ms'), 0, :batch, value->>'trigger'
FROM json_each(:messages) WHERE true
ON CONFLICT (id) DO UPDATE
SET status = 'held', holder = excluded.holder, generation = reservation.generation + 1,
    created_at = excluded.created_at, expires_at = excluded.expires_at, expired_at = NULL,
    confirmed_at = NULL, released_at = NULL, expiration_count = 0,
    alarm_at = excluded.alarm_at, alarm_dispatch_at = excluded.alarm_dispatch_at,
    alarm_attempts = 0, alarm_claim = NULL,
    batch = excluded.batch, changed_by = excluded.changed_by
WHERE reservation.status IN ('expired', 'released')
   OR (reservation.status = 'held' AND reservation.holder = excluded.holder)
"""

RECORD = """
INSERT INTO event (reservation, generation, type, at, "trigger")
SELECT r.id, r.generation, r.status, :now, r.changed_by
FROM json_each(:messages) AS m JOIN reservation AS r ON r.id = m.value->>'id'
WHERE r.batch = :batch AND r.status = :status
"""

RECORD_FAILED = """
INSERT INTO event (reservation, generation, type, at, "trigger", data)
SELECT r.id, r.generation, 'alarm-failed', :now, 'alarm', json_object(
    'scheduledTime', r.alarm_at, 'retryCount', r.alarm_attempts - 1,
    'isRetry', json(CASE WHEN r.alarm_attempts > 1 THEN 'true' ELSE 'false' END),
    'lateness', :now - r.alarm_at, 'outcome', 'failed')
FROM json_each(:messages) AS m JOIN reservation AS r ON r.id = m.value->>'id'
WHERE r.alarm_claim = m.value->>'claim' AND m.value->>'record'
"""

RETRY = """
UPDATE reservation AS r
SET alarm_claim = NULL,
    alarm_dispatch_at = max(r.alarm_at, min(:now + m.delay_ms,
        CASE WHEN r.status = 'held' AND r.expires_at > m.seen THEN r.expires_at
             ELSE :now + m.delay_ms END))
FROM (SELECT value->>'id' AS id, value->>'claim' AS claim, value->>'delay_ms' AS delay_ms,
             value->>'seen' AS seen
      FROM json_each(:messages)) AS m
WHERE r.id = m.id AND r.alarm_claim = m.claim
"""

# A lease that is over says that nobody knows of the attempt, unless it is at work in this process.
# An alarm that was set anew has no claim, and waits for no attempt at an older one.
DUE = """
SELECT json_group_array(id)
FROM (SELECT id FROM reservation
      WHERE alarm_dispatch_at <= :now
        AND (alarm_claim IS NULL OR id NOT IN (SELECT value FROM json_each(:running)))
      ORDER BY alarm_dispatch_at LIMIT :limit)
"""

CLAIM = """
UPDATE reservation
SET alarm_attempts = alarm_attempts + 1, alarm_dispatch_at = :now + :lease_ms, alarm_claim = :batch
WHERE id IN (SELECT value FROM json_each(:ids))
"""

# A first attempt that was cut short runs again at once; a row that was cut short twice or more
# waits like after a failure, spread out, so that a handler that kills the process cannot spin.
# A backoff stays, unless the wall clock was set back while the process was down.
RECOVER = """
UPDATE reservation
SET alarm_claim = NULL,
    alarm_dispatch_at = max(alarm_at, min(alarm_dispatch_at, CASE
        WHEN alarm_claim IS NULL THEN :now + :cap_ms
        WHEN alarm_attempts = 1 THEN alarm_at
        ELSE :now + :first_ms + (rowid + :seed) * 2654435761 % :first_ms END))
WHERE alarm_attempts > 0
"""

ROW = """json_array(m.value, coalesce(r.status, 'missing'), coalesce(r.generation, 0),
    r.created_at, r.expires_at, r.expired_at, r.confirmed_at, r.released_at,
    coalesce(r.expiration_count, 0), r.alarm_at, coalesce(r.alarm_attempts, 0),
    r.alarm_claim IS NOT NULL)"""

ROWS = f"""
SELECT json_group_array({ROW})
FROM json_each(:ids) AS m LEFT JOIN reservation AS r ON r.id = m.value
"""  # noqa: S608 - a constant, no input in it

OUTCOMES = f"""
SELECT json_group_array(json_array(coalesce(r.batch = :batch, 0), {ROW}))
FROM json_each(:ids) AS m LEFT JOIN reservation AS r ON r.id = m.value
"""  # noqa: S608 - a constant, no input in it

# What a claim left out must wake nobody: every look would find it due, and leave it out again.
NEXT_DUE = """
SELECT min(alarm_dispatch_at) FROM reservation
WHERE alarm_dispatch_at IS NOT NULL
  AND (alarm_dispatch_at > :now OR alarm_claim IS NULL
       OR id NOT IN (SELECT value FROM json_each(:running)))
"""

START_EPOCH = """
UPDATE namespace SET epoch = epoch + 1 RETURNING epoch, destroyed_at IS NOT NULL
"""

COUNT_OVERDUE = """
SELECT count(*) FROM (SELECT 1 FROM reservation WHERE alarm_dispatch_at <= :now LIMIT :limit)
"""

COUNT_CLAIMED = """
SELECT count(*) FROM reservation WHERE alarm_attempts > 0 AND alarm_claim IS NOT NULL
"""

_BATCHES_PER_EPOCH = 1 << 32
_encode = msgspec.json.Encoder().encode
_decode_rows = msgspec.json.Decoder(list[Reservation], strict=False).decode
_decode_outcomes = msgspec.json.Decoder(list[Outcome], strict=False).decode


class BatchTransaction:
    """Runs one batch as one transaction on the writer's connection, on whatever thread calls it.

    `epoch` is this start's number. The file at `database`, None when it is in memory, is compared
    by inode before each COMMIT: a deleted file would go on answering and lose all at exit.
    """

    def __init__(
        self,
        clock: Clock,
        database: Path | None,
        epoch: int,
    ) -> None:
        self._clock = clock
        self._database = database
        self._inode = _inode(database) if database else 0
        self._batch = epoch * _BATCHES_PER_EPOCH

    def __call__(
        self, connection: sqlite3.Connection, messages: Sequence[StoreMessage]
    ) -> tuple[list[Result], int | None]:
        """The results in the messages' order, and when the next alarm is due (epoch ms).

        IDs that a claim of the batch left out have no part in the latter.
        """
        self._batch += 1
        try:
            connection.execute("BEGIN IMMEDIATE")
            now = self._clock.now()
            results = self._work(connection, messages, now)
            next_due_at = _next_due_at(connection, messages, now)
            self._require_same_file()
        except sqlite3.Error as error:
            roll_back(connection)
            raise failure_before_commit(error) from error
        except ServiceError:
            roll_back(connection)
            raise
        except Exception as error:  # a bug that one message brings out fails that message alone
            roll_back(connection)
            raise MessageFailed from error
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            roll_back(connection)
            raise failure_of_commit(error) from error
        return results, next_due_at

    def _work(
        self, connection: sqlite3.Connection, messages: Sequence[StoreMessage], now: int
    ) -> list[Result]:
        run = _Statements(connection, {"now": now, "batch": self._batch})
        holds = [message for message in messages if type(message) is Hold]
        expiries = [message for message in messages if type(message) is Expire]
        retries = [message for message in messages if type(message) is Retry]
        if run.changed(EXPIRE, messages=[*expiries, *holds]):
            run.changed(RECORD, messages=[*expiries, *holds], status="expired")
        if run.changed(HOLD, messages=holds):
            run.changed(RECORD, messages=holds, status="held")
        run.changed(RECORD_FAILED, messages=retries)
        run.changed(RETRY, messages=retries)
        outcomes = run.outcomes([message.id for message in messages if message.id is not None])
        return [
            run.claim(message) if type(message) is Claim else outcomes[message.id or ""]
            for message in messages
        ]

    def _require_same_file(self) -> None:
        if self._database and _inode(self._database) != self._inode:
            raise DatabaseUnusable


class _Statements:
    """The statements of one batch, with what they share bound once."""

    def __init__(self, connection: sqlite3.Connection, shared: dict[str, Any]) -> None:
        self._connection = connection
        self._shared = shared

    def changed(self, sql: str, messages: Sequence[StoreMessage], **values: object) -> int:
        """How many rows one set-based statement changed; nothing to do is no statement."""
        if not messages:
            return 0
        values |= self._shared
        values["messages"] = _encode(messages).decode()
        return self._connection.execute(sql, values).rowcount

    def outcomes(self, ids: Sequence[str]) -> dict[str, Outcome]:
        """The rows of these IDs as they are now, and which of them this batch changed."""
        values = {"ids": _encode(ids).decode(), "batch": self._shared["batch"]}
        rows = self._connection.execute(OUTCOMES, values).fetchone()[0]
        return {row.reservation.reservation_id: row for row in _decode_outcomes(rows)}

    def claim(self, claim: Claim) -> list[Claimed]:
        """Claim last, so that it sees what the batch's own messages did."""
        values = self._shared | {
            "running": _encode(claim.running).decode(),
            "limit": claim.limit,
            "lease_ms": claim.lease_ms,
        }
        values["ids"] = self._connection.execute(DUE, values).fetchone()[0]
        if values["ids"] == "[]":
            return []
        self._connection.execute(CLAIM, values)
        rows = _decode_rows(self._connection.execute(ROWS, values).fetchone()[0])
        return [Claimed(row, values["batch"], values["now"]) for row in rows]


def read_rows(connection: sqlite3.Connection, ids: Sequence[str]) -> list[Reservation]:
    """The committed rows of these IDs, in their order; missing ones included."""
    try:
        rows = connection.execute(ROWS, {"ids": _encode(ids).decode()}).fetchone()[0]
    except sqlite3.Error as error:
        raise failure_before_commit(error) from error
    found = {row.reservation_id: row for row in _decode_rows(rows)}
    return [found[reservation_id] for reservation_id in ids]


def _next_due_at(
    connection: sqlite3.Connection, messages: Sequence[StoreMessage], now: int
) -> int | None:
    claims = [message for message in messages if type(message) is Claim]
    running = [reservation_id for claim in claims for reservation_id in claim.running]
    values = {"now": now, "running": _encode(running).decode()}
    next_due_at: int | None = connection.execute(NEXT_DUE, values).fetchone()[0]
    return next_due_at


def roll_back(connection: sqlite3.Connection) -> None:
    """Leave no transaction open; some errors have rolled back already."""
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            if connection.in_transaction:
                raise


def _inode(database: Path) -> int:
    try:
        return os.stat(database).st_ino  # noqa: PTH116 - once a commit, and half the cost
    except FileNotFoundError:
        return -1
