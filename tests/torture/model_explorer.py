"""Walks through every state that small bounds allow, breadth first, on the product's statements.

A state is what is on the disk, what the dispatcher is at, and what may still go wrong. Every
transition of the database is run by the real transaction and compared with the specification;
beyond that the explorer looks at what no single step shows: an old attempt that touches a new
alarm, a count that goes back, an expiry that happens twice, an alarm that never fires.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from reservation_service.reservation import Cancel, Expire, Fire, Hold, Plan, Trigger
from reservation_service.store import Claim, Retry
from tests.torture import model_schedule
from tests.torture import model_specification as specification
from tests.torture.model_database import BATCH, Committed, Database
from tests.torture.model_judge import Met, differences
from tests.torture.model_state import (
    Attempt,
    Budget,
    State,
    after,
    alarm_of,
    canonical,
    tokens,
    with_due,
    with_phase,
    without,
)
from tests.torture.model_tables import Event, Look, Recovery, Request, Tables

RECOVERY = Recovery(first_ms=1, cap_ms=2)
STUCK_AFTER = 1
"""Failures that are recorded."""

_TRIES_MAX = 30
"""How often a dispatcher in peace looks before what is still planned is called stuck."""


@dataclass(frozen=True)
class Bounds:
    """How far to look. Times are in ticks of a millisecond."""

    requests: tuple[Request, ...]
    budget: Budget
    until: int = 5
    lease: int = 2
    delay: int = 1
    claim_limit: int = 2
    attempts_max: int = 3
    clock_jumps: tuple[int, ...] = (0,)
    states_max: int = 5_000_000


@dataclass
class Exploration:
    """What was found. `met` and `starts` are the transitions of the database, each once."""

    states: int = 0
    steps: int = 0
    is_complete: bool = False
    violations: dict[str, list[str]] = field(default_factory=dict)
    met: dict[Met, Committed] = field(default_factory=dict)
    starts: dict[tuple[Tables, int], Committed] = field(default_factory=dict)


class Explorer:
    """One exploration within `bounds`; without the specification only the long view is left."""

    def __init__(self, bounds: Bounds, database: Database, *, is_specified: bool = True) -> None:
        self._bounds = bounds
        self._database = database
        self._is_specified = is_specified
        self._found = Exploration()
        self._parents: dict[State, tuple[State, str] | None] = {}
        self._queue: deque[State] = deque()
        self._ends: dict[tuple[int, Tables], str] = {}

    def explore(self, *, stop_at_first: bool = False) -> Exploration:
        """Go on until every state was seen, until there are too many, or until one is broken."""
        found, bounds = self._found, self._bounds
        self._visit(State(1, Tables(), (), bounds.budget, frozenset()), None, "")
        while self._queue and found.states < bounds.states_max:
            if stop_at_first and found.violations:
                return found
            state = self._queue.popleft()
            for label, following in self._following(state):
                found.steps += 1
                self._visit(following, state, label)
            if state.now == bounds.until:
                self._come_to_rest(state)
        found.is_complete = not self._queue
        return found

    def _visit(self, state: State, parent: State | None, label: str) -> None:
        state = canonical(state)
        if state not in self._parents:
            self._parents[state] = None if parent is None else (parent, label)
            self._queue.append(state)
            self._found.states += 1

    def _following(self, state: State) -> Iterator[tuple[str, State]]:
        if state.now < self._bounds.until:
            yield "a tick", state._replace(now=state.now + 1)
        yield from self._requests(state)
        yield from self._claims(state)
        for attempt in state.attempts:
            yield from self._goes_on(state, attempt)
        yield from self._crashes(state)

    def _requests(self, state: State) -> Iterator[tuple[str, State]]:
        if state.budget.requests == 0:
            return
        poorer = state.budget._replace(requests=state.budget.requests - 1)
        for request in self._bounds.requests:
            message = _at(request, state)
            following = self._commit(state, message, f"{message}")
            if following.tables != state.tables:
                yield f"{message}", following._replace(budget=poorer)

    def _claims(self, state: State) -> Iterator[tuple[str, State]]:
        at_work = [one.id for one in state.attempts if one.phase != "echo"]
        room = self._bounds.attempts_max - len(at_work)
        if room <= 0:
            return
        limit = min(self._bounds.claim_limit, room)
        message = Look(limit, self._bounds.lease, tuple(sorted(set(at_work))))
        token = 1 + max(tokens(state), default=0)
        following = self._commit(state, message, "claim", batch=token)
        claimed = [row.id for row in following.tables.rows if row.alarm_claim == token]
        if claimed:
            new = tuple(Attempt(name, token, state.now, "ring") for name in claimed)
            label = f"claim {claimed}"
            yield label, following._replace(attempts=(*following.attempts, *new))

    def _goes_on(self, state: State, attempt: Attempt) -> Iterator[tuple[str, State]]:
        if attempt.phase == "fire":
            yield from self._fires(state, attempt)
            return
        if attempt.phase != "settle":
            yield from self._rings(state, attempt)
        if attempt.phase != "ring":
            yield from self._settles(state, attempt)

    def _rings(self, state: State, attempt: Attempt) -> Iterator[tuple[str, State]]:
        label = f"the alarm of {attempt.id} by claim {attempt.claim}"
        message = Expire(attempt.id, Trigger.ALARM)  # the count is told, and decides nothing
        rung = self._commit(state, message, label)
        if attempt.phase == "echo":
            yield f"{label}, again", without(rung, attempt)
            return
        row = rung.tables.row(attempt.id)
        is_settled = rung.tables != state.tables or row is None or row.alarm_claim is None
        if due := self._due(rung, attempt):
            yield f"{label}: there are events", with_due(rung, attempt, due)
        elif is_settled:
            yield from self._ends_or_echoes(rung, attempt, f"{label}: moved on")
        else:
            yield f"{label}: nothing due", with_phase(rung, attempt, failed=False)
        if state.budget.failures:
            poorer = state.budget._replace(failures=state.budget.failures - 1)
            yield f"{label}: fails", with_phase(state, attempt)._replace(budget=poorer)
            if is_settled:
                late = with_phase(rung, attempt)._replace(budget=poorer)
                yield f"{label}: done, but the dispatcher believes it failed", late

    def _due(self, state: State, attempt: Attempt) -> tuple[tuple[int, int], ...]:
        """What is due now, as the handler reads it."""
        if not state.tables.plans:
            return ()
        due = self._database.due(state.tables, attempt.id, state.now)
        expected = model_schedule.due(state.tables, attempt.id, state.now)
        if due != expected:
            self._complain(f"due of {attempt.id}: {due}, not {expected}", state, "a read")
        return tuple(due)

    def _fires(self, state: State, attempt: Attempt) -> Iterator[tuple[str, State]]:
        """One event after the other; one that fails stops no other."""
        (key, run_at), *left = attempt.due
        label = f"{attempt.id} fires {key} of {run_at} by claim {attempt.claim}"
        fired = self._commit(state, Fire(attempt.id, key, run_at), label)
        if left:
            yield label, with_due(fired, attempt, tuple(left))
        else:
            row = fired.tables.row(attempt.id)
            if attempt.failed or (row is not None and row.alarm_claim is not None):
                yield label, with_phase(fired, attempt, failed=attempt.failed)
            else:
                yield from self._ends_or_echoes(fired, attempt, label)
        if state.budget.failures:
            poorer = state.budget._replace(failures=state.budget.failures - 1)
            failed = with_due(state, attempt, tuple(left), failed=True)._replace(budget=poorer)
            if not left:
                failed = with_phase(state, attempt)._replace(budget=poorer)
            yield f"{label}: fails", failed

    def _settles(self, state: State, attempt: Attempt) -> Iterator[tuple[str, State]]:
        row = state.tables.row(attempt.id)
        is_recorded = attempt.failed and row is not None and row.alarm_attempts <= STUCK_AFTER
        message = Retry(
            attempt.id, attempt.claim, self._bounds.delay, attempt.seen, record=is_recorded
        )
        label = f"settle {attempt.id} by claim {attempt.claim}"
        settled = self._commit(state, message, label, settling=attempt)
        if attempt.phase == "echo":
            yield f"{label}, again", without(settled, attempt)
        else:
            yield from self._ends_or_echoes(settled, attempt, label)

    def _ends_or_echoes(
        self, state: State, attempt: Attempt, label: str
    ) -> Iterator[tuple[str, State]]:
        yield label, without(state, attempt)
        if state.budget.echoes:
            poorer = state.budget._replace(echoes=state.budget.echoes - 1)
            yield (
                f"{label}, an echo stays",
                with_phase(state, attempt, "echo")._replace(budget=poorer),
            )

    def _crashes(self, state: State) -> Iterator[tuple[str, State]]:
        if state.budget.crashes == 0:
            return
        poorer = state.budget._replace(crashes=state.budget.crashes - 1)
        for jump in self._bounds.clock_jumps:
            now = state.now + jump
            if not 1 <= now <= self._bounds.until:
                continue
            started = self._start(state, now)
            label = f"a crash, a start at {now}"
            yield label, started._replace(now=now, attempts=(), budget=poorer)

    def _commit(
        self,
        state: State,
        message: Request | Retry | Look,
        label: str,
        *,
        batch: int = BATCH,
        settling: Attempt | None = None,
    ) -> State:
        """The state after one message, compared with what it should be."""
        met = Met(state.tables, message, state.now, batch)
        committed = self._found.met.get(met)
        if committed is None:
            committed = self._database.commit(state.tables, [met.sent()], state.now, batch)
            self._found.met[met] = committed
            if self._is_specified:
                for complaint in differences(met, committed):
                    self._complain(complaint, state, label)
        for complaint in self._long_view(state, committed, message, settling):
            self._complain(complaint, state, label)
        return after(state, committed, is_fire=isinstance(message, Fire))

    def _start(self, state: State, now: int) -> State:
        key = state.tables, now
        if key not in self._found.starts:
            self._found.starts[key] = self._database.start(state.tables, now, RECOVERY)
        committed = self._found.starts[key]
        expected = specification.start(state.tables, now, RECOVERY)
        if committed.failure:
            self._complain(f"the start failed: {committed.failure}", state, "a start")
        if self._is_specified and committed.tables != expected:
            self._complain(f"{committed.tables} is not {expected}", state, "a start")
        for complaint in _counts_that_went_back(state.tables, committed.tables):
            self._complain(complaint, state, "a start")
        return state._replace(tables=committed.tables)

    def _long_view(
        self,
        state: State,
        committed: Committed,
        message: Request | Retry | Look,
        settling: Attempt | None,
    ) -> Iterator[str]:
        """What a single step cannot show, and what must be true of every state."""
        if committed.failure:
            yield f"refused by the schema: {committed.failure}"
        yield from specification.broken_rules(committed.tables)
        if not isinstance(message, Plan):  # one for the slot's own time is a new alarm
            yield from _counts_that_went_back(state.tables, committed.tables)
        for event in committed.events:
            row = state.tables.row(event.reservation)
            if event.planned is not None:
                yield from _misfired(state, event)
            if event.type != "expired":
                continue
            if event.reservation in state.expired:
                yield f"{event.reservation} expired twice"
            at = (isinstance(message, Expire) and message.now) or state.now
            if row is None or at < row.expires_at:
                yield f"{event.reservation} expired early"
        if isinstance(message, Look):
            yield from _claimed_at_work(state, committed.tables)
        if settling is not None and not settling.fresh and committed.tables != state.tables:
            yield f"an old attempt of {settling.id} touched a new alarm"

    def _come_to_rest(self, state: State) -> None:
        """Nothing goes wrong any more: whatever is planned fires in the end."""
        key = state.now, state.tables
        if key not in self._ends:
            self._ends[key] = self._rest(state)
        if self._ends[key]:
            self._complain(self._ends[key], state, "peace")

    def _rest(self, state: State) -> str:
        """Why something never fires, or nothing; a dispatcher with nothing to disturb it."""
        tables, now = _without_repeats(state.tables), state.now
        for _ in range(_TRIES_MAX):
            due = [
                row.alarm_dispatch_at for row in tables.rows if row.alarm_dispatch_at is not None
            ]
            if not due:
                return ""
            now = max(now, min(due))
            claim = Claim(len(due), self._bounds.lease, [])
            tables = self._database.commit(tables, [claim], now, BATCH + now).tables
            for row in tables.rows:
                if row.alarm_claim == BATCH + now:
                    message = Expire(row.id, Trigger.ALARM)
                    tables = self._database.commit(tables, [message], now).tables
                    tables = self._fire_all(tables, row.id, now)
        return f"never fires: {tables.rows} {tables.plans}"

    def _fire_all(self, tables: Tables, name: str, now: int) -> Tables:
        for key, run_at in model_schedule.due(tables, name, now):
            tables = self._database.commit(tables, [Fire(name, key, run_at)], now).tables
        return tables

    def _complain(self, what: str, state: State, label: str) -> None:
        self._found.violations.setdefault(what, [*self._trace(state), label])

    def _trace(self, state: State) -> list[str]:
        steps = []
        step = self._parents.get(canonical(state))
        while step is not None:
            state, label = step
            steps.append(f"at {state.now}: {label}")
            step = self._parents.get(canonical(state))
        return steps[::-1]


def _at(request: Request, state: State) -> Request:
    """A request as it is sent now: a replay's time and a generation are relative in the bounds."""
    if isinstance(request, Expire):
        assert request.now is not None
        return replace(request, now=state.now + request.now)
    if isinstance(request, Plan):
        request = replace(request, run_at=max(1, state.now + request.run_at))
    if isinstance(request, Hold | Cancel | Fire) or request.generation is None:
        return request
    row = state.tables.row(request.id)
    return replace(request, generation=request.generation + (row.generation if row else 1))


def _without_repeats(tables: Tables) -> Tables:
    """What would go on for ever happens once more."""
    plans = [one._replace(repeat_ms=None, first_at=one.run_at) for one in tables.plans]
    return tables.with_plans(plans)


def _misfired(state: State, event: Event) -> Iterator[str]:
    at = event.data["scheduledTime"]
    if (event.planned, at) in state.happened:
        yield f"{event.data['eventId']} of {event.reservation} happened twice"
    if at > state.now:
        yield f"{event.data['eventId']} of {event.reservation} happened early"


def _claimed_at_work(state: State, after: Tables) -> Iterator[str]:
    for one in state.attempts:
        before, now = state.tables.row(one.id), after.row(one.id)
        if one.fresh and one.phase != "echo" and now is not None and before != now:
            yield f"{one.id} was claimed while its attempt is at work"


def _counts_that_went_back(before: Tables, after: Tables) -> Iterator[str]:
    for row in before.rows:
        now = after.row(row.id)
        if now is None:
            yield f"{row.id} is gone"
        elif alarm_of(row) == alarm_of(now) and now.alarm_attempts < row.alarm_attempts:
            yield f"{row.id}: attempt {row.alarm_attempts} became {now.alarm_attempts}"
