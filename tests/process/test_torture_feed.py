"""Readers of the feed under attack for a while; `make torture` takes longer."""

import pytest

from tests.torture import deaf_readers
from tests.torture.report import Report

pytestmark = pytest.mark.timeout(180)


def check(report: Report) -> None:
    assert report.violations == [], report.figures


def test_readers_that_never_read_are_cut_off_and_nobody_else_notices() -> None:
    check(deaf_readers.run(deaf_readers.HARNESS.short))
