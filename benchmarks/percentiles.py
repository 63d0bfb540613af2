"""Percentiles of a handful of measurements."""

from collections.abc import Collection


def percentile(values: Collection[float], percent: float) -> float:
    """The least value that `percent` per cent do not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]
