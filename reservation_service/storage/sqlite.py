"""The SQLite engine: one set-based statement per kind of message, one transaction per batch.

The statements are those of the slot protocol (docs/architecture.md): held means that the slot is
set, the effect itself clears or moves the slot, and an old claim never touches a new alarm.
"""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from reservation_service.clock import Clock
from reservation_service.errors import DatabaseUnusable, MessageFailed, ServiceError
from reservation_service.reservation import (
    ANONYMOUS,
    EVENTS_MAX,
    Cancel,
    Confirm,
    Expire,
    Extend,
    Fire,
    Hold,
    Outcome,
    Plan,
    PlanVerdict,
    Release,
    Reservation,
)
from reservation_service.storage.connection import failure_before_commit, failure_of_commit
from reservation_service.storage.sqlite_alarms import CLAIM, DUE, NEXT_DUE, RECORD_FAILED, RETRY
from reservation_service.storage.sqlite_bookings import (
    CONFIRM,
    EXPIRE,
    EXTEND,
    HOLD,
    LIMITED_UNTIL,
    MESSAGES,
    RECORD,
    RECORD_EXPIRED,
    RECORD_REJECTED,
    RELEASE,
    REMEMBER_REJECTED,
    RENEW,
    SORT_NAMED,
)
from reservation_service.storage.sqlite_purge import purge_some
from reservation_service.storage.sqlite_reads import ROW, ROWS
from reservation_service.storage.sqlite_schedule import (
    FIRE,
    FIRE_ADVANCE,
    FIRE_DROP,
    FORGET_PLANS,
    PLAN,
    PLAN_FIRED,
    PLAN_PUT,
    SCHEDULE_DELETE,
    SCHEDULE_PUT,
    SORT_PLANS,
)
from reservation_service.store import (
    Claim,
    Claimed,
    Probe,
    Probed,
    Purge,
    Result,
    Retry,
    StoreMessage,
)

OUTCOMES = f"""
SELECT json_group_array(json_array(
    coalesce(r.batch = :batch, 0), coalesce(r.holder = m.holder, 0), :now, {ROW})),
    ({NEXT_DUE}), (SELECT max(id) FROM schedule)
FROM ({MESSAGES}) AS m LEFT JOIN reservation AS r ON r.id = m.id
"""  # noqa: S608 - a constant, no input in it

START_EPOCH = """
UPDATE namespace SET epoch = epoch + 1 RETURNING epoch, destroyed_at IS NOT NULL
"""

_BATCHES_PER_EPOCH = 1 << 32
_encode = msgspec.json.Encoder().encode
_decode_rows = msgspec.json.Decoder(list[Reservation], strict=False).decode
_decode_outcomes = msgspec.json.Decoder(list[Outcome], strict=False).decode


DIGEST_BYTES = 32
"""SHA-256, and the stride of `:holders`."""

K = TypeVar("K", Hold, Expire, Extend, Confirm, Release, Plan, Cancel, Fire, Retry)


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
            done = self._work(connection, messages)
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
        return done

    def _work(
        self, connection: sqlite3.Connection, messages: Sequence[StoreMessage]
    ) -> tuple[list[Result], int | None]:
        """Expiries first: a hold that takes over an overdue one records its end before.

        Nobody's messages last, so that they see what the batch's others did.
        """
        run = _Statements(connection, self._clock.now(), self._batch, _running(messages))
        holds = _of(Hold, messages)
        run.expire([*_of(Expire, messages), *holds])
        limited = run.hold(holds)
        run.record(EXTEND, _of(Extend, messages), "extended")
        run.confirm(_of(Confirm, messages))
        run.record(RELEASE, _of(Release, messages), "released")
        scheduled = run.schedule(messages)
        run.retry(_of(Retry, messages))
        others = {id(message): run.work(message) for message in _of_nobody(messages)}
        outcomes, next_due_at = run.outcomes([m for m in messages if m.id is not None])
        outcomes.update(run.limited(limited, outcomes))
        for name, told in scheduled.items():
            outcomes[name] = msgspec.structs.replace(outcomes[name], **told)
        if run.is_anything_planned:
            run.forget_plans(holds)
        results = [others[id(m)] if m.id is None else outcomes[m.id] for m in messages]
        return results, next_due_at

    def _require_same_file(self) -> None:
        if self._database and _inode(self._database) != self._inode:
            raise DatabaseUnusable


