"""Many callers' messages, one transaction, one hop to the connection that writes.

While batches run the next one gathers, so the cost of a sync is shared by all who wait for it.
Answers are given after COMMIT only. A batch that fails is halved until the message to blame
stands alone and fails alone. A full queue refuses requests; alarms are bounded by their
dispatcher, and when both wait each gets half of a batch.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from reservation_service.errors import (
    MessageFailed,
    OutcomeUnknown,
    Overloaded,
    ServiceError,
    StorageUnavailable,
)

_QUIET_PASSES = 8
"""A request needs three passes of the event loop from its socket to the queue, more when its
client answers late; measured at 64 connections, 3 gave a tenth fewer holds."""

_SHARE_MIN = 32
"""So few messages are not shared out among batches: each of those costs a sync. With 64 callers
shares of 16 gave a third fewer holds; with 512, whole batches gave a sixth fewer."""


class Keyed(Protocol):
    """A message of one reservation; None when it is nobody's."""

    @property
    def id(self) -> str | None: ...


M = TypeVar("M", bound=Keyed)
R = TypeVar("R")


class _Waiting(Struct, Generic[M, R], gc=False):
    message: M
    answer: asyncio.Future[R]


class GroupCommit(Generic[M, R]):
    """Takes messages one by one and hands them to `run` in batches, `at_once` at a time.

    `batch_max` is 2 or more, so that requests and alarms both have room in each batch. When many
    wait, the batches at once get the same share of them: while one is committed, the callers of
    the other go on.

    `run` gets at most `batch_max` messages, never two for one ID, and returns their results in
    the same order. Batches that are with it at once are committed in the order in which they came,
    but for what is tried again in halves, and none after one that ended in a fatal error.
    `queue_max` bounds the requests that wait, not those of the batches at work.
    """

    def __init__(
        self,
        run: Callable[[Sequence[M]], Awaitable[Sequence[R]]],
        *,
        batch_max: int,
        queue_max: int,
        at_once: int = 1,
    ) -> None:
        self._run = run
        self._at_once = at_once
        self._batch_max = batch_max
        self._queue_max = queue_max
        self._requests: deque[_Waiting[M, R]] = deque()
        self._alarms: deque[_Waiting[M, R]] = deque()
        self._wake = asyncio.Event()
        self._closing = False
        self._last_size = 1
        self._ended: ServiceError | None = None

    def submit(self, message: M, *, is_request: bool) -> asyncio.Future[R]:
        """Queue one message; its future ends after COMMIT. Raises Overloaded at the limit."""
        if self._ended is not None:
            raise self._ended
        if is_request and len(self._requests) >= self._queue_max:
            raise Overloaded
        answer: asyncio.Future[R] = asyncio.Future()
        lane = self._requests if is_request else self._alarms
        lane.append(_Waiting(message, answer))
        if not self._wake.is_set():
            self._wake.set()
        return answer

    @property
    def waiting(self) -> int:
        """Messages that no batch has taken yet."""
        return len(self._requests) + len(self._alarms)

    async def run(self) -> None:
        """Commit batch after batch until `close`; raises the fatal error that ended it earlier."""
        workers = [asyncio.create_task(self._work()) for _ in range(self._at_once)]
        try:
            await asyncio.gather(*workers)
        except ServiceError as error:
            self._end(error)
            raise
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)
            self._end(StorageUnavailable())

    async def _work(self) -> None:
        while batch := await self._next_batch():
            await self._commit(batch)

    def close(self) -> None:
        """Let `run` return once everything that was taken is answered."""
        self._closing = True
        self._wake.set()

    async def _next_batch(self) -> list[_Waiting[M, R]]:
        while True:
            if self._at_once == 1:
                await self._gather()
            if batch := self._take():
                self._last_size = len(batch)
                return batch
            if self._closing:
                return []
            self._wake.clear()
            await self._wake.wait()

    async def _gather(self) -> None:
        """Let messages that are on their way come in: a batch costs the same for one or many.

        It ends once as many wait as the last batch had, or when nobody came for a few passes of
        the event loop. With more batches at once nobody need wait: one gathers, another works.
        """
        quiet = 0
        waiting = self.waiting
        while 0 < waiting < self._last_size and quiet < _QUIET_PASSES:
            await asyncio.sleep(0)
            before, waiting = waiting, self.waiting
            quiet = quiet + 1 if waiting == before else 0

    def _take(self) -> list[_Waiting[M, R]]:
        batch: list[_Waiting[M, R]] = []
        ids: set[str] = set()
        limit = self._batch_max
        if self._at_once > 1:
            share = -(-self.waiting // self._at_once)
            limit = min(limit, max(_SHARE_MIN, share))
        alarms = min(len(self._alarms), limit // 2)
        _move(self._requests, batch, ids, limit - alarms)
        _move(self._alarms, batch, ids, limit - len(batch))
        return batch

    async def _commit(self, batch: Sequence[_Waiting[M, R]]) -> None:
        try:
            results = await self._run([waiting.message for waiting in batch])
        except MessageFailed as error:
            await self._halve(batch, error)
        except ServiceError as error:
            _fail(batch, error)
            if error.fatal:
                raise
        except BaseException:  # a bug, or cancelled in the middle: nobody knows what was done
            _fail(batch, OutcomeUnknown())
            raise
        else:
            for waiting, result in zip(batch, results, strict=True):
                if not waiting.answer.done():
                    waiting.answer.set_result(result)

    async def _halve(self, batch: Sequence[_Waiting[M, R]], error: MessageFailed) -> None:
        if len(batch) == 1:
            _fail(batch, error)
            return
        middle = len(batch) // 2
        try:
            await self._commit(batch[:middle])
        except BaseException:  # the end: the other half is not tried any more
            _fail(batch[middle:], StorageUnavailable())
            raise
        await self._commit(batch[middle:])

    def _end(self, error: ServiceError) -> None:
        self._ended = self._ended or error
        for lane in (self._requests, self._alarms):
            _fail(lane, self._ended)
            lane.clear()


def _move(
    lane: deque[_Waiting[M, R]], batch: list[_Waiting[M, R]], ids: set[str], limit: int
) -> None:
    """Move up to `limit` live messages into the batch; a second one for an ID stays, in order."""
    second: list[_Waiting[M, R]] = []
    while lane and limit > 0:
        waiting = lane.popleft()
        if waiting.answer.done():  # the caller gave up before the message was taken
            continue
        message_id = waiting.message.id
        if message_id in ids:
            second.append(waiting)
            continue
        if message_id is not None:
            ids.add(message_id)
        batch.append(waiting)
        limit -= 1
    lane.extendleft(reversed(second))


def _fail(batch: Sequence[_Waiting[M, R]] | deque[_Waiting[M, R]], error: ServiceError) -> None:
    for waiting in batch:
        if not waiting.answer.done():
            waiting.answer.set_exception(error)
