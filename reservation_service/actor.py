"""One actor per reservation ID: one message at a time, in order; different IDs in parallel.

A turn is one `store.apply`. An actor is no more than a name and its place in the queue: the row is
the state, so memory grows with the calls at work and not with the number of reservations.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from reservation_service.errors import MessageFailed
from reservation_service.refusals import (
    NotYourHold,
    Refused,
    why_not_cancelled,
    why_not_confirmed,
    why_not_extended,
    why_not_held,
    why_not_planned,
    why_not_released,
)
from reservation_service.reservation import (
    AlarmInfo,
    Cancel,
    Confirm,
    Expire,
    Extend,
    Fire,
    Hold,
    HoldLimits,
    Message,
    Outcome,
    Plan,
    Release,
    Reservation,
    Schedule,
    Status,
    Trigger,
)
from reservation_service.store import ScheduleQuery, Store

M = TypeVar("M", Extend, Confirm, Release, Plan, Cancel)


class ReservationActor:
    """The reservation with one ID. What it refuses, it refuses by raising Refused.

    `holder` is the digest of whoever asks; a `generation` other than the row's is refused.
    """

    __slots__ = ("_id", "_limits", "_store", "_turns")

    def __init__(
        self, reservation_id: str, store: Store, limits: HoldLimits, turns: "_Turns"
    ) -> None:
        self._id = reservation_id
        self._store = store
        self._limits = limits
        self._turns = turns

    async def status(self) -> Reservation:
        """The row as committed; reading is no turn and changes nothing."""
        return await self._store.read(self._id)

    async def hold(self, ttl_ms: int, holder: bytes) -> Reservation:
        """Hold for `ttl_ms`, anew or again; a named holder's own live hold is renewed."""
        limits = self._limits
        message = Hold(self._id, ttl_ms, limits.max_hold_ms, limits.max_per_holder, holder)
        outcome = await self._take_turn(message)
        if not outcome.changed:
            raise why_not_held(outcome)
        return outcome.reservation

    async def extend(self, ttl_ms: int, holder: bytes, generation: int | None) -> Outcome:
        """Move the deadline to `ttl_ms` from now; unchanged when it is later already."""
        message = Extend(self._id, ttl_ms, self._limits.max_hold_ms, holder, generation)
        return await self._ask(message, why_not_extended)

    async def confirm(
        self, holder: bytes, generation: int | None, *, if_still_free: bool
    ) -> Outcome:
        """Keep the thing for good; late too, if asked and while nobody has taken it."""
        message = Confirm(self._id, holder, generation, if_still_free)
        return await self._ask(message, why_not_confirmed)

    async def release(self, holder: bytes, generation: int | None, *, operator: bool) -> Outcome:
        """Give the hold up; an operator may also give up what was confirmed."""
        message = Release(self._id, holder, generation, operator)
        return await self._ask(message, why_not_released)

    async def plan(self, event: Plan) -> Outcome:
        """Plan an event on this reservation, or plan the one of this name anew."""
        return await self._ask(event, why_not_planned)

    async def cancel(self, event_id: str, holder: bytes, *, operator: bool) -> Outcome:
        """Take a planned event off the schedule, an operator off anybody's."""
        return await self._ask(Cancel(self._id, event_id, holder, operator), why_not_cancelled)

    async def schedule(self, holder: bytes, *, operator: bool) -> Schedule:
        """What is planned, for its holder and operators alone; reading is no turn."""
        schedule = await self._store.schedule(ScheduleQuery(self._id, holder))
        row = schedule.reservation
        is_allowed = schedule.is_own or operator
        if not is_allowed and row.status is not Status.MISSING:
            raise NotYourHold(row)
        return schedule

    async def alarm(self, info: AlarmInfo, expiry: Awaitable[Outcome] | None = None) -> Outcome:
        """All of one attempt; `info` tells which it is.

        The expiry comes first, so that no event can keep it from happening. The alarm clock has
        begun it already, as a rule, and calls this only where that does not end the attempt. Every
        effect decides itself whether it has already happened.
        """
        if expiry is None:
            expiry = self.process_expiry(retry_count=info.retry_count)
        outcome = await expiry
        return await self._fire_due(outcome, info) if outcome.leaves_due else outcome

    def begin_expiry(
        self, retry_count: int, then: Callable[[asyncio.Future[Outcome]], object]
    ) -> asyncio.Future[Outcome] | None:
        """The first step of an attempt, for which no task is needed; `then` is called at its end.

        None, and nothing is begun, when others are at work: `alarm` waits for its turn. Raises
        what the store raises at once.
        """
        message = Expire(self._id, Trigger.ALARM, None, retry_count)
        if self._turns.is_taken(self._id):
            return None
        expiry = asyncio.ensure_future(self._store.apply(message))  # no turn is taken if it raises
        turn = self._turns.enter(self._id, message)
        assert turn is None

        def end(expiry: asyncio.Future[Outcome]) -> None:
            self._turns.leave(self._id)
            then(expiry)

        expiry.add_done_callback(end)
        return expiry

    async def process_expiry(self, now: int | None = None, retry_count: int = 0) -> Outcome:
        """Expire the hold if it is over, by the one message of the alarm and of its replay.

        Without `now` it is the alarm, judged by the transaction's own time; a replay gives one.
        """
        trigger = Trigger.ALARM if now is None else Trigger.REPLAY
        return await self._take_turn(Expire(self._id, trigger, now, retry_count))

    async def _fire_due(self, outcome: Outcome, info: AlarmInfo) -> Outcome:
        """Each due event on its own and in planned order: one that fails stops none of the others.

        Returns the last outcome, changed if any was; raises the first failure when all are through.
        """
        schedule = await self._store.schedule(ScheduleQuery(self._id, is_due_only=True))
        failures: list[MessageFailed] = []
        has_changed = False
        for event in schedule.events:
            fire = Fire(self._id, event.key, event.run_at, info.retry_count)
            try:
                outcome = await self._take_turn(fire)
            except MessageFailed as failure:
                failures.append(failure)
            has_changed = has_changed or outcome.changed
        if failures:
            raise failures[0]
        return replace(outcome, changed=has_changed)

    async def _ask(self, message: M, why_not: Callable[[M, Outcome], Refused | None]) -> Outcome:
        outcome = await self._take_turn(message)
        if not outcome.changed and (refused := why_not(message, outcome)):
            raise refused
        return outcome

    async def _take_turn(self, message: Message) -> Outcome:
        """The outcome of a turn of its own, or of one that it waited for and that settled it."""
        waiting = 0
        if (turn := self._turns.enter(self._id, message)) is not None:
            settled = await self._turns.wait(self._id, turn)
            if settled is not None:
                return settled
            waiting = self._turns.count_waiting(self._id)
        try:
            outcome = await self._store.apply(message)
            if waiting:
                self._turns.settle(self._id, waiting, message, outcome)
            return outcome
        finally:
            self._turns.leave(self._id)


