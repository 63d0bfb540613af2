"""What the contract says of planned events, beside the oracle of bookings; no slot, no storage.

Time stands still while an alarm rings, so everything that is due happens at the same moment.
"""

from collections.abc import Container
from dataclasses import dataclass, field, replace

from tests.properties.booking_oracle import Oracle, Said, Seat

EVENTS_MAX = 100
NEW: Said = (201, None)
STANDS: Said = (200, None)

Occurrence = tuple[str, int, int, object]
"""The event, the time it was planned for, the periods that were missed, its data."""


@dataclass(frozen=True)
class Event:
    """One planned event; `asked` is what the client asked for, `number` the order of plans."""

    number: int
    run_at: int
    asked: tuple[int, int | None, object]

    @property
    def repeat_ms(self) -> int | None:
        return self.asked[1]


@dataclass
class Agenda:
    """What is planned on one generation of a seat, and what has happened of it so far."""

    generation: int = 0
    events: dict[str, Event] = field(default_factory=dict)
    happened: list[Occurrence] = field(default_factory=list)


class ScheduleOracle:
    """The agendas of all seats of a booking oracle."""

    def __init__(self, bookings: Oracle) -> None:
        self._seats = bookings.seats
        self._agendas = {name: Agenda() for name in bookings.seats}
        self._plans = 0

    def plan(
        self, name: str, holder: str | None, event_id: str, asked: tuple[int, int | None, object],
        now: int,
    ) -> Said:  # fmt: skip
        seat = self._seats[name]
        if refused := _not_owned(seat, holder) or _over(seat, now):
            return refused
        events = self._current(name).events
        before = events.get(event_id)
        if before is None and len(events) >= EVENTS_MAX:
            return 409, "too-many-events"
        if before is None or before.asked != asked:
            self._plans += 1
            events[event_id] = Event(self._plans, asked[0], asked)
        return STANDS if before else NEW

    def cancel(self, name: str, holder: str | None, event_id: str) -> Said:
        seat = self._seats[name]
        if seat.state != "missing" and seat.holder != holder:
            return 403, "not-your-hold"
        if self._current(name).events.pop(event_id, None) is None:
            return 404, "no-event"
        return 200, True

    def shown(self, name: str, now: int) -> list[tuple[str, int]]:
        """What is on the schedule, in the order in which it is to happen."""
        if not self.is_alive(name, now):
            return []
        return [(event_id, event.run_at) for event_id, event in self._in_order(name)]

    def alarm_at(self, name: str) -> int | None:
        """The earliest of the deadline and what is planned."""
        seat = self._seats[name]
        times = [event.run_at for event in self._current(name).events.values()]
        if seat.state == "held":
            times.append(seat.expires_at)
        return min(times, default=None) if seat.state in {"held", "confirmed"} else None

    def ring(self, name: str, now: int, failing: Container[str] = ()) -> None:
        """Everything that is due happens, but what fails."""
        if not self.is_alive(name, now):
            return
        agenda = self._current(name)
        for event_id, event in self._in_order(name):
            if event.run_at > now or event_id in failing:
                continue
            missed = (now - event.run_at) // event.repeat_ms if event.repeat_ms else 0
            agenda.happened.append((event_id, event.run_at, missed, event.asked[2]))
            if event.repeat_ms is None:
                del agenda.events[event_id]
            else:
                following = event.run_at + event.repeat_ms * (missed + 1)
                agenda.events[event_id] = replace(event, run_at=following)

    def happened(self, name: str) -> list[Occurrence]:
        return self._agendas[name].happened

    def is_alive(self, name: str, now: int) -> bool:
        seat = self._seats[name]
        return seat.state == "confirmed" or seat.is_live(now)

    def next_times(self, now: int) -> list[int]:
        """When something is to happen on what will still be alive then."""
        return sorted(
            event.run_at
            for name in self._seats
            for event in self._current(name).events.values()
            if event.run_at > now and self.is_alive(name, event.run_at)
        )

    def _in_order(self, name: str) -> list[tuple[str, Event]]:
        events = self._current(name).events.items()
        return sorted(events, key=lambda item: (item[1].run_at, item[1].number))

    def _current(self, name: str) -> Agenda:
        """A new hold begins with nothing planned."""
        agenda, generation = self._agendas[name], self._seats[name].generation
        if agenda.generation != generation:
            agenda.generation, agenda.events = generation, {}
        return agenda


def _not_owned(seat: Seat, holder: str | None) -> Said | None:
    if seat.state == "missing":
        return 410, "no-hold"
    return (403, "not-your-hold") if seat.holder != holder else None


def _over(seat: Seat, now: int) -> Said | None:
    if seat.state == "released":
        return 410, "hold-released"
    if seat.state == "expired" or seat.is_overdue(now):
        return 410, "hold-expired"
    return None
