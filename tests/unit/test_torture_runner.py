"""The runner of attacks: nothing that is broken, missed or impossible here counts as kept."""

import pytest

from tests.torture.__main__ import attack, harnesses
from tests.torture.report import CannotRun, Harness, Report


def whole() -> Report:
    return Report(figures={"acknowledged": 1000})


def broken() -> Report:
    return Report(violations=["seat-1 was lost"])


def impossible() -> Report:
    raise CannotRun("strace is not installed")


def faulty() -> Report:
    raise ZeroDivisionError


def harness(run: object = whole, control: object = broken) -> Harness:
    assert callable(run)
    assert callable(control)
    return Harness("lost", "nothing is lost", lambda _scale: run(), {"a planted bug": control})


def test_a_promise_is_kept_when_nothing_is_violated_and_its_control_is_caught(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert attack(harness(), 1.0)
    shown = capsys.readouterr().out
    assert "acknowledged" in shown
    assert "1,000" in shown
    assert "caught: seat-1 was lost" in shown
    assert "KEPT" in shown


@pytest.mark.parametrize(
    ("attacked", "complaint"),
    [
        (harness(run=broken), "VIOLATION seat-1 was lost"),
        (harness(run=impossible), "it cannot run here: strace is not installed"),
        (harness(run=faulty), "the harness itself broke: ZeroDivisionError()"),
        (harness(control=whole), "MISSED"),
        (harness(control=impossible), "BROKE CannotRun('strace is not installed')"),
        (harness(control=faulty), "BROKE ZeroDivisionError()"),
    ],
)
def test_anything_else_is_shown_and_counts_as_broken(
    attacked: Harness, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not attack(attacked, 1.0)
    shown = capsys.readouterr().out
    assert complaint in shown
    assert "BROKEN" in shown


def test_every_attack_has_a_control() -> None:
    found = harnesses()
    assert len(found) >= 6
    assert [name for name, attacked in found.items() if not attacked.controls] == []
