"""The port to the log of committed events. These docstrings are the contract; tests/contract checks
every engine by it.

Readers see what is committed and nothing else, in the order of `seq`, without a gap between the
oldest event that is left and the newest. A position is a `seq`: everything up to it was seen.
"""

from typing import Protocol

import msgspec

from reservation_service.reservation import Trigger


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What happened to one reservation: a row of the event table.

    `at` is epoch milliseconds of service time, `data` is JSON as it was recorded, null for none.
    """

    seq: int
    type: str
    reservation: str
    generation: int
    at: int
    trigger: Trigger
    data: msgspec.Raw


class EventQuery(msgspec.Struct, frozen=True):
    """At most `limit` events behind the position `after`; `names` are their reservations.

    None is all reservations.
    """

    after: int
    limit: int
    names: frozenset[str] | None = None


class EventPage(msgspec.Struct, frozen=True):
    """Some events, and how the log stood when they were read.

    `next` is the position behind this page: nothing else that was asked for lies before it.
    `oldest` is the first event that retention has left, one more than `newest` when there is none;
    `newest` is the last number that was given out.
    """

    items: list[Event]
    next: int
    oldest: int
    newest: int

    def has_lost(self, position: int) -> bool:
        """Whether events behind `position` are gone, or it is a position in some other log."""
        return not self.oldest - 1 <= position <= self.newest


class EventLog(Protocol):
    """The log of one store."""

    async def read_events(self, query: EventQuery) -> EventPage:
        """A page of the log as committed; a short one is the last.

        Raises StorageTrouble when it cannot be read now, a fatal ServiceError when it never will.
        """
