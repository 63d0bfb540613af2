"""Rows as a table for people, which is also Markdown, and as a document for programs."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.report import Row

_TITLES = ("figure", "ours", "reference", "ratio", "aim", "")
_WHOLE = 100
_TENTHS = 10


def render_table(rows: Sequence[Row]) -> str:
    """Medians with the least and the greatest of all rounds."""
    lines = [_TITLES, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_TITLES))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in [_TITLES, rule, *lines[1:]]
    )


def as_document(row: Row) -> dict[str, Any]:
    """Everything that is known of a row."""
    return {
        "figure": row.figure,
        "unit": row.unit,
        "ours": row.ours,
        "beside": row.beside,
        "references": row.references,
        "ratio": median(row.ratios) if row.ratios else None,
        "aim": str(row.aim) if row.aim else None,
        "verdict": row.verdict or None,
    }


def _cells(row: Row) -> tuple[str, ...]:
    name = f"{row.figure}, {row.unit}"
    beside = f"{row.beside}: {_spread(row.references)}" if row.references else ""
    aim = str(row.aim) if row.aim else ""
    ratio = _spread(row.ratios, decimals=2)
    return name, _spread(row.ours), beside, ratio, aim, row.verdict


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return f"| {' | '.join(padded)} |"


def _spread(values: Sequence[float], decimals: int | None = None) -> str:
    if not values:
        return ""
    middle, least, most = (_number(v, decimals) for v in (median(values), min(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({least} to {most})"


def _number(value: float, decimals: int | None) -> str:
    if decimals is None:
        size = abs(value)
        decimals = 0 if size >= _WHOLE else 1 if size >= _TENTHS else 2
    return f"{value:,.{decimals}f}"
