"""Clients that call for a few reservations, get in each other's way, and repeat what was lost.

A new kind of call joins by one more `Action` in `ACTIONS`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Protocol

from reservation_service.actor import ReservationActor, ReservationNamespace
from reservation_service.errors import (
    MessageFailed,
    OutcomeUnknown,
    Overloaded,
    ServiceError,
    StorageTrouble,
)
from reservation_service.refusals import Refused
from reservation_service.reservation import ANONYMOUS, Outcome, Plan, Reservation
from tests.torture.simulator_disk import PLANTED
from tests.torture.simulator_ledger import Change, Ledger
from tests.torture.simulator_process import ConnectionLost
from tests.torture.simulator_world import World

NAMES = ("seat-1", "seat-2", "seat-3", "seat-4", "seat-5", "seat-6")
NAMED = ("ann", "bob", "cyd")
HOLDERS = {name: sha256(name.encode()).digest() for name in NAMED} | {"anybody": ANONYMOUS}

_TTLS_MS = (1, 100, 500, 1_000, 3_000, 10_000, 60_000)
_LEADS_MS = (-60_000, 0, 100, 900, 2_500, 9_000, 30_000, 90_000)
_PERIODS_MS = (None, None, None, 7_000, 60_000)
_PAUSE_SECONDS_MAX = (0.0, 0.05, 1.0, 10.0)
_PATIENCE_SECONDS_MAX = 1.0
_AGAIN = 0.7
_OTHER_HOLDER = 0.2
_OWN_HOLD = 0.8
_WITH_GENERATION = 0.3


@dataclass(frozen=True)
class Answer:
    """What a caller learns: whether the call changed something, and the row."""

    changed: bool
    row: Reservation


Call = Callable[[ReservationActor], Awaitable[Answer]]


@dataclass(frozen=True)
class Caller:
    """Who calls, at what time of the service, and the generation that they name, if any."""

    chance: Random
    now: int
    holder: bytes
    generation: int | None
    reservation_id: str
    event_id: str

    def ttl_ms(self) -> int:
        return self.chance.choice(_TTLS_MS) + self.chance.randrange(10)


@dataclass(frozen=True)
class Action:
    """One kind of call. `plan` chooses its arguments; they are shown, and then used as often as
    the call is repeated. `event` is what it writes when it changes something: what its event says
    in the ledger's words, and the trigger.
    """

    name: str
    weight: int
    event: tuple[str, str] | None
    plan: Callable[[Caller], tuple[str, Call]]

    @property
    def needs_hold(self) -> bool:
        return self.name in {"extend", "confirm", "release", "plan", "cancel"}

    @property
    def is_the_holders(self) -> bool:
        return self.needs_hold or self.name == "hold"


def _hold(caller: Caller) -> tuple[str, Call]:
    ttl_ms = caller.ttl_ms()

    async def call(actor: ReservationActor) -> Answer:
        return Answer(True, await actor.hold(ttl_ms, caller.holder))

    return f"{ttl_ms} ms", call


def _extend(caller: Caller) -> tuple[str, Call]:
    ttl_ms = caller.ttl_ms()

    async def call(actor: ReservationActor) -> Answer:
        return _answer(await actor.extend(ttl_ms, caller.holder, caller.generation))

    return f"{ttl_ms} ms", call


def _confirm(caller: Caller) -> tuple[str, Call]:
    late = caller.chance.random() < 0.5

    async def call(actor: ReservationActor) -> Answer:
        return _answer(await actor.confirm(caller.holder, caller.generation, if_still_free=late))

    return "late too" * late, call


def _release(caller: Caller) -> tuple[str, Call]:
    async def call(actor: ReservationActor) -> Answer:
        return _answer(await actor.release(caller.holder, caller.generation, operator=False))

    return "", call


def _revoke(caller: Caller) -> tuple[str, Call]:
    async def call(actor: ReservationActor) -> Answer:
        return _answer(await actor.release(caller.holder, caller.generation, operator=True))

    return "", call


def _replay(caller: Caller) -> tuple[str, Call]:
    given = caller.now + caller.chance.choice((-100_000, -1, 0, 1, 100_000))

    async def call(actor: ReservationActor) -> Answer:
        return _answer(await actor.process_expiry(given))

    return f"at {given - caller.now:+} ms", call


def _plan(caller: Caller) -> tuple[str, Call]:
    chance = caller.chance
    run_at = max(1, caller.now + chance.choice(_LEADS_MS) + chance.randrange(10))
    repeat_ms = chance.choice(_PERIODS_MS)
    event = Plan(
        caller.reservation_id,
        caller.event_id,
        run_at,
        repeat_ms,
        None,
        caller.holder,
        caller.generation,
    )

    async def call(actor: ReservationActor) -> Answer:
        return _answer(await actor.plan(event))

    return f"{caller.event_id} in {run_at - caller.now} ms, every {repeat_ms}", call


def _cancel(caller: Caller) -> tuple[str, Call]:
    async def call(actor: ReservationActor) -> Answer:
        return _answer(await actor.cancel(caller.event_id, caller.holder, operator=False))

    return caller.event_id, call


def _look(_caller: Caller) -> tuple[str, Call]:
    async def call(actor: ReservationActor) -> Answer:
        return Answer(False, await actor.status())

    return "", call


def _answer(outcome: Outcome) -> Answer:
    return Answer(outcome.changed, outcome.reservation)


ACTIONS = (
    Action("hold", 12, ("held or renewed", "request"), _hold),
    Action("extend", 4, ("extended", "request"), _extend),
    Action("confirm", 2, ("confirmed", "request"), _confirm),
    Action("release", 1, ("released", "request"), _release),
    Action("revoke", 4, ("released", "request"), _revoke),
    Action("replay", 1, ("expired", "replay"), _replay),
    Action("look", 6, None, _look),
    Action("plan", 8, None, _plan),
    Action("cancel", 2, None, _cancel),
)


@dataclass(frozen=True)
class _Errand:
    """One call with its arguments, ready to be sent again."""

    action: Action
    reservation_id: str
    holder: str
    arguments: str
    call: Call
    event_id: str

    @property
    def change(self) -> Change | None:
        return self.action.event and (self.reservation_id, *self.action.event)

    def __str__(self) -> str:
        return f"{self.action.name} {self.reservation_id} by {self.holder} {self.arguments}"


class Service(Protocol):
    """Whatever process runs at the moment."""

    def now(self) -> int: ...

    async def request(
        self, call: Callable[[ReservationNamespace], Awaitable[Answer]]
    ) -> Answer: ...


class Client:
    """One front end. It calls until it is told to `leave`, one call at a time."""

    def __init__(self, name: str, world: World, ledger: Ledger, service: Service) -> None:
        self._name = name
        self._world = world
        self._ledger = ledger
        self._service = service
        self._has_left = False
        self._generations: dict[str, int] = {}
        self._holds: dict[str, str] = {}
        self._plans: list[tuple[str, str]] = []

    def leave(self) -> None:
        self._has_left = True

    async def run(self) -> None:
        chance = self._world.chance
        weights = [action.weight for action in ACTIONS]
        while not self._has_left:
            (action,) = chance.choices(ACTIONS, weights)
            await self._insist(self._plan(action))
            await asyncio.sleep(chance.uniform(0, chance.choice(_PAUSE_SECONDS_MAX)))

    async def _insist(self, errand: _Errand) -> None:
        """Send the same call until it is answered, or until patience ends."""
        chance = self._world.chance
        while not await self._try(errand):
            if self._has_left or chance.random() >= _AGAIN:
                return
            await asyncio.sleep(chance.uniform(0, 2.0))

    def _plan(self, action: Action) -> _Errand:
        """For a hold that was made here before if the call needs one, and sometimes for others."""
        chance = self._world.chance
        reservation_id, holder = chance.choice(NAMES), self._name
        if action.needs_hold and self._holds and chance.random() < _OWN_HOLD:
            reservation_id, holder = chance.choice(tuple(self._holds.items()))
        if chance.random() < _OTHER_HOLDER:
            holder = chance.choice(tuple(HOLDERS))
        is_exact = chance.random() < _WITH_GENERATION
        generation = self._generations.get(reservation_id) if is_exact else None
        event_id = f"{self._name}-{len(self._plans)}"
        if action.name == "cancel" and self._plans:
            reservation_id, event_id = chance.choice(self._plans)
        if action.name == "plan":
            self._plans.append((reservation_id, event_id))
        now, digest = self._service.now(), HOLDERS[holder]
        caller = Caller(chance, now, digest, generation, reservation_id, event_id)
        arguments, call = action.plan(caller)
        return _Errand(action, reservation_id, holder, arguments, call, event_id)

    async def _try(self, errand: _Errand) -> bool:
        """One call, told to the ledger; False when the client does not know what it did."""
        text, change = f"{self._name} {errand}", errand.change
        self._world.note(text)
        if change:
            self._ledger.ask(change)
        if errand.action.name == "cancel":
            self._ledger.cancel((errand.reservation_id, errand.event_id))
        try:
            answer = await self._send(errand)
        except (ConnectionLost, OutcomeUnknown, TimeoutError) as error:
            self._world.note(f"{text}: {type(error).__name__}")
            return False
        self._world.note(f"{text}: {_shown(answer)}")
        if change:
            self._ledger.answer(change, happened=answer is not None and answer.changed)
        if answer is not None:
            self._learn(errand, answer)
        return answer is not None

    def _learn(self, errand: _Errand, answer: Answer) -> None:
        """Remember what was shown, and whose call it was that the hold obeyed."""
        verdict = "done" if answer.changed else "answered"
        self._world.figures[f"{errand.action.name} {verdict}"] += 1
        self._ledger.see(answer.row)
        self._generations[errand.reservation_id] = answer.row.generation
        if errand.action.name == "plan" and answer.changed:
            self._ledger.plan((errand.reservation_id, errand.event_id), answer.row.generation)
        if errand.action.is_the_holders and answer.changed:
            self._holds[errand.reservation_id] = errand.holder
            self._ledger.own(answer.row, errand.holder, is_named=errand.holder in NAMED)

    async def _send(self, errand: _Errand) -> Answer | None:
        """The answer, or None when nothing was changed and nothing was learned."""

        def call(namespace: ReservationNamespace) -> Awaitable[Answer]:
            return errand.call(namespace.get_by_name(errand.reservation_id))

        try:
            if not self._world.strikes("impatient-caller"):
                return await self._service.request(call)
            async with asyncio.timeout(self._world.chance.uniform(0, _PATIENCE_SECONDS_MAX)):
                return await self._service.request(call)
        except OutcomeUnknown:
            raise
        except ServiceError as error:
            return self._refused(error)

    def _refused(self, error: ServiceError) -> Answer | None:
        """A refusal shows the row; the other errors say that nothing was changed."""
        if isinstance(error, Refused):
            self._world.figures[f"refused {error.code}"] += 1
            return Answer(False, error.reservation)
        is_planted = isinstance(error, MessageFailed) and str(error.__cause__) == PLANTED
        if not is_planted and not isinstance(error, StorageTrouble | Overloaded):
            self._world.complain(f"a call failed: {error!r} from {error.__cause__!r}")
        return None


def _shown(answer: Answer | None) -> str:
    if answer is None:
        return "nothing was changed"
    row = answer.row
    times = f"{row.created_at} to {row.expires_at}, alarm {row.alarm_at} #{row.alarm_attempts}"
    return f"{'changed' * answer.changed} {row.status} {row.generation}, {times}"
