"""What clients and the log were told, and what the database owes them for it.

The ledger knows nothing of the service's code: it adds up answers. Whatever was said once must be
in the database at every later moment, in every life of the process.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from reservation_service.reservation import Reservation, Status
from reservation_service.store import Claimed

Change = tuple[str, str, str]
"""A reservation, what its event says, and the event's trigger."""

SAYS = {"held": "held or renewed", "renewed": "held or renewed"}
"""Which types of events one call may write; the others are their own name."""

Hold = tuple[str, int]
"""A reservation and its generation."""

Slot = tuple[str, int, int]
"""A planned alarm: a reservation, its generation, and the time that was asked for."""

Event = tuple[str, str]
"""A reservation and one of its planned events; no two plans have the same."""

ENDINGS = ("expired", "released")

RUNG, EFFECTS = "rung", ("expired", "scheduled-event")
"""What an alarm does; one ring may fire many events."""

_AGE = {Status.HELD: 0, Status.EXPIRED: 1, Status.CONFIRMED: 2, Status.RELEASED: 3}
"""Within a generation the status only ever moves on."""

_ROWS = "SELECT id, generation, status, created_at, expires_at FROM reservation"
_EVENTS = 'SELECT reservation, generation, type, at, "trigger" FROM event'
_PLANNED = """
SELECT reservation, event_id FROM schedule
UNION SELECT reservation, data->>'eventId' FROM event WHERE type = 'scheduled-event'
"""