class ReservationNamespace:
    """All actors of one store, by name."""

    def __init__(self, store: Store, limits: HoldLimits) -> None:
        self._store = store
        self._limits = limits
        self._turns = _Turns()

    def get_by_name(self, reservation_id: str) -> ReservationActor:
        """The actor of this ID; a name always exists, its hold may not."""
        return ReservationActor(reservation_id, self._store, self._limits, self._turns)


class _Turn(Struct, gc=False):
    """One who waits: until it is their turn, None, or until another's outcome settles theirs."""

    message: Message
    comes: asyncio.Future[Outcome | None]


class _Turns:
    """Who is at work, and who waits for it, by ID; an ID that is at rest is not here at all."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[_Turn] | None] = {}

    def is_taken(self, reservation_id: str) -> bool:
        """Whether a turn has to be waited for."""
        return reservation_id in self._waiting

    def enter(self, reservation_id: str, message: Message) -> _Turn | None:
        """None when it is the caller's turn, else what to `wait` for."""
        if reservation_id not in self._waiting:
            self._waiting[reservation_id] = None  # nobody waits, as a rule
            return None
        turn = _Turn(message, asyncio.get_running_loop().create_future())
        waiting = self._waiting[reservation_id]
        if waiting is None:
            waiting = self._waiting[reservation_id] = deque()
        waiting.append(turn)
        return turn

    async def wait(self, reservation_id: str, turn: _Turn) -> Outcome | None:
        """Wait for a turn; one that came to a caller who has gone is passed on.

        None when it has come, the outcome when it is not needed any more.
        """
        try:
            return await turn.comes
        except asyncio.CancelledError:
            has_come = turn.comes.done() and not turn.comes.cancelled()
            if has_come and turn.comes.result() is None:
                self.leave(reservation_id)
            raise

    def count_waiting(self, reservation_id: str) -> int:
        """How many wait while a turn begins."""
        return len(self._waiting[reservation_id] or ())

    def settle(self, reservation_id: str, count: int, message: Message, outcome: Outcome) -> None:
        """Refuse holds by the row that was just committed: a turn each would find the same.

        The first `count` waited when the turn began, so its transaction is a moment at which they
        were asked. Whatever else waits keeps its place, and so does everything behind it.
        """
        waiting = self._waiting[reservation_id]
        assert waiting is not None
        for _ in range(count):
            turn = waiting[0]
            if not turn.comes.done():
                if not (type(turn.message) is Hold and outcome.refuses(turn.message, message)):
                    return
                refused = Outcome(
                    False, is_own=False, now=outcome.now, reservation=outcome.reservation
                )
                turn.comes.set_result(refused)
            waiting.popleft()

    def leave(self, reservation_id: str) -> None:
        """The turn is over: it is the next caller's who still waits."""
        waiting = self._waiting[reservation_id]
        while waiting:
            turn = waiting.popleft()
            if not turn.comes.done():
                turn.comes.set_result(None)
                return
        del self._waiting[reservation_id]
