"""The small worlds that the model looks at, each about something else.

A kind of message joins by a request in the bounds, and its rule in the specification.
"""

from collections.abc import Mapping
from dataclasses import replace

from reservation_service.reservation import (
    Cancel,
    Confirm,
    Expire,
    Extend,
    Hold,
    Plan,
    Release,
    Trigger,
)
from tests.torture.model_explorer import Bounds
from tests.torture.model_state import Budget
from tests.torture.model_tables import Request

ANYBODY, ANN, BOB = b"", b"a" * 32, b"b" * 32
TTL, CAP = 2, 4


def hold(name: str, holder: bytes, ttl: int = TTL, limit: int = 0) -> Hold:
    return Hold(name, ttl, CAP, limit, holder)


def extend(name: str, holder: bytes, ttl: int = TTL, generation: int | None = None) -> Extend:
    return Extend(name, ttl, CAP, holder, generation)


def replay(name: str, later: int) -> Expire:
    """A replay with a time that is so much later than the transaction's own, or earlier."""
    return Expire(name, Trigger.REPLAY, later)


def plan(event_id: str, later: int, repeat: int | None = None, holder: bytes = ANYBODY) -> Plan:
    """An event on the first reservation, so much later than now, or earlier."""
    return Plan("r1", event_id, later, repeat, holder=holder)


ALARMS: tuple[Request, ...] = (
    hold("r1", ANYBODY),
    hold("r1", ANYBODY, ttl=1),
    replay("r1", 0),
    replay("r1", 3),
    replay("r1", -1),
)
BOOKINGS: tuple[Request, ...] = (
    hold("r1", ANN),
    hold("r1", BOB),
    hold("r1", ANYBODY),
    extend("r1", ANN),
    extend("r1", ANN, ttl=9),
    extend("r1", ANYBODY),
    Confirm("r1", ANN),
    Confirm("r1", BOB),
    Release("r1", ANN),
    Release("r1", ANYBODY),
    Release("r1", BOB, operator=True),
    replay("r1", 3),
)
LATE: tuple[Request, ...] = (
    hold("r1", ANN),
    hold("r1", BOB),
    Confirm("r1", ANN, if_still_free=True),
    Confirm("r1", BOB, if_still_free=True),
    Confirm("r1", ANN),
    Release("r1", ANN),
    Release("r1", ANN, operator=True),
)
# A generation is so many more than the row's own.
GENERATIONS: tuple[Request, ...] = (
    hold("r1", ANN),
    hold("r1", ANYBODY),
    *(
        one
        for generation in (0, -1)
        for one in (
            extend("r1", ANN, generation=generation),
            Confirm("r1", ANN, generation),
            Confirm("r1", ANYBODY, generation, if_still_free=True),
            Release("r1", ANN, generation),
        )
    ),
)
CLOCK: tuple[Request, ...] = (
    hold("r1", ANYBODY),
    hold("r1", ANN),
    hold("r1", ANN, ttl=1),
    extend("r1", ANN),
)
TWO: tuple[Request, ...] = (
    hold("r1", ANN, limit=1),
    hold("r2", ANN, limit=1),
    hold("r2", BOB, limit=1),
    hold("r2", ANYBODY),
    extend("r1", ANN),
    Release("r1", ANN),
    replay("r2", 3),
)
LIMITS: tuple[Request, ...] = (
    hold("r1", ANN, ttl=3, limit=2),
    hold("r2", ANN, ttl=2, limit=2),
    hold("r2", BOB, ttl=1, limit=2),
    hold("r3", ANN, ttl=2, limit=2),
    hold("r3", ANN, ttl=2, limit=1),
)
QUEUE: tuple[Request, ...] = (
    hold("r1", ANYBODY, ttl=1),
    hold("r2", ANYBODY, ttl=1),
)

EVENTS: tuple[Request, ...] = (
    hold("r1", ANYBODY, ttl=3),
    plan("e1", 1),
    plan("e2", 1),
    plan("e1", 0),
    Cancel("r1", "e1"),
    Confirm("r1"),
    extend("r1", ANYBODY, ttl=4),
)
REPEATS: tuple[Request, ...] = (
    hold("r1", ANYBODY, ttl=3),
    plan("e1", 0, repeat=1),
    plan("e2", 2, repeat=2),
    plan("e1", 9),
    Cancel("r1", "e2"),
)
ENDINGS: tuple[Request, ...] = (
    hold("r1", ANN, ttl=2),
    plan("e1", 1, holder=ANN),
    plan("e1", 3, repeat=1, holder=ANN),
    plan("e1", 1, holder=BOB),
    Plan("r1", "e1", 1, holder=ANN, generation=1),
    Cancel("r1", "e1", BOB),
    Confirm("r1", ANN, if_still_free=True),
    Release("r1", ANN),
    Release("r1", ANN, operator=True),
)

BACK = (0, -1, -3, 2)
"""How the wall clock may jump while the process is down."""

# With one request more, four of these are not seen whole in three minutes each.
LONG: Mapping[str, Bounds] = {
    "alarms": Bounds(ALARMS, Budget(requests=4, failures=2, crashes=2, echoes=1), until=6),
    "clock set back": Bounds(CLOCK, Budget(3, 2, 2, 0), until=6, delay=2, clock_jumps=BACK),
    "long leases": Bounds(ALARMS[:2], Budget(4, 2, 1, 1), until=7, lease=4, delay=3),
    "bookings": Bounds(BOOKINGS, Budget(5, 1, 1, 1), until=5),
    "late confirmations": Bounds(LATE, Budget(5, 1, 1, 1), until=5),
    "generations": Bounds(GENERATIONS, Budget(5, 1, 1, 0), until=5),
    "two reservations": Bounds(TWO, Budget(4, 1, 1, 0), until=5),
    "limits": Bounds(LIMITS, Budget(4, 0, 1, 0), until=5),
    "a queue": Bounds(QUEUE, Budget(3, 1, 1, 0), until=6, lease=4, claim_limit=1),
    "planned events": Bounds(EVENTS, Budget(3, 1, 1, 1), until=5),
    "repeated events": Bounds(REPEATS, Budget(3, 1, 1, 0), until=6),
    "events and endings": Bounds(ENDINGS, Budget(4, 1, 1, 0), until=5),
}

SHORT: Mapping[str, Bounds] = {
    "alarms": replace(LONG["alarms"], budget=Budget(2, 1, 1, 1), until=4),
    "clock set back": replace(LONG["clock set back"], budget=Budget(2, 1, 1, 0), until=5),
    "bookings": replace(LONG["bookings"], budget=Budget(3, 0, 0, 0), until=4),
    "late confirmations": replace(LONG["late confirmations"], budget=Budget(3, 0, 0, 0), until=4),
    "generations": replace(LONG["generations"], budget=Budget(3, 0, 0, 0), until=4),
    "two reservations": replace(LONG["two reservations"], budget=Budget(2, 1, 0, 0), until=4),
    "limits": replace(LONG["limits"], budget=Budget(3, 0, 0, 0), until=3),
    "a queue": replace(LONG["a queue"], budget=Budget(3, 0, 0, 0), until=4),
    "planned events": Bounds(EVENTS[:3], Budget(3, 1, 0, 0), until=4),
    "events and calls": replace(LONG["planned events"], budget=Budget(3, 0, 0, 0), until=3),
    "repeated events": Bounds(REPEATS[:3], Budget(2, 1, 0, 0), until=4),
    "events and endings": replace(LONG["events and endings"], budget=Budget(3, 0, 0, 0), until=4),
}
