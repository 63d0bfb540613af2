"""What a partial service does with a batch in the writer's process: some of it, or none."""

import sqlite3
import time
from collections.abc import Sequence

from reservation_service.clock import BootClock
from reservation_service.reservation import Hold, Outcome, Reservation, Status
from reservation_service.storage.sqlite import BatchTransaction
from reservation_service.storage.sqlite_start import prepare_batches
from reservation_service.store import Result, StoreMessage

CLOCK = BootClock()


def prepare(connection: sqlite3.Connection) -> None:
    prepare_batches(connection)
    connection.execute("PRAGMA synchronous = OFF")


class Work:
    """What the writer's process does with a batch."""

    def __init__(self, transact: BatchTransaction | None, sync_s: float) -> None:
        self._transact = transact
        self._sync_s = sync_s

    def __call__(
        self, connection: sqlite3.Connection, messages: Sequence[StoreMessage]
    ) -> tuple[Sequence[Result], int | None]:
        done = self._transact(connection, messages) if self._transact else outcomes(messages)
        time.sleep(self._sync_s)
        return done


def outcomes(messages: Sequence[StoreMessage]) -> tuple[list[Result], int | None]:
    return [outcome(message) for message in messages], None


def outcome(message: StoreMessage) -> Outcome:
    assert isinstance(message, Hold)
    now, until = CLOCK.now(), CLOCK.now() + message.ttl_ms
    row = (message.id, Status.HELD, 1, now, until, None, None, None, 0, until, 0, False)
    return Outcome(True, True, now, Reservation(*row))
