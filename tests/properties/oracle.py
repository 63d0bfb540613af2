"""What reservations must do, said a second time and as simply as it can be.

No SQL, no asyncio, none of the service's code: a few rules over plain numbers, all times in epoch
milliseconds. The state machine tells it and the service the same and compares.
"""

from dataclasses import dataclass, field
from typing import Any

FIRST_DELAY_MS = 2_000
DELAY_CAP_MS = 60_000
LEASE_MS = 10_000
STUCK_AFTER = 6


@dataclass
class Slot:
    """A planned alarm: when it was asked for, when it is tried next, how often it was."""

    at: int
    next_try: int
    attempts: int = 0
    leased_until: int | None = None


@dataclass
class Reservation:
    """One name. `events` are (generation, type, trigger, at)."""

    status: str = "missing"
    generation: int = 0
    created_at: int | None = None
    expires_at: int | None = None
    expired_at: int | None = None
    slot: Slot | None = None
    is_poisoned: bool = False
    events: list[tuple[int, str, str, int]] = field(default_factory=list)


class Oracle:
    """All names, and the time that is shared by them."""

    def __init__(self, names: list[str], now: int) -> None:
        self.now = now
        self.names = {name: Reservation() for name in names}

    def hold(self, name: str, ttl_ms: int) -> None:
        """Anybody may hold anew; an end that nobody has seen yet is recorded first."""
        one = self.names[name]
        if one.status == "held" and self._is_over(one, self.now):
            self._expire(one, "request", self.now)
        one.status = "held"
        one.generation += 1
        one.created_at, one.expires_at = self.now, self.now + ttl_ms
        one.expired_at = None
        one.slot = Slot(at=one.expires_at, next_try=one.expires_at)
        one.events.append((one.generation, "held", "request", self.now))

    def replay(self, name: str, now: int) -> bool:
        """True when the hold was over at the `now` that was brought."""
        one = self.names[name]
        if one.status != "held" or not self._is_over(one, now):
            return False
        self._expire(one, "replay", now)
        return True

    def due(self) -> list[str]:
        """Names whose alarm is to be tried now."""
        return [
            name
            for name, one in self.names.items()
            if one.slot is not None and one.slot.next_try <= self.now
        ]

    def ring(self) -> None:
        """Every due alarm is tried once: it succeeds, or it waits for its next try."""
        for name in self.due():
            one = self.names[name]
            slot = self._attempt(one)
            if not one.is_poisoned:
                self._expire(one, "alarm", self.now)
                continue
            doubled = FIRST_DELAY_MS * 2 ** (slot.attempts - 1)
            slot.next_try = self.now + min(DELAY_CAP_MS, doubled)
            if slot.attempts <= STUCK_AFTER:
                one.events.append((one.generation, "alarm-failed", "alarm", self.now))

    def cut_short(self) -> None:
        """Every due alarm was being tried when the process died."""
        for name in self.due():
            self._attempt(self.names[name]).leased_until = self.now + LEASE_MS

    def start_again(self) -> dict[str, range]:
        """What was cut short once is tried at once, what was cut short again waits a while.

        How long is for the service to choose: the answer says between which times. A lease that
        ran out meanwhile has been a wait already.
        """
        waiting = {}
        for name, one in self.names.items():
            if one.slot is None or one.slot.leased_until is None:
                continue
            leased_until, one.slot.leased_until = one.slot.leased_until, None
            one.slot.next_try = one.slot.at if one.slot.attempts == 1 else leased_until
            if one.slot.next_try > self.now:
                soonest = min(leased_until, self.now + FIRST_DELAY_MS)
                latest = min(leased_until, self.now + 2 * FIRST_DELAY_MS - 1)
                waiting[name] = range(soonest, latest + 1)
        return waiting

    def next_try(self) -> int | None:
        """When the next alarm is to be tried."""
        return min((one.slot.next_try for one in self.names.values() if one.slot), default=None)

    def document(self, name: str) -> dict[str, Any]:
        """What GET must answer."""
        one = self.names[name]
        attempts = one.slot.attempts if one.slot else 0
        return {
            "reservationId": name,
            "status": one.status,
            "createdAt": one.created_at,
            "expiresAt": one.expires_at,
            "expiredAt": one.expired_at,
            "expirationCount": 1 if one.status == "expired" else 0,
            "alarmAt": one.slot.at if one.slot else None,
            "generation": one.generation,
            "confirmedAt": None,
            "releasedAt": None,
            "alarmRetryCount": max(0, attempts - 1),
            "alarmStuck": attempts >= STUCK_AFTER,
        }

    def _attempt(self, one: Reservation) -> Slot:
        assert one.slot is not None
        one.slot.attempts += 1
        return one.slot

    def _is_over(self, one: Reservation, now: int) -> bool:
        assert one.expires_at is not None
        return now >= one.expires_at

    def _expire(self, one: Reservation, trigger: str, at: int) -> None:
        one.status, one.expired_at, one.slot = "expired", at, None
        one.events.append((one.generation, "expired", trigger, at if trigger != "replay" else 0))
