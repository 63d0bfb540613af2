"""What a benchmark measures: figures, each beside its reference from the same round.

A row has one value per round. Ratios are taken within a round, before any median: rounds differ
more than contestants do. An aim that is missed is shown like one that is reached.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple


class CannotRun(Exception):
    """Something that the benchmark needs is not here; the message is the one sentence shown."""


@dataclass(frozen=True)
class Size:
    """How much is measured: `rounds` times, `seconds` per load, `share` of the full counts."""

    rounds: int = 5
    seconds: float = 3.0
    share: float = 1.0

    def count(self, full: int) -> int:
        """So many of `full` rows or alarms, at least ten."""
        return max(10, round(full * self.share))

    @property
    def is_full(self) -> bool:
        return self.share >= 1


SHORT = Size(rounds=1, seconds=0.4, share=0.002)


@dataclass(frozen=True)
class Aim:
    """A figure is to be at least, or at most, `factor` times its reference plus `plus`."""

    at_least: bool
    factor: float = 0.0
    plus: float = 0.0

    def is_reached(self, ours: list[float], references: list[float]) -> bool:
        """By the median round."""
        beside = references or [0.0] * len(ours)
        excess = [
            mine - self.factor * other - self.plus for mine, other in zip(ours, beside, strict=True)
        ]
        return median(excess) >= 0 if self.at_least else median(excess) <= 0

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        terms = [f"{self.factor:g} of it"] if self.factor else []
        terms += [f"{self.plus:g}"] if self.plus or not terms else []
        return f"{sign} {' + '.join(terms)}"


def at_least(factor: float) -> Aim:
    """At least so many times the reference."""
    return Aim(at_least=True, factor=factor)


def at_most(plus: float = 0.0, *, factor: float = 0.0) -> Aim:
    """At most `factor` times the reference plus `plus`."""
    return Aim(at_least=False, factor=factor, plus=plus)


class Beside(NamedTuple):
    """A reference: what it is, and its value in the same round."""

    name: str
    value: float


@dataclass
class Row:
    """One figure over all rounds; `beside` names the reference, empty where there is none."""

    figure: str
    unit: str
    beside: str
    aim: Aim | None
    ours: list[float] = field(default_factory=list)
    references: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        pairs = zip(self.ours, self.references, strict=False)
        return [mine / other for mine, other in pairs if other]

    @property
    def verdict(self) -> str:
        if self.aim is None:
            return ""
        return "reached" if self.aim.is_reached(self.ours, self.references) else "MISSED"


class Sheet:
    """The rows of one benchmark, in the order in which they were first added to."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Row] = {}

    @property
    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def add(
        self,
        figure: str,
        unit: str,
        ours: float,
        beside: Beside | None = None,
        aim: Aim | None = None,
    ) -> None:
        """One round's value of a figure, and of its reference."""
        name = beside.name if beside else ""
        row = self._rows.setdefault((figure, name), Row(figure, unit, name, aim))
        row.ours.append(ours)
        if beside is not None:
            row.references.append(beside.value)


@dataclass(frozen=True)
class Benchmark:
    """A module of this package that measures calls its benchmark `BENCHMARK`."""

    name: str
    measures: str
    run: Callable[[Sheet, Size], None]
