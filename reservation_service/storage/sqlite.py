"""The SQLite engine: one set-based statement per kind of message, one transaction per batch.

The statements are those of the slot protocol (docs/architecture.md): held means that the slot is
set, the effect itself clears or moves the slot, and an old claim never touches a new alarm.
"""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from reservation_service.clock import Clock
from reservation_service.errors import (
    DatabaseUnusable,
    MessageFailed,
    OutcomeUnknown,
    ServiceError,
)
from reservation_service.reservation import (
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
)
from reservation_service.storage.sqlite_alarms import (
    CLAIM,
    DUE,
    NEXT_DUE,
    RECORD_FAILED,
    RETRY,
    wait_for_claims,
)
from reservation_service.storage.sqlite_bookings import (
    CONFIRM,
    EXPIRE,
    EXTEND,
    HOLD,
    LIMITED_UNTIL,
    RECORD,
    RECORD_EXPIRED,
    RECORD_REJECTED,
    RELEASE,
    REMEMBER_REJECTED,
    RENEW,
    SORT_NAMED,
)
from reservation_service.storage.sqlite_errors import failure_before_commit, failure_of_commit
from reservation_service.storage.sqlite_files import inode
from reservation_service.storage.sqlite_messages import MESSAGES, MessageTable, Span
from reservation_service.storage.sqlite_purge import purge_some
from reservation_service.storage.sqlite_reads import ROW
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
from reservation_service.storage.sqlite_upkeep import touch
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
    coalesce(r.batch = :batch, 0), coalesce(r.holder = m.holder, 0), :now, {ROW},
    CASE WHEN r.holder IS m.holder THEN '' ELSE hex(r.holder) END)),
    ({NEXT_DUE}), (SELECT max(id) FROM schedule)
FROM ({MESSAGES}) AS m LEFT JOIN reservation AS r ON r.id = m.id
"""  # noqa: S608 - a constant, no input in it

START_EPOCH = """
UPDATE namespace SET epoch = epoch + 1 RETURNING epoch, destroyed_at IS NOT NULL
"""

_BATCHES_PER_EPOCH = 1 << 32
_encode = msgspec.json.Encoder().encode
_decode_due = msgspec.json.Decoder(list[tuple[str, int, int, int]]).decode
_decode_outcomes = msgspec.json.Decoder(list[Outcome], strict=False).decode


NOBODYS = (Claim, Purge, Probe)
"""Messages that are no reservation's."""

Told = dict[str, dict[str, Any]]
"""By ID, the fields of an outcome that its row does not show."""

K = TypeVar("K", Hold, Expire, Extend, Confirm, Release, Plan, Cancel, Fire, Retry)


class BatchTransaction:
    """Runs one batch as one transaction on the writer's connection, on whatever thread calls it.

    `epoch` is this start's number. The file at `database`, None when it is in memory, is compared
    by inode before each COMMIT: a deleted file would go on answering and lose all at exit.
    """

    def __init__(self, clock: Clock, database: Path | None, epoch: int) -> None:
        self._clock = clock
        self._file = None if database is None else str(database)
        self._inode = inode(self._file) if self._file else 0
        self._batch = epoch * _BATCHES_PER_EPOCH
        self._ended: ServiceError | None = None

    def __call__(
        self, connection: sqlite3.Connection, messages: Sequence[StoreMessage]
    ) -> tuple[list[Result], int | None]:
        """The results in the messages' order, and when the next alarm is due (epoch ms).

        IDs that a claim of the batch left out have no part in the latter. After a fatal error
        nothing is tried any more: a commit behind one whose sync has failed may look durable.
        """
        if self._ended is not None:
            raise type(self._ended) from self._ended.__cause__
        try:
            return self._transact(connection, messages)
        except ServiceError as error:
            self._ended = error if error.fatal else None
            raise
        except BaseException:
            self._ended = OutcomeUnknown()
            raise

    def _transact(
        self, connection: sqlite3.Connection, messages: Sequence[StoreMessage]
    ) -> tuple[list[Result], int | None]:
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
        """Kind by kind; nobody's messages last, so that they see what the batch's others did."""
        of: defaultdict[type, list[Any]] = defaultdict(list)
        for message in messages:
            of[type(message)].append(message)
        wait_for_claims(of[Claim], self._clock)
        now = self._clock.now()
        table = MessageTable(connection, of)
        run = _Statements(connection, table, now, self._batch, of[Claim])
        told: Told = {}
        for kind, span in table.spans.items():
            told.update(_STEPS[kind](run, of[kind], span) or ())
        others = {id(message): run.work(message) for kind in NOBODYS for message in of[kind]}
        told.update(run.limited())
        outcomes, next_due_at = run.outcomes()
        for name, more in told.items():
            outcomes[name] = msgspec.structs.replace(outcomes[name], **more)
        if run.is_anything_planned and Hold in table.spans:
            run.forget_plans(table.spans[Hold])
        results = [others[id(m)] if m.id is None else outcomes[m.id] for m in messages]
        return results, next_due_at

    def _require_same_file(self) -> None:
        if self._file and inode(self._file) != self._inode:
            raise DatabaseUnusable


