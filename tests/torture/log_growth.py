"""The write-ahead log grows under load, is checkpointed under load, and does not stay grown.

A long burst must not make it long, for clients who read meanwhile must not keep a checkpoint from
starting it anew. A reader that somebody has forgotten in another process does: the service goes on
all the same, and once that reader is gone the log shrinks to its limit.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from tests.process.server import PATIENCE_S, eventually
from tests.support.invariants import violations
from tests.torture.report import Harness, Report
from tests.torture.scratch import scratch
from tests.torture.target import Target
from tests.torture.traffic import Ledger, Traffic

BURST_S, SHORT_BURST_S = 60, 6
MIB = 1024 * 1024
BURST_BYTES_MAX = 16 * MIB
"""A checkpoint is due at 10 MiB; the rest is leave to be late."""

KEPT_BYTES_MAX = 16 * MIB
LONGER, SHORT_LONGER = 4, 1.25
"""How long the log is when the forgotten reader goes, in lengths that may be kept."""

SHRINK_SECONDS_MAX = 5.0
LATENESS_MS_MAX = 5000
_PATIENCE_S = 90.0
_COUNT = "SELECT count(*) FROM reservation"
_CHECKPOINT_NUMBER = slice(12, 16)


class Log:
    """The write-ahead log of a target, looked at from outside."""

    def __init__(self, target: Target) -> None:
        self._path = Path(f"{target.database}-wal")
        self.bytes_max = 0
        self.starts: set[int] = set()

    def look(self) -> int:
        """Its size in bytes; it also remembers how often the log was started anew."""
        size = self._path.stat().st_size
        self.bytes_max = max(self.bytes_max, size)
        with self._path.open("rb") as file:
            self.starts.add(int.from_bytes(file.read(32)[_CHECKPOINT_NUMBER], "big"))
        return size


def run(scale: float) -> Report:
    """A burst of `BURST_S` seconds, then a reader that is forgotten until the log is too long."""
    report = Report()
    with scratch() as target:
        target.start()
        _burst(report, target, max(SHORT_BURST_S, BURST_S * scale))
    with scratch() as target:
        target.start()
        _forget_a_reader(report, target, LONGER if scale >= 1 else SHORT_LONGER)
    return report


def control(bug: str, attack: Callable[[Report, Target], None]) -> Report:
    """One attack on a service that does not look after its log."""
    report = Report()
    with scratch(bug=bug) as target:
        attack(report, target.start())
    return report


def _burst(report: Report, target: Target, seconds: float = SHORT_BURST_S) -> None:
    log, ledger, until = Log(target), Ledger(), time.monotonic() + seconds
    with Traffic(target, ledger, is_reading=True) as traffic:
        eventually(
            lambda: log.look() > BURST_BYTES_MAX or time.monotonic() > until, seconds + PATIENCE_S
        )
    _check_service(report, "burst", target, ledger, traffic)
    report.require(len(log.starts) > 1, "there was no checkpoint")
    report.require(
        log.bytes_max <= BURST_BYTES_MAX, f"the log grew to {_mib(log.bytes_max)} MiB in a burst"
    )
    report.figures["burst: log started anew"] = len(log.starts) - 1
    report.figures["burst: log, MiB at most"] = _mib(log.bytes_max)


def _forget_a_reader(report: Report, target: Target, longer: float = SHORT_LONGER) -> None:
    log, ledger = Log(target), Ledger()
    with Traffic(target, ledger) as traffic:
        traffic.wait_for(100)
        with _reader(target):
            eventually(lambda: log.look() > longer * KEPT_BYTES_MAX, _PATIENCE_S)
        with suppress(AssertionError):
            eventually(lambda: log.look() <= KEPT_BYTES_MAX, SHRINK_SECONDS_MAX)
    _check_service(report, "forgotten reader", target, ledger, traffic)
    kept = log.look()
    report.require(kept <= KEPT_BYTES_MAX, f"the log still has {_mib(kept)} MiB")
    report.figures["forgotten reader: log, MiB at most"] = _mib(log.bytes_max)
    report.figures["forgotten reader: log, MiB afterwards"] = _mib(kept)


def _check_service(
    report: Report, name: str, target: Target, ledger: Ledger, traffic: Traffic
) -> None:
    """Everybody was served, reads saw what was acknowledged, alarms came, nothing is lost."""
    target.line("reservation-alarm")
    eventually(lambda: target.overdue() == 0)
    lateness_ms = max(line["latenessMs"] for line in target.seen("reservation-alarm"))
    report.require(lateness_ms <= LATENESS_MS_MAX, f"{name}: an alarm was {lateness_ms} ms late")
    report.violations += [f"{name}: refused {refusal}" for refusal in ledger.refused]
    report.violations += [f"{name}: no answer for {who}" for who in ledger.unanswered]
    report.violations += [f"{name}: {unseen} was not seen" for unseen in ledger.unseen]
    report.violations += [*violations(target.database), *ledger.lost(target)]
    slowest_ms = sorted(traffic.latencies_ms)
    report.figures[f"{name}: acknowledged"] = len(slowest_ms)
    report.figures[f"{name}: answer, ms p99"] = round(slowest_ms[len(slowest_ms) * 99 // 100], 1)
    report.figures[f"{name}: answer, ms at most"] = round(slowest_ms[-1], 1)
    report.figures[f"{name}: alarm late, ms at most"] = lateness_ms


@contextmanager
def _reader(target: Target) -> Iterator[None]:
    """A transaction that reads, in another process than the service: this one."""
    uri = f"{target.database.as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        before = reader.execute(_COUNT).fetchone()
        yield
        assert reader.execute(_COUNT).fetchone() == before


def _mib(size: int) -> float:
    return round(size / MIB, 1)


HARNESS = Harness(
    name="log-growth",
    promise="the log stays short in a burst, and shrinks once a forgotten reader is gone",
    run=run,
    controls={
        "never checkpoint": partial(control, "never-checkpoint", _burst),
        "keep the log as it is": partial(control, "keep-the-log", _forget_a_reader),
    },
)
