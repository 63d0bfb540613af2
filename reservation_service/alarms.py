"""The alarm clock: wake, claim, dispatch, settle.

The table decides what is due; the waker only says when to look. Every due alarm is claimed in a
transaction that counts its attempt, and dispatched at least once to its actor. The effect itself
moves the slot; only an attempt that did not is settled, with a delay that grows and never ends.
There is no barrier: a slow or failing alarm delays nobody but itself. When the store cannot
commit, nobody is to blame: everything pauses and goes on once it can.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, Protocol

from reservation_service.actor import ReservationNamespace
from reservation_service.clock import Clock
from reservation_service.errors import ServiceError, StorageTrouble
from reservation_service.patience import Group, Patience
from reservation_service.reservation import Outcome
from reservation_service.retry import RetryPolicy
from reservation_service.store import Claim, Claimed, Retry, Store

Observe = Callable[..., None]
_Expiry = asyncio.Future[Outcome]
_Key = tuple[str, int]  # of an attempt: the reservation and the claim

BEGIN_MAX = 128
"""How many attempts begin before the event loop looks for requests: the slowest of 100 reads took
45 ms in a burst with this, and 58 ms when the thousand of a claim began at once."""

_DRAIN_S = 1.0
"""How long a stop waits for attempts at work; what is cut short runs again after the restart."""


class Waker(Protocol):
    """Says when to look into the table again; it may be early or late, but never for long."""

    def arm(self, at_ms: int) -> None:
        """Wake at `at_ms` of service time, unless it is to wake earlier anyway."""

    async def wait(self) -> int | None:
        """Return at the armed time, or after a second at the latest; it is disarmed then.

        It may wake an idle service some milliseconds early, and returns that time then, and
        else None.
        """


@dataclass(frozen=True, slots=True)
class AlarmLimits:
    """Bounds of the dispatcher; times in milliseconds, the attempt's shorter than the lease."""

    lease_ms: int
    attempt_timeout_ms: int
    claim_max: int
    in_flight_max: int
    stuck_after: int