class _Statements:
    """The statements of one batch; `now` is the transaction's time, `batch` its number."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        table: MessageTable,
        now: int,
        batch: int,
        claims: Sequence[Claim],
    ) -> None:
        self._connection = connection
        self._table = table
        self._shared: dict[str, Any] = {"now": now, "batch": batch}
        running = [reservation_id for claim in claims for reservation_id in claim.running]
        self._running = _encode(running).decode()
        self._limited: list[Hold] = []
        self.is_anything_planned = True

    def expire(self, span: Span) -> None:
        """Expire what is over, and write how late and how often tried it was."""
        if self._changed(EXPIRE, span):
            self._changed(RECORD_EXPIRED, span)

    def record(self, sql: str, span: Span, event: str) -> None:
        """Change rows, and write an event for each row changed."""
        if self._changed(sql, span):
            self._changed(RECORD, span, type=event)

    def hold(self, holds: list[Hold], span: Span) -> None:
        """New holds, resets and renewals; what is overdue is expired before it is taken over."""
        verdicts = self._sort(holds, span)
        self.record(RENEW, self._part(verdicts["renewed"], holds, span), "renewed")
        self.record(HOLD, self._part(verdicts["held"], holds, span), "held")
        self._limited = verdicts["limited"]

    def confirm(self, span: Span) -> None:
        """Confirm, and record once what came too late."""
        self.record(CONFIRM, span, "confirmed")
        if self._changed(RECORD_REJECTED, span):
            self._changed(REMEMBER_REJECTED, span)

    def plan(self, plans: list[Plan], span: Span) -> Told:
        """Plan events, as far as there may be more."""
        sorted_plans = msgspec.json.decode(self._value(SORT_PLANS, span, events_max=EVENTS_MAX))
        verdicts = {key: PlanVerdict(verdict) for key, verdict in sorted_plans}
        changed = {PlanVerdict.NEW, PlanVerdict.REPLACED}
        done = [plans[key] for key, verdict in verdicts.items() if verdict in changed]
        part = self._part(done, plans, span)
        self._changed(SCHEDULE_PUT, part)
        self._changed(PLAN_PUT, part)
        return {
            plans[key].id: {"changed": verdict in changed, "plan": verdict}
            for key, verdict in verdicts.items()
        }

    def cancel(self, cancels: list[Cancel], span: Span) -> Told:
        """Take events off."""
        ids = self._returned(SCHEDULE_DELETE, span)
        done = [cancel for cancel in cancels if cancel.id in ids]
        self._changed(PLAN, self._part(done, cancels, span))
        return {name: {"changed": True} for name in ids}

    def fire(self, fires: list[Fire], span: Span) -> Told:
        """Once for each occurrence: what was recorded is planned anew, or gone, with it."""
        ids = self._returned(FIRE, span)
        done = self._part([fire for fire in fires if fire.id in ids], fires, span)
        for sql in (FIRE_ADVANCE, FIRE_DROP, PLAN_FIRED):
            self._changed(sql, done)
        return {name: {"changed": True} for name in ids}

    def retry(self, span: Span) -> None:
        """Settle attempts whose claim still stands, and record the failures among them."""
        self._changed(RECORD_FAILED, span)
        self._changed(RETRY, span)

    def outcomes(self) -> tuple[dict[str, Outcome], int | None]:
        """The rows of all messages as they are now, which of them this batch changed, and
        the head of the due index: one statement, since each costs the event loop a pause."""
        values = self._bind(self._table.all) | {"running": self._running}
        rows, next_due_at, last_plan = self._connection.execute(OUTCOMES, values).fetchone()
        self.is_anything_planned = last_plan is not None
        outcomes = _decode_outcomes(rows)
        return {outcome.reservation.reservation_id: outcome for outcome in outcomes}, next_due_at

    def limited(self) -> Told:
        """What holds beyond their holder's limit are told, by ID: when the next may be made."""
        if not self._limited:
            return {}
        until: list[tuple[str, int]] = msgspec.json.decode(
            self._value(LIMITED_UNTIL, self._table.put(self._limited))
        )
        return {name: {"changed": False, "limited_until": ends_at} for name, ends_at in until}

    def forget_plans(self, span: Span) -> None:
        """Nothing is planned on a new hold."""
        self._changed(FORGET_PLANS, span)

    def work(self, message: Claim | Purge | Probe) -> Result:
        """What is done for nobody in particular."""
        if type(message) is Probe:
            touch(self._connection)
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
        values["rows"], due = self._connection.execute(DUE, values).fetchone()
        if due == "[]":
            return []
        self._connection.execute(CLAIM, values)
        batch, now = self._shared["batch"], self._shared["now"]
        return [Claimed(*one, batch, now) for one in _decode_due(due)]

    def _sort(self, holds: list[Hold], span: Span) -> dict[str, list[Hold]]:
        """Who is renewed, held, limited or refused; anonymous holds need no sorting."""
        anonymous = [hold for hold in holds if not hold.holder]
        is_any_over = bool(anonymous)  # nobody has looked
        verdicts = {"renewed": [], "held": anonymous, "limited": [], "refused": []}
        if len(anonymous) < len(holds):
            found = msgspec.json.decode(self._value(SORT_NAMED, span))
            is_any_over = is_any_over or any(is_over for *_, is_over in found)
            for key, verdict in limit_holds(holds, found):
                verdicts[verdict].append(holds[key])
        if is_any_over:
            self.expire(span)
        return verdicts

    def _part(self, some: Sequence[K], those: Sequence[K], span: Span) -> Span:
        """Where some of those messages are that are in the table at `span`."""
        return span if len(some) == len(those) else self._table.put(some)

    def _returned(self, sql: str, span: Span) -> set[str]:
        """The IDs for which one statement did something."""
        return {name for (name,) in self._connection.execute(sql, self._bind(span)).fetchall()}

    def _changed(self, sql: str, span: Span, **values: object) -> int:
        """How many rows one set-based statement changed; nothing to do is no statement."""
        if not span:
            return 0
        return self._connection.execute(sql, self._bind(span) | values).rowcount

    def _value(self, sql: str, span: Span, **values: object) -> str:
        value: str = self._connection.execute(sql, self._bind(span) | values).fetchone()[0]
        return value

    def _bind(self, span: Span) -> dict[str, Any]:
        return self._shared | {"first": span.first, "last": span.last}


