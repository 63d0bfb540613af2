"""The real service in the test's own process: real HTTP, real SQLite, a clock in the test's hand.

A restart is graceful (`stop`) or not (`crash`): a crash answers, settles and drains nothing.
"""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from reservation_service import service as composition
from reservation_service.config import Settings
from reservation_service.store import Purge
from tests.support.clock import FakeClock
from tests.support.gates import GatedNamespace, GatedStore, Gates
from tests.support.poison import Poison
from tests.support.recorder import Recorder
from tests.support.streams import Stream
from tests.support.waiting import WAIT_SECONDS_MAX, bounded
from tests.support.waker import HandWaker

Sections = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer, read to its end."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ServiceHarness:
    """One database, its clock, and the service that runs on it now, if any.

    `sections` are settings as in the configuration file; what is said there about the port and
    the database is overruled. Jitter is 0 and the waker is in the test's hand.
    """

    def __init__(
        self, database: Path, clock: FakeClock, recorder: Recorder, **sections: Sections
    ) -> None:
        self.database = database
        self.clock = clock
        self.recorder = recorder
        self.gates = Gates()
        self.waker = HandWaker(clock)
        self.complaints: list[str] = []
        self.sections = sections
        self._client: aiohttp.ClientSession | None = None
        self._service: composition.Service | None = None
        self._running: asyncio.Task[int] | None = None

    async def start(self) -> Self:
        """Serve on a free port. Raises StartupError like the service itself."""
        asyncio.get_running_loop().set_exception_handler(self._complain)
        self.gates = Gates()
        self.waker.retire()
        self.waker = HandWaker(self.clock)
        service = composition.Service(
            settings_for(self.database, **self.sections),
            self.clock,
            self.recorder.observe,
            waker=self.waker,
            jitter=lambda: 0.0,
        )
        with (
            patch.object(composition, "GroupedStore", partial(GatedStore, self.gates)),
            patch.object(composition, "ReservationNamespace", partial(GatedNamespace, self.gates)),
        ):
            await service.start()
        self._service = service
        self._running = asyncio.create_task(service.run())
        self._client = aiohttp.ClientSession(f"http://127.0.0.1:{service.port}")
        self._client._retry_connection = False  # a crash answers nothing, a second time neither
        return self

    async def stop(self) -> int:
        """Stop like a SIGTERM does; the exit status of the process that it would have been."""
        service, running, client = self._parts()
        service.request_stop()
        status = await bounded(running, "the service to end")
        self._service = None
        assert await bounded(service.stop(), "the service to stop")
        await client.close()
        assert self.complaints == []
        return status

    async def crash(self) -> None:
        """Die at once: what is in memory is gone, what is committed stays, the lock is free."""
        service, running, client = self._parts()
        service.request_stop()
        await bounded(running, "the service to end")
        doomed = [task for task in asyncio.all_tasks() if _is_the_services(task)]
        for task in doomed:
            task.cancel()
        if doomed:
            await bounded(asyncio.wait(doomed), "the service's tasks to die")
        await client.close()
        await bounded(service._opened.aclose(), "the files to be closed")
        self._service = None
        assert self.complaints == []

    async def close(self) -> None:
        """Stop if it still runs."""
        if self._service is not None:
            await self.stop()
        self.waker.retire()

    async def exited(self) -> int:
        """Wait until the service ends on its own; the exit status."""
        _, running, _ = self._parts()
        return await bounded(asyncio.shield(running), "the service to end on its own")

    @property
    def poison(self) -> Poison:
        return Poison(self.database)

    @property
    def port(self) -> int:
        service, _, _ = self._parts()
        return service.port

    async def request(self, method: str, path: str, **options: Any) -> Answer:
        """One request; `path` goes out as it is spelled."""
        _, _, client = self._parts()
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        async with client.request(method, url, **options) as response:
            body = await response.read()
            return Answer(response.status, response.headers, body)

    async def get(self, path: str) -> Answer:
        return await self.request("GET", path)

    async def post(self, path: str, document: object) -> Answer:
        return await self.request("POST", path, json=document)

    def follow(
        self,
        path: str,
        *,
        resumed: int | None = None,
        accept: str = "text/event-stream",
        origin: str | None = None,
        key: str | None = None,
    ) -> Stream:
        """The events of `path` as a stream, from `resumed` on: use it with `async with`."""
        _, _, client = self._parts()
        headers = {"Accept": accept}
        if resumed is not None:
            headers["Last-Event-ID"] = str(resumed)
        if origin is not None:
            headers["Origin"] = origin
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        return Stream(client.get(url, headers=headers, timeout=aiohttp.ClientTimeout()))

    async def hold(self, reservation_id: str, ttl_seconds: int = 60) -> Any:
        """Hold, and return the document of the 201."""
        answer = await self.post(f"/reservations/{reservation_id}", {"ttlSeconds": ttl_seconds})
        assert answer.status == 201, answer
        return answer.json

    async def status(self, reservation_id: str) -> Any:
        """The document of the reservation as it is now."""
        answer = await self.get(f"/reservations/{reservation_id}")
        assert answer.status == 200, answer
        return answer.json

    async def replay(self, reservation_id: str, now: int) -> Any:
        answer = await self.post(f"/reservations/{reservation_id}/replay-alarm", {"now": now})
        assert answer.status == 200, answer
        return answer.json

    async def purge(self, *, events_before: int, reservations_before: int = 0) -> None:
        """What housekeeping does, with times of the test's choice."""
        purge: Purge | None = Purge(200, events_before, reservations_before)
        while purge is not None:
            assert self.gates.store is not None
            purge = (await self.gates.store.purge(purge)).next

    async def advance(self, ms: int) -> None:
        """Let `ms` pass, and everything that falls due in it be done."""
        self.clock.advance(ms)
        await self.quiet()

    async def look(self) -> None:
        """Make the dispatcher look into the table, and wait until it has."""
        self.waker.tick()
        await self.quiet()

    async def quiet(self) -> None:
        """Wait until the dispatcher sleeps and no attempt is at work."""
        while True:
            await self.waker.asleep()
            await asyncio.sleep(0)  # an expiry that has just ended may begin an attempt
            attempts = [task for task in asyncio.all_tasks() if _is_an_attempt(task)]
            if not attempts:
                return
            await bounded(asyncio.wait(attempts), "the attempts at work to end")

    def _parts(self) -> tuple[composition.Service, "asyncio.Task[int]", aiohttp.ClientSession]:
        assert self._service is not None, "the service does not run"
        assert self._running is not None
        assert self._client is not None
        return self._service, self._running, self._client

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What asyncio would only log is a failure of the test."""
        self.complaints.append(f"{context.get('message')}: {context.get('exception')!r}")


def settings_for(database: Path, **sections: Sections) -> Settings:
    """The defaults, with `sections` on top, on `database` and any free port."""
    given = {name: dict(section) for name, section in sections.items()}
    given.setdefault("server", {})["port"] = 0
    given.setdefault("storage", {})["database"] = database
    given.setdefault("log", {}).setdefault("access", False)
    given.setdefault("writer", {}).setdefault("own_process", False)  # it knows no clock of a test's
    return Settings.model_validate(given)


@contextmanager
def threads_accounted_for() -> Iterator[None]:
    """No thread is left that was not there before: one would keep the process from exiting."""
    before = set(threading.enumerate())
    yield
    # One that is about to end needs a moment, and none of the event loop: it was answered already.
    new = [thread for thread in threading.enumerate() if thread not in before]
    for thread in new:
        thread.join(WAIT_SECONDS_MAX)
    assert [thread.name for thread in new if thread.is_alive() and not thread.daemon] == []


def _is_an_attempt(task: "asyncio.Task[Any]") -> bool:
    """An attempt with a task of its own, or an expiry: a gated message is a task if it has no
    caller that waits for it."""
    return _name(task) in {"AlarmClock._attempt", "GatedStore.apply"}


def _is_the_services(task: "asyncio.Task[Any]") -> bool:
    owner, _, _ = _name(task).partition(".")
    return owner in {
        *("AlarmClock", "Feed", "GatedStore", "GroupedStore", "GroupCommit", "Service"),
        *("RequestHandler", "EventSourceResponse"),
    }


def _name(task: "asyncio.Task[Any]") -> str:
    return getattr(task.get_coro(), "__qualname__", "")
