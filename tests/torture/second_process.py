"""More processes on a database that is served: each refuses in one sentence, the first goes on.

They come at once, under the file's own name and under others, while clients hold; one comes as
soon as the first is gone, and is let in.
"""

import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.process.server import environment
from tests.support.invariants import violations
from tests.torture.report import Harness, Report
from tests.torture.scratch import scratch
from tests.torture.target import Target
from tests.torture.traffic import Ledger, Traffic

ROUNDS = 10
AT_ONCE = 3
_PATIENCE_S = 10.0
_SENTENCE = "Another process is using the database"


def run(scale: float, *, bug: str | None = None) -> Report:
    """So many crowds of seconds, each against a first one under load."""
    report, ledger = Report(), Ledger()
    with scratch(bug=bug) as target:
        for _ in range(max(1, round(ROUNDS * scale))):
            target.start()
            with Traffic(target, ledger) as traffic:
                traffic.wait_for(20)
                _crowd(target, report)
                gone_on = traffic.acknowledged + 20
                traffic.wait_for(gone_on)
                report.require(traffic.acknowledged >= gone_on, "the first one came to a halt")
            target.kill()
            report.violations += [*ledger.lost(target), *violations(target.database)]
        target.start()  # nobody holds the lock of a killed process
        target.stop()
    report.figures["acknowledged by the first"] = len(ledger.acknowledged)
    return report


def _crowd(target: Target, report: Report) -> None:
    began = time.monotonic()
    seconds = [_second(target, name) for name in _names(target.database)]
    for process in seconds:
        report.count("second processes")
        try:
            left_s = max(0.5, began + _PATIENCE_S - time.monotonic())
            output, errors = process.communicate(timeout=left_s)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            report.violations.append(f"a second process stays, and says {output[-200:]}")
            continue
        report.require(process.returncode == 1, f"it ended with status {process.returncode}")
        report.require(_SENTENCE in errors, f"it said {errors!r}")
        report.require("service-started" not in output, "it listened before it refused")
    report.figures["refused after s"] = round(time.monotonic() - began, 2)


def _names(database: Path) -> Iterator[Path]:
    """The file's own name, a symbolic link, and a way around through its folder."""
    link = database.with_name("link.db")
    link.unlink(missing_ok=True)
    link.symlink_to(database.name)
    around = database.parent / ".." / database.parent.name / database.name
    for number in range(AT_ONCE):
        yield (database, link, around)[number % 3]


def _second(target: Target, database: Path) -> subprocess.Popen[str]:
    """Started by the same command line, on any port."""
    launcher = target.command[: target.command.index("serve")]
    return subprocess.Popen(
        [*launcher, "serve", "--port", "0", "--database", str(database)],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


HARNESS = Harness(
    name="second-process",
    promise="a second process on the same database refuses; the first one is unharmed",
    run=run,
    controls={"share-the-database": partial(run, 0.1, bug="share-the-database")},
)
