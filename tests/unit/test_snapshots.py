"""Reads of several statements: what keeps them from beginning is told like any trouble."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from reservation_service.errors import ServiceError
from reservation_service.storage.sqlite_reads import find_rows
from reservation_service.storage.sqlite_schedule import read_schedules
from reservation_service.store import Query, ScheduleQuery


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """One on which nothing can be begun."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        yield connection


@pytest.mark.parametrize(
    "read",
    [
        lambda connection: find_rows(connection, Query(limit=1)),
        lambda connection: read_schedules(connection, [ScheduleQuery("seat-1")], 0),
    ],
)
def test_a_snapshot_that_cannot_begin_is_a_failure_of_the_store(
    connection: sqlite3.Connection, read: Callable[[sqlite3.Connection], object]
) -> None:
    with pytest.raises(ServiceError):
        read(connection)
