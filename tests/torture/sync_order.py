"""Every 201 is sent after the write-ahead log with its hold in it was synced: read from a trace.

strace shows each write to the log with its bytes, each sync with its result, and each answer, in
the order in which they happened; an ID is found in all three.
"""

import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from tests.process.server import eventually
from tests.torture.report import CannotRun, Harness, Report
from tests.torture.target import Target
from tests.torture.traffic import LATE_S, Ledger, Traffic

ANSWERS, ANSWERS_MIN = 2000, 200
CLIENTS = 4
_PAGE_BYTES = 4096
_CALLS = "pwrite64,fdatasync,fsync,sendto,sendmsg,write,writev"

_CALL = re.compile(r"(?P<thread>\d+) +(?:<\.\.\. )?(?P<name>\w+)(?P<rest>.*)")
_ID = re.compile(r"load-\d{7}")


class Order:
    """Follows a trace line by line; `early` are the answers sent too early."""

    def __init__(self) -> None:
        self.answered: set[str] = set()
        self.early: list[str] = []
        self._written: set[str] = set()
        self._synced: set[str] = set()
        self._syncing: dict[str, set[str]] = {}

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            if call := _CALL.match(line):
                self._take(call["thread"], call["name"], call["rest"])

    def _take(self, thread: str, name: str, rest: str) -> None:
        if name == "pwrite64" and "-wal>" in rest:
            self._written.update(_ID.findall(rest))
        elif name in ("fdatasync", "fsync"):
            self._take_sync(thread, rest)
        elif "HTTP/1.1 201" in rest:
            self._take_answer(set(_ID.findall(rest)))

    def _take_sync(self, thread: str, rest: str) -> None:
        """It is good for what was written when it began, once it has returned 0."""
        if "-wal>" in rest:
            self._syncing[thread] = set(self._written)
        if "= " in rest:
            covered = self._syncing.pop(thread, set())
            if rest.rstrip().endswith("= 0"):
                self._synced |= covered

    def _take_answer(self, ids: set[str]) -> None:
        assert ids, "an answer without an ID"
        self.answered |= ids
        self.early += sorted(ids - self._synced)


def run(scale: float, bug: str | None = None) -> Report:
    """Trace a server until it has sent `ANSWERS` 201s to a few clients at a time."""
    tracer = shutil.which("strace")
    if tracer is None:
        raise CannotRun("strace is not installed")
    report, ledger, order = Report(), Ledger(), Order()
    with tempfile.TemporaryDirectory(prefix="torture-") as name:
        trace = Path(name) / "trace"
        target = Target(Path(name), bug=bug)
        target.command = [tracer, *_options(trace), *target.command]
        try:
            target.start()
            _hold(target, ledger, max(ANSWERS_MIN, round(ANSWERS * scale)))
            target.stop()
        finally:
            target.end()
        order.read(_lines(trace))
    report.figures["answered 201"] = len(order.answered)
    report.figures["sent after a sync"] = len(order.answered) - len(order.early)
    report.violations += [f"{name} was answered before it was synced" for name in order.early]
    missing = ledger.acknowledged.keys() - order.answered
    report.require(not missing, f"the trace misses {len(missing)} answers")
    return report


def _options(trace: Path) -> list[str]:
    """Follow threads, show paths and whole pages; the tracer is the grandchild, not the parent."""
    size = str(_PAGE_BYTES)
    return ["-D", "-f", "-y", "-q", "-s", size, "-e", f"trace={_CALLS}", "-o", str(trace)]


def _hold(target: Target, ledger: Ledger, goal: int) -> None:
    with Traffic(target, ledger, clients=CLIENTS, ttl_seconds=[LATE_S]) as traffic:
        traffic.wait_for(goal)


def _lines(trace: Path) -> Iterator[str]:
    """The whole trace: the tracer ends a moment after what it traces."""
    eventually(lambda: "+++ exited with" in _tail(trace))
    with trace.open(errors="replace") as lines:
        yield from lines


def _tail(trace: Path) -> str:
    with trace.open("rb") as file:
        file.seek(max(0, trace.stat().st_size - 1000))
        return file.read().decode(errors="replace")


HARNESS = Harness(
    name="sync-order",
    promise="every 201 is sent after fdatasync of the write-ahead log has returned 0",
    run=run,
    controls={
        "answer before commit": partial(run, 0, "answer-before-commit"),
        "commit without sync": partial(run, 0, "commit-without-sync"),
    },
)