class _Statements:
    """The statements of one batch; `now` is the transaction's time, `batch` its number."""

    def __init__(
        self, connection: sqlite3.Connection, now: int, batch: int, running: list[str]
    ) -> None:
        self._connection = connection
        self._shared: dict[str, Any] = {"now": now, "batch": batch}
        self._running = _encode(running).decode()
        self.is_anything_planned = True

    def expire(self, messages: Sequence[StoreMessage]) -> None:
        """Expire what is over, and write how late and how often tried it was."""
        if self._changed(EXPIRE, messages):
            self._changed(RECORD_EXPIRED, messages)

    def record(self, sql: str, messages: Sequence[StoreMessage], event: str) -> None:
        """Change rows, and write an event for each row changed."""
        if self._changed(sql, messages):
            self._changed(RECORD, messages, type=event)

    def hold(self, holds: list[Hold]) -> list[Hold]:
        """New holds, resets and renewals; those beyond their holder's limit come back undone."""
        verdicts = self._sort(holds)
        self.record(RENEW, verdicts.get("renewed", []), "renewed")
        self.record(HOLD, verdicts.get("held", []), "held")
        return verdicts.get("limited", [])

    def confirm(self, confirms: list[Confirm]) -> None:
        """Confirm, and record once what came too late."""
        self.record(CONFIRM, confirms, "confirmed")
        if self._changed(RECORD_REJECTED, confirms):
            self._changed(REMEMBER_REJECTED, confirms)

    def schedule(self, messages: Sequence[StoreMessage]) -> dict[str, dict[str, Any]]:
        """Plan, cancel and fire events: what that adds to their outcomes, by ID."""
        return (
            self._plan(_of(Plan, messages))
            | self._cancel(_of(Cancel, messages))
            | self._fire(_of(Fire, messages))
        )

    def retry(self, retries: list[Retry]) -> None:
        """Settle attempts whose claim still stands, and record the failures among them."""
        self._changed(RECORD_FAILED, retries)
        self._changed(RETRY, retries)

    def outcomes(self, messages: Sequence[StoreMessage]) -> tuple[dict[str, Outcome], int | None]:
        """The rows of these messages as they are now, which of them this batch changed, and
        the head of the due index: one statement, since each costs the event loop a pause."""
        values = self._bind(messages) | {"running": self._running}
        rows, next_due_at, last_plan = self._connection.execute(OUTCOMES, values).fetchone()
        self.is_anything_planned = last_plan is not None
        outcomes = _decode_outcomes(rows)
        return {outcome.reservation.reservation_id: outcome for outcome in outcomes}, next_due_at

    def limited(self, holds: list[Hold], outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
        """The outcomes of holds beyond the limit: unchanged, and when the next may be made."""
        if not holds:
            return {}
        until: list[tuple[str, int]] = msgspec.json.decode(self._value(LIMITED_UNTIL, holds))
        return {
            reservation_id: msgspec.structs.replace(
                outcomes[reservation_id], changed=False, limited_until=ends_at
            )
            for reservation_id, ends_at in until
        }

    def forget_plans(self, holds: list[Hold]) -> None:
        """Nothing is planned on a new hold."""
        self._changed(FORGET_PLANS, holds)

    def work(self, message: Claim | Purge | Probe) -> Result:
        """What is done for nobody in particular."""
        if type(message) is Probe:
            _touch(self._connection)
            return Probed()
        if type(message) is Purge:
            return purge_some(self._connection, message)
        assert isinstance(message, Claim)
        return self.claim(message)

    def claim(self, claim: Claim) -> list[Claimed]:
        """Count and lease attempts at what is due."""
        values: dict[str, Any] = self._shared | {
            "running": self._running,
            "limit": claim.limit,
            "lease_ms": claim.lease_ms,
        }
        values["ids"] = self._connection.execute(DUE, values).fetchone()[0]
        if values["ids"] == "[]":
            return []
        self._connection.execute(CLAIM, values)
        rows = _decode_rows(self._connection.execute(ROWS, values).fetchone()[0])
        return [Claimed(row, values["batch"], values["now"]) for row in rows]

    def _plan(self, plans: list[Plan]) -> dict[str, dict[str, Any]]:
        if not plans:
            return {}
        sorted_plans = msgspec.json.decode(self._value(SORT_PLANS, plans, events_max=EVENTS_MAX))
        verdicts = {key: PlanVerdict(verdict) for key, verdict in sorted_plans}
        changed = {PlanVerdict.NEW, PlanVerdict.REPLACED}
        done = [plans[key] for key, verdict in verdicts.items() if verdict in changed]
        self._changed(SCHEDULE_PUT, done)
        self._changed(PLAN_PUT, done)
        return {
            plans[key].id: {"changed": verdict in changed, "plan": verdict}
            for key, verdict in verdicts.items()
        }

    def _cancel(self, cancels: list[Cancel]) -> dict[str, dict[str, Any]]:
        ids = self._returned(SCHEDULE_DELETE, cancels)
        self._changed(PLAN, [cancel for cancel in cancels if cancel.id in ids])
        return {name: {"changed": True} for name in ids}

    def _fire(self, fires: list[Fire]) -> dict[str, dict[str, Any]]:
        """Once for each occurrence: what was recorded is planned anew, or gone, with it."""
        ids = self._returned(FIRE, fires)
        fired = [fire for fire in fires if fire.id in ids]
        for sql in (FIRE_ADVANCE, FIRE_DROP, PLAN_FIRED):
            self._changed(sql, fired)
        return {name: {"changed": True} for name in ids}

    def _returned(self, sql: str, messages: Sequence[StoreMessage]) -> set[str]:
        """The IDs for which one statement did something."""
        if not messages:
            return set()
        return {name for (name,) in self._connection.execute(sql, self._bind(messages)).fetchall()}

    def _sort(self, holds: list[Hold]) -> dict[str, list[Hold]]:
        """Who is renewed, held, limited or refused; anonymous holds need no sorting."""
        named = [hold for hold in holds if hold.holder]
        verdicts = {"held": [hold for hold in holds if not hold.holder]}
        if named:
            for key, verdict in msgspec.json.decode(self._value(SORT_NAMED, named)):
                verdicts.setdefault(verdict, []).append(named[key])
        return verdicts

    def _changed(self, sql: str, messages: Sequence[StoreMessage], **values: object) -> int:
        """How many rows one set-based statement changed; nothing to do is no statement."""
        if not messages:
            return 0
        return self._connection.execute(sql, self._bind(messages) | values).rowcount

    def _value(self, sql: str, messages: Sequence[StoreMessage], **values: object) -> str:
        bound = self._bind(messages) | values
        value: str = self._connection.execute(sql, bound).fetchone()[0]
        return value

    def _bind(self, messages: Sequence[StoreMessage]) -> dict[str, Any]:
        holders = [getattr(message, "holder", ANONYMOUS) for message in messages]
        return self._shared | {
            "messages": _encode(messages).decode(),
            "holders": b"".join([holder.ljust(DIGEST_BYTES, b"\0") for holder in holders]),
        }


def _running(messages: Sequence[StoreMessage]) -> list[str]:
    """What the batch's claim leaves out, if it has one."""
    claims = [message for message in messages if type(message) is Claim]
    return [reservation_id for claim in claims for reservation_id in claim.running]


def _of_nobody(messages: Sequence[StoreMessage]) -> list[Claim | Purge | Probe]:
    return [message for message in messages if isinstance(message, Claim | Purge | Probe)]


def _touch(connection: sqlite3.Connection) -> None:
    """Write the first page as it is: a transaction that wrote nothing would not need the disk."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.execute(f"PRAGMA user_version = {version:d}")


def _of(kind: type[K], messages: Sequence[StoreMessage]) -> list[K]:
    return [message for message in messages if type(message) is kind]


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
