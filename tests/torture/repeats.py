"""Repeats calls whose answers were lost: the state is to be what one call would have left.

The answer is lost on its way to a client that hung up, in a crash after COMMIT, in a crash before
the store had the message, or because the client asked twice at once.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from reservation_service.reservation import Message
from tests.support.clock import FakeClock
from tests.support.gates import Gate
from tests.support.harness import Answer, ServiceHarness
from tests.support.invariants import violations
from tests.support.recorder import Recorder
from tests.support.rows import history
from tests.support.scratch import scratch_directory
from tests.torture.report import Harness, Report
from tests.torture.statements import changed

NAMES = ["seat-0", "seat-1"]
TTL_SECONDS_MIN = 5
CAP_SECONDS = 20
SETTINGS: dict[str, object] = {
    "ttl_seconds_max": CAP_SECONDS,
    "max_hold_seconds": CAP_SECONDS,
    "max_holds_per_holder": 1,
}
SCENARIOS = 3_000
LOSSES = ["hung up", "killed after COMMIT", "killed before", "twice at once"]
MOVED = {"expiresAt", "alarmAt"}
RECORDED_AGAIN = {"hold": "renewed", "extend": "extended"}


@dataclass(frozen=True)
class Call:
    """One request; `age_ms` passes before it."""

    verb: str
    name: str = NAMES[0]
    holder: str | None = "alice-4711"
    ttl: int = 10
    gives_generation: bool = False
    is_late: bool = False
    age_ms: int = 0


calls = st.builds(
    Call,
    verb=st.sampled_from(["hold", "hold", "extend", "confirm", "release", "replay-alarm"]),
    name=st.sampled_from([NAMES[0], NAMES[0], NAMES[1]]),
    holder=st.sampled_from(["alice-4711", "alice-4711", "bob-0815", None]),
    ttl=st.sampled_from([TTL_SECONDS_MIN, 10, CAP_SECONDS]),
    gives_generation=st.booleans(),
    is_late=st.booleans(),
    age_ms=st.sampled_from([0, 1, 4_999, 5_000, 20_000]),
)


@dataclass(frozen=True)
class Scenario:
    """What happens before, the call that is repeated, how its answer is lost, and for how long."""

    before: list[Call]
    call: Call
    loss: str
    delay_ms: int = 0


scenarios = st.builds(
    Scenario,
    before=st.one_of(
        st.lists(calls, max_size=4),
        st.lists(calls, max_size=2).map(lambda later: [Call("hold", ttl=TTL_SECONDS_MIN), *later]),
    ),
    call=calls,
    loss=st.sampled_from(LOSSES),
    delay_ms=st.sampled_from([0, 1, 4_999]),
)


def run(scale: float) -> Report:
    """Thousands of scenarios; the one that broke a promise is told."""
    report = Report()
    lived: list[Scenario] = []

    @settings(
        max_examples=max(1, round(SCENARIOS * scale)),
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(scenario=scenarios)
    def live(scenario: Scenario) -> None:
        lived.append(scenario)
        asyncio.run(play(scenario))

    try:
        live()
    except AssertionError as broken:
        report.violations.append(f"{broken}, by {lived[-1]}")
    report.figures["calls repeated"] = len(lived)
    return report


def attempt(scenario: Scenario) -> Report:
    """One scenario."""
    report = Report()
    try:
        asyncio.run(play(scenario))
    except AssertionError as broken:
        report.violations.append(str(broken))
    return report


async def play(scenario: Scenario) -> None:
    with scratch_directory() as directory:
        service = ServiceHarness(
            directory / "reservations.db", FakeClock(), Recorder(), reservations=SETTINGS
        )
        await service.start()
        try:
            await _Repeat(service, scenario).play()
            assert violations(service.database) == []
        finally:
            await service.close()


class _Repeat:
    """One scenario; a snapshot is what every name shows, and what is recorded of it."""

    def __init__(self, service: ServiceHarness, scenario: Scenario) -> None:
        self._service = service
        self._scenario = scenario

    async def play(self) -> None:
        for call in self._scenario.before:
            await self._send(call, await self._body(call))
        call = self._scenario.call
        body = await self._body(call)
        untouched = await self._snapshot()
        await self._lose(call, body)
        if self._scenario.loss == "killed before":
            assert await self._snapshot() == untouched, "what never arrived had an effect"
            await self._send(call, body)
        await self._service.advance(self._scenario.delay_ms)
        once = await self._snapshot()
        answer = await self._send(call, body)
        self._compare(call, once, await self._snapshot())
        if once != untouched and self._was_its_own(once[call.name], untouched[call.name]):
            self._require_consent(call, answer, once[call.name].document)

    async def _body(self, call: Call) -> dict[str, object]:
        """What the call sends, both times; what it gives is read when it is first sent."""
        await self._service.advance(call.age_ms)
        document = await self._service.status(call.name)
        if call.verb == "replay-alarm":
            return {"now": document["expiresAt"] or self._service.clock.now()}
        body: dict[str, object] = {} if call.holder is None else {"holder": call.holder}
        if call.verb in {"hold", "extend"}:
            body["ttlSeconds"] = call.ttl
        if call.verb != "hold" and call.gives_generation:
            body["generation"] = document["generation"] or 1
        if call.verb == "confirm" and call.is_late:
            body["ifStillFree"] = True
        return body

    async def _send(self, call: Call, body: dict[str, object]) -> Answer:
        suffix = "" if call.verb == "hold" else f"/{call.verb}"
        return await self._service.post(f"/reservations/{call.name}{suffix}", body)

    async def _lose(self, call: Call, body: dict[str, object]) -> None:
        """Have the call done, or not, and its answer lost."""
        service, loss = self._service, self._scenario.loss
        if loss == "twice at once":
            await asyncio.gather(self._send(call, body), self._send(call, body))
            return
        close = service.gates.before if loss == "killed before" else service.gates.after
        gate = close(lambda message: isinstance(message, Message))
        await self._hang_up_at(gate, call, body)
        if loss == "hung up":
            gate.open()
        else:
            await service.crash()
            await service.start()

    async def _hang_up_at(self, gate: Gate, call: Call, body: dict[str, object]) -> None:
        """Wait until the message stands at the gate; one that is refused never comes there."""
        sent = asyncio.create_task(self._send(call, body))
        reached = asyncio.create_task(gate.reached())
        await asyncio.wait([sent, reached], return_when=asyncio.FIRST_COMPLETED)
        for task in (sent, reached):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _snapshot(self) -> "dict[str, _Shown]":
        return {
            name: _Shown(await self._service.status(name), history(self._service.database, name))
            for name in NAMES
        }

    def _compare(self, call: Call, once: "dict[str, _Shown]", twice: "dict[str, _Shown]") -> None:
        for name in NAMES:
            if name != call.name:
                assert twice[name] == once[name], "the repeat changed another reservation"
        before, after = once[call.name], twice[call.name]
        if call.verb == "hold" and (not before.is_live or before.is_reset(call, after)):
            assert after.is_same_or_next(before), "the repeat is no hold anew"
            return
        same = {key: value for key, value in before.document.items() if key not in MOVED}
        assert {key: after.document[key] for key in same} == same, "the repeat changed more"
        assert after.document.keys() == before.document.keys()
        again = after.events[len(before.events) :]
        allowed = RECORDED_AGAIN.get(call.verb)
        generation = before.document["generation"]
        assert again in ([], [(generation, allowed, "request")]), "the repeat is recorded anew"
        self._compare_deadlines(before.document, after.document, is_moved=again != [])
        if call.verb == "extend" and again:
            assert after.document["expiresAt"] > before.document["expiresAt"], "a repeat in vain"

    def _compare_deadlines(
        self, before: dict[str, Any], after: dict[str, Any], *, is_moved: bool
    ) -> None:
        for key in MOVED:
            if not is_moved:
                assert after[key] == before[key], "the repeat moved a deadline"
            else:
                latest = before["createdAt"] + CAP_SECONDS * 1_000
                assert before[key] <= after[key] <= max(latest, before[key]), "a repeat too far"

    def _was_its_own(self, once: "_Shown", untouched: "_Shown") -> bool:
        """It was this call that left an event, and not an alarm or a replay in between."""
        new = once.events[len(untouched.events) :]
        is_all = bool(new) and all(kind != "confirm-rejected" for _, kind, _ in new)
        return is_all and new[-1][2] in {"request", "replay"}

    def _require_consent(self, call: Call, answer: Answer, shown: dict[str, Any]) -> None:
        """Whoever repeats what was done is told so, and not that they came too late."""
        if call.verb == "extend" and answer.status == 409:
            assert answer.json["code"] == "extension-limit", "the repeat was refused"
            assert shown["expiresAt"] == shown["createdAt"] + CAP_SECONDS * 1_000
        else:
            assert answer.status < 300, f"the repeat was refused: {answer.body!r}"
        if call.verb in {"confirm", "release", "replay-alarm"}:
            assert answer.json["changed"] is False, "the repeat had an effect"


@dataclass(frozen=True)
class _Shown:
    """The document of one name, and the generation, type and trigger of its events."""

    document: dict[str, Any]
    events: list[tuple[int, str, str]]

    @property
    def is_live(self) -> bool:
        return bool(self.document["status"] == "held")

    def is_reset(self, call: Call, after: "_Shown") -> bool:
        """An anonymous hold of an anonymous one is a new hold: nobody can tell who repeats."""
        return call.holder is None and after.document["generation"] != self.document["generation"]

    def is_same_or_next(self, before: "_Shown") -> bool:
        """Nothing, or one more hold, after the end of the one before if that was overdue."""
        new = [kind for _, kind, _ in self.events[len(before.events) :]]
        return new in ([], ["held"], ["expired", "held"])


BUGS: Mapping[str, tuple[str, str, str, Call]] = {
    "confirm-again": (
        "CONFIRM",
        "r.status = 'held' AND r.expires_at > :now",
        "true",
        Call("confirm"),
    ),
    "release-again": (
        "RELEASE",
        "r.status = 'held' AND r.expires_at > :now",
        "true",
        Call("release"),
    ),
    "expire-again": ("EXPIRE", "r.status = 'held' AND ", "", Call("replay-alarm")),
    "extend-in-vain": (
        "EXTEND",
        "AND n.expires_at > r.expires_at",
        "",
        Call("extend", ttl=CAP_SECONDS),
    ),
    "own-hold-is-refused": ("SORT_NAMED", "THEN 'renewed'", "THEN 'refused'", Call("hold")),
}
"""A statement, what is replaced in it, by what, and the call that is not safe to repeat then."""


def hunt(statement: str, old: str, new: str, call: Call) -> Report:
    """A planted bug, and a call that shows it when it is repeated."""
    before = [] if call.verb == "hold" else [Call("hold", ttl=TTL_SECONDS_MIN)]
    with changed(statement, old, new):
        return attempt(Scenario(before, call, "hung up", delay_ms=1))


HARNESS = Harness(
    name="repeats",
    promise="a call repeated after a lost answer leaves what one call would have left",
    run=run,
    controls={name: partial(hunt, *bug) for name, bug in BUGS.items()},
    short=0.02,
)
