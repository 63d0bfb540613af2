"""Named holders for the store contract, and rows of theirs in every state."""

from collections.abc import Sequence

from reservation_service.reservation import ANONYMOUS, Hold, Outcome
from reservation_service.store import Purge, StoreMessage
from tests.contract.engines import MAX_HOLD_MS, NOTHING_PLANNED, Opened, Row, planted
from tests.support.clock import START

ALICE, BOB = b"a" * 32, b"b" * 32
TTL_MS = 60_000

STATES: dict[str, Row] = {
    "held": {
        "expires_at": START + TTL_MS,
        "alarm_at": START + TTL_MS,
        "alarm_dispatch_at": START + TTL_MS,
    },
    "overdue": {"expires_at": START, "alarm_at": START, "alarm_dispatch_at": START},
    "expired": NOTHING_PLANNED
    | {"status": "expired", "expires_at": START, "expired_at": START, "expiration_count": 1},
    "released": NOTHING_PLANNED
    | {"status": "released", "expires_at": START + TTL_MS, "released_at": START},
    "confirmed": NOTHING_PLANNED
    | {"status": "confirmed", "expires_at": START + TTL_MS, "confirmed_at": START},
}
"""What a row of each state has beside its defaults, as of the tests' first millisecond."""


def row_in(state: str, name: str = "seat-1", holder: bytes = ALICE, **changed: object) -> Row:
    mine: Row = {"holder": holder, "generation": 3, "created_at": START - 1}
    return planted(name, **(mine | STATES[state] | changed))


def hold_of(name: str, holder: bytes = ANONYMOUS, ttl_ms: int = TTL_MS, limit: int = 0) -> Hold:
    return Hold(name, ttl_ms, MAX_HOLD_MS, limit, holder)


async def told(opened: Opened, *messages: StoreMessage) -> list[Outcome]:
    """The outcomes of one batch."""
    results = await opened.write(*messages)
    outcomes = [result for result in results if isinstance(result, Outcome)]
    assert len(outcomes) == len(messages)
    return outcomes


async def purged(opened: Opened, purge: Purge) -> tuple[int, int, int]:
    """The events and the reservations that went, and in how many steps."""
    events = reservations = steps = 0
    following: Purge | None = purge
    while following is not None:
        done = await opened.store.purge(following)
        events, reservations, steps = (
            events + done.events,
            reservations + done.reservations,
            steps + 1,
        )
        following = done.next
    return events, reservations, steps


def names(rows: Sequence[Row]) -> list[str]:
    return [row["id"] for row in rows]