class AlarmClock:
    """Dispatches due alarms while `run` is running; `expect` tells it of every commit."""

    def __init__(  # noqa: PLR0913 - the composition root hands in each port once
        self,
        store: Store,
        namespace: ReservationNamespace,
        waker: Waker,
        clock: Clock,
        *,
        policy: RetryPolicy,
        limits: AlarmLimits,
        observe: Observe,
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._waker = waker
        self._clock = clock
        self._policy = policy
        self._limits = limits
        self._observe = observe
        self._next_due_at: int | None = None
        self._soon_due_at: int | None = None
        self._claimed: dict[_Key, Claimed] = {}
        self._attempts: dict[_Key, asyncio.Future[Any]] = {}
        self._patience = Patience(limits.attempt_timeout_ms / 1000)
        self._pause = _Pause(observe)
        self.looked_at = clock.now()
        """When it last went to look into the table, epoch ms."""

    def expect(self, next_due_at: int | None) -> None:
        """A commit went through, and this is the head of the due index now (epoch ms)."""
        self._next_due_at = next_due_at
        self._pause.end()
        if next_due_at is not None and next_due_at != self._soon_due_at:
            self._waker.arm(next_due_at)

    async def run(self) -> None:
        """Look, dispatch, wait, until cancelled; then the attempts at work get a moment to end."""
        soon_due_at: int | None = None
        try:
            while True:
                self.looked_at = self._clock.now()
                if soon_due_at is not None:
                    await self._get_ready(soon_due_at)
                await self._dispatch_due(soon_due_at)
                soon_due_at = await self._waker.wait()
                self._pause.try_again()
        finally:
            await self._drain()

    async def _get_ready(self, soon_due_at: int) -> None:
        """Look before the time: an idle service is slow at first, and its next look is quick.

        That look follows at once, and waits in the store; nobody has to be woken for it.
        """
        self._soon_due_at = soon_due_at
        try:
            await self._dispatch_due()
        finally:
            self._soon_due_at = None

    async def _dispatch_due(self, soon_due_at: int | None = None) -> None:
        """Claim until nothing is due, or until there is no room for more attempts in flight.

        The store is asked for more before the attempts begin: it is never idle in a burst.
        """
        limit = self._room()
        claimed = await self._claim(limit, soon_due_at) if limit > 0 else []
        while claimed:
            self._claimed.update(((one.id, one.claim), one) for one in claimed)
            limit = self._room() if len(claimed) == limit else 0
            if limit <= 0:
                await self._begin(claimed)
                return
            claimed, _ = await asyncio.gather(self._claim(limit), self._begin(claimed))

    async def _claim(self, limit: int, not_before: int | None = None) -> list[Claimed]:
        """Up to `limit` alarms that are due; none while the store cannot commit."""
        claim = Claim(limit, self._limits.lease_ms, self._at_work(), not_before)
        try:
            return await self._store.claim(claim)
        except StorageTrouble as trouble:
            self._pause.begin(trouble)
            return []

    async def _begin(self, claimed: Sequence[Claimed]) -> None:
        for number, one in enumerate(claimed, 1):
            self._begin_one(one)
            if number % BEGIN_MAX == 0:
                await asyncio.sleep(0)

    def _begin_one(self, claimed: Claimed) -> None:
        """Nearly every attempt is over with its expiry, so a task is made for the others only."""
        actor, group = self._namespace.get_by_name(claimed.id), self._patience.group()
        then = partial(self._end_expiry, claimed, group)
        try:
            expiry = actor.begin_expiry(claimed.info.retry_count, then)
        except ServiceError:  # the attempt will meet it, too
            expiry = None
        if expiry is None:
            self._begin_alone(claimed)
        else:
            self._attempts[claimed.id, claimed.claim] = expiry
            group.join(expiry)

    def _end_expiry(self, claimed: Claimed, group: Group, expiry: _Expiry) -> None:
        group.leave(expiry)
        if _is_all(expiry):
            self._end(claimed)
            self._report(claimed, "ok" if expiry.result().changed else "nothing-due")
        else:
            self._begin_alone(claimed, expiry, group)

    def _begin_alone(
        self, claimed: Claimed, expiry: _Expiry | None = None, group: Group | None = None
    ) -> None:
        """An attempt in a task of its own; it goes on from its expiry if that has begun."""
        attempt = asyncio.get_running_loop().create_task(self._attempt(claimed, expiry, group))
        attempt.add_done_callback(lambda _: self._end(claimed))
        self._attempts[claimed.id, claimed.claim] = attempt

    def _room(self) -> int:
        free = self._limits.in_flight_max - len(self._claimed)
        return min(free, self._limits.claim_max)

    def _at_work(self) -> list[str]:
        return [reservation_id for reservation_id, _ in self._claimed]

    async def _attempt(self, claimed: Claimed, expiry: _Expiry | None, group: Group | None) -> None:
        try:
            verdict = await self._dispatch(claimed, expiry, group)
            if verdict is not _Verdict.MOVED:
                await self._settle(claimed, has_failed=verdict is _Verdict.FAILED)
        except ServiceError as error:
            if not error.fatal:
                self._observe("settle-failed", reservation_id=claimed.id, error=str(error))

    def _end(self, claimed: Claimed) -> None:
        was_full = len(self._claimed) >= self._limits.in_flight_max
        del self._claimed[claimed.id, claimed.claim]
        del self._attempts[claimed.id, claimed.claim]
        if was_full:  # more may be due than there was room for
            self._waker.arm(self._clock.now())

    async def _dispatch(
        self, claimed: Claimed, expiry: _Expiry | None, group: Group | None
    ) -> "_Verdict":
        """One attempt, and its log line; a store in trouble is waited out."""
        actor = self._namespace.get_by_name(claimed.id)
        while True:
            try:
                outcome = await self._patience.limit(actor.alarm(claimed.info, expiry), group)
            except StorageTrouble as trouble:
                expiry = group = None
                await self._pause.wait_out(trouble)
            except TimeoutError:
                self._report(claimed, "timed-out")
                return _Verdict.FAILED
            except Exception as error:  # whatever a handler raises is a failed attempt
                if isinstance(error, ServiceError) and error.fatal:
                    raise
                self._report(claimed, "failed", error=str(error.__cause__ or error))
                return _Verdict.FAILED
            else:
                self._report(claimed, "ok" if outcome.changed else "nothing-due")
                is_claimed = outcome.reservation.alarm_running
                return _Verdict.CLAIMED if is_claimed else _Verdict.MOVED

    async def _settle(self, claimed: Claimed, *, has_failed: bool) -> None:
        """Plan the next attempt; a claim that no longer stands is left alone by the store."""
        failures = claimed.attempts
        retry = Retry(
            id=claimed.id,
            claim=claimed.claim,
            delay_ms=self._policy.delay_ms(failures),
            seen=claimed.claimed_at,
            record=has_failed and failures <= self._limits.stuck_after,
        )
        while True:
            try:
                await self._store.settle(retry)
                break
            except StorageTrouble as trouble:
                await self._pause.wait_out(trouble)
        if has_failed and failures == self._limits.stuck_after:
            self._observe("alarm-stuck", reservation_id=claimed.id, failures=failures)

    def _report(self, claimed: Claimed, outcome: str, **fields: str) -> None:
        info = claimed.info
        self._observe(
            "reservation-alarm",
            reservation_id=claimed.id,
            is_retry=info.is_retry,
            retry_count=info.retry_count,
            outcome=outcome,
            lateness_ms=self._clock.now() - info.scheduled_time,
            **fields,
        )

    async def _drain(self) -> None:
        """An expiry that ends may begin an attempt, which is waited for or cancelled, too."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                while self._attempts:
                    await asyncio.wait(self._attempts.values())
        while self._attempts:
            for attempt in self._attempts.values():
                attempt.cancel()
            await asyncio.wait(self._attempts.values())


def _is_all(expiry: _Expiry) -> bool:
    """Whether an attempt is over with this expiry: it moved the slot, or found it moved."""
    if expiry.cancelled() or expiry.exception() is not None:
        return False
    outcome = expiry.result()
    return not outcome.leaves_due and not outcome.reservation.alarm_running


class _Verdict(Enum):
    """What an attempt came to: the slot moved on, the handler failed, or left its claim."""

    MOVED = auto()
    FAILED = auto()
    CLAIMED = auto()


class _Pause:
    """The whole dispatcher waits while the store cannot commit; a trouble is no failed attempt.

    Whoever meets the trouble waits here until a commit goes through or the next look, a second
    later at most, and then tries again.
    """

    def __init__(self, observe: Observe) -> None:
        self._observe = observe
        self._again: asyncio.Event | None = None
        self._is_known = False

    def begin(self, trouble: StorageTrouble) -> None:
        if self._again is None:
            self._again = asyncio.Event()
        if not self._is_known:
            self._is_known = True
            self._observe("dispatch-paused", reason=trouble.code)

    async def wait_out(self, trouble: StorageTrouble) -> None:
        self.begin(trouble)
        assert self._again is not None
        await self._again.wait()

    def try_again(self) -> None:
        if self._again is not None:
            self._again.set()
            self._again = None

    def end(self) -> None:
        self.try_again()
        if self._is_known:
            self._is_known = False
            self._observe("dispatch-resumed")
