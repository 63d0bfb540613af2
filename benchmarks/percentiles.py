"""Percentiles of a handful of measurements."""

from collections.abc import Collection


def percentile(values: Collection[float], percent: int) -> float:
    """The least of the values that `percent` per cent of them do not exceed."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]
