"""The port to disk. These docstrings are the contract; tests/contract checks every engine by it.

Nothing is observable before it is committed: every answer below comes after COMMIT.
"""

from collections.abc import Awaitable
from typing import Protocol

from msgspec import Struct

from reservation_service.reservation import (
    ANONYMOUS,
    AlarmInfo,
    Message,
    Outcome,
    Reservation,
    Schedule,
    Status,
)


class Claimed(Struct, frozen=True, array_like=True, gc=False):
    """One attempt that was counted and leased before its handler runs.

    `alarm_at` is the time that was asked for (epoch ms), `attempts` counts this one, `claim` is a
    token that is never used twice, and `claimed_at` the time of the claiming transaction.
    """

    id: str
    generation: int
    alarm_at: int
    attempts: int
    claim: int
    claimed_at: int

    @property
    def info(self) -> AlarmInfo:
        """What the handler is told: the time asked for, and the attempts before this one."""
        return AlarmInfo(self.alarm_at, self.attempts - 1)


class Retry(Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Settle an attempt that did not move its slot: try again `delay_ms` from now.

    `seen` is the claim's own time: what fell due after it has not been tried yet, and is not
    delayed. `record` asks for an `alarm-failed` event in the same transaction.
    """

    id: str
    claim: int
    delay_ms: int
    seen: int
    record: bool


class Claim(Struct, frozen=True, array_like=True, tag=True):
    """Claim up to `limit` due alarms for `lease_ms`.

    `running` are the IDs whose attempts are at work: an alarm of theirs that is claimed is left
    out though its lease is over; one that was set anew since is not. `not_before` is a time that
    is a few milliseconds ahead (epoch ms): the transaction may wait for it, and others behind it.
    """

    limit: int
    lease_ms: int
    running: list[str]
    not_before: int | None = None
    id: None = None  # nobody's message


class Place(Struct, frozen=True):
    """A place in the list, which is in the order of deadline and ID."""

    expires_at: int
    reservation_id: str


class Query(Struct, frozen=True):
    """Which reservations to list: at most `limit`, those after `after`, None for the first."""

    limit: int
    status: Status | None = None
    id_prefix: str = ""
    after: Place | None = None


class Page(Struct, frozen=True):
    """Some of the reservations that match; `next` is None on the last page only."""

    items: list[Reservation]
    next: Place | None


class ScheduleQuery(Struct, frozen=True):
    """What is planned on one reservation, or only what is due; `holder` is who asks."""

    reservation_id: str
    holder: bytes = ANONYMOUS
    is_due_only: bool = False
    id: None = None  # reads of one reservation may share a batch


class Purge(Struct, frozen=True, array_like=True, tag=True):
    """Remove some of the events, and then of the ended reservations, that are older than given.

    `after` is how far the reservations have been looked through, None at the first.
    """

    limit: int
    events_before: int
    reservations_before: int
    after: Place | None = None
    id: None = None  # nobody's message


class Purged(Struct, frozen=True):
    """How many were removed, and how to go on; `next` is None when all was looked at."""

    events: int
    reservations: int
    next: Purge | None


class Probe(Struct, frozen=True, array_like=True, tag=True):
    """Commit something, and change nothing: whether a hold could be acknowledged now."""

    id: None = None  # nobody's message


class Probed(Struct, frozen=True):
    """It was committed."""


StoreMessage = Message | Retry | Claim | Purge | Probe
Result = Outcome | list[Claimed] | Purged | Probed


class Store(Protocol):
    """A durable set of reservations, each with one alarm slot."""

    def apply(self, message: Message) -> Awaitable[Outcome]:
        """Do one message in one transaction, with its event.

        `changed` is False when the row's state did not allow it. A request's message raises
        Overloaded when the queue is full; an alarm's waits for room. Raises MessageFailed when
        this message alone made its transaction fail, StorageTrouble when nothing can be
        committed now, and a fatal ServiceError when the store has ended; when it is called or
        when it is awaited.
        """

    async def read(self, reservation_id: str) -> Reservation:
        """The committed row, or a `missing` one. Never changes anything."""

    async def find(self, query: Query) -> Page:
        """A page of the list. It looks at a bounded number of rows, so it may be short or empty."""

    async def schedule(self, query: ScheduleQuery) -> Schedule:
        """What is planned and committed, in planned order; nothing when the hold is over."""

    async def claim(self, claim: Claim) -> list[Claimed]:
        """Due alarms, the longest due first, each attempt counted and leased.

        Fewer than the claim's limit means that nothing else is due.
        """

    async def purge(self, purge: Purge) -> Purged:
        """One small step of removing what is old; rows with an event left in the log stay."""

    async def settle(self, retry: Retry) -> Reservation:
        """Plan the next attempt, if the claim still stands; the row as it is afterwards."""
