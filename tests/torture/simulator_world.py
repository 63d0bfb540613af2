"""What outlives a simulated process: time, chance, the faults to come, the trace, the complaints.

Every decision is drawn from one stream of chance that the seed starts, in the order in which the
event loop asks; so a seed is a whole run, and its trace is its name.
"""

import asyncio
import hashlib
from collections import Counter
from random import Random
from typing import Any

from tests.torture.simulator_time import VirtualLoop, WallClock

USUAL = {
    "crash-at-idle": 0.08,
    "crash-before-commit": 0.02,
    "crash-after-commit": 0.02,
    "crash-before-answers": 0.02,
    "crash-in-handler": 0.03,
    "stop": 0.05,
    "clock-jump": 0.4,
    "deaf-waker": 0.3,
    "disk-full": 0.002,
    "disk-unavailable": 0.002,
    "commit-unknown": 0.006,
    "slow-batch": 0.1,
    "late-dispatch": 0.15,
    "late-handler": 0.1,
    "late-schedule": 0.4,
    "repeated-dispatch": 0.2,
    "failing-handler": 0.1,
    "failing-after-effect": 0.05,
    "failing-alarm": 0.15,
    "failing-request": 0.05,
    "failing-event": 0.1,
    "late-settle": 0.2,
    "repeated-settle": 0.3,
    "lost-answer": 0.1,
    "impatient-caller": 0.15,
    "cancelled-request": 0.5,
}
"""How often each fault strikes where it can, in a usual run; a seed has its own mix of them."""

_MIXES = (0.0, 0.0, 0.3, 1.0, 1.0, 3.0)
_CALM = 0.1
_STRIKES_AT_MOST = 0.7
_TROUBLE_SECONDS_MAX = 20.0


class World:
    """One run's surroundings. `is_calm` runs have no faults at all: they show what is normal."""

    def __init__(self, seed: int) -> None:
        self.loop = VirtualLoop()
        self.wall = WallClock(self.loop)
        self.chance = Random(seed)
        self.is_calm = self.chance.random() < _CALM
        self.figures: Counter[str] = Counter()
        self.trace: list[str] = []
        self.violations: list[str] = []
        self.broken = asyncio.Event()
        self.failing: set[tuple[str, str]] = set()
        self._rates = {kind: rate * self.chance.choice(_MIXES) for kind, rate in USUAL.items()}
        self.faults_are_over = self.is_calm
        self._trouble = ""
        self._trouble_until = 0.0

    def strikes(self, kind: str) -> bool:
        """Whether this fault happens here and now; it is noted if so."""
        rate = min(self._rates[kind], _STRIKES_AT_MOST)
        if self.faults_are_over or self.chance.random() >= rate:
            return False
        self.figures[kind] += 1
        self.note(f"  {kind}")
        return True

    async def delay(self, kind: str, seconds_max: float) -> None:
        """Take a moment, if this fault strikes."""
        if self.strikes(kind):
            await asyncio.sleep(self.chance.uniform(0, seconds_max))

    def trouble(self) -> str:
        """What the disk suffers from at this moment, for a while once it has begun; or nothing."""
        if self.faults_are_over:
            return ""
        if self.loop.time() >= self._trouble_until:
            self._trouble = next(filter(self.strikes, ("disk-full", "disk-unavailable")), "")
            if self._trouble:
                length_s = self.chance.uniform(0, _TROUBLE_SECONDS_MAX)
                self._trouble_until = self.loop.time() + length_s
        return self._trouble

    def end_faults(self) -> None:
        """From now on nothing goes wrong any more, and what failed is healed."""
        self.note("the faults are over")
        self.faults_are_over = True
        self.failing.clear()

    def note(self, what: str) -> None:
        """Add a line to the trace, with the virtual time."""
        self.trace.append(f"{self.loop.time():11.6f} {what}")

    def complain(self, what: str) -> None:
        """A promise is broken: the run ends soon."""
        self.note(f"VIOLATION {what}")
        self.violations.append(what)
        self.broken.set()

    def complain_of(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What asyncio would only log is a broken promise."""
        self.complain(f"{context.get('message')}: {context.get('exception')!r}")

    def digest(self) -> str:
        """The name of this very run."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()
