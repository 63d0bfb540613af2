"""What readers of the feed cost those who hold: with a crowd and without, in turns.

The crowd is a process of its own and shares the machine with the server, as does the load. Each
figure is the median of the rounds. Two crowds: a thousand readers of one reservation each, while
those very reservations are held; a hundred readers of everything, at 500 events a second.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from statistics import median

from tests.torture.clients import Client, OpenLoop, hold
from tests.torture.readers import Crowd
from tests.torture.report import Harness, Report
from tests.torture.scratch import Neighbours, scratch
from tests.torture.target import Target

CONNECTIONS = 64
ROUNDS = 7
SECONDS = 4.0
SLOWER_MAX = 0.20
SEATS = 1000
EVENTS_PER_SECOND = 500
CREATED = 201


@dataclass(frozen=True)
class Audience:
    """So many readers of a path."""

    name: str
    count: int
    path: str


ONE_EACH = Audience("1,000 readers of one each", SEATS, "/reservations/seat-%d/events?after=latest")
ALL = Audience("100 readers of all", 100, "/events?after=latest")


def run(scale: float, *, bug: str | None = None) -> Report:
    """Both crowds, in turns with nobody."""
    report = Report()
    rounds, seconds = max(3, round(ROUNDS * scale)), max(1.0, SECONDS * scale)
    with scratch(bug=bug) as target, Neighbours(target) as neighbours:
        target.start()
        _hold_at_full_speed(target.port, seconds)
        _compare_throughput(target, report, ONE_EACH, rounds, seconds)
        _compare_throughput(target, report, ALL, rounds, seconds)
        _compare_latency(target, report, rounds, seconds)
        target.stop()
    report.figures["cores used by others"] = neighbours.cores
    return report


def _compare_throughput(
    target: Target, report: Report, audience: Audience, rounds: int, seconds: float
) -> None:
    alone, watched, told = [], [], []
    for _ in range(rounds):
        alone.append(_hold_at_full_speed(target.port, seconds))
        with Crowd(target.port, audience.count, audience.path) as crowd:
            watched.append(_hold_at_full_speed(target.port, seconds))
        told.append(crowd.events_per_second)
        report.require(not crowd.lost, f"{audience.name}: {crowd.lost} were dropped")
    slower = 1 - median(watched) / median(alone)
    report.figures[f"{audience.name}: holds/s alone"] = round(median(alone))
    report.figures[f"{audience.name}: holds/s watched"] = round(median(watched))
    report.figures[f"{audience.name}: slower by"] = f"{slower:.0%}"
    report.figures[f"{audience.name}: events/s told"] = round(median(told))
    if audience is ONE_EACH:
        report.require(slower <= SLOWER_MAX, f"{audience.name}: holds are {slower:.0%} slower")


def _compare_latency(target: Target, report: Report, rounds: int, seconds: float) -> None:
    """At a rate that is planned, what can be slower is each hold."""
    p50: dict[bool, list[float]] = {False: [], True: []}
    p99: dict[bool, list[float]] = {False: [], True: []}
    told = []
    for _, is_watched in itertools.product(range(rounds), (False, True)):
        crowd = Crowd(target.port, ALL.count, ALL.path) if is_watched else None
        with crowd or nullcontext():
            tally = asyncio.run(_hold_at_a_rate(target.port, seconds))
        p50[is_watched].append(tally[0])
        p99[is_watched].append(tally[1])
        if crowd is not None:
            told.append(crowd.events_per_second)
    for name, found in (("p50", p50), ("p99", p99)):
        shown = f"{median(found[False]):.1f} -> {median(found[True]):.1f}"
        report.figures[f"{EVENTS_PER_SECOND} holds/s, {ALL.name}: {name} ms"] = shown
    report.figures[f"{EVENTS_PER_SECOND} holds/s, {ALL.name}: events/s told"] = round(median(told))


def _seats() -> Iterator[bytes]:
    """Anonymous holds of the same seats, anew and anew: each is an event."""
    chance = random.Random(1)
    while True:
        yield hold(f"seat-{chance.randrange(SEATS)}", 3600)


def _hold_at_full_speed(port: int, seconds: float) -> float:
    """Holds a second, by so many clients that each have one under way."""
    return asyncio.run(_hold_in_a_circle(port, seconds))


async def _hold_in_a_circle(port: int, seconds: float) -> float:
    requests = _seats()
    clients = [await Client.connect(port) for _ in range(CONNECTIONS)]
    began = time.monotonic()
    until = began + seconds

    async def go_on(client: Client) -> int:
        done = 0
        while time.monotonic() < until:
            answer = await client.ask(next(requests))
            assert answer is not None
            assert answer.status == CREATED, answer
            done += 1
        return done

    counts = await asyncio.gather(*(go_on(client) for client in clients))
    took = time.monotonic() - began
    for client in clients:
        client.hang_up()
    return sum(counts) / took


async def _hold_at_a_rate(port: int, seconds: float) -> tuple[float, float]:
    loop = OpenLoop(port, _seats(), CONNECTIONS)
    await loop.run(EVENTS_PER_SECOND, seconds)
    tally = await loop.settle()
    loop.close()
    return tally.percentile_ms(50, CREATED), tally.percentile_ms(99, CREATED)


HARNESS = Harness(
    name="feed-load",
    promise="1,000 readers of one reservation each, or 100 of all, slow holds by 20 % at most",
    run=run,
    controls={"linger-at-every-reader": partial(run, 0.1, bug="linger-at-every-reader")},
)
