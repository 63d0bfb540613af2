"""The benchmarks at tiny sizes: they still run and yield figures, which mean nothing here."""

import pytest

from benchmarks.__main__ import registered
from benchmarks.report import SHORT, Sheet

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


@pytest.mark.parametrize("name", registered())
def test_a_benchmark_yields_its_figures(name: str) -> None:
    sheet = Sheet()
    registered()[name].run(sheet, SHORT)
    assert len(sheet.rows) >= 4
    for row in sheet.rows:
        assert len(row.ours) == SHORT.rounds, row
        assert len(row.references) in {0, SHORT.rounds}, row
        assert min(row.ours) > 0, row
