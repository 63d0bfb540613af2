"""What a torture harness is, and what it reports.

A harness keeps a promise under attack, or says how it was broken. A control is the same attack on
a service with a planted bug: its report must name a violation, or the harness proves nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Figure = int | float | str
Run = Callable[[float], "Report"]
"""Takes the scale: 1.0 is the long version, smaller ones do less of the same."""

SHORT = 0.1


class CannotRun(Exception):
    """Something that the harness needs is not here; the message is the one sentence shown."""


@dataclass
class Report:
    """The figures of one run, in the order in which they are shown, and what was broken."""

    figures: dict[str, Figure] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def count(self, name: str, more: int = 1) -> None:
        """Add to a figure that is a number."""
        before = self.figures.get(name, 0)
        assert isinstance(before, int), (name, before)
        self.figures[name] = before + more

    def worst(self, name: str, figure: float) -> None:
        """Keep the greatest of the figures given under this name."""
        before = self.figures.get(name, figure)
        assert not isinstance(before, str), (name, before)
        self.figures[name] = max(before, figure)

    def require(self, kept: bool, violation: str) -> None:
        """Record `violation` unless the promise was kept."""
        if not kept:
            self.violations.append(violation)


@dataclass(frozen=True)
class Harness:
    """One attack; a module of this package that has one calls it `HARNESS`.

    `short` is the scale of the version that belongs into the test suite. A control is named
    after the bug that it plants.
    """

    name: str
    promise: str
    run: Run
    controls: Mapping[str, Callable[[], Report]]
    short: float = SHORT
