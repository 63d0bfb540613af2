"""SQLite: what a batch costs, counted and not timed, so that a slip shows without a stopwatch.

Steps are the instructions of SQLite's own machine: how many rows a statement looks at shows in
them, and they are the same on every day.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.seeding import open_durable, seed
from reservation_service.reservation import Confirm, Expire, Extend, Hold, Release, Trigger
from reservation_service.storage import sqlite_reads
from reservation_service.storage.sqlite import BatchTransaction
from reservation_service.storage.sqlite_files import wal_of
from reservation_service.store import Claim, StoreMessage
from tests.support.clock import START, FakeClock

MINUTE_MS = 60_000
DUE = 50
FEW, MANY = 100, 5_000
GROWTH_MAX = 1.1
"""A deeper tree costs a little more; a scan would cost fifty times as much."""

_FRAME_BYTES = 4096 + 24

NAMES = [f"new-{number:03}" for number in range(DUE)]


class Costs:
    """One database, and what was asked of it."""

    def __init__(self, database: Path, pending: int = 0, due: int = 0) -> None:
        seed(database, range(pending), lambda number: START + MINUTE_MS + number)
        seed(database, range(due), lambda _: START - 1, lambda number: f"due-{number:03}")
        self.connection = open_durable(database)
        self._log = wal_of(database)
        self.statements: list[str] = []
        self.clock = FakeClock()
        self._transact = BatchTransaction(self.clock, database, epoch=1)

    def statements_of(self, messages: Sequence[StoreMessage]) -> list[str]:
        """The first word of each statement of one batch."""
        statements: list[str] = []
        self.connection.set_trace_callback(statements.append)
        self._transact(self.connection, messages)
        self.connection.set_trace_callback(None)
        return [statement.split()[0] for statement in statements]

    def steps_of(self, work: Callable[[], object]) -> int:
        """How many instructions SQLite runs for it."""
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 1

        self.connection.set_progress_handler(count, 1)
        work()
        self.connection.set_progress_handler(None, 1)
        return steps

    def pages_of(self, work: Callable[[], object]) -> int:
        """How many pages are written into the log for it."""
        self.connection.execute("PRAGMA wal_autocheckpoint = 0")  # it only grows
        before = self._log_bytes()
        work()
        return (self._log_bytes() - before) // _FRAME_BYTES

    def _log_bytes(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0

    def write(self, messages: Sequence[StoreMessage]) -> None:
        self._transact(self.connection, messages)

    def dispatch(self) -> None:
        """Claim what is due, and let it expire."""
        (claimed,), _ = self._transact(self.connection, [Claim(1000, 10_000, [])])
        assert isinstance(claimed, list)
        assert len(claimed) == DUE
        self.write([Expire(one.id, Trigger.ALARM) for one in claimed])

    def read(self) -> None:
        assert len(sqlite_reads.read_rows(self.connection, NAMES)) == len(NAMES)


@pytest.fixture
def costs(database: Path) -> Iterator[Costs]:
    costs = Costs(database)
    with closing(costs.connection):
        yield costs


def holds(count: int, *, is_named: bool) -> list[StoreMessage]:
    holder = b"h" * 32 if is_named else b""
    return [
        Hold(f"new-{number:03}", MINUTE_MS, 2 * MINUTE_MS, 0, holder) for number in range(count)
    ]


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "anonymous"])
@pytest.mark.parametrize("count", [1, 64, 500])
def test_a_batch_of_holds_takes_few_statements_however_many_they_are(
    costs: Costs, count: int, is_named: bool
) -> None:
    statements = costs.statements_of(holds(count, is_named=is_named))
    assert len(statements) <= 7, statements
    assert statements.count("COMMIT") == 1


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "anonymous"])
def test_a_batch_that_takes_over_what_is_overdue_takes_two_more(
    costs: Costs, is_named: bool
) -> None:
    costs.write(holds(64, is_named=is_named))
    costs.clock.advance(MINUTE_MS)
    assert len(costs.statements_of(holds(64, is_named=is_named))) <= 9


@pytest.mark.parametrize(
    ("message", "most"),
    [
        (Extend("new-000", 2 * MINUTE_MS, 3 * MINUTE_MS), 6),
        (Confirm("new-000"), 8),
        (Release("new-000"), 6),
        (Expire("new-000", Trigger.REPLAY, START + 2 * MINUTE_MS), 6),
        (Claim(10, 10_000, []), 4),
    ],
    ids=lambda value: type(value).__name__.lower(),
)
def test_any_other_batch_takes_few_statements(
    costs: Costs, message: StoreMessage, most: int
) -> None:
    costs.write(holds(1, is_named=False))
    statements = costs.statements_of([message])
    assert len(statements) <= most, statements


@pytest.mark.parametrize(
    "work",
    [Costs.dispatch, Costs.read, lambda costs: costs.write(holds(DUE, is_named=True))],
    ids=["dispatch", "read", "hold"],
)
def test_what_is_pending_costs_the_others_nothing(
    scratch: Path, work: Callable[[Costs], None]
) -> None:
    few, many = Costs(scratch / "few.db", FEW, DUE), Costs(scratch / "many.db", MANY, DUE)
    with closing(few.connection), closing(many.connection):
        assert many.steps_of(lambda: work(many)) <= GROWTH_MAX * few.steps_of(lambda: work(few))


def test_a_planted_scan_shows_in_the_steps(scratch: Path) -> None:
    def scan(costs: Costs) -> sqlite3.Cursor:
        return costs.connection.execute("SELECT max(created_at) FROM reservation")

    few, many = Costs(scratch / "few.db", FEW), Costs(scratch / "many.db", MANY)
    with closing(few.connection), closing(many.connection):
        assert many.steps_of(lambda: scan(many)) > GROWTH_MAX * few.steps_of(lambda: scan(few))


@pytest.mark.parametrize(("count", "steps_max"), [(1, 600), (64, 370)])
def test_a_hold_takes_few_steps(costs: Costs, count: int, steps_max: int) -> None:
    steps = costs.steps_of(lambda: costs.write(holds(count, is_named=True)))
    assert steps <= count * steps_max, steps / count


def test_expiries_write_the_pages_of_their_rows_and_no_index_at_random(scratch: Path) -> None:
    costs = Costs(scratch / "many.db", due=MANY)
    with closing(costs.connection):
        expiries = [Expire(f"due-{number:03}", Trigger.ALARM) for number in range(500)]
        assert costs.pages_of(lambda: costs.write(expiries)) <= 70