class Ledger:
    """Adds up promises; `complaints` says which of them a database does not keep."""

    def __init__(self) -> None:
        self._certain: Counter[Change] = Counter()
        self._possible: Counter[Change] = Counter()
        self._fired: Counter[Change] = Counter()
        self._held: dict[Hold, Reservation] = {}
        self._until: dict[Hold, int] = {}
        self._owners: dict[Hold, str] = {}
        self._named: set[Hold] = set()
        self._latest: dict[str, Reservation] = {}
        self._attempts: dict[Slot, int] = {}
        self._last_claim = 0
        self._settled: set[tuple[str, int]] = set()
        self._anew: set[Slot] = set()
        self._planned: dict[Event, int] = {}
        self.broken: list[str] = []

    def ask(self, change: Change) -> None:
        """Somebody asks for this change: from now on it may happen, once."""
        self._possible[change] += 1

    def answer(self, change: Change, *, happened: bool) -> None:
        """The change that was asked for is known to have happened, or not to."""
        self._possible[change] -= 1
        self._certain[change] += happened

    def fire(self, reservation_id: str) -> None:
        """The log said that an alarm of this reservation had its effect."""
        self._fired[reservation_id, RUNG, "alarm"] += 1

    def plan(self, event: Event, generation: int) -> None:
        """Somebody was told that this event is planned on this hold."""
        self._planned[event] = generation

    def cancel(self, event: Event) -> None:
        """Somebody asks to take it off: from now on it may be there or not."""
        self._planned.pop(event, None)

    def set_anew(self, slot: Slot, *, counts_anew: bool) -> None:
        """This alarm waits for no attempt at an older one of the same time."""
        self._anew.add(slot)
        if counts_anew:
            self.count_anew(slot)

    def count_anew(self, slot: Slot) -> None:
        """This alarm is another than the one of the same time whose attempts were counted."""
        self._attempts.pop(slot, None)

    def see(self, row: Reservation) -> None:
        """Somebody was shown this row: it is committed, and never taken back."""
        if row.status is Status.MISSING:
            return
        before = self._latest.get(row.reservation_id)
        if before is None or _age(before) < _age(row):
            self._latest[row.reservation_id] = row
        key = row.reservation_id, row.generation
        assert row.expires_at is not None
        self._until[key] = max(row.expires_at, self._until.get(key, 0))
        first = self._held.setdefault(key, row)
        if row.created_at != first.created_at:
            self.broken.append(f"two holds have generation {row.generation}: {first} and {row}")

    def own(self, row: Reservation, holder: str, *, is_named: bool) -> None:
        """A holder was told that a call of theirs had its effect on this hold."""
        key = row.reservation_id, row.generation
        owner = self._owners.setdefault(key, holder)
        if owner != holder:
            self.broken.append(f"the hold {key} of {owner} obeyed {holder}")
        if is_named:
            self._named.add(key)

    def settle(self, reservation_id: str, claim: int) -> None:
        """The attempt is over, whenever it hears of it: it was settled in a transaction."""
        self._settled.add((reservation_id, claim))

    def claim(self, claimed: Sequence[Claimed], running: Iterable[Claimed]) -> None:
        """These attempts begin, while others are still at work in the same process."""
        at_work = {_slot_of(one) for one in running if (one.id, one.claim) not in self._settled}
        for one in claimed:
            slot = _slot_of(one)
            if one.attempts <= self._attempts.get(slot, 0):
                self.broken.append(f"attempt {one.attempts} again: {slot}")
            self._attempts[slot] = one.attempts
            if slot in at_work and slot not in self._anew:
                self.broken.append(f"{slot} is claimed while its attempt is at work")
            if one.claimed_at < one.info.scheduled_time:
                self.broken.append(f"{slot} is dispatched early, at {one.claimed_at}")
            if one.claim <= self._last_claim:
                self.broken.append(f"claim {one.claim} was given out before")
        self._last_claim = max([self._last_claim, *(one.claim for one in claimed)])

    def complaints(self, connection: sqlite3.Connection) -> Iterator[str]:
        """What this database, at any moment after everything above, does not keep."""
        yield from self.broken
        events = connection.execute(_EVENTS).fetchall()
        yield from self._miscounted(events)
        yield from self._forgotten(events)
        rows = {row[0]: row for row in connection.execute(_ROWS)}
        known = set(connection.execute(_PLANNED))
        for (name, event_id), generation in self._planned.items():
            if name in rows and rows[name][1] == generation and (name, event_id) not in known:
                yield f"{event_id} was planned on {name} and is lost"
        for name, told in self._latest.items():
            yield from _taken_back(told, rows.get(name))

    def _miscounted(self, events: Sequence[tuple[str, int, str, int, str]]) -> Iterator[str]:
        found = Counter(
            (name, SAYS.get(kind, kind), trigger) for name, _, kind, _, trigger in events
        )
        rings = Counter(
            (name, RUNG, trigger) for name, _, kind, _, trigger in events if kind in EFFECTS
        )
        for change in sorted(self._certain.keys() | self._possible.keys()):
            least = self._certain[change]
            most = least + self._possible[change]
            if found[change] < least:
                yield f"{change} was promised {least} times and happened {found[change]} times"
            if found[change] > most:
                yield f"{change} happened {found[change]} times and was asked for {most} times"
        for change, least in self._fired.items():
            if rings[change] < least:
                yield f"{change} was logged {least} times and happened {rings[change]} times"

    def _forgotten(self, events: Sequence[tuple[str, int, str, int, str]]) -> Iterator[str]:
        held = {
            (name, generation): at for name, generation, kind, at, _ in events if kind == "held"
        }
        for key, row in self._held.items():
            if held.get(key) != row.created_at:
                yield f"the hold {key} of {row.created_at} is lost; there is {held.get(key)}"
        for name, generation, kind, at, trigger in events:
            until = self._until.get((name, generation), 0)
            if kind == "expired" and trigger != "replay" and at < until:
                yield f"{name} was held until {until} and expired at {at}"
        endings = {(event[0], event[1]) for event in events if event[2] in ENDINGS}
        for name, generation in self._named - endings:
            if (name, generation + 1) in held:
                yield f"{name} was taken away from its holder in generation {generation}"


def _slot_of(claimed: Claimed) -> Slot:
    return claimed.id, claimed.generation, claimed.info.scheduled_time


def _taken_back(told: Reservation, row: tuple[str, int, str, int, int] | None) -> Iterator[str]:
    if row is None:
        yield f"{told.reservation_id} is gone; somebody saw {told}"
        return
    name, generation, status, created_at, expires_at = row
    if (generation, _AGE[Status(status)]) < _age(told):
        yield f"{name} is {status} in generation {generation} again; somebody saw {told}"
    elif generation == told.generation:
        if created_at != told.created_at:
            yield f"{name} was created at {created_at}; somebody saw {told}"
        if told.expires_at is None or expires_at < told.expires_at:
            yield f"{name} is held until {expires_at} only; somebody saw {told}"


def _age(row: Reservation) -> tuple[int, int]:
    return row.generation, _AGE[row.status]
