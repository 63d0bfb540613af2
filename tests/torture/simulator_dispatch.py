"""What stands between the dispatcher, the store and the actors: calls that are late or go wrong."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol

from reservation_service.actor import ReservationActor, ReservationNamespace
from reservation_service.errors import MessageFailed, ServiceError
from reservation_service.reservation import AlarmInfo, Outcome, Reservation, Schedule
from reservation_service.storage.grouped_store import (
    FindPage,
    GroupedStore,
    ReadBatch,
    ReadSchedules,
    WriteBatch,
)
from reservation_service.store import Claim, Claimed, Retry, ScheduleQuery
from tests.torture.simulator_disk import PLANTED
from tests.torture.simulator_world import World

_LATE_SECONDS_MAX = 15.0
_LATE_IN_TIME_SECONDS_MAX = 1.0
"""So late an attempt may still end before its time-out."""
_REPEATED_SECONDS_MAX = 90.0
_HANDLED = 0.75
"""Of all alarms; the others are begun like those in production, where nothing is in between."""


class Host(Protocol):
    """The process around the dispatcher."""

    world: World

    def spawn(self, work: Coroutine[Any, Any, None]) -> object: ...
    def die(self, how: str) -> None: ...
    def look(self, claimed: Sequence[Claimed]) -> None: ...


class SlipperyStore(GroupedStore):
    """The real store; what it tells attempts, and the settles, may be late or repeated."""

    def __init__(
        self,
        host: Host,
        write: WriteBatch,
        read: ReadBatch,
        find: FindPage,
        schedules: ReadSchedules,
        **limits: int,
    ) -> None:
        super().__init__(write, read, find, schedules, **limits)
        self._host = host

    async def claim(self, claim: Claim) -> list[Claimed]:
        claimed = await super().claim(claim)
        self._host.look(claimed)
        if claimed:
            await self._host.world.delay("late-dispatch", _LATE_SECONDS_MAX)
        return claimed

    async def schedule(self, query: ScheduleQuery) -> Schedule:
        schedule = await super().schedule(query)
        if query.is_due_only and schedule.events:
            await self._host.world.delay("late-schedule", _LATE_IN_TIME_SECONDS_MAX)
        return schedule

    async def settle(self, retry: Retry) -> Reservation:
        world = self._host.world
        await world.delay("late-settle", _LATE_SECONDS_MAX)
        row = await super().settle(retry)
        if world.strikes("repeated-settle"):
            self._host.spawn(self._settle_again(retry))
        return row

    async def _settle_again(self, retry: Retry) -> None:
        await asyncio.sleep(self._host.world.chance.uniform(0, _REPEATED_SECONDS_MAX))
        with suppress(ServiceError):
            await super().settle(retry)


class Deliveries:
    """The namespace as the dispatcher sees it."""

    def __init__(self, host: Host, namespace: ReservationNamespace) -> None:
        self._host = host
        self._namespace = namespace

    def get_by_name(self, reservation_id: str) -> "_Delivery":
        return _Delivery(self._host, self._namespace.get_by_name(reservation_id))


class _Delivery:
    """One call of an actor's alarm."""

    def __init__(self, host: Host, actor: ReservationActor) -> None:
        self._host = host
        self._actor = actor

    def begin_expiry(
        self, retry_count: int, then: Callable[[asyncio.Future[Outcome]], object]
    ) -> asyncio.Future[Outcome] | None:
        """Some of the alarms only: those have no handler that anything could befall."""
        if self._host.world.chance.random() < _HANDLED:
            return None
        return self._actor.begin_expiry(retry_count, then)

    async def alarm(self, info: AlarmInfo, expiry: Awaitable[Outcome] | None) -> Outcome:
        world = self._host.world
        if world.strikes("repeated-dispatch"):
            self._host.spawn(self._ring_again(info))
        await world.delay("late-handler", _LATE_SECONDS_MAX)
        if world.strikes("crash-in-handler"):
            self._host.die("in a handler")
        if world.strikes("failing-handler"):
            raise RuntimeError(PLANTED)
        outcome = await self._actor.alarm(info, expiry)
        if world.strikes("failing-after-effect"):
            raise RuntimeError(PLANTED)
        return outcome

    async def _ring_again(self, info: AlarmInfo) -> None:
        """The same alarm once more: at once, or when it was settled or set anew long ago."""
        world = self._host.world
        seconds_max = world.chance.choice((0.0, _REPEATED_SECONDS_MAX))
        await asyncio.sleep(world.chance.uniform(0, seconds_max))
        try:
            await self._actor.alarm(info)
        except ServiceError as error:
            if isinstance(error, MessageFailed) and str(error.__cause__) != PLANTED:
                world.complain(f"a repeated dispatch failed: {error.__cause__!r}")
