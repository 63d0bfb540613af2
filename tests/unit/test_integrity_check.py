"""The full check behind the traffic: whatever keeps it from a clean result ends the service."""

from pathlib import Path

import pytest

from reservation_service.errors import DatabaseUnusable
from reservation_service.storage.sqlite_engine import SqliteEngine


async def test_a_file_that_is_gone_is_a_finding(database: Path) -> None:
    engine = await SqliteEngine.open(database)
    try:
        await engine.migrate()
        database.unlink()
        with pytest.raises(DatabaseUnusable):
            await engine.check_integrity()
    finally:
        await engine.close()
