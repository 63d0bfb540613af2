"""What the contract says that a booking service must answer, written from the contract alone.

It knows no storage, no batch and no alarm slot: only who asks for what, when.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

Said = tuple[int, object]
"""The status of an answer, and beside it whether something changed, or the problem's code."""

CREATED: Said = (201, None)
CHANGED: Said = (200, True)
UNCHANGED: Said = (200, False)
REJECTIONS_MAX = 20


@dataclass
class Seat:
    """One reservation; `log` is the generation, type and trigger of everything that happened."""

    state: str = "missing"
    holder: str | None = None
    generation: int = 0
    created_at: int | None = None
    expires_at: int = 0
    expired_at: int | None = None
    confirmed_at: int | None = None
    released_at: int | None = None
    log: list[tuple[int, str, str]] = field(default_factory=list)
    rejected: set[tuple[int, str | None, str]] = field(default_factory=set)

    def is_live(self, now: int) -> bool:
        return self.state == "held" and now < self.expires_at

    def is_overdue(self, now: int) -> bool:
        return self.state == "held" and now >= self.expires_at

    def record(self, kind: str, trigger: str = "request") -> None:
        self.log.append((self.generation, kind, trigger))

    def expire(self, at: int, trigger: str) -> None:
        self.state, self.expired_at = "expired", at
        self.record("expired", trigger)

    def begin(self, holder: str | None, ttl_ms: int, now: int) -> None:
        self.state, self.holder, self.generation = "held", holder, self.generation + 1
        self.created_at, self.expires_at = now, now + ttl_ms
        self.expired_at = self.confirmed_at = self.released_at = None
        self.record("held")


class Oracle:
    """All seats, and what every call must answer; each call changes the seats as it must."""

    def __init__(self, names: Sequence[str], *, cap_ms: int, limit: int) -> None:
        self.seats = {name: Seat() for name in names}
        self._cap_ms = cap_ms
        self._limit = limit

    def hold(self, name: str, holder: str | None, ttl_ms: int, now: int) -> Said:
        seat = self.seats[name]
        if seat.state == "confirmed":
            return 409, "already-confirmed"
        if seat.is_live(now):
            return self._hold_again(seat, holder, ttl_ms, now)
        if seat.state == "held":
            seat.expire(now, "request")
        if holder is not None and self._live(holder, now) >= self._limit:
            return 429, "too-many-holds"
        seat.begin(holder, ttl_ms, now)
        return CREATED

    def extend(
        self, name: str, holder: str | None, generation: int | None, ttl_ms: int, now: int
    ) -> Said:
        seat = self.seats[name]
        if refused := self._not_owned(seat, holder, generation) or self._over(seat, now):
            return refused
        if seat.state == "confirmed":
            return 409, "already-confirmed"
        if self._reach(seat, ttl_ms, now) > seat.expires_at:
            seat.expires_at = self._reach(seat, ttl_ms, now)
            seat.record("extended")
            return CHANGED
        return (409, "extension-limit") if now + ttl_ms > seat.expires_at else UNCHANGED

    def confirm(
        self, name: str, holder: str | None, generation: int | None, *, late: bool, now: int
    ) -> Said:
        seat = self.seats[name]
        if late and holder is None and generation is None:
            return 400, "invalid-field"
        is_taken = seat.is_live(now) or seat.state == "confirmed"
        if late and is_taken and seat.holder != holder:
            return self._reject(seat, holder, (409, "taken"))
        if refused := self._not_owned(seat, holder, generation):
            return refused
        if seat.state == "confirmed":
            return UNCHANGED
        over = self._over(seat, now)
        if over is not None and (not late or seat.state == "released"):
            return self._reject(seat, holder, over)
        seat.state, seat.confirmed_at = "confirmed", now
        seat.record("confirmed")
        return CHANGED

    def release(self, name: str, holder: str | None, generation: int | None, now: int) -> Said:
        seat = self.seats[name]
        if seat.state == "missing":
            return UNCHANGED
        if refused := self._not_owned(seat, holder, generation):
            return refused
        if seat.state == "confirmed":
            return 409, "already-confirmed"
        if not seat.is_live(now):
            return UNCHANGED
        seat.state, seat.released_at = "released", now
        seat.record("released")
        return CHANGED

    def replay(self, name: str, at: int) -> Said:
        seat = self.seats[name]
        if not seat.is_overdue(at):
            return UNCHANGED
        seat.expire(at, "replay")
        return CHANGED

    def _hold_again(self, seat: Seat, holder: str | None, ttl_ms: int, now: int) -> Said:
        if seat.holder != holder:
            return 409, "already-held"
        if holder is None:
            seat.begin(None, ttl_ms, now)
        else:
            seat.expires_at = max(seat.expires_at, self._reach(seat, ttl_ms, now))
            seat.record("renewed")
        return CREATED

    def _reach(self, seat: Seat, ttl_ms: int, now: int) -> int:
        assert seat.created_at is not None
        return min(now + ttl_ms, seat.created_at + self._cap_ms)

    def _live(self, holder: str, now: int) -> int:
        return sum(seat.holder == holder and seat.is_live(now) for seat in self.seats.values())

    def _not_owned(self, seat: Seat, holder: str | None, generation: int | None) -> Said | None:
        if seat.state == "missing":
            return 410, "no-hold"
        if seat.holder != holder:
            return 403, "not-your-hold"
        if generation not in {None, seat.generation}:
            return 409, "generation-mismatch"
        return None

    def _over(self, seat: Seat, now: int) -> Said | None:
        if seat.state == "released":
            return 410, "hold-released"
        if seat.state == "expired" or seat.is_overdue(now):
            return 410, "hold-expired"
        return None

    def _reject(self, seat: Seat, holder: str | None, said: Said) -> Said:
        one = (seat.generation, holder, str(said[1]))
        known = [entry for entry in seat.rejected if entry[0] == seat.generation]
        if one not in seat.rejected and len(known) < REJECTIONS_MAX:
            seat.rejected.add(one)
            seat.record("confirm-rejected")
        return said
