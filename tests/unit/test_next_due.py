"""When the dispatcher is to look again: the head of what it may claim."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from reservation_service.reservation import Hold
from reservation_service.storage.migrations import load_migrations, migrate
from reservation_service.storage.sqlite import BatchTransaction
from reservation_service.storage.sqlite_messages import create_message_table
from reservation_service.store import Claim
from tests.support.clock import START, FakeClock

LEASE_MS = 1_000
MAX_HOLD_MS = 7_200_000


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, load_migrations("sqlite"))
        create_message_table(connection)
        yield connection


def test_an_attempt_that_outlives_its_lease_wakes_nobody(
    connection: sqlite3.Connection, clock: FakeClock
) -> None:
    transaction = BatchTransaction(clock, None, epoch=1)
    _, next_due_at = transaction(
        connection, [Hold("slow", 1_000, MAX_HOLD_MS), Hold("next", 60_000, MAX_HOLD_MS)]
    )
    assert next_due_at == START + 1_000
    clock.advance(1_000)
    _, next_due_at = transaction(connection, [Claim(10, LEASE_MS, [])])
    assert next_due_at == START + 1_000 + LEASE_MS
    clock.advance(LEASE_MS)
    (claimed,), next_due_at = transaction(connection, [Claim(10, LEASE_MS, ["slow"])])
    assert claimed == []
    assert next_due_at == START + 60_000


def test_an_alarm_that_was_set_anew_wakes_though_an_old_attempt_is_at_work(
    connection: sqlite3.Connection, clock: FakeClock
) -> None:
    transaction = BatchTransaction(clock, None, epoch=1)
    transaction(connection, [Hold("slow", 1_000, MAX_HOLD_MS)])
    clock.advance(1_000)
    transaction(connection, [Claim(10, LEASE_MS, [])])
    transaction(connection, [Hold("slow", 2_000, MAX_HOLD_MS)])
    _, next_due_at = transaction(connection, [Claim(10, LEASE_MS, ["slow"])])
    assert next_due_at == START + 3_000
