"""Bugs in the product's own SQL, planted by replacing text in one statement for a while.

What a statement leaves to a function of the same modules is text as well: the function's source.
"""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
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
    """The text of the statement or function called `name`, wherever it stands."""
    found = [getattr(module, name) for module in MODULES if hasattr(module, name)]
    assert found, f"there is no statement {name} any more: change the planted bug with it"
    text: str = found[0] if isinstance(found[0], str) else inspect.getsource(found[0])
    return text


@contextmanager
def changed(name: str, old: str, new: str = "") -> Iterator[None]:
    """The statement with every `old` replaced; an `old` that is gone is an error."""
    text = statement(name)
    assert old in text, f"{name} no longer contains {old!r}: change the planted bug with it"
    with ExitStack() as planted:
        for module in MODULES:
            if hasattr(module, name):
                value = _like(module, name, text.replace(old, new))
                planted.enter_context(patch.object(module, name, value))
        yield


def _like(module: ModuleType, name: str, text: str) -> Any:
    """What the module has under this name, from another text."""
    if isinstance(getattr(module, name), str):
        return text
    namespace = dict(vars(module))
    exec(text, namespace)
    return namespace[name]
