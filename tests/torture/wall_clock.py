"""The wall clock is stepped by an hour, forth and back, while holds run: none ends early or late.

libfaketime steps it for the server alone and leaves the monotonic clocks be; how long a hold really
was is measured here, where nothing was stepped.
"""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.process.server import PATIENCE_S, Line, eventually
from tests.support.invariants import violations
from tests.torture.report import CannotRun, Harness, Report
from tests.torture.scratch import allowed, scratch
from tests.torture.target import Target

STEP_SECONDS = 3600
ROUNDS = 5
OFF_SECONDS_MAX = 2.0
TTL_SECONDS, SHORT_TTL_SECONDS = (2, 3, 5), (2,)
WARNED_SECONDS_MAX = 3.0
_TOLERATED_MS = 2000
_LOOK = "import time; print(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME))"


class SteppedClock:
    """A wall clock for one process, `folder` is where its offset is kept."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "offset"
        self.step_to(0)
        libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        if not libraries:
            raise CannotRun("libfaketime is not installed")
        self.variables = {
            "LD_PRELOAD": str(libraries[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # else waits for Python's own lock take seconds
        }
        self._require_real_boot_time()

    def step_to(self, seconds: int) -> None:
        """From now on it is that far from the real one."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+}\n")
        new.replace(self._file)

    def _require_real_boot_time(self) -> None:
        """A libfaketime that steps CLOCK_BOOTTIME, too, proves nothing about the service."""
        self.step_to(STEP_SECONDS)
        look = [sys.executable, "-c", _LOOK]
        shown = subprocess.check_output(look, env=os.environ | self.variables, text=True).split()
        wall, boot = (float(text) for text in shown)
        self.step_to(0)
        if abs(boot - time.clock_gettime(time.CLOCK_BOOTTIME)) > PATIENCE_S:
            raise CannotRun("this libfaketime steps CLOCK_BOOTTIME as well")
        if wall - time.time() < STEP_SECONDS - PATIENCE_S:
            raise CannotRun("this libfaketime does not step the wall clock")


def run(scale: float, *, bug: str | None = None) -> Report:
    """Forth, back, back, forth, for so many rounds; each time holds are under way."""
    report = Report()
    with scratch(bug=bug) as target:
        clock = SteppedClock(target.database.parent)
        target.variables = clock.variables
        for _ in range(max(1, round(ROUNDS * scale))):
            target.start()
            target.hold("never-over", STEP_SECONDS)
            for offset in (STEP_SECONDS, 0, -STEP_SECONDS, 0):
                if not report.violations:
                    _step(target, clock, report, offset, scale)
            report.require(target.read("never-over")["status"] == "held", "an hour went by")
            target.stop()
        report.violations += violations(target.database)
    return report


def _step(target: Target, clock: SteppedClock, report: Report, offset: int, scale: float) -> None:
    """Holds that began before the step and holds that begin after it end when they should."""
    bound = allowed(OFF_SECONDS_MAX, scale)
    lengths = TTL_SECONDS if scale >= 1 else SHORT_TTL_SECONDS
    steps = len(target.seen("clock-diverged"))
    report.count("steps")
    names = [(f"step-{report.figures['steps']}-{ttl}", ttl) for ttl in lengths]
    began = {name: _hold(target, f"{name}-before", ttl) for name, ttl in names}
    clock.step_to(offset)
    stepped = time.monotonic()
    after = {name: _hold(target, f"{name}-after", ttl) for name, ttl in names}
    for name, ttl in names:
        _expire(target, report, f"{name}-before", began[name].plus(ttl), bound)
        _expire(target, report, f"{name}-after", after[name].plus(ttl), bound)
        if report.violations:
            return
    _warned(target, report, steps, offset, stepped)


class Moment(NamedTuple):
    """Somewhen between asking and the answer, by the clock that nobody steps."""

    first: float
    last: float

    def plus(self, seconds: int) -> "Moment":
        return Moment(self.first + seconds, self.last + seconds)


def _hold(target: Target, name: str, ttl: int) -> Moment:
    """When it began."""
    asked = time.monotonic()
    target.hold(name, ttl)
    return Moment(asked, time.monotonic())


def _expire(target: Target, report: Report, name: str, over: Moment, bound: float) -> None:
    """Wait for the end of a hold, and record how far it is off its real length."""

    def expired() -> bool:
        return bool(target.seen("reservation-alarm", reservationId=name, outcome="ok"))

    early = over.first - time.monotonic()
    if early > 0.1 and expired():
        report.violations.append(f"{name} was over {early:.1f} s before its time")
        return
    try:
        eventually(expired, max(early, 0) + bound + PATIENCE_S)
    except AssertionError:
        report.violations.append(f"{name} does not end")
        return
    seen = time.monotonic()
    off = round(max(over.first - seen, seen - over.last, 0.0), 2)
    worst = report.figures.get("off its real length s, at most", 0.0)
    assert isinstance(worst, float)
    report.figures["off its real length s, at most"] = max(worst, off)
    report.require(off <= bound, f"{name} was {off} s off its real length")


def _warned(target: Target, report: Report, steps: int, offset: int, stepped: float) -> None:
    try:
        eventually(lambda: len(target.seen("clock-diverged")) > steps, WARNED_SECONDS_MAX)
    except AssertionError:
        report.violations.append(f"nobody was warned of the step to {offset:+} s")
        return
    line: Line = target.seen("clock-diverged")[-1]
    off = abs(line["divergenceMs"] - offset * 1000)
    report.require(off <= _TOLERATED_MS, f"the step to {offset:+} s was told as {line}")
    report.count("warnings")


HARNESS = Harness(
    name="wall-clock",
    promise="the wall clock steps by an hour: no hold is 2 s off its real length, one line says so",
    run=run,
    controls={"follow-the-wall-clock": partial(run, 0.1, bug="follow-the-wall-clock")},
    short=0.2,
)
