"""Calls against the alarm at the very deadline, and many holders who want the same seat at once.

Each race is judged by what the caller was told, what the log says, and when: of the call and the
alarm exactly one has won, and the one that was in time. A race that is never close proves nothing,
so the report says how often each side won.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from tests.process.server import Server, eventually
from tests.support.invariants import violations
from tests.torture.clients import Answer, Client, post
from tests.torture.report import Harness, Report
from tests.torture.scratch import scratch

RACES = 1_000
OTHER_RACES = 100
SCRAMBLES = 100
HOLDERS = 64
SEATS_AT_ONCE = 16
WAVE = 125
SPREAD_MS, STEP_MS, STAGGER_S = 6.0, 0.5, 0.5
"""How far calls are strewn around where they are aimed, how fast the aim is corrected, and over
how long the deadlines of a wave are strewn."""

_TTL: dict[str, object] = {"ttlSeconds": 1}
_IS_OVER = (
    "SELECT NOT EXISTS (SELECT 1 FROM reservation WHERE status = 'held' AND id GLOB 'race-*')"
)
_LOG = "SELECT reservation, generation, type, at FROM event ORDER BY reservation, seq"
_IN_TIME = {"confirmed", "extended", "released", "renewed"}

Event = tuple[int, str, int]


@dataclass(frozen=True)
class Kind:
    """One kind of race: the call, whether its holder makes it, and the logs for each answer."""

    verb: str
    fields: dict[str, object]
    endings: dict[tuple[int, object], tuple[tuple[str, ...], ...]]
    is_own: bool = True
    may_be_late: bool = False


_EXPIRED = (("held", "expired"),)
_AGAIN = (("held", "expired", "held", "expired"),)

KINDS = {
    "confirm": Kind(
        "/confirm",
        {},
        {(200, True): (("held", "confirmed"),), (410, "hold-expired"): _EXPIRED},
    ),
    "extend": Kind(
        "/extend",
        _TTL,
        {(200, True): (("held", "extended", "expired"),), (410, "hold-expired"): _EXPIRED},
    ),
    "release": Kind("/release", {}, {(200, True): (("held", "released"),), (200, False): _EXPIRED}),
    "renew": Kind("", _TTL, {(201, 1): (("held", "renewed", "expired"),), (201, 2): _AGAIN}),
    "take over": Kind("", _TTL, {(201, 2): _AGAIN, (409, "already-held"): _EXPIRED}, is_own=False),
    "confirm if still free": Kind(
        "/confirm",
        {"ifStillFree": True},
        {(200, True): (("held", "confirmed"), ("held", "expired", "confirmed"))},
        may_be_late=True,
    ),
}


@dataclass(frozen=True)
class Race:
    """One race that was run: the deadline that was promised, and what the caller was told."""

    name: str
    kind: str
    deadline: int
    told: tuple[int, object]
    document: Any

    def complaints(self, log: Sequence[Event]) -> Iterator[str]:
        """Where the answer and the log disagree, or where somebody won who was not in time."""
        told = f"{self.name}: {self.kind} was told {self.told}"
        steps = tuple(step for _, step, _ in log if step != "confirm-rejected")
        if steps not in KINDS[self.kind].endings.get(self.told, ()):
            yield f"{told}, the log says {steps}"
        deadline = self.deadline
        for generation, step, at in log:
            if generation > 1:
                break
            if step in _IN_TIME and at >= deadline and not KINDS[self.kind].may_be_late:
                yield f"{told}, {step} {at - deadline} ms after the deadline"
            if step == "expired" and at < deadline:
                yield f"{told}, expired {deadline - at} ms before the deadline"
            if step in {"extended", "renewed"}:
                deadline = self.document["expiresAt"]
        rejected = sum(step == "confirm-rejected" for _, step, _ in log)
        if rejected != (self.kind == "confirm" and self.told[0] == 410):
            yield f"{told}, and {rejected} rejections are in the log"


class Aim:
    """Where calls are sent, in milliseconds from the deadline: corrected until as many win as
    lose, however long a request needs on this machine today."""

    def __init__(self) -> None:
        self._ms = -SPREAD_MS

    def take(self) -> float:
        return self._ms + random.uniform(-SPREAD_MS, SPREAD_MS)

    def correct(self, *, was_in_time: bool) -> None:
        self._ms += STEP_MS if was_in_time else -STEP_MS


def race_alarms(server: Server, kinds: Sequence[str], report: Report) -> None:
    """Run one race of each of these kinds, some at a time, and judge them all."""
    asyncio.run(_race_alarms(server, kinds, report))


async def _race_alarms(server: Server, kinds: Sequence[str], report: Report) -> None:
    names, aim = iter(f"race-{number:05}" for number in range(len(kinds))), Aim()
    for start in range(0, len(kinds), WAVE):
        wave = kinds[start : start + WAVE]
        races = await asyncio.gather(*(_race(server.port, next(names), kind, aim) for kind in wave))
        await asyncio.to_thread(eventually, lambda: server.query(_IS_OVER) == [(1,)])
        _judge(server, races, report)


async def _race(port: int, name: str, kind: str, aim: Aim) -> Race:
    await asyncio.sleep(random.uniform(0, STAGGER_S))
    client = await Client.connect(port)
    path = f"/reservations/{name}"
    holder: dict[str, object] = {"holder": f"holder-of-{name}"}
    rules = KINDS[kind]
    caller: dict[str, object] = holder if rules.is_own else {"holder": f"rival-of-{name}"}
    held = await _asked(client, path, _TTL | holder)
    deadline: int = held.document["expiresAt"]
    sent_at = deadline + aim.take()
    await asyncio.sleep(max(0.0, sent_at / 1_000 - time.time()))
    answer = await _asked(client, path + rules.verb, rules.fields | caller)
    client.hang_up()
    if not rules.may_be_late:
        aim.correct(was_in_time=_told(answer) in {(200, True), (201, 1), (409, "already-held")})
    return Race(name, kind, deadline, _told(answer), answer.document)


async def _asked(client: Client, path: str, document: dict[str, object]) -> Answer:
    answer = await client.ask(post(path, json.dumps(document).encode()))
    assert answer is not None, "the server hung up"
    return answer


def _told(answer: Answer) -> tuple[int, object]:
    document = answer.document
    if answer.status >= 400:
        return answer.status, document["code"]
    return answer.status, document["generation" if answer.status == 201 else "changed"]


def _judge(server: Server, races: Sequence[Race], report: Report) -> None:
    logs: dict[str, list[Event]] = {}
    for name, *event in server.query(_LOG):
        logs.setdefault(name, []).append((event[0], event[1], event[2]))
    for race in races:
        report.violations += race.complaints(logs.get(race.name, []))
        report.count(f"{race.kind}: {race.told[0]} {race.told[1]}")
        if race.kind == "confirm":
            steps = {step for _, step, _ in logs.get(race.name, [])}
            report.count("confirm: both", int({"confirmed", "expired"} <= steps))
            report.count("confirm: neither", int(not {"confirmed", "expired"} & steps))


def scramble(server: Server, times: int, report: Report) -> None:
    """`HOLDERS` holders ask for one seat at once, again and again; one gets it."""
    names = [f"scramble-{number:04}" for number in range(times)]
    asyncio.run(_scramble(server, [[name] for name in names], report, "one seat"))


def scramble_for_many(server: Server, times: int, report: Report) -> None:
    """The same, each holder asking for many seats in an order of its own."""
    rounds = [
        [f"many-{number:04}-{seat}" for seat in range(SEATS_AT_ONCE)] for number in range(times)
    ]
    asyncio.run(_scramble(server, rounds, report, "many seats"))


async def _scramble(
    server: Server, rounds: Sequence[Sequence[str]], report: Report, title: str
) -> None:
    clients = [await Client.connect(server.port) for _ in range(HOLDERS)]
    for number, seats in enumerate(rounds):
        holders = [f"holder-{number}-{one}" for one in range(HOLDERS)]
        answers = await asyncio.gather(
            *(_want(*pair, seats) for pair in zip(clients, holders, strict=True))
        )
        for seat in seats:
            won = [
                holder
                for holder, given in zip(holders, answers, strict=True)
                if given[seat].status == 201
            ]
            _judge_scramble(seat, won, [given[seat] for given in answers], report, title)
            if len(won) == 1:
                await _judge_winner(clients, seat, won[0], holders, report)
    for client in clients:
        client.hang_up()


async def _want(client: Client, holder: str, seats: Sequence[str]) -> dict[str, Answer]:
    order = random.sample(list(seats), len(seats))
    body: dict[str, object] = {"ttlSeconds": 60, "holder": holder}
    return {seat: await _asked(client, f"/reservations/{seat}", body) for seat in order}


def _judge_scramble(
    seat: str, won: Sequence[str], answers: Sequence[Answer], report: Report, title: str
) -> None:
    told = Counter(_told(answer) for answer in answers)
    report.count(f"{title}: scrambles")
    report.count(f"{title}: 201", len(won))
    report.count(f"{title}: 409 already-held", told[409, "already-held"])
    expected = {(201, 1): 1, (409, "already-held"): HOLDERS - 1}
    report.require(told == expected, f"{seat}: {len(won)} got it; {dict(told.most_common(3))}")


async def _judge_winner(
    clients: Sequence[Client], seat: str, winner: str, holders: Sequence[str], report: Report
) -> None:
    """The losers changed nothing: whoever won confirms it, whoever lost is a stranger."""
    loser = random.choice([holder for holder in holders if holder != winner])
    path = f"/reservations/{seat}/confirm"
    refused = _told(await _asked(clients[0], path, {"holder": loser}))
    report.require(refused == (403, "not-your-hold"), f"{seat}: a loser was told {refused}")
    confirmed = _told(await _asked(clients[1], path, {"holder": winner}))
    report.require(confirmed == (200, True), f"{seat}: the winner was told {confirmed}")


def some_kinds(confirms: int, others: int) -> list[str]:
    """So many races of confirm, and so many of each other kind, in any order."""
    more = [[kind] * others for kind in KINDS if kind != "confirm"]
    kinds = ["confirm"] * confirms + list(chain.from_iterable(more))
    random.shuffle(kinds)
    return kinds


def run(scale: float, *, bug: str | None = None) -> Report:
    """All races on one server."""
    report = Report()
    with scratch(bug=bug) as target:
        target.start()
        scramble(target, max(5, round(SCRAMBLES * scale)), report)
        scramble_for_many(target, max(2, round(SCRAMBLES / 10 * scale)), report)
        race_alarms(target, some_kinds(round(RACES * scale), round(OTHER_RACES * scale)), report)
        target.stop()
        report.violations += violations(target.database)
    for told in ("200 True", "410 hold-expired"):
        report.require(bool(report.figures.get(f"confirm: {told}")), f"no confirm got {told}")
    return report


HARNESS = Harness(
    name="races",
    promise="1,000 confirms against their alarm: never both, never neither; 64 holders: one 201",
    run=run,
    controls={
        bug: partial(run, 0.2, bug=bug)
        for bug in ("confirm-without-deadline", "let-the-last-one-win")
    },
)
