"""Bugs in the product's own SQL, planted by replacing text in one statement for a while."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from reservation_service.storage import (
    sqlite,
    sqlite_alarms,
    sqlite_bookings,
    sqlite_purge,
    sqlite_reads,
    sqlite_schedule,
)

MODULES = (sqlite, sqlite_alarms, sqlite_bookings, sqlite_purge, sqlite_reads, sqlite_schedule)


def statement(name: str) -> str:
    """The text of the statement called `name`, wherever it stands."""
    texts: list[str] = [getattr(module, name) for module in MODULES if hasattr(module, name)]
    assert texts, f"there is no statement {name} any more: change the planted bug with it"
    return texts[0]


@contextmanager
def changed(name: str, old: str, new: str = "") -> Iterator[None]:
    """The statement with every `old` replaced; an `old` that is gone is an error."""
    text = statement(name)
    assert old in text, f"{name} no longer contains {old!r}: change the planted bug with it"
    with ExitStack() as planted:
        for module in MODULES:
            if hasattr(module, name):
                planted.enter_context(patch.object(module, name, text.replace(old, new)))
        yield
