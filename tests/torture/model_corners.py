"""Transitions that no small world comes to: too many of something, or too much time between."""

from collections.abc import Iterator
from typing import Any

from reservation_service.reservation import EVENTS_MAX, Cancel, Confirm, Fire, Plan
from tests.torture.model_bounds import ANN, BOB
from tests.torture.model_database import BATCH
from tests.torture.model_judge import Met
from tests.torture.model_specification import REJECTIONS_MAX
from tests.torture.model_tables import Planned, Rejection, Row, Tables

_DEADLINE, _NOW, _LEASE_END, _CLAIM = 50, 9, 7, 1
_AGAIN = Planned(1, "r1", "e1", 1, 5, 2, 3, None)
"""What repeats: it happened at 2, and is due at 5."""

_LATER = Planned(2, "r1", "e2", 1, 8, 8, None, None)


def corners() -> Iterator[Met]:
    """Each with what a message has to do there decided by the specification, as everywhere."""
    yield _crowded()
    full = [Planned(n, "r1", f"e{n}", 1, 40, 40, None, None) for n in range(1, EVENTS_MAX + 1)]
    yield _met([_held("r1")], full, Plan("r1", "one-more", 20, holder=ANN))
    yield _met([_held("r1")], full, Plan("r1", "e7", 20, holder=ANN))
    yield _met([_held("r1"), _held("r2")], full, Plan("r2", "e7", 20, holder=ANN))
    plans = [_AGAIN, _LATER]
    tried = _held("r1", alarm_attempts=1, alarm_dispatch_at=_LEASE_END, alarm_claim=_CLAIM)
    for message in (
        Plan("r1", "e1", 2, 3, holder=ANN),
        Plan("r1", "e1", 2, 4, holder=ANN),
        Plan("r1", "e1", 5, 3, holder=ANN),
        Cancel("r1", "e2", ANN),
        Fire("r1", 1, 2),
        Fire("r1", 1, 5),
        Fire("r1", 2, 8),
    ):
        yield _met([tried], plans, message)


def _held(name: str, **changed: Any) -> Row:
    row = Row(
        name, "held", ANN, 1, 0, _DEADLINE, None, None, None, 0, _DEADLINE, _DEADLINE, 0, None
    )
    return row._replace(**changed)


def _met(rows: list[Row], plans: list[Planned], message: Plan | Cancel | Fire) -> Met:
    """With every slot where the plans set it."""
    set_rows = []
    for row in rows:
        at = min([one.run_at for one in plans if one.reservation == row.id], default=_DEADLINE)
        dispatch_at = row.alarm_dispatch_at if row.alarm_attempts else at
        set_rows.append(row._replace(alarm_at=at, alarm_dispatch_at=dispatch_at))
    tables = Tables(tuple(set_rows), plans=tuple(plans), last_key=len(plans))
    return Met(tables, message, _NOW, BATCH)


def _crowded() -> Met:
    """A hold that has turned away as many holders as are recorded, and one more comes."""
    row = Row("r1", "confirmed", ANN, 1, 0, 1, None, 1, None, 0, None, None, 0, None)
    turned_away = tuple(Rejection("r1", 1, bytes([n]) * 32, "taken") for n in range(REJECTIONS_MAX))
    message = Confirm("r1", BOB, if_still_free=True)
    return Met(Tables((row,), turned_away), message, 3, BATCH)
