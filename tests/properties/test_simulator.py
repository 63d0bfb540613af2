"""Whole lives of the service in virtual time; the long version is `make torture`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torture.report import Report
from tests.torture.simulator import HARNESS, simulate
from tests.torture.simulator_world import USUAL

pytestmark = pytest.mark.timeout(240)  # some ten seconds, on a machine that does nothing else

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def report() -> Report:
    return HARNESS.run(HARNESS.short)


def test_nothing_is_lost_early_doubled_or_stuck_whatever_goes_wrong(report: Report) -> None:
    assert report.violations == []


@pytest.mark.parametrize("kind", USUAL)
def test_every_fault_strikes(report: Report, kind: str) -> None:
    assert report.figures.get(kind, 0) != 0


@pytest.mark.parametrize(
    "what", ["hold answered", "replay answered", "look answered", "plan done", "cancel done"]
)
def test_every_call_is_answered_in_between(report: Report, what: str) -> None:
    assert report.figures.get(what, 0) != 0


def test_a_seed_replays_in_the_same_process() -> None:
    assert simulate(3).digest == simulate(3).digest
    assert simulate(3).digest != simulate(4).digest


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_a_seed_replays_in_another_process(hash_seed: str) -> None:
    replayed = subprocess.run(
        [sys.executable, "-m", "tests.torture.simulator", "3"],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert replayed.stdout.splitlines()[-1] == f"seed 3: {simulate(3).digest}"


@pytest.mark.system  # it tests a test
@pytest.mark.parametrize("bug", HARNESS.controls)
def test_a_planted_bug_is_found(bug: str) -> None:
    assert HARNESS.controls[bug]().violations != []
