"""What the service promises of its disk, attacked for a while; `make torture` takes longer.

It runs all the controls; here is the first of each attack.
"""

from collections.abc import Callable
from itertools import islice

import pytest

from tests.torture import (
    failed_sync,
    full_disk,
    log_growth,
    power_cut,
    sync_order,
    unavailable_store,
)
from tests.torture.report import Harness, Report

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

HARNESSES = [
    module.HARNESS
    for module in (
        failed_sync,
        full_disk,
        log_growth,
        power_cut,
        sync_order,
        unavailable_store,
    )
]
CONTROLS = [
    pytest.param(control, id=f"{harness.name}: {bug}")
    for harness in HARNESSES
    for bug, control in islice(harness.controls.items(), 1)
]


def check(harness: Harness) -> None:
    report = harness.run(harness.short)
    assert report.violations == [], report.figures


def test_an_acknowledged_hold_survives_a_power_cut() -> None:
    check(power_cut.HARNESS)


def test_a_hold_is_synced_before_it_is_acknowledged() -> None:
    check(sync_order.HARNESS)


def test_a_full_disk_loses_nothing_and_due_alarms_fire_once_it_has_space() -> None:
    check(full_disk.HARNESS)


def test_a_failed_sync_is_an_unknown_outcome_and_ends_the_process() -> None:
    check(failed_sync.HARNESS)


def test_a_store_in_trouble_is_no_failed_attempt_and_needs_no_restart() -> None:
    check(unavailable_store.HARNESS)


def test_a_burst_and_a_forgotten_reader_leave_no_long_log() -> None:
    check(log_growth.HARNESS)


@pytest.mark.parametrize("control", CONTROLS)
def test_a_planted_bug_is_caught(control: Callable[[], Report]) -> None:
    assert control().violations != []
