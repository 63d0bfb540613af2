"""A clock that stands still until a test moves it."""

from collections.abc import Callable

START = 1_800_000_000_000
"""Epoch milliseconds at which every test begins."""


class FakeClock:
    """Implements `clock.Clock`; whoever follows it is told of every move."""

    def __init__(self, now: int = START) -> None:
        self._now = now
        self._followers: list[Callable[[], None]] = []

    def now(self) -> int:
        return self._now

    def seconds_until(self, at_ms: int) -> float:
        return (at_ms - self._now) / 1000

    def sleep_until(self, at_ms: int) -> None:
        """Nobody waits: the time comes at once."""
        self.advance(at_ms - self._now)

    def divergence_ms(self) -> int:
        return 0

    def advance(self, ms: int) -> int:
        """Move on by `ms` (0 or more) and return the new time."""
        assert ms >= 0, ms
        return self.step(ms)

    def step(self, ms: int) -> int:
        """Move by `ms` in either direction: only a restart ever sets service time back."""
        self._now += ms
        for follower in self._followers:
            follower()
        return self._now

    def follow(self, follower: Callable[[], None]) -> None:
        """Call `follower` after every move."""
        self._followers.append(follower)

    def unfollow(self, follower: Callable[[], None]) -> None:
        self._followers.remove(follower)
