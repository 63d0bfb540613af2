"""kill -9 at random moments: while it starts, serves or expires, the process dies again and again,
or the one that writes for it.

Every life is checked from outside: what its clients and its log were told is in the database, and
nothing has expired that is not over by the wall clock, twice, or not at all.
"""

import random
from collections import Counter
from functools import partial

from tests.process.server import eventually, wait_until_past, wall_ms
from tests.support.invariants import violations
from tests.torture.report import Harness, Report
from tests.torture.scratch import scratch
from tests.torture.target import Target
from tests.torture.traffic import SOON_S, Ledger, Traffic

KILLS = 200
CLIENTS = 24
KILLED_AT_START = 0.2
KILLED_ALONE = 0.3
"""So often the writer's process alone."""
_LIFE_SECONDS_MAX = 2.0
_LOAD_MAX = 800
_CHECKED_EVERY = 20
_CONTROLLED = 0.05
"""Ten kills: among four it has happened that none fell between an answer and its commit."""
_EARLY = "SELECT count(*) FROM reservation WHERE status = 'expired' AND expires_at > {now}"

_AT_REST = 10
"""Holds of the last life: those of the others may all be overdue at its start."""


def run(scale: float, *, bug: str | None = None) -> Report:
    """Kill it so many times and let it come to rest once."""
    report, ledger = Report(), Ledger()
    announced: Counter[str] = Counter()
    with scratch(bug=bug) as target:
        for number in range(max(3, round(KILLS * scale))):
            _one_life(target, ledger)
            announced.update(
                line["reservationId"] for line in target.seen("reservation-alarm", outcome="ok")
            )
            _check(target, ledger, report, with_invariants=number % _CHECKED_EVERY == 0)
            report.count("kills")
            if bug is not None and report.violations:
                return report
        _come_to_rest(target, ledger, report)
        _check(target, ledger, report, with_invariants=True)
    for name, times in announced.items():
        report.require(times == 1, f"{name} was said to have expired {times} times")
    report.figures["acknowledged"] = len(ledger.acknowledged)
    report.figures["unanswered"] = len(ledger.unanswered)
    report.figures["expiries told"] = len(ledger.announced)
    return report


def _one_life(target: Target, ledger: Ledger) -> None:
    """Start it, and kill it at a random moment, of its start now and then, else of its load."""
    if ledger.acknowledged and random.random() < KILLED_AT_START:
        target._spawn()
        wait_until_past(wall_ms() + random.randrange(int(_LIFE_SECONDS_MAX * 1000)))
        target.kill()
        return
    target.start()
    with Traffic(target, ledger, clients=CLIENTS) as traffic:
        traffic.wait_for(random.randint(1, _LOAD_MAX))
        target.kill_writer() if random.random() < KILLED_ALONE else target.kill()
    ledger.take_announcements(target)


def _come_to_rest(target: Target, ledger: Ledger, report: Report) -> None:
    """The last life is not disturbed: everything that is over expires, without being asked."""
    target.start()
    for _ in range(_AT_REST):  # deadlines close to each other, of which none may come early
        ledger.hold(target, SOON_S)
    wait_until_past(max(held["expiresAt"] for held in ledger.soon()))
    try:
        eventually(lambda: target.overdue() == 0)
    except AssertionError:
        report.count("stuck", target.overdue())
        report.violations.append(f"{target.overdue()} holds that are over stay held")
    target.stop()


def _check(target: Target, ledger: Ledger, report: Report, *, with_invariants: bool) -> None:
    lost = list(ledger.lost(target))
    report.count("lost", len(lost))
    report.violations += lost
    ledger.forget(target)
    early = target.query(_EARLY.format(now=wall_ms()))[0][0]
    report.count("early", early)
    report.require(early == 0, f"{early} holds expired before their time")
    if with_invariants:
        report.violations += violations(target.database)


HARNESS = Harness(
    name="kills",
    promise="200 kill -9 under load: nothing acknowledged is lost, nothing early, twice or stuck",
    run=run,
    controls={
        bug: partial(run, _CONTROLLED, bug=bug)
        for bug in ("answer-before-commit", "expire-too-early", "forget-alarms-at-start")
    },
    short=0.03,
)
