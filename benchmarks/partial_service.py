"""The service up to some layer, and a made-up rest below it, to see what each layer costs.

`python -m benchmarks.partial_service LAYER DATABASE SYNC_MS`. What stands for the disk only waits
for SYNC_MS, so that as many calls meet in a batch as in the service itself.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.partial_writer import CLOCK, Work, outcome, outcomes, prepare
from benchmarks.seeding import HOUR_MS
from reservation_service.actor import ReservationNamespace
from reservation_service.reservation import (
    HoldLimits,
    Message,
    Outcome,
    Reservation,
    Schedule,
)
from reservation_service.service import tune_interpreter
from reservation_service.storage.grouped_store import GroupedStore
from reservation_service.storage.lock import DatabaseLock
from reservation_service.storage.remote_writer import RemoteWriter
from reservation_service.storage.sqlite import BatchTransaction
from reservation_service.store import Page, Query, Result, ScheduleQuery, Store, StoreMessage
from reservation_service.web.api import Api, ApiLimits
from reservation_service.web.application import Surroundings
from reservation_service.web.connections import Connections
from reservation_service.web.server import HttpServer

_LIMITS = ApiLimits("partial", 5, 3600, 6, replay_alarm=True, require_holder=False)
_HOLD_LIMITS = HoldLimits(2 * HOUR_MS, 20)

Write = Callable[[Sequence[StoreMessage]], Awaitable[tuple[Sequence[Result], int | None]]]


class _AtOnce(GroupedStore):
    """A store that answers without a queue."""

    async def apply(self, message: Message) -> Outcome:
        return outcome(message)


async def _open_store(
    layer: str, database: Path, sync_s: float, opened: AsyncExitStack
) -> GroupedStore:
    """What stands below the actors."""
    write: Write
    if layer in {"web", "group commit"}:

        async def write(messages: Sequence[StoreMessage]) -> tuple[Sequence[Result], int | None]:
            await asyncio.sleep(sync_s)
            return outcomes(messages)

    else:
        lock = DatabaseLock(database)
        opened.callback(lock.release)
        writer = await RemoteWriter.open(database, lock.file)
        opened.push_async_callback(writer.close)
        await writer.run(prepare)
        transact = BatchTransaction(CLOCK, database, epoch=1) if layer == "SQLite" else None
        work = await writer.keep(Work(transact, sync_s))

        async def write(messages: Sequence[StoreMessage]) -> tuple[Sequence[Result], int | None]:
            return await writer.run(work, messages)

    kind = _AtOnce if layer == "web" else GroupedStore
    return kind(write, _read, _find, _schedules, batch_max=512, queue_max=10_000)


async def _read(_ids: Sequence[str]) -> Sequence[Reservation]:
    raise NotImplementedError


async def _schedules(_queries: Sequence[ScheduleQuery]) -> Sequence[Schedule]:
    raise NotImplementedError


async def _find(_query: Query) -> Page:
    raise NotImplementedError


async def main(layer: str, database: Path, sync_ms: float) -> None:
    """Serve until the process is ended."""
    async with AsyncExitStack() as opened:
        store = await _open_store(layer, database, sync_ms / 1000, opened)
        serving = asyncio.create_task(store.run())
        await _listen(store)
        tune_interpreter()
        await serving


async def _listen(store: Store) -> None:
    connections = Connections(2000)
    surroundings = Surroundings(
        CLOCK, _ignore, connections, _uncounted, requests_max=1000, stuck_after=6
    )
    namespace = ReservationNamespace(store, _HOLD_LIMITS)
    app = surroundings.build_app(Api(namespace, _LIMITS).routes(), 16_384)
    server = HttpServer(app, connections, _ignore, surroundings, access_log=False)
    await server.start("127.0.0.1", 0)
    sys.stdout.write(f'{{"event":"service-started","port":{server.port}}}\n')
    sys.stdout.flush()


def _uncounted(_route: str, _status: int, _seconds: float) -> None:
    """Nobody scrapes here."""


def _ignore(_name: str, **_fields: object) -> None:
    """Nobody reads a log here."""


if __name__ == "__main__":
    layer, database, sync = sys.argv[1:]
    asyncio.run(main(layer, Path(database), float(sync)))
