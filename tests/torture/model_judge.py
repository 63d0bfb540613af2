"""Compares what a statement did with what the specification says."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reservation_service.reservation import Outcome, Reservation
from reservation_service.store import Claim, Claimed, Result, Retry, StoreMessage
from tests.torture import model_specification as specification
from tests.torture.model_database import Committed
from tests.torture.model_tables import Look, Request, Row, Step, Tables


class Met(NamedTuple):
    """One message in one state of the tables, at one time, in a batch of this number."""

    tables: Tables
    message: Request | Retry | Look
    now: int
    batch: int

    def sent(self) -> StoreMessage:
        """The message as the store takes it."""
        if isinstance(self.message, Look):
            return Claim(*self.message[:2], list(self.message.running))
        return self.message


def differences(met: Met, committed: Committed) -> Iterator[str]:
    """Where a message did anything else than what it should; none when all is well."""
    if committed.failure:
        yield f"{met.message} was refused: {committed.failure}"
    elif isinstance(met.message, Look):
        yield from _claim_differences(met, met.message, committed)
    else:
        step = specification.tell(met.tables, met.message, met.now)
        yield from _step_differences(met, step, committed)
        yield from _outcome_differences(met, step, committed.results[0])


def _step_differences(met: Met, step: Step, committed: Committed) -> Iterator[str]:
    for row, expected in _pairs(committed.tables, step.tables):
        if row != expected:
            yield f"{met.message} at {met.now}: {_told(row, expected)}"
    if committed.tables.rejections != step.tables.rejections:
        yield f"{met.message}: {committed.tables.rejections} is not {step.tables.rejections}"
    for name in ("plans", "last_key"):
        mine, expected_ones = getattr(committed.tables, name), getattr(step.tables, name)
        if mine != expected_ones:
            yield f"{met.message} at {met.now}: {name} {mine}, not {expected_ones}"
    if committed.events != step.events:
        yield f"{met.message} at {met.now} wrote {committed.events}, not {step.events}"
    yield from _head_differences(met, step.tables, committed, ())


def _outcome_differences(met: Met, step: Step, result: Result) -> Iterator[str]:
    assert isinstance(result, Outcome)
    assert not isinstance(met.message, Look)
    row = step.tables.row(met.message.id)
    yield from _shown_differences(row, result.reservation)
    if result.changed != step.changed:
        yield f"{met.message} says changed={result.changed}"
    if result.plan != step.plan:
        yield f"{met.message} says plan={result.plan}, not {step.plan}"
    if result.limited_until != step.limited_until:
        yield f"{met.message} is limited until {result.limited_until}, not {step.limited_until}"
    holder = getattr(met.message, "holder", None)
    if holder is not None and result.is_own != (row is not None and row.holder == holder):
        yield f"{met.message} says is_own={result.is_own} of {row}"
    if result.now != met.now:
        yield f"{met.message} says now={result.now} at {met.now}"


def _claim_differences(met: Met, look: Look, committed: Committed) -> Iterator[str]:
    taken = {row.id for row in committed.tables.rows if row.alarm_claim == met.batch}
    allowed = specification.may_be_claimed(met.tables, look, met.now)
    if taken not in allowed:
        yield f"{look} at {met.now} took {sorted(taken)} of {met.tables.rows}"
        return
    expected = specification.claim(met.tables, taken, look, met.now, met.batch)
    if committed.tables != expected:
        yield f"{look} at {met.now} left {committed.tables.rows}, not {expected.rows}"
    if committed.events:
        yield f"{look} wrote {committed.events}"
    yield from _claimed_differences(met, expected, committed.results[0], taken)
    yield from _head_differences(met, expected, committed, look.running)


def _claimed_differences(
    met: Met, expected: Tables, result: Result, taken: set[str]
) -> Iterator[str]:
    assert isinstance(result, list)
    if sorted(one.id for one in result) != sorted(taken):
        yield f"a claim took {sorted(taken)} and says {result}"
    for one in result:
        assert isinstance(one, Claimed)
        if (one.claim, one.claimed_at) != (met.batch, met.now):
            yield f"claim {one.claim} at {one.claimed_at}, not {met.batch} at {met.now}"
        row = expected.row(one.id)
        told = one.generation, one.alarm_at, one.attempts
        if row is None or told != (row.generation, row.alarm_at, row.alarm_attempts):
            yield f"{one} is told for {row}"


def _head_differences(
    met: Met, tables: Tables, committed: Committed, running: Sequence[str]
) -> Iterator[str]:
    head = specification.next_due(tables, running, met.now)
    if committed.next_due_at != head:
        yield f"{met.message}: next due at {committed.next_due_at}, not {head}"


def _shown_differences(row: Row | None, shown: Reservation) -> Iterator[str]:
    if row is None:
        if (shown.status, shown.generation) != ("missing", 0):
            yield f"{shown} is shown, and there is no row"
        return
    expected = Reservation(
        row.id,
        shown.status,
        row.generation,
        row.created_at,
        row.expires_at,
        row.expired_at,
        row.confirmed_at,
        row.released_at,
        row.expiration_count,
        row.alarm_at,
        row.alarm_attempts,
        row.alarm_claim is not None,
    )
    if shown != expected or shown.status != row.status:
        yield f"{shown} is shown for {row}"


def _pairs(one: Tables, other: Tables) -> Iterator[tuple[Row | None, Row | None]]:
    for name in sorted({row.id for row in (*one.rows, *other.rows)}):
        yield one.row(name), other.row(name)


def _told(row: Row | None, expected: Row | None) -> str:
    """The columns that differ."""
    if row is None or expected is None:
        return f"{row} is not {expected}"
    different = [
        f"{name}={mine!r} is not {theirs!r}"
        for name, mine, theirs in zip(Row._fields, row, expected, strict=True)
        if mine != theirs
    ]
    return f"{row.id}: {', '.join(different)}"
