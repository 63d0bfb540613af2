"""The engines that the contract is checked on, and an open database of each."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.contract.engines import EngineUnderTest, Opened, SqliteUnderTest
from tests.support.clock import FakeClock

NewEngine = Callable[[str], EngineUnderTest]
"""Makes one more database of the engine under test, by its name."""


@pytest.fixture(params=[SqliteUnderTest])
async def new_engine(request: pytest.FixtureRequest, scratch: Path) -> AsyncIterator[NewEngine]:
    made: list[EngineUnderTest] = []

    def make(name: str) -> EngineUnderTest:
        directory = scratch / name
        directory.mkdir()
        made.append(request.param(directory))
        return made[-1]

    yield make
    for engine in made:
        await engine.close()


@pytest.fixture
async def engine(new_engine: NewEngine, clock: FakeClock) -> EngineUnderTest:
    """A database with its tables, closed, so that rows can be planted before the first start."""
    engine = new_engine("contract")
    await engine.open(clock)
    await engine.close()
    return engine


@pytest.fixture
async def opened(engine: EngineUnderTest, clock: FakeClock) -> Opened:
    return await engine.open(clock)
