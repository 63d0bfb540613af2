"""The database damaged under load: the process says so, ends, and acknowledges nothing after."""

import pytest

from tests.torture import damage
from tests.torture.damage import Damage
from tests.torture.report import Report
from tests.torture.scratch import allowed

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("done", damage.DAMAGES, ids=lambda done: done.name)
def test_damage_that_is_met_ends_the_process_clearly_and_soon(done: Damage) -> None:
    report = damage.damage_files(Report(), [done], allowed(damage.EXIT_SECONDS_MAX, 0.1))
    assert report.violations == [], report.figures
