"""Simulates whole lives of the service in virtual time, with everything going wrong by chance.

`python -m tests.torture simulator` runs many seeds; `python -m tests.torture.simulator SEED`
replays one and prints its trace.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from tests.torture.report import Harness, Report
from tests.torture.simulator_bugs import BUGS, Bug, without_second_defence
from tests.torture.simulator_lives import Lives
from tests.torture.simulator_process import start_task
from tests.torture.simulator_time import NothingLeft, Spinning
from tests.torture.simulator_world import World

SEEDS = 500
"""How many runs the long version has."""

HUNTED_MAX = 60
"""How many runs a planted bug may survive before the simulator is called blind."""


@dataclass(frozen=True)
class Run:
    """One seed, run to its end or to its first violation."""

    seed: int
    violations: list[str]
    trace: list[str]
    digest: str
    figures: Counter[str]


def simulate(seed: int) -> Run:
    """Run one seed; the same seed and the same code always give the same digest."""
    world = World(seed)
    world.loop.set_exception_handler(world.complain_of)
    world.loop.set_task_factory(start_task)
    asyncio.set_event_loop(world.loop)
    try:
        world.loop.run_until_complete(_live(world))
    except NothingLeft:
        world.complain("everybody waits for somebody else")
    except Spinning:
        world.complain("somebody is busy without end, and no time passes")
    finally:
        asyncio.set_event_loop(None)
        world.loop.close()
    world.figures["virtual seconds"] = round(world.loop.time())
    return Run(seed, world.violations, world.trace, world.digest(), world.figures)


async def _live(world: World) -> None:
    await Lives(world).run()


def run(scale: float) -> Report:
    """Many seeds; what a violation's line starts with replays it."""
    return attack(range(max(1, round(SEEDS * scale))))


def attack(seeds: Iterable[int]) -> Report:
    """Run these seeds; every fault that struck is counted by its name."""
    report = Report()
    figures: Counter[str] = Counter()
    for seed in seeds:
        one = simulate(seed)
        figures += one.figures
        report.violations += [f"seed {seed}: {violation}" for violation in one.violations]
        report.count("seeds")
    report.figures |= dict(sorted(figures.items()))
    return report


def hunt(bug: Bug, first: int = 0) -> Report:
    """Run seeds with a planted bug until one finds it, or until there have been enough."""
    with without_second_defence(), bug():
        reports = (attack([seed]) for seed in range(first, first + HUNTED_MAX))
        return next((found for found in reports if found.violations), Report())


FOUND_BY = {
    "settle-without-the-claim": 59,
    "retry-in-a-day": 8,
    "fire-what-is-over": 46,
}
"""Where the hunt for a rare bug may begin; an old number here costs time and nothing else."""

HARNESS = Harness(
    name="simulator",
    promise="nothing is lost, early, doubled or stuck, whatever goes wrong in whatever order",
    run=run,
    controls={name: partial(hunt, bug, FOUND_BY.get(name, 0)) for name, bug in BUGS.items()},
    short=0.03,
)


def main() -> None:
    """Replay the seeds on the command line; exit status 1 when one breaks a promise."""
    runs = [simulate(int(seed)) for seed in sys.argv[1:]]
    for one in runs:
        sys.stdout.write("\n".join([*one.trace, f"seed {one.seed}: {one.digest}", ""]))
    sys.exit(any(one.violations for one in runs))


if __name__ == "__main__":
    main()
