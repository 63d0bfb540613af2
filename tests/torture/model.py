"""Checks the slot protocol in small worlds: every interleaving, on the product's own statements.

Then the transitions that were met are run in batches, and against statements with a guard less.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from random import Random

from tests.torture import model_specification as specification
from tests.torture.model_batches import batch_differences, draw
from tests.torture.model_bounds import LONG, SHORT
from tests.torture.model_corners import corners
from tests.torture.model_database import Database
from tests.torture.model_explorer import RECOVERY, Bounds, Exploration, Explorer
from tests.torture.model_judge import Met, differences
from tests.torture.model_mutants import MUTANTS, REDUNDANT, Mutant
from tests.torture.model_tables import Tables
from tests.torture.report import Harness, Report
from tests.torture.statements import changed

BATCHES = 50_000
STEPS_PER_BATCH = 10
SHOWN_STEPS = 20


@dataclass
class Reached:
    """What the short worlds met: messages, starts, and batches drawn from the messages."""

    met: list[Met] = field(default_factory=list)
    starts: list[tuple[Tables, int]] = field(default_factory=list)


def run(scale: float) -> Report:
    """Below the scale of the long version, the short worlds."""
    report = Report()
    worlds, batches = (LONG, BATCHES) if scale >= 1 else (SHORT, round(BATCHES * scale))
    met: dict[Met, None] = {}
    for name, bounds in worlds.items():
        found = explore(bounds)
        met |= dict.fromkeys(found.met)
        report.count("states", found.states)
        report.count("steps", found.steps)
        report.figures[f"{name}: states"] = found.states
        report.require(found.is_complete, f"{name}: there are more states than the bounds allow")
        report.violations += [f"{name}: {told}" for told in _told(found)]
    report.figures["transitions of the database"] = len(met)
    report.violations += check_corners()
    for complaint in check_batches(met, batches):
        report.violations.append(complaint)
    report.figures["batches"] = batches
    if scale >= 1:
        for mutant in REDUNDANT:
            report.require(not hunt(mutant).violations, f"{mutant.name}: this is a guard now")
        report.figures["texts that guard nothing"] = len(REDUNDANT)
    return report


@cache
def explore(bounds: Bounds) -> Exploration:
    """One world as it is; the same one is walked through once."""
    with closing(Database()) as database:
        return Explorer(bounds, database).explore()


def check_corners() -> list[str]:
    """Where a corner is not as specified."""
    with closing(Database()) as database:
        return [
            told
            for met in corners()
            for told in differences(
                met, database.commit(met.tables, [met.sent()], met.now, met.batch)
            )
        ]


def check_batches(met: Iterable[Met], count: int) -> Iterator[str]:
    """Where set-based is not one by one."""
    with closing(Database()) as database:
        for batch in draw(met, count, Random(0)):
            yield from batch_differences(database, batch)


@cache
def reached() -> Reached:
    """The transitions of the short worlds, in an order that mixes the worlds, behind those that no
    world comes to."""
    found = Reached()
    for bounds in SHORT.values():
        world = explore(bounds)
        found.met += world.met
        found.starts += world.starts
    Random(0).shuffle(found.met)
    found.met[:0] = corners()
    return found


def hunt(mutant: Mutant) -> Report:
    """What tells a guard less from the real statements, if anything does."""
    report, found = Report(), reached()  # before anything is planted
    with mutant.planted():
        report.violations += islice(_found(mutant, found), 1)
    return report


def _found(mutant: Mutant, found: Reached) -> Iterator[str]:
    database = Database(weaken=True)
    statements = {edit.statement for edit in mutant.edits}
    if statements <= {"RECOVER"}:
        yield from _start_differences(database, found.starts)
        return
    batches = draw(found.met, len(found.met), Random(0))
    for n, met in enumerate(found.met):
        yield from differences(met, database.commit(met.tables, [met.sent()], met.now, met.batch))
        if n % STEPS_PER_BATCH == 0:
            yield from batch_differences(database, next(batches))


def _start_differences(database: Database, starts: Iterable[tuple[Tables, int]]) -> Iterator[str]:
    for tables, now in starts:
        committed = database.start(tables, now, RECOVERY)
        expected = specification.start(tables, now, RECOVERY)
        if committed.failure or committed.tables != expected:
            yield f"a start at {now} made {tables} {committed}"


LONG_VIEW: Mapping[str, tuple[str, str, str]] = {
    "settle without the claim": ("RETRY", " AND r.alarm_claim = m.claim", ""),
    "claim what is at work": ("DUE", "id NOT IN (SELECT value FROM json_each(:running))", "true"),
    "expire whatever the status": ("EXPIRE", "r.status = 'held' AND ", ""),
    "expire whatever the time": ("EXPIRE", " AND r.expires_at <= m.now", ""),
    "a new hold keeps the old alarm": (
        "HOLD",
        "alarm_dispatch_at = excluded.alarm_dispatch_at,",
        "",
    ),
    "a start forgets attempts": ("RECOVER", "SET ", "SET alarm_attempts = 1, "),
    "nothing is ever due": ("DUE", "alarm_dispatch_at <= :now", "alarm_dispatch_at < 0"),
}
"""Bugs that must be seen while the specification looks away: by what no single step shows."""


def look_far(statement: str, old: str, new: str) -> Report:
    """Explore with a planted bug, without the specification and the schema's defence."""
    report = Report()
    with changed(statement, old, new), closing(Database(weaken=True)) as database:
        explorer = Explorer(SHORT["alarms"], database, is_specified=False)
        found = explorer.explore(stop_at_first=True)
    report.violations += _told(found)
    return report


def _told(found: Exploration) -> list[str]:
    return [
        f"{what}, after: {' | '.join(steps[-SHOWN_STEPS:])}"
        for what, steps in found.violations.items()
    ]


HARNESS = Harness(
    name="model",
    promise="the slot protocol holds in every interleaving within small bounds",
    run=run,
    controls={f"one guard less: {one.name}": partial(hunt, one) for one in MUTANTS}
    | {f"unspecified: {name}": partial(look_far, *bug) for name, bug in LONG_VIEW.items()},
    short=0.05,
)
