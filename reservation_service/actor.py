"""One actor per reservation ID: one message at a time, in order; different IDs in parallel.

A turn is one `store.apply`. An actor is no more than a name and its place in the queue: the row is
the state, so memory grows with the calls at work and not with the number of reservations.
"""

import asyncio
from collections import deque

from reservation_service.reservation import (
    AlarmInfo,
    Expire,
    Hold,
    Message,
    Outcome,
    Reservation,
    Trigger,
    hold_refusal,
)
from reservation_service.store import Store


class ReservationActor:
    """The reservation with one ID."""

    __slots__ = ("_id", "_store", "_turns")

    def __init__(self, reservation_id: str, store: Store, turns: "_Turns") -> None:
        self._id = reservation_id
        self._store = store
        self._turns = turns

    async def status(self) -> Reservation:
        """The row as committed; reading is no turn and changes nothing."""
        return await self._store.read(self._id)

    async def hold(self, ttl_ms: int) -> Reservation:
        """Hold for `ttl_ms`, anew or again. Raises Refused when the reservation is confirmed."""
        outcome = await self._take_turn(Hold(self._id, ttl_ms))
        if not outcome.changed:
            raise hold_refusal(outcome.reservation)
        return outcome.reservation

    async def alarm(self, info: AlarmInfo) -> Outcome:
        """What the alarm clock calls, at least once per alarm; `info` tells which attempt it is."""
        del info  # the effect itself decides whether it has already happened
        return await self.process_expiry()

    async def process_expiry(self, now: int | None = None) -> Outcome:
        """Expire the hold if it is over: the one path of the alarm and of its replay.

        Without `now` it is the alarm, judged by the transaction's own time; a replay gives one.
        """
        trigger = Trigger.ALARM if now is None else Trigger.REPLAY
        return await self._take_turn(Expire(self._id, trigger, now))

    async def _take_turn(self, message: Message) -> Outcome:
        if (turn := self._turns.enter(self._id)) is not None:
            await self._turns.wait(self._id, turn)
        try:
            return await self._store.apply(message)
        finally:
            self._turns.leave(self._id)


class ReservationNamespace:
    """All actors of one store, by name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turns = _Turns()

    def get_by_name(self, reservation_id: str) -> ReservationActor:
        """The actor of this ID; a name always exists, its hold may not."""
        return ReservationActor(reservation_id, self._store, self._turns)


class _Turns:
    """Who is at work, and who waits for it, by ID; an ID that is at rest is not here at all."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def enter(self, reservation_id: str) -> asyncio.Future[None] | None:
        """None when it is the caller's turn, else what to `wait` for."""
        waiting = self._waiting.get(reservation_id)
        if waiting is None:
            self._waiting[reservation_id] = deque()
            return None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        return turn

    async def wait(self, reservation_id: str, turn: asyncio.Future[None]) -> None:
        """Wait for a turn; one that came to a caller who has gone is passed on."""
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.leave(reservation_id)
            raise

    def leave(self, reservation_id: str) -> None:
        """The turn is over: it is the next caller's who still waits."""
        waiting = self._waiting[reservation_id]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._waiting[reservation_id]