_STEPS: Mapping[type, Callable[[_Statements, list[Any], Span], Told | None]] = {
    Expire: lambda run, _, span: run.expire(span),
    Hold: lambda run, holds, span: run.hold(holds, span),
    Extend: lambda run, _, span: run.record(EXTEND, span, "extended"),
    Confirm: lambda run, _, span: run.confirm(span),
    Release: lambda run, _, span: run.record(RELEASE, span, "released"),
    Plan: lambda run, plans, span: run.plan(plans, span),
    Cancel: lambda run, cancels, span: run.cancel(cancels, span),
    Fire: lambda run, fires, span: run.fire(fires, span),
    Retry: lambda run, _, span: run.retry(span),
}
"""What is done with the messages of each kind."""


def limit_holds(
    holds: Sequence[Hold], found: Sequence[tuple[int, str, int | None, int]]
) -> Iterator[tuple[int, str]]:
    """Whose hold is one too many: a holder's holds that meet in one batch do not see each other.

    `found` has of each named hold its place, its verdict, how many its holder has already, None
    for any number, and whether it takes over what is overdue.
    """
    new: Counter[bytes] = Counter()
    for key, verdict, has, _ in found:
        hold = holds[key]
        is_limited = False
        if verdict == "held" and has is not None:
            new[hold.holder] += 1
            is_limited = has + new[hold.holder] > hold.max_per_holder
        yield key, "limited" if is_limited else verdict


def roll_back(connection: sqlite3.Connection) -> None:
    """Leave no transaction open; some errors have rolled back already."""
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            if connection.in_transaction:
                raise
