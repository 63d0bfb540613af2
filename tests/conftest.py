"""What every test may ask for: a fake clock, a recorder of events, a service on its own database.

Tests do not sleep. They move the clock and wait for named points, each wait with an end.
"""

import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from reservation_service.storage import sqlite_start
from reservation_service.storage.sqlite_engine import SqliteEngine
from tests.support.clock import FakeClock
from tests.support.harness import Sections, ServiceHarness
from tests.support.recorder import Recorder
from tests.support.scratch import scratch_directory


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """Finalizers that speak up while a failure is rendered confuse Python 3.11's own parser."""
    if call.excinfo is not None:
        gc.collect()


class StartService(Protocol):
    """Starts a service with settings that differ from the defaults."""

    async def __call__(self, **sections: Sections) -> ServiceHarness: ...


class OpenEngine(Protocol):
    """Opens a database file, without migrating it."""

    async def __call__(self, database: Path) -> SqliteEngine: ...


@pytest.fixture(scope="session", autouse=True)
def short_logs() -> Iterator[None]:
    """A thousand starts in this process need not write 10 MiB each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_start, "LOG_PAGES", 0)
        yield


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory of the test's own."""
    with scratch_directory() as directory:
        yield directory


@pytest.fixture
def database(scratch: Path) -> Path:
    return scratch / "reservations.db"


@pytest.fixture
async def open_engine() -> AsyncIterator[OpenEngine]:
    """What is still open at the end is closed: a thread left behind would keep pytest alive."""
    opened: list[SqliteEngine] = []

    async def open_one(database: Path) -> SqliteEngine:
        opened.append(await SqliteEngine.open(database))
        return opened[-1]

    yield open_one
    for engine in opened:
        await engine.close()


@pytest.fixture
async def start_service(
    database: Path, clock: FakeClock, recorder: Recorder
) -> AsyncIterator[StartService]:
    started: list[ServiceHarness] = []

    async def start(**sections: Sections) -> ServiceHarness:
        harness = ServiceHarness(database, clock, recorder, **sections)
        started.append(harness)
        return await harness.start()

    yield start
    for harness in started:
        await harness.close()


@pytest.fixture
async def service(start_service: StartService) -> ServiceHarness:
    """A running service with the built-in defaults."""
    return await start_service()
