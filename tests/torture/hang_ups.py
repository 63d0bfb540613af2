"""Clients that hang up in the middle of their requests, by the thousand: nothing of them is left.

They send a hold and go at once, or some milliseconds later, before or while it is committed. What
was taken is committed whole or not at all; memory and open files are what they were before; and
who stays is served as ever.
"""

import asyncio
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.process.server import eventually
from tests.support.invariants import violations
from tests.torture.clients import Client, hold
from tests.torture.report import Harness, Report
from tests.torture.scratch import resident_mib, scratch
from tests.torture.target import Target
from tests.torture.traffic import Ledger, Traffic

HANG_UPS = 50_000
GROWN_MIB_MAX = 32
_AT_ONCE = 100
_PATIENCE_MS_MAX = 20
_WARM_UP = 1500
_HELD = "SELECT id FROM reservation WHERE id LIKE 'hang-%'"


def run(scale: float, *, bug: str | None = None) -> Report:
    """So many clients hang up; the memory is compared with that after the first ones.

    In the long version those are as many again: until then the database's caches fill, and each
    crowd that is larger than all before leaves its high-water mark.
    """
    report, ledger = Report(), Ledger()
    with scratch(bug=bug) as target:
        target.start()
        names = (f"hang-up-{number:06}" for number in range(10_000_000))
        asyncio.run(_storm(target.port, names, HANG_UPS if scale >= 1 else _WARM_UP))
        before_mib, before_files = _settled(target)
        with Traffic(target, ledger, clients=4) as traffic:
            asyncio.run(_storm(target.port, names, round(HANG_UPS * scale)))
            stayed = traffic.acknowledged + 10
            traffic.wait_for(stayed)
            report.require(traffic.acknowledged >= stayed, "those who stay are not served")
        after_mib, after_files = _settled(target)
        report.count("hang-ups", round(HANG_UPS * scale))
        report.figures["memory MiB"] = f"{before_mib} -> {after_mib}"
        report.figures["open files"] = f"{before_files} -> {after_files}"
        grown = after_mib - before_mib
        report.require(grown <= GROWN_MIB_MAX, f"the memory has grown by {grown} MiB")
        report.require(after_files <= before_files + 2, f"{after_files} files are open")
        report.figures["held all the same"] = len(target.query(_HELD))
        failures = [line for line in target.lines if line["event"] in _FAILURES]
        report.require(not failures, f"somebody complains: {failures[:2]}")
        report.require(
            not ledger.unanswered, f"{len(ledger.unanswered)} who stayed lost their line"
        )
        target.stop()
        report.violations += [*ledger.lost(target), *violations(target.database)]
    return report


_FAILURES = {"request-failed", "http-error", "service-failed"}


async def _storm(port: int, names: Iterator[str], count: int) -> None:
    for _ in range(0, count, _AT_ONCE):
        await asyncio.gather(*(_hang_up(port, next(names)) for _ in range(_AT_ONCE)))


async def _hang_up(port: int, name: str) -> None:
    client = await Client.connect(port)
    client.send(hold(name, random.choice((1, 3600))), lambda _: None)
    await asyncio.sleep(random.choice((0, 0, random.uniform(0, _PATIENCE_MS_MAX) / 1000)))
    client.hang_up()


def _settled(target: Target) -> tuple[int, int]:
    """Memory and open files once the connections are gone."""
    files = Path(f"/proc/{target.pid}/fd")
    before = -1

    def is_steady() -> bool:
        nonlocal before
        before, last = len(list(files.iterdir())), before
        return before == last and target.overdue() == 0

    eventually(is_steady)
    return resident_mib(target), before


HARNESS = Harness(
    name="hang-ups",
    promise="clients that hang up mid-request by the thousand leave nothing, and nothing half done",
    run=run,
    controls={"remember-every-request": partial(run, 0.1, bug="remember-every-request")},
)
