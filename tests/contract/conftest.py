"""The engines that the contract is checked on, and an open database of each."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.engines import EngineUnderTest, Opened, SqliteUnderTest
from tests.support.clock import FakeClock


@pytest.fixture(params=[SqliteUnderTest])
async def engine(
    request: pytest.FixtureRequest, scratch: Path, clock: FakeClock
) -> AsyncIterator[EngineUnderTest]:
    engine: EngineUnderTest = request.param(scratch)
    await engine.open(clock)
    await engine.close()
    yield engine
    await engine.close()


@pytest.fixture
async def opened(engine: EngineUnderTest, clock: FakeClock) -> Opened:
    return await engine.open(clock)
