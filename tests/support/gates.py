"""Wait points around the store and before alarms, and a disk that can be made to fail.

`GatedStore` is the real store with a door before and behind every message. A test closes a door
for chosen messages, waits until one stands before it, and lets it through when it likes. What
stands there has its reservation's turn; an alarm before the door of `GatedNamespace` has not.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from reservation_service.actor import ReservationActor, ReservationNamespace
from reservation_service.errors import ServiceError
from reservation_service.reservation import (
    AlarmInfo,
    HoldLimits,
    Message,
    Outcome,
    Reservation,
    Schedule,
)
from reservation_service.storage.grouped_store import GroupedStore
from reservation_service.store import (
    Claim,
    Claimed,
    Page,
    Purge,
    Purged,
    Query,
    Result,
    Retry,
    ScheduleQuery,
    Store,
    StoreMessage,
)
from tests.support.waiting import Signal

Choice = Callable[[Any], bool]
"""Chooses messages; a read is given as its reservation's ID, a batch as a sequence."""


class Gate:
    """One closed door; `reached` waits for messages to stand before it, `open` lets them go."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.held_back = 0
        self._is_open = False
        self._changed = Signal()

    async def reached(self, count: int = 1) -> None:
        await self._changed.until(
            lambda: self.held_back >= count,
            lambda: f"{count} messages before a gate; there are {self.held_back}",
        )

    def open(self) -> None:
        self._is_open = True
        self._changed.notify()

    async def enter(self) -> None:
        self.held_back += 1
        self._changed.notify()
        await self._changed.until(lambda: self._is_open, "the test to open its gate")


class Gates:
    """The doors of one store. `write_failure` makes every transaction fail, as a bad disk would."""

    def __init__(self) -> None:
        self.write_failure: ServiceError | None = None
        self.read_failure: ServiceError | None = None
        self.batches: list[Sequence[StoreMessage]] = []
        self.store: Store | None = None
        self._closed: dict[str, list[Gate]] = {
            "ring": [],
            "before": [],
            "after": [],
            "batch": [],
        }

    def ring(self) -> Gate:
        """Hold alarms back that are counted and leased; calls of their reservations go through."""
        return self._close("ring", lambda _: True)

    def before(self, choice: Choice) -> Gate:
        """Hold such messages back before the store has them."""
        return self._close("before", choice)

    def after(self, choice: Choice) -> Gate:
        """Hold the answers to such messages back: they are committed, and nobody knows it yet."""
        return self._close("after", choice)

    def count(self, choice: Choice) -> Gate:
        """Hold nothing back, only count: `reached` waits for messages that came to the store."""
        gate = self.before(choice)
        gate.open()
        return gate

    def batch(self, choice: Choice) -> Gate:
        """Hold such transactions back before they begin; the queue behind them fills."""
        return self._close("batch", choice)

    @property
    def is_ring_held(self) -> bool:
        """Whether a test holds alarms back, or has done so."""
        return bool(self._closed["ring"])

    @contextmanager
    def failing(self, failure: ServiceError) -> Iterator[None]:
        """Nothing can be committed within."""
        self.write_failure = failure
        try:
            yield
        finally:
            self.write_failure = None

    async def enter(self, place: str, message: object) -> None:
        for gate in self._closed[place]:
            if gate.choice(message):
                await gate.enter()

    def _close(self, place: str, choice: Choice) -> Gate:
        gate = Gate(choice)
        self._closed[place].append(gate)
        return gate


class GatedStore(GroupedStore):
    """The real store behind `gates`."""

    def __init__(
        self, gates: Gates, write: Any, read: Any, find: Any, schedules: Any, **limits: int
    ) -> None:
        async def write_through(
            messages: Sequence[StoreMessage],
        ) -> tuple[Sequence[Result], int | None]:
            gates.batches.append(messages)
            await gates.enter("batch", messages)
            if gates.write_failure is not None:
                raise gates.write_failure
            answer: tuple[Sequence[Result], int | None] = await write(messages)
            return answer

        async def read_through(ids: Sequence[str]) -> Sequence[Reservation]:
            if gates.read_failure is not None:
                raise gates.read_failure
            rows: Sequence[Reservation] = await read(ids)
            return rows

        async def find_through(query: Query) -> Page:
            if gates.read_failure is not None:
                raise gates.read_failure
            page: Page = await find(query)
            return page

        async def schedules_through(queries: Sequence[ScheduleQuery]) -> Sequence[Schedule]:
            if gates.read_failure is not None:
                raise gates.read_failure
            planned: Sequence[Schedule] = await schedules(queries)
            return planned

        super().__init__(write_through, read_through, find_through, schedules_through, **limits)
        self._gates = gates
        gates.store = self

    async def apply(self, message: Message) -> Outcome:
        await self._gates.enter("before", message)
        outcome = await super().apply(message)
        await self._gates.enter("after", message)
        return outcome

    async def read(self, reservation_id: str) -> Reservation:
        await self._gates.enter("before", reservation_id)
        return await super().read(reservation_id)

    async def claim(self, claim: Claim) -> list[Claimed]:
        await self._gates.enter("before", claim)
        claimed = await super().claim(claim)
        await self._gates.enter("after", claim)
        return claimed

    async def find(self, query: Query) -> Page:
        await self._gates.enter("before", query)
        return await super().find(query)

    async def schedule(self, query: ScheduleQuery) -> Schedule:
        await self._gates.enter("before", query)
        return await super().schedule(query)

    async def purge(self, purge: Purge) -> Purged:
        await self._gates.enter("before", purge)
        purged = await super().purge(purge)
        await self._gates.enter("after", purge)
        return purged

    async def settle(self, retry: Retry) -> Reservation:
        await self._gates.enter("before", retry)
        row = await super().settle(retry)
        await self._gates.enter("after", retry)
        return row


class GatedNamespace(ReservationNamespace):
    """The real actors, their alarms behind `gates`."""

    def __init__(self, gates: Gates, store: Store, limits: HoldLimits) -> None:
        super().__init__(store, limits)
        self._gates = gates

    def get_by_name(self, reservation_id: str) -> ReservationActor:
        return _GatedActor(
            reservation_id, self._store, self._limits, self._turns, gates=self._gates
        )


class _GatedActor(ReservationActor):
    def __init__(self, *parts: Any, gates: Gates) -> None:
        super().__init__(*parts)
        self._gates = gates

    def begin_expiry(
        self, retry_count: int, then: Callable[["asyncio.Future[Outcome]"], object]
    ) -> "asyncio.Future[Outcome] | None":
        return None if self._gates.is_ring_held else super().begin_expiry(retry_count, then)

    async def alarm(self, info: AlarmInfo, expiry: Awaitable[Outcome] | None = None) -> Outcome:
        await self._gates.enter("ring", info)
        return await super().alarm(info, expiry)
