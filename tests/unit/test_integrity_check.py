"""The full check behind the traffic: whatever keeps it from a clean result ends the service."""

from pathlib import Path

import pytest

from reservation_service.errors import DatabaseUnusable
from tests.conftest import OpenEngine


def delete(database: Path) -> None:
    database.unlink()


async def test_a_file_that_is_gone_is_a_finding(open_engine: OpenEngine, database: Path) -> None:
    engine = await open_engine(database)
    await engine.migrate()
    delete(database)
    with pytest.raises(DatabaseUnusable):
        await engine.check_integrity()
