"""Service time: the wall clock at start, and from then on only what really elapsed."""

import time

import pytest

from reservation_service import clock as clock_module
from reservation_service.clock import BootClock, wall_datetime

NS_PER_MS = 1_000_000


class Machine:
    """The two clocks of a machine, in the test's hand; nanoseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall = 1_800_000_000_000 * NS_PER_MS
        self.elapsed = 5_000 * NS_PER_MS
        monkeypatch.setattr(time, "time_ns", lambda: self.wall)
        monkeypatch.setattr(time, "clock_gettime_ns", self.read)

    def read(self, source: int) -> int:
        assert source == clock_module._ELAPSED
        return self.elapsed

    def pass_ns(self, ns: int) -> None:
        self.wall += ns
        self.elapsed += ns


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_it_starts_at_the_wall_clock(machine: Machine) -> None:
    assert BootClock().now() == 1_800_000_000_000


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
def test_a_step_of_the_wall_clock_does_not_move_it(machine: Machine, step_ms: int) -> None:
    clock = BootClock()
    machine.wall += step_ms * NS_PER_MS
    machine.pass_ns(250 * NS_PER_MS)
    assert clock.now() == 1_800_000_000_250
    assert clock.divergence_ms() == step_ms


def test_a_restart_follows_the_wall_clock_again(machine: Machine) -> None:
    BootClock()
    machine.wall += 3_600_000 * NS_PER_MS
    assert BootClock().now() == 1_800_003_600_000
    assert BootClock().divergence_ms() == 0


def test_a_millisecond_is_over_when_all_of_it_is(machine: Machine) -> None:
    clock = BootClock()
    machine.pass_ns(NS_PER_MS - 1)
    assert clock.now() == 1_800_000_000_000
    machine.pass_ns(1)
    assert clock.now() == 1_800_000_000_001


def test_the_time_until_an_alarm_is_exact(machine: Machine) -> None:
    clock = BootClock()
    machine.pass_ns(NS_PER_MS // 4)
    assert clock.seconds_until(1_800_000_000_001) == pytest.approx(0.00075, abs=1e-9)
    machine.pass_ns(NS_PER_MS)
    assert clock.seconds_until(1_800_000_000_001) < 0


@pytest.mark.parametrize("ms", [20, 0, -5])
def test_a_thread_sleeps_until_a_time_and_not_much_longer(ms: int) -> None:
    clock = BootClock()
    until = clock.now() + ms
    clock.sleep_until(until)
    assert -0.5 < clock.seconds_until(until) <= 0


def test_suspended_time_counts() -> None:
    assert getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC) == clock_module._ELAPSED


def test_libraries_get_an_aware_wall_clock(machine: Machine) -> None:
    assert wall_datetime().utcoffset() is not None
