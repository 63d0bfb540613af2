"""What the explorer's states are made of, and how one follows from another."""

from typing import NamedTuple

from tests.torture.model_database import Committed
from tests.torture.model_tables import Row, Tables


class Attempt(NamedTuple):
    """One claimed alarm. `phase`: `ring` its handler is next, `fire` it is at the events that are
    `due`, `settle` only its settle is, `echo` it is over, and may come again. It is fresh while the
    row's slot is still what it claimed, or what its events have moved it to.
    """

    id: str
    claim: int
    seen: int
    phase: str
    fresh: bool = True
    failed: bool = False
    due: tuple[tuple[int, int], ...] = ()


class Budget(NamedTuple):
    """How often the world may still act: requests, failing handlers, crashes, echoes."""

    requests: int
    failures: int
    crashes: int
    echoes: int


class State(NamedTuple):
    """Everything; `expired` are the reservations whose hold has expired already, `happened` the
    occurrences of plans that somebody still knows of.
    """

    now: int
    tables: Tables
    attempts: tuple[Attempt, ...]
    budget: Budget
    expired: frozenset[str]
    happened: frozenset[tuple[int, int]] = frozenset()


def after(state: State, committed: Committed, *, is_fire: bool = False) -> State:
    """The state with what one message did; who still is at the alarm that it claimed is fresh."""
    expired, happened = set(state.expired), set(state.happened)
    for event in committed.events:
        if event.planned is not None:
            happened.add((event.planned, event.data["scheduledTime"]))
        if event.type == "held":
            expired.discard(event.reservation)
        elif event.type == "expired":
            expired.add(event.reservation)
    attempts = tuple(
        one._replace(
            fresh=one.fresh
            and _is_same_claim(
                state.tables.row(one.id), committed.tables.row(one.id), may_move=is_fire
            )
        )
        for one in state.attempts
    )
    return state._replace(
        tables=committed.tables,
        attempts=attempts,
        expired=frozenset(expired),
        happened=frozenset(happened),
    )


def _is_same_claim(before: Row | None, after: Row | None, *, may_move: bool) -> bool:
    """The alarm is the one that it was, and nobody has claimed it since."""
    if before is None or after is None:
        return False
    if may_move and after.alarm_claim is not None and after.alarm_claim == before.alarm_claim:
        return True
    if before.alarm_claim is not None and after.alarm_claim is None:  # it was set anew
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
    changed = now._replace(phase=phase, failed=failed, fresh=now.fresh and phase != "echo", due=())
    left = without(state, attempt)
    return left._replace(attempts=(*left.attempts, changed))


def with_due(
    state: State, attempt: Attempt, due: tuple[tuple[int, int], ...], *, failed: bool = False
) -> State:
    """The state with these events still to be fired by this attempt."""
    now = _same(state, attempt)
    changed = now._replace(phase="fire", due=due, failed=now.failed or failed)
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
    keys = {key: n for n, key in enumerate(sorted(_keys(state)), 1)}
    attempts = tuple(
        sorted(
            one._replace(claim=names[one.claim], due=tuple((keys[key], at) for key, at in one.due))
            for one in state.attempts
        )
    )
    plans = tuple(sorted(one._replace(key=keys[one.key]) for one in state.tables.plans))
    return state._replace(
        tables=Tables(rows, rejections, plans, len(keys)),
        attempts=attempts,
        happened=frozenset((keys[key], at) for key, at in state.happened if key in keys),
    )


def _keys(state: State) -> set[int]:
    """The numbers of plans that somebody still knows of."""
    told = {key for one in state.attempts for key, _ in one.due}
    return told | {one.key for one in state.tables.plans}


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
