"""The slot protocol in small worlds, on the product's own SQL; `make torture` looks further."""

import re

import pytest

from reservation_service.storage import sqlite_alarms, sqlite_bookings
from tests.torture.model import HARNESS
from tests.torture.model_mutants import MUTANTS, REDUNDANT, Mutant

pytestmark = pytest.mark.timeout(240)  # some twenty seconds, on a machine that does nothing else

READ_ONLY = {"COUNT_OVERDUE", "COUNT_CLAIMED", "COUNT_STUCK", "OLDEST_DUE", "NEXT_DUE"}
"""Four that reports are made of, and one that is looked at inside of OUTCOMES."""

STATEMENTS = {
    name
    for module in (sqlite_alarms, sqlite_bookings)
    for name, text in vars(module).items()
    if not name.startswith("_")
    and isinstance(text, str)
    and re.match(r"\s*(SELECT|INSERT|UPDATE|WITH)", text)
}


def test_the_protocol_holds_in_every_interleaving_of_small_worlds() -> None:
    assert HARNESS.run(HARNESS.short).violations == []


@pytest.mark.system  # it tests a test
@pytest.mark.parametrize("bug", HARNESS.controls)
def test_a_guard_less_is_found(bug: str) -> None:
    assert HARNESS.controls[bug]().violations != []


def test_every_statement_has_a_guard_less() -> None:
    assert STATEMENTS - READ_ONLY - {"MESSAGES"} <= {
        edit.statement for mutant in MUTANTS for edit in mutant.edits
    }


@pytest.mark.parametrize("mutant", REDUNDANT, ids=lambda mutant: mutant.name)
def test_what_guards_nothing_is_still_there(mutant: Mutant) -> None:
    with mutant.planted():
        pass
