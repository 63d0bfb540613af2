"""Removes what is old enough, in small batches that share the writer with everybody else.

First events, then expired and released reservations of which no event is left: only then may a
name begin again with its first generation. Confirmed ones stay until they are released.
"""

from collections.abc import Callable

from reservation_service.clock import Clock
from reservation_service.errors import ServiceError
from reservation_service.store import Purge, Store

BATCH_MAX = 200
"""Rows that one transaction looks at: a few milliseconds, so no alarm is late because of it."""

MS_PER_DAY = 86_400_000


class Housekeeping:
    """`purge` once in a while; the retention times are in milliseconds."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        observe: Callable[..., None],
        *,
        reservations_kept_ms: int,
        events_kept_ms: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._observe = observe
        self._reservations_kept_ms = reservations_kept_ms
        self._events_kept_ms = events_kept_ms

    async def purge(self) -> None:
        """Remove all that is old enough now; a store in trouble is left for the next time."""
        now = self._clock.now()
        events = reservations = 0
        purge: Purge | None = Purge(
            BATCH_MAX, now - self._events_kept_ms, now - self._reservations_kept_ms
        )
        try:
            while purge is not None:
                purged = await self._store.purge(purge)
                events += purged.events
                reservations += purged.reservations
                purge = purged.next
        except ServiceError as error:
            self._observe("purge-failed", reason=error.code)
        self._observe("purged", events=events, reservations=reservations)
