"""The table of a benchmark: ratios within a round, and no aim that is missed looks reached."""

import pytest

from benchmarks.percentiles import percentile
from benchmarks.report import Aim, Beside, Sheet, at_least, at_most
from benchmarks.table import as_document, render_table


def sheet(aim: Aim | None, *rounds: tuple[float, float]) -> Sheet:
    filled = Sheet()
    for ours, reference in rounds:
        filled.add("holds", "1/s", ours, Beside("bare", reference), aim)
    return filled


def test_a_row_shows_the_median_of_the_ratios_of_its_rounds_and_their_spread() -> None:
    (row,) = sheet(at_least(0.9), (100, 200), (90, 100), (400, 400)).rows
    assert row.ratios == [0.5, 0.9, 1.0]
    shown = render_table([row]).splitlines()[-1]
    assert "100 (90.0 to 400)" in shown
    assert "0.90 (0.50 to 1.00)" in shown
    assert "≥ 0.9 of it" in shown
    assert "reached" in shown


@pytest.mark.parametrize(
    ("aim", "ours", "reference", "verdict"),
    [
        (at_least(0.9), 90, 100, "reached"),
        (at_least(0.9), 89, 100, "MISSED"),
        (at_least(0), -0.1, 0, "MISSED"),
        (at_most(50), 50, 7, "reached"),
        (at_most(50), 51, 7, "MISSED"),
        (at_most(1.5, factor=2), 3.5, 1, "reached"),
        (at_most(1.5, factor=2), 3.6, 1, "MISSED"),
        (None, 1, 1, ""),
    ],
)
def test_an_aim_is_reached_or_missed(
    aim: Aim | None, ours: float, reference: float, verdict: str
) -> None:
    (row,) = sheet(aim, (ours, reference)).rows
    assert row.verdict == verdict
    assert as_document(row)["verdict"] == (verdict or None)


def test_the_median_round_decides() -> None:
    (row,) = sheet(at_least(0.9), (100, 100), (10, 100), (95, 100)).rows
    assert row.verdict == "reached"


def test_a_figure_beside_two_references_is_two_rows() -> None:
    filled = Sheet()
    filled.add("alarm", "ms", 3, Beside("1 sync", 1), at_most(1.5, factor=2))
    filled.add("alarm", "ms", 3, Beside("a job", 30))
    assert [row.beside for row in filled.rows] == ["1 sync", "a job"]


def test_a_figure_may_have_no_reference() -> None:
    filled = Sheet()
    filled.add("disk", "bytes", 390, aim=at_most(400))
    (row,) = filled.rows
    assert (row.ratios, row.verdict) == ([], "reached")
    assert "≤ 400" in render_table([row])


@pytest.mark.parametrize(
    ("percent", "count", "ranked"),
    [(50, 1, 1), (50, 2, 1), (50, 3, 2), (99, 1, 1), (99, 99, 99), (99, 100, 99), (99, 101, 100)],
)
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(
    percent: int, count: int, ranked: int
) -> None:
    assert percentile(range(count, 0, -1), percent) == ranked
