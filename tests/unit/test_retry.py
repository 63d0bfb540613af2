"""The backoff of a failing alarm: doubling, capped, spread out, and without an end."""

import pytest

from reservation_service.retry import JITTER_PART, RetryPolicy


def policy(random: float = 0.0, first_ms: int = 2_000, cap_ms: int = 60_000) -> RetryPolicy:
    return RetryPolicy(first_ms, cap_ms, lambda: random)


def test_the_delay_doubles_up_to_the_cap_and_stays_there() -> None:
    delays = [policy().delay_ms(failures) for failures in range(1, 9)]
    assert delays == [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]


@pytest.mark.parametrize("failures", [1, 2, 6, 7, 1_000])
@pytest.mark.parametrize("random", [0.0, 0.25, 0.999_999])
def test_jitter_shortens_by_a_fifth_at_most(failures: int, random: float) -> None:
    full = policy().delay_ms(failures)
    assert full * (1 - JITTER_PART) <= policy(random).delay_ms(failures) <= full


def test_jitter_spreads_out_what_failed_together() -> None:
    assert policy(0.1).delay_ms(3) != policy(0.9).delay_ms(3)


@pytest.mark.parametrize("failures", [100, 10_000, 10**12])
def test_a_huge_number_of_failures_costs_nothing_and_waits_for_the_cap(failures: int) -> None:
    assert policy().delay_ms(failures) == 60_000


def test_a_cap_that_is_no_power_of_the_first_delay_is_kept() -> None:
    delays = [policy(first_ms=700, cap_ms=1_000).delay_ms(failures) for failures in (1, 2, 3)]
    assert delays == [700, 1_000, 1_000]


def test_an_alarm_never_spins() -> None:
    assert policy(0.999_999, first_ms=1, cap_ms=1).delay_ms(1) == 1
