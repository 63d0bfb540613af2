"""Somebody who reads and holds at a steady pace while something else is going on.

A call that takes longer than its pace counts for those that could not be made meanwhile, too: a
service that stands still is asked no less.
"""

import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from typing import Self

_READ_EVERY_S = 0.005
_HOLD_EVERY_S = 0.02
_PATIENCE_S = 60.0


class Bystander:
    """Within `with` it asks; afterwards it tells how long calls took, in milliseconds."""

    def __init__(self, port: int, read_id: str) -> None:
        self._port = port
        self._is_over = False
        self._reads: list[tuple[float, float]] = []
        self._holds: list[tuple[float, float]] = []
        read, hold = (lambda _: ("GET", read_id, None)), _hold
        self._threads = [
            threading.Thread(target=self._ask, args=[read, _READ_EVERY_S, self._reads]),
            threading.Thread(target=self._ask, args=[hold, _HOLD_EVERY_S, self._holds]),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join()

    def reads(self, since_ms: float, until_ms: float) -> list[float]:
        """How long those took that were to be made in this time (epoch ms)."""
        return _between(self._reads, since_ms, until_ms)

    def holds(self, since_ms: float, until_ms: float) -> list[float]:
        """The same of holds."""
        return _between(self._holds, since_ms, until_ms)

    def _ask(
        self,
        call: Callable[[int], tuple[str, str, str | None]],
        every_s: float,
        took: list[tuple[float, float]],
    ) -> None:
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=_PATIENCE_S)) as connection:
            number = 0
            while not self._is_over:
                method, name, body = call(number)
                headers = {"Content-Type": "application/json"} if body else {}
                began = time.time()
                connection.request(method, f"/reservations/{name}", body, headers)
                answer = connection.getresponse()
                answer.read()
                ended = time.time()
                assert answer.status < 300, answer.status  # noqa: PLR2004 - 200 and 201
                while began < ended:
                    took.append((began * 1000, (ended - began) * 1000))
                    began += every_s
                time.sleep(max(0.0, began - time.time()))
                number += 1


def _hold(number: int) -> tuple[str, str, str]:
    return "POST", f"passing-{number:08}", json.dumps({"ttlSeconds": 3600, "holder": f"{number}"})


def _between(took: list[tuple[float, float]], since_ms: float, until_ms: float) -> list[float]:
    """At least one, or nothing could be said: the last before where none was planned meanwhile."""
    found = [duration for planned, duration in took if since_ms <= planned <= until_ms]
    return found or [took[-1][1]]
