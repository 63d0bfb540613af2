"""What readers of the feed cost those who hold: with a crowd and without, in turns.

The crowd is a process of its own and shares the machine with the server, as does the load. Each
figure is the median of the rounds. Two crowds: a thousand readers of one reservation each, while
those very reservations are held; a hundred readers of everything, at 500 events a second and at
whatever can be held. Work of others blurs what a second holds; the processor's time for a hold, the
server's alone, is told beside it.
"""

import asyncio
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from tests.torture.clients import Client, OpenLoop, hold
from tests.torture.readers import Crowd
from tests.torture.report import Harness, Report
from tests.torture.scratch import Neighbours, cpu_ticks, scratch
from tests.torture.target import Target

CONNECTIONS = 64
ROUNDS = 7
SECONDS = 4.0
SLOWER_MAX = 0.20
SEATS = 1000
EVENTS_PER_SECOND = 500
CREATED = 201


@dataclass(frozen=True)
class Scene:
    """So many readers of a path, while so much is held a second; None is as much as can be."""

    name: str
    readers: int
    path: str
    per_second: int | None


ONE_EACH, ALL = "/reservations/seat-%d/events?after=latest", "/events?after=latest"
SCENES = [
    Scene("1,000 of one each", SEATS, ONE_EACH, None),
    Scene("100 of all at 500/s", 100, ALL, EVENTS_PER_SECOND),
    Scene("100 of all at full speed", 100, ALL, None),
]
BOUNDED = SCENES[:2]
"""At full speed a hundred readers are told many times what the promise is about."""


@dataclass
class Rounds:
    """What was seen in the rounds of one kind."""

    holds_per_second: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    told_per_second: list[float] = field(default_factory=list)


def run(scale: float, *, bug: str | None = None) -> Report:
    """Every crowd, in turns with nobody."""
    report = Report()
    rounds, seconds = max(3, round(ROUNDS * scale)), max(1.0, SECONDS * scale)
    with scratch(bug=bug) as target, Neighbours(target) as neighbours:
        target.start()
        asyncio.run(_hold_in_a_circle(target.port, seconds))
        for scene in SCENES:
            _compare(target, report, scene, rounds, seconds)
        target.stop()
    report.figures["cores used by others"] = neighbours.cores
    return report


def _compare(target: Target, report: Report, scene: Scene, rounds: int, seconds: float) -> None:
    alone, watched = Rounds(), Rounds()
    for _ in range(rounds):
        _one_round(target, scene, seconds, alone)
        with Crowd(target.port, scene.readers, scene.path) as crowd:
            _one_round(target, scene, seconds, watched)
        watched.told_per_second.append(crowd.events_per_second)
        report.require(not crowd.lost, f"{scene.name}: {crowd.lost} were cut off")
    for name, before, after in (
        ("holds/s", alone.holds_per_second, watched.holds_per_second),
        ("p50 ms", alone.p50_ms, watched.p50_ms),
        ("server's CPU us a hold", alone.cpu_us, watched.cpu_us),
    ):
        report.figures[f"{scene.name}: {name}"] = f"{median(before):,.1f} -> {median(after):,.1f}"
    report.figures[f"{scene.name}: events/s told"] = round(median(watched.told_per_second))
    slower = 1 - median(watched.holds_per_second) / median(alone.holds_per_second)
    report.figures[f"{scene.name}: slower by"] = f"{slower:.0%}"
    if scene in BOUNDED:
        report.require(slower <= SLOWER_MAX, f"{scene.name}: holds are {slower:.0%} slower")


def _one_round(target: Target, scene: Scene, seconds: float, rounds: Rounds) -> None:
    began, ticks = time.monotonic(), cpu_ticks(target)
    if scene.per_second is None:
        latencies = asyncio.run(_hold_in_a_circle(target.port, seconds))
    else:
        latencies = asyncio.run(_hold_at_a_rate(target.port, scene.per_second, seconds))
    took = time.monotonic() - began
    cpu_s = (cpu_ticks(target) - ticks) / os.sysconf("SC_CLK_TCK")
    rounds.holds_per_second.append(len(latencies) / took)
    rounds.cpu_us.append(cpu_s * 1e6 / len(latencies))
    rounds.p50_ms.append(median(latencies) * 1000)


def _seats() -> Iterator[bytes]:
    """Anonymous holds of the same seats, anew and anew: each is an event."""
    chance = random.Random(1)
    while True:
        yield hold(f"seat-{chance.randrange(SEATS)}", 3600)


async def _hold_in_a_circle(port: int, seconds: float) -> list[float]:
    """Seconds that each hold took, by so many clients that each have one under way."""
    requests, took = _seats(), list[float]()
    clients = [await Client.connect(port) for _ in range(CONNECTIONS)]
    until = time.monotonic() + seconds

    async def go_on(client: Client) -> None:
        while (asked_at := time.monotonic()) < until:
            answer = await client.ask(next(requests))
            assert answer is not None
            assert answer.status == CREATED, answer
            took.append(time.monotonic() - asked_at)

    await asyncio.gather(*(go_on(client) for client in clients))
    for client in clients:
        client.hang_up()
    return took


async def _hold_at_a_rate(port: int, per_second: int, seconds: float) -> list[float]:
    """The same for holds that are planned, whether or not the earlier ones were answered."""
    loop = OpenLoop(port, _seats(), CONNECTIONS)
    await loop.run(per_second, seconds)
    tally = await loop.settle()
    loop.close()
    return tally.seconds[CREATED]


HARNESS = Harness(
    name="feed-load",
    promise="1,000 readers of one each, or 100 of all at 500 events/s, slow holds by 20 % at most",
    run=run,
    controls={"linger-at-every-reader": partial(run, 0.1, bug="linger-at-every-reader")},
)
