"""Calls that are repeated since their answers were lost; `make torture` repeats far more."""

import pytest

from tests.torture.repeats import HARNESS, LOSSES, TTL_SECONDS_MIN, Call, Scenario, attempt


def test_a_call_repeated_after_a_lost_answer_leaves_what_one_call_would() -> None:
    assert HARNESS.run(HARNESS.short).violations == []


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("verb", ["hold", "extend", "confirm", "release", "replay-alarm"])
def test_every_call_may_be_repeated_however_its_answer_was_lost(verb: str, loss: str) -> None:
    before = [] if verb == "hold" else [Call("hold", ttl=TTL_SECONDS_MIN)]
    assert attempt(Scenario(before, Call(verb), loss, delay_ms=1)).violations == []


@pytest.mark.parametrize("bug", HARNESS.controls)
def test_a_call_that_is_not_safe_to_repeat_is_found(bug: str) -> None:
    assert HARNESS.controls[bug]().violations != []
