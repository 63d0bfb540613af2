"""What the explorer's states are made of, and how one follows from another."""

from typing import NamedTuple

from tests.torture.model_database import Committed
from tests.torture.model_specification import Row, Tables


class Attempt(NamedTuple):
    """One claimed alarm. `phase`: `ring` its handler is next, `settle` only its settle is, `echo`
    it is over, and may come again. It is fresh while the row's slot is still what it claimed.
    """

    id: str
    claim: int
    seen: int
    phase: str
    fresh: bool = True
    failed: bool = False


class Budget(NamedTuple):
    """How often the world may still act: requests, failing handlers, crashes, echoes."""

    requests: int
    failures: int
    crashes: int
    echoes: int


class State(NamedTuple):
    """Everything; `expired` are the reservations whose hold has expired already."""

    now: int
    tables: Tables
    attempts: tuple[Attempt, ...]
    budget: Budget
    expired: frozenset[str]


def after(state: State, committed: Committed) -> State:
    """The state with what one message did; who still is at the alarm that it claimed is fresh."""
    expired = set(state.expired)
    for event in committed.events:
        if event.type == "held":
            expired.discard(event.reservation)
        elif event.type == "expired":
            expired.add(event.reservation)
    attempts = tuple(
        one._replace(
            fresh=one.fresh
            and _is_same_claim(state.tables.row(one.id), committed.tables.row(one.id))
        )
        for one in state.attempts
    )
    return state._replace(tables=committed.tables, attempts=attempts, expired=frozenset(expired))


def _is_same_claim(before: Row | None, after: Row | None) -> bool:
    """The alarm is the one that it was, and nobody has claimed it since."""
    if before is None or after is None:
        return False
    return alarm_of(before) == alarm_of(after) and after.alarm_attempts <= before.alarm_attempts


def alarm_of(row: Row) -> tuple[int, int | None]:
    return row.generation, row.alarm_at


def without(state: State, attempt: Attempt) -> State:
    left = list(state.attempts)
    left.remove(_same(state, attempt))
    return state._replace(attempts=tuple(left))


def with_phase(
    state: State, attempt: Attempt, phase: str = "settle", *, failed: bool = True
) -> State:
    """The state with this attempt further on; an echo has no claim that could still stand."""
    now = _same(state, attempt)
    changed = now._replace(phase=phase, failed=failed, fresh=now.fresh and phase != "echo")
    left = without(state, attempt)
    return left._replace(attempts=(*left.attempts, changed))


def _same(state: State, attempt: Attempt) -> Attempt:
    """The attempt as it is in this state: what it claimed may have been set anew."""
    return next(one for one in state.attempts if one[:4] == attempt[:4])


def tokens(state: State) -> set[int]:
    claims = {row.alarm_claim for row in state.tables.rows if row.alarm_claim is not None}
    return claims | {one.claim for one in state.attempts}


def canonical(state: State) -> State:
    """One state for all that differ in nothing that matters: names of claims, times long past."""
    names = {token: n for n, token in enumerate(sorted(tokens(state)), 1)}
    rows = tuple(_forget(row, names, state.now) for row in state.tables.rows)
    generations = {row.id: row.generation for row in rows}
    rejections = tuple(
        one for one in state.tables.rejections if one.generation == generations[one.reservation]
    )
    attempts = tuple(sorted(one._replace(claim=names[one.claim]) for one in state.attempts))
    return state._replace(tables=Tables(rows, rejections), attempts=attempts)


def _forget(row: Row, names: dict[int, int], now: int) -> Row:
    """What was held until later than now keeps its deadline though it has ended."""
    if row.alarm_claim is not None:
        row = row._replace(alarm_claim=names[row.alarm_claim])
    if row.status == "held":
        return row
    if row.expires_at <= now:
        row = row._replace(created_at=0, expires_at=1)
    return row._replace(
        expired_at=None if row.expired_at is None else 1,
        confirmed_at=None if row.confirmed_at is None else 1,
        released_at=None if row.released_at is None else 1,
    )
