"""One actor per reservation ID: one message at a time, in order; different IDs in parallel.

A turn is one `store.apply`. An actor lives while somebody uses it, so memory does not grow with
the number of reservations; it keeps no state of its own, the row is the state.
"""

import asyncio
from weakref import WeakValueDictionary

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

    __slots__ = ("__weakref__", "_id", "_store", "_turn")

    def __init__(self, reservation_id: str, store: Store) -> None:
        self._id = reservation_id
        self._store = store
        self._turn = asyncio.Lock()

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
        async with self._turn:
            return await self._store.apply(message)


class ReservationNamespace:
    """All actors of one store, by name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._actors: WeakValueDictionary[str, ReservationActor] = WeakValueDictionary()

    def get_by_name(self, reservation_id: str) -> ReservationActor:
        """The one actor of this ID; a name always exists, its hold may not."""
        actor = self._actors.get(reservation_id)
        if actor is None:
            actor = self._actors[reservation_id] = ReservationActor(reservation_id, self._store)
        return actor
