"""The store port on top of an engine's two batch functions: one writes, one reads."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from msgspec import Struct

from reservation_service.reservation import (
    Expire,
    Fire,
    Message,
    Outcome,
    Reservation,
    Schedule,
    Trigger,
)
from reservation_service.storage.group_commit import GroupCommit
from reservation_service.store import (
    Claim,
    Claimed,
    Page,
    Probe,
    Purge,
    Purged,
    Query,
    Result,
    Retry,
    ScheduleQuery,
    StoreMessage,
)

WriteBatch = Callable[[Sequence[StoreMessage]], Awaitable[tuple[Sequence[Result], int | None]]]
"""One transaction: the results in order, and the epoch ms of the next due alarm after COMMIT.

The latter leaves out the IDs that a claim of the batch left out. Called again before it has
answered, it commits in the order of the calls, and nothing after a fatal error.
"""

ReadBatch = Callable[[Sequence[str]], Awaitable[Sequence[Reservation]]]
FindPage = Callable[[Query], Awaitable[Page]]
ReadSchedules = Callable[[Sequence[ScheduleQuery]], Awaitable[Sequence[Schedule]]]


class _Read(Struct, frozen=True):
    reservation_id: str
    id: None = None  # reads of one reservation may share a batch


class GroupedStore:
    """Implements `store.Store`. Nothing is answered unless `run` is running."""

    def __init__(  # noqa: PLR0913 - the engine's functions, each handed in once
        self,
        write: WriteBatch,
        read: ReadBatch,
        find: FindPage,
        schedules: ReadSchedules,
        *,
        batch_max: int,
        queue_max: int,
        batches_at_once: int = 1,
    ) -> None:
        self._write_batch = write
        self._read_batch = read
        self._find_page = find
        self._listeners: list[Callable[[int | None], None]] = []
        self._writes: GroupCommit[StoreMessage, Result] = GroupCommit(
            self._write, batch_max=batch_max, queue_max=queue_max, at_once=batches_at_once
        )
        self._reads: GroupCommit[_Read, Reservation] = GroupCommit(
            self._read, batch_max=batch_max, queue_max=queue_max
        )
        self._schedules: GroupCommit[ScheduleQuery, Schedule] = GroupCommit(
            schedules, batch_max=batch_max, queue_max=queue_max
        )

    def on_commit(self, listener: Callable[[int | None], None]) -> None:
        """Tell `listener` after each COMMIT when the next alarm is due (epoch ms, or None)."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Serve until `close`; raises the fatal ServiceError that ended the store earlier."""
        lanes = (self._writes, self._reads, self._schedules)
        tasks = [asyncio.create_task(lane.run()) for lane in lanes]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def close(self) -> None:
        """Let `run` return when everything that was taken is answered."""
        self._writes.close()
        self._reads.close()
        self._schedules.close()

    @property
    def waiting(self) -> int:
        """Changes that wait for a batch; those of the batch at work are not among them."""
        return self._writes.waiting

    def apply(self, message: Message) -> Awaitable[Outcome]:
        answer = self._writes.submit(message, is_request=not _is_alarms(message))
        return cast("asyncio.Future[Outcome]", answer)  # what a reservation's message comes to

    async def read(self, reservation_id: str) -> Reservation:
        return await self._reads.submit(_Read(reservation_id), is_request=True)

    async def find(self, query: Query) -> Page:
        return await self._find_page(query)

    async def schedule(self, query: ScheduleQuery) -> Schedule:
        return await self._schedules.submit(query, is_request=not query.is_due_only)

    async def claim(self, claim: Claim) -> list[Claimed]:
        result = await self._writes.submit(claim, is_request=False)
        assert isinstance(result, list)
        return result

    async def purge(self, purge: Purge) -> Purged:
        result = await self._writes.submit(purge, is_request=False)
        assert isinstance(result, Purged)
        return result

    async def probe(self) -> None:
        """Commit to the disk, and change nothing. Raises like `apply`."""
        await self._writes.submit(Probe(), is_request=False)

    async def settle(self, retry: Retry) -> Reservation:
        result = await self._writes.submit(retry, is_request=False)
        assert isinstance(result, Outcome)
        return result.reservation

    async def _write(self, messages: Sequence[StoreMessage]) -> Sequence[Result]:
        results, next_due_at = await self._write_batch(messages)
        for listener in self._listeners:
            listener(next_due_at)
        return results

    async def _read(self, reads: Sequence[_Read]) -> Sequence[Reservation]:
        return await self._read_batch([read.reservation_id for read in reads])


def _is_alarms(message: Message) -> bool:
    return type(message) is Fire or (type(message) is Expire and message.trigger is Trigger.ALARM)
