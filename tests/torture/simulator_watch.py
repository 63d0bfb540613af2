"""Looks at the disk around every transaction, as nobody inside of the simulated world can."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

from reservation_service.clock import Clock
from reservation_service.reservation import Cancel, Confirm, Extend, Fire, Plan, Release
from reservation_service.store import Claim, Retry, StoreMessage
from tests.support.invariants import violations_in
from tests.torture.simulator_disk import Disk
from tests.torture.simulator_ledger import ENDINGS, Ledger
from tests.torture.simulator_world import World

_SLOT = """
SELECT id, generation, status, expires_at, alarm_at, alarm_dispatch_at, alarm_attempts, alarm_claim
FROM reservation WHERE id = ?
"""
_UNRECOVERED = """
SELECT id, generation, alarm_at, alarm_dispatch_at, alarm_attempts, alarm_claim
FROM reservation WHERE alarm_claim IS NOT NULL OR alarm_dispatch_at > max(alarm_at, ?)
"""
_TOO_MANY = """
SELECT holder, count(*) FROM reservation
WHERE status = 'held' AND expires_at > ? AND holder <> x''
GROUP BY holder HAVING count(*) > ?
"""
_FIRED = "SELECT seq FROM event WHERE planned = ? AND run_at = ?"
_SECONDS_BETWEEN_LOOKS = 0.5
_VAIN_LOOKS_MAX = 5


class Slot(NamedTuple):
    """A row, as far as deadlines and alarms go."""

    id: str
    generation: int
    status: str
    expires_at: int
    alarm_at: int | None
    dispatch_at: int | None
    attempts: int
    claim: int | None

    @property
    def deadline(self) -> tuple[int, str, int]:
        """What a claim in the same batch leaves alone."""
        return self.generation, self.status, self.expires_at


class _Batch(NamedTuple):
    """A transaction at work: its messages, their rows as they were, what had happened, and when."""

    messages: Sequence[StoreMessage]
    before: dict[str, Slot]
    fired: set[Fire]
    began_at: int


class Watch:
    """The checks of one process; what is not as it must be is complained of at once."""

    def __init__(
        self, world: World, ledger: Ledger, disk: Disk, clock: Clock, max_per_holder: int
    ) -> None:
        self._world = world
        self._ledger = ledger
        self._disk = disk
        self._clock = clock
        self._max_per_holder = max_per_holder
        self._at_work: _Batch | None = None
        self._changes = 0
        self._last_look = 0.0
        self._vain_looks = 0

    def recovered(self, latest_ms: int) -> None:
        """No claim of the process before stands, and no retry waits for longer than it may."""
        late = self._disk.peek(_UNRECOVERED, latest_ms)
        if late is not None:
            self._world.complain(f"after a start: {late}")
        self._look_at_the_image("the start")

    @contextmanager
    def batch(self, messages: Sequence[StoreMessage]) -> Iterator[None]:
        """One transaction: it may fail or crash, and whoever is answered has its COMMIT."""
        before, fired = self._slots(messages), self._fired(messages)
        self._at_work = _Batch(messages, before, fired, self._clock.now())
        yield
        if self._at_work is not None:
            self._world.complain(f"answered without a COMMIT: {_shown(messages)}")

    def committed(self) -> None:
        """What a crash would keep from now on is all that was promised so far.

        Asked at the COMMIT itself: what a crash or a lost answer right behind it leaves counts.
        """
        batch, self._at_work = self._at_work, None
        if batch is None:  # the start's own
            return
        try:
            self._judge(batch)
        except sqlite3.Error as error:  # the transaction would take it for the disk's
            self._world.complain(f"the simulator is broken: {error!r}")

    def _judge(self, batch: _Batch) -> None:
        messages, before, _, began_at = batch
        after = self._slots(messages)
        has_claim = any(isinstance(message, Claim) for message in messages)
        for message in messages:
            if isinstance(message, Retry):
                slot = before.get(message.id)
                if slot is not None and slot.claim == message.claim:
                    self._ledger.settle(message.id, message.claim)
                elif not has_claim:  # which may change the same rows
                    self._settled_late(message, slot, after.get(message.id))
            elif isinstance(message, Extend | Confirm | Release):
                self._changed(message, began_at, before.get(message.id), after.get(message.id))
            if isinstance(message, Confirm | Plan | Cancel | Fire):
                mine = before.get(message.id), after.get(message.id)
                self._set_anew(*mine, may_be_claimed=has_claim)
        self._happened(batch)
        self._count_holds()
        if not all(isinstance(message, Claim) for message in messages):
            self._vain_looks = 0
        if self._disk.total_changes > self._changes:
            self._look_at_the_image(_shown(messages))

    def look(self, *, is_vain: bool) -> None:
        """The dispatcher has looked; again and again in vain without a reason is a busy loop."""
        now = self._world.loop.time()
        is_soon = now - self._last_look < _SECONDS_BETWEEN_LOOKS
        self._vain_looks = self._vain_looks + 1 if is_vain and is_soon else 0
        self._last_look = now
        if self._vain_looks > _VAIN_LOOKS_MAX:
            self._world.complain("the dispatcher looks again and again, and nothing is due")

    def _count_holds(self) -> None:
        """Nobody has more holds than one may, unless a step of the clock brought some back."""
        if self._max_per_holder == 0 or self._world.figures["clock-jump"] > 0:
            return
        too_many = self._disk.peek(_TOO_MANY, self._clock.now(), self._max_per_holder)
        if too_many is not None:
            self._world.complain(f"too many holds: {too_many}")

    def _settled_late(self, message: Retry, before: Slot | None, after: Slot | None) -> None:
        """A claim that does not stand any more gives no right to touch the row."""
        if before != after:
            self._world.complain(f"an old settle made {before} {after}")

    def _set_anew(self, before: Slot | None, after: Slot | None, *, may_be_claimed: bool) -> None:
        """What was planned, or has happened, may make an alarm of a time that was tried before."""
        if after is None or before == after or after.alarm_at is None:
            return
        slot = after.id, after.generation, after.alarm_at
        if before is None or before.alarm_at != after.alarm_at:
            self._ledger.count_anew(slot)  # also where an attempt goes on to what is due next
        if after.claim is None or may_be_claimed:
            is_anew = after.attempts <= int(may_be_claimed)  # the claim has counted its own
            self._ledger.set_anew(slot, counts_anew=is_anew)

    def _changed(
        self,
        message: Extend | Confirm | Release,
        began_at: int,
        before: Slot | None,
        after: Slot | None,
    ) -> None:
        """At the deadline a hold is over, whether or not its alarm has run."""
        is_asked_for = isinstance(message, Confirm) and message.if_still_free
        if before is None or before.status != "held" or is_asked_for:
            return
        moved = after is None or after.deadline != before.deadline
        if moved and before.expires_at <= began_at:
            self._world.complain(f"{message} came late and made {before} {after}")

    def _happened(self, batch: _Batch) -> None:
        """Nothing that was planned on a hold happens once the hold is over."""
        for fire in self._fired(batch.messages) - batch.fired:
            if _is_over(batch.before.get(fire.id), batch.began_at):
                self._world.complain(f"{fire} was recorded on a hold that is over")

    def _fired(self, messages: Sequence[StoreMessage]) -> set[Fire]:
        """Those occurrences that are recorded."""
        fires = [message for message in messages if isinstance(message, Fire)]
        return {one for one in fires if self._disk.peek(_FIRED, one.key, one.run_at) is not None}

    def _slots(self, messages: Sequence[StoreMessage]) -> dict[str, Slot]:
        rows = [self._disk.peek(_SLOT, message.id) for message in messages if message.id]
        return {row[0]: Slot(*row) for row in rows if row is not None}

    def _look_at_the_image(self, committed: str) -> None:
        self._changes = self._disk.total_changes
        self._world.figures["commits"] += 1
        self._world.note(f"committed {committed}")
        check_image(self._world, self._ledger, self._disk.serialize())


def check_image(world: World, ledger: Ledger, image: bytes) -> None:
    """Complain of what is not as it must be in the database that a crash would leave now."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(image)
        complaints = list(ledger.complaints(connection))
        for complaint in (*complaints, *violations_in(connection)):
            world.complain(complaint)


def _is_over(before: Slot | None, now: int) -> bool:
    if before is None or before.status in ENDINGS:
        return True
    return before.status == "held" and before.expires_at <= now


def _shown(messages: Sequence[StoreMessage]) -> str:
    kinds = ((type(message).__name__, message.id) for message in messages)
    return ", ".join(kind if name is None else f"{kind} {name}" for kind, name in kinds)
