"""The store port on group commits: who is refused at the limit, and who is told of a commit."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence

import pytest

from reservation_service.errors import Overloaded, ServiceError, StorageFull
from reservation_service.reservation import (
    Expire,
    Hold,
    Outcome,
    Reservation,
    Schedule,
    Status,
    Trigger,
)
from reservation_service.storage.grouped_store import GroupedStore
from reservation_service.store import (
    Claim,
    Claimed,
    Page,
    Query,
    Result,
    Retry,
    ScheduleQuery,
    StoreMessage,
)
from tests.support.gates import Gate
from tests.support.waiting import bounded

MAX_HOLD_MS = 7_200_000
HOLD = Hold("seat-1", 5_000, MAX_HOLD_MS)
REPLAY = Expire("seat-2", Trigger.REPLAY, 7)
ALARM = Expire("seat-3", Trigger.ALARM)
CLAIM = Claim(10, 10_000, [])
RETRY = Retry("seat-4", claim=1, delay_ms=2_000, seen=0, record=True)


def row(reservation_id: str) -> Reservation:
    return Reservation(reservation_id, Status.HELD, 1, 0, 1, None, None, None, 0, 1, 0, False)


class Disk:
    """Answers every message; its batches stand before a gate."""

    def __init__(self) -> None:
        self.gate = Gate(lambda _: True)
        self.failure: ServiceError | None = None

    async def write(self, messages: Sequence[StoreMessage]) -> tuple[Sequence[Result], int | None]:
        await self.gate.enter()
        if self.failure is not None:
            raise self.failure
        return [self._result(message) for message in messages], 4_711

    async def read(self, ids: Sequence[str]) -> Sequence[Reservation]:
        return [row(one) for one in ids]

    async def find(self, query: Query) -> Page:
        raise AssertionError(query)

    async def schedules(self, queries: Sequence[ScheduleQuery]) -> Sequence[Schedule]:
        raise AssertionError(queries)

    def _result(self, message: StoreMessage) -> Result:
        if isinstance(message, Claim):
            return [Claimed("seat-5", 1, 0, 1, 1, 0)]
        assert message.id is not None
        return Outcome(True, True, 0, row(message.id))


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
async def store(disk: Disk) -> AsyncIterator[GroupedStore]:
    store = GroupedStore(
        disk.write, disk.read, disk.find, disk.schedules, batch_max=10, queue_max=1
    )
    running = asyncio.create_task(store.run())
    yield store
    disk.gate.open()
    store.close()
    await bounded(asyncio.wait([running]), "the store to drain")


async def fill(store: GroupedStore, disk: Disk) -> list["asyncio.Future[Outcome]"]:
    """A batch at work, and as many requests behind it as may wait."""
    first = asyncio.ensure_future(store.apply(Hold("first", 1, MAX_HOLD_MS)))
    await disk.gate.reached()
    second = asyncio.ensure_future(store.apply(Hold("second", 1, MAX_HOLD_MS)))
    await asyncio.sleep(0)
    return [first, second]


async def test_a_full_queue_refuses_requests(store: GroupedStore, disk: Disk) -> None:
    taken = await fill(store, disk)
    for message in (HOLD, REPLAY):
        with pytest.raises(Overloaded):
            await store.apply(message)
    disk.gate.open()
    await bounded(asyncio.gather(*taken), "those that were taken")


async def test_a_full_queue_lets_the_dispatcher_in(store: GroupedStore, disk: Disk) -> None:
    taken = await fill(store, disk)
    work: list[Awaitable[object]] = [
        store.apply(ALARM),
        store.claim(CLAIM),
        store.settle(RETRY),
    ]
    waiting = [asyncio.ensure_future(one) for one in work]
    await asyncio.sleep(0)
    disk.gate.open()
    outcome, claimed, settled = await bounded(asyncio.gather(*waiting), "the dispatcher's work")
    assert isinstance(outcome, Outcome)
    assert [one.id for one in claimed] == ["seat-5"]  # type: ignore[attr-defined]
    assert settled == row("seat-4")
    await bounded(asyncio.gather(*taken), "those that were taken")


async def test_reads_wait_for_no_write(store: GroupedStore, disk: Disk) -> None:
    taken = await fill(store, disk)
    assert await bounded(store.read("seat-1"), "a read") == row("seat-1")
    disk.gate.open()
    await bounded(asyncio.gather(*taken), "those that were taken")


async def test_listeners_hear_of_a_commit_before_anybody_is_answered(
    store: GroupedStore, disk: Disk
) -> None:
    heard: list[tuple[int | None, bool]] = []
    waiting = asyncio.ensure_future(store.apply(HOLD))
    store.on_commit(lambda next_due_at: heard.append((next_due_at, waiting.done())))
    disk.gate.open()
    await bounded(waiting, "an answer")
    assert heard == [(4_711, False)]


async def test_listeners_do_not_hear_of_what_was_not_committed(
    store: GroupedStore, disk: Disk
) -> None:
    heard: list[int | None] = []
    store.on_commit(heard.append)
    disk.failure = StorageFull()
    disk.gate.open()
    with pytest.raises(StorageFull):
        await bounded(store.apply(HOLD), "an answer")
    assert heard == []
