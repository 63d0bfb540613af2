"""Time-outs for thousands at once: one timer for all of them, and none for each."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Group:
    """What began at about the same time, in the order in which it joined, until it leaves."""

    def __init__(self) -> None:
        self._members: dict[asyncio.Future[Any], None] = {}
        self._has_run_out = False

    def join(self, work: asyncio.Future[Any]) -> None:
        self._members[work] = None

    def leave(self, work: asyncio.Future[Any]) -> None:
        del self._members[work]

    def has_run_out(self) -> bool:
        """Whether its time is over; what was still in it was cancelled then."""
        return self._has_run_out

    def __len__(self) -> int:
        return len(self._members)

    def run_out(self) -> None:
        """Cancel those who are still there."""
        self._has_run_out = True
        for work in self._members:
            work.cancel()


class Patience:
    """The time-out of all attempts: one timer for thousands, which no standstill can use up.

    Whoever begins joins the newest of `_STEPS` groups, and at each step those who are still in the
    oldest group have run out of time: after `seconds` at most, and no less than nine tenths of it.
    A step is counted when the event loop comes to it, so a standstill has cost one of them. A
    group keeps the order in which it was joined: nothing here depends on where a task is in memory.
    """

    _STEPS = 10

    def __init__(self, seconds: float) -> None:
        self._step_s = seconds / self._STEPS
        self._groups = deque(Group() for _ in range(self._STEPS))
        self._is_counting = False

    def group(self) -> Group:
        """What to join now; whoever does so leaves it at the end."""
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_later(self._step_s, self._step)
        return self._groups[-1]

    async def limit(self, work: Coroutine[Any, Any, T], group: Group | None) -> T:
        """What `work` returns; it began when `group` was joined, or begins now.

        Raises TimeoutError when it has taken too long.
        """
        group = self.group() if group is None else group
        task = asyncio.current_task()
        assert task is not None
        if group.has_run_out():
            work.close()
            raise TimeoutError
        group.join(task)
        try:
            return await work
        except asyncio.CancelledError:
            if group.has_run_out() and task.uncancel() == 0:
                raise TimeoutError from None
            raise
        finally:
            group.leave(task)

    def _step(self) -> None:
        self._is_counting = False
        late = self._groups.popleft()
        self._groups.append(Group())
        late.run_out()
        if any(self._groups):
            self.group()
