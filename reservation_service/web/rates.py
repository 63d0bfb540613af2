"""How often one caller may call: by key, otherwise by address.

Counted in windows that begin with a caller's first call, by service time. Beyond `CALLERS_MAX` the
one whose window began first is forgotten: callers without number cost no memory without end.
"""

from collections.abc import Callable, Sequence
from math import ceil

from aiohttp import web
from limits import RateLimitItem
from limits.storage import Storage
from limits.strategies import FixedWindowRateLimiter

from reservation_service.access import Caller
from reservation_service.web.addresses import Network, client_of
from reservation_service.web.problems import RateLimited

CALLERS_MAX = 10_000

_MS_PER_SECOND = 1000


class Rates:
    """The limits; None is no limit. Calls without a good key count for their address."""

    def __init__(
        self,
        now: Callable[[], int],
        per_key: RateLimitItem | None,
        per_address: RateLimitItem | None,
        trusted_proxies: Sequence[Network],
    ) -> None:
        self._now = now
        self._per_key = per_key
        self._per_address = per_address
        self._trusted = trusted_proxies
        self._limiter = FixedWindowRateLimiter(Windows(now))

    def count(self, request: web.Request, caller: Caller | None) -> None:
        """Count one call. Raises RateLimited when it is one too many."""
        if caller is not None and caller.name is not None:
            self._hit(self._per_key, "key", caller.name)
        elif self._per_address is not None:
            self._hit(self._per_address, "address", client_of(request, self._trusted))

    def _hit(self, limit: RateLimitItem | None, *who: str) -> None:
        if limit is not None and not self._limiter.hit(limit, *who):
            over_at = self._limiter.get_window_stats(limit, *who).reset_time
            raise RateLimited(max(1, ceil(over_at - self._now() / _MS_PER_SECOND)))


class Windows(Storage):
    """Counters in memory, each with the second at which its window is over."""

    STORAGE_SCHEME = None

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__()
        self._now = now
        self._windows: dict[str, tuple[int, float]] = {}

    @property
    def base_exceptions(self) -> type[Exception]:
        return ValueError

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        now = self._now() / _MS_PER_SECOND
        count, over_at = self._windows.get(key, (0, 0.0))
        if over_at <= now:
            self._windows.pop(key, None)  # a new one is the youngest again
            self._make_room()
            count, over_at = 0, now + expiry
        self._windows[key] = (count + amount, over_at)
        return count + amount

    def get(self, key: str) -> int:
        count, over_at = self._windows.get(key, (0, 0.0))
        return count if over_at > self._now() / _MS_PER_SECOND else 0

    def get_expiry(self, key: str) -> float:
        return self._windows.get(key, (0, self._now() / _MS_PER_SECOND))[1]

    def check(self) -> bool:
        return True

    def reset(self) -> int:
        forgotten = len(self._windows)
        self._windows.clear()
        return forgotten

    def clear(self, key: str) -> None:
        self._windows.pop(key, None)

    def _make_room(self) -> None:
        while len(self._windows) >= CALLERS_MAX:
            del self._windows[next(iter(self._windows))]
