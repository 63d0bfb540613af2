"""What one message does to a reservation, said a second time, row by row and without any SQL.

Written from the contract and the lifecycle; the statements are compared with it column by column.
"""

from collections.abc import Collection, Iterable
from itertools import combinations

from reservation_service.reservation import Confirm, Expire, Extend, Hold, Release
from reservation_service.store import Retry
from tests.torture import model_schedule
from tests.torture.model_tables import (
    Event,
    Look,
    Recovery,
    Rejection,
    Request,
    Row,
    Step,
    Tables,
    earliest,
    is_live,
    new_alarm,
    told,
    with_slot,
)

REJECTIONS_MAX = 20


def tell(tables: Tables, message: Request | Retry, now: int) -> Step:
    """One message of a reservation, alone in its transaction."""
    row = tables.row(message.id)
    match message:
        case Hold():
            step = _hold(tables, row, message, now)
        case Expire():
            given, retry_count = message.now, message.retry_count
            step = _expire(tables, row, message.trigger, now, given=given, retry_count=retry_count)
        case Extend():
            step = _extend(tables, row, message, now)
        case Confirm():
            step = _confirm(tables, row, message, now)
        case Release():
            step = _release(tables, row, message, now)
        case Retry():
            step = _settle(tables, row, message, now)
        case _:
            step = model_schedule.tell(tables, row, message, now)
    return step


def claim(tables: Tables, ids: Collection[str], look: Look, now: int, token: int) -> Tables:
    """The attempts at `ids` are counted and leased."""
    for row in tables.rows:
        if row.id in ids:
            leased = row._replace(
                alarm_attempts=row.alarm_attempts + 1,
                alarm_dispatch_at=now + look.lease_ms,
                alarm_claim=token,
            )
            tables = tables.with_row(leased)
    return tables


def may_be_claimed(tables: Tables, look: Look, now: int) -> list[set[str]]:
    """The sets of reservations of which a claim takes exactly one: the longest due, ties apart."""
    due = sorted(
        (row.alarm_dispatch_at, row.id)
        for row in tables.rows
        if row.alarm_dispatch_at is not None
        and row.alarm_dispatch_at <= now
        and not (row.alarm_claim is not None and row.id in look.running)
    )
    if len(due) <= look.limit:
        return [{name for _, name in due}]
    last = due[look.limit - 1][0]
    sure = {name for at, name in due if at < last}
    ties = [name for at, name in due if at == last]
    return [sure | set(rest) for rest in combinations(ties, look.limit - len(sure))]


def next_due(tables: Tables, running: Collection[str], now: int) -> int | None:
    """When the dispatcher is to look again: what is at work beyond its lease wakes nobody."""
    return min(
        (
            row.alarm_dispatch_at
            for row in tables.rows
            if row.alarm_dispatch_at is not None
            and not (
                row.alarm_dispatch_at <= now and row.alarm_claim is not None and row.id in running
            )
        ),
        default=None,
    )


def start(tables: Tables, now: int, recovery: Recovery) -> Tables:
    """A new process: old claims are void, counts and backoffs are not; `first_ms` is 1 here."""
    for row in tables.rows:
        if row.alarm_attempts == 0:
            continue
        assert row.alarm_at is not None
        assert row.alarm_dispatch_at is not None
        if row.alarm_claim is None:
            latest = now + recovery.cap_ms
        elif row.alarm_attempts == 1:
            latest = row.alarm_at
        else:
            latest = now + recovery.first_ms
        planned = max(row.alarm_at, min(row.alarm_dispatch_at, latest))
        tables = tables.with_row(row._replace(alarm_dispatch_at=planned, alarm_claim=None))
    return tables


def broken_rules(tables: Tables) -> Iterable[str]:
    """What must be true of every row in every reachable state."""
    for row in tables.rows:
        due, at = row.alarm_dispatch_at, row.alarm_at
        rules = {
            "the slot is what the state plans": at == earliest(tables, row),
            "planned and tried go together": (at is None) == (due is None),
            "nothing is tried early": at is None or due is None or due >= at,
            "a new alarm is tried when it is due": row.alarm_attempts > 0 or due == at,
            "attempts belong to an alarm": row.alarm_attempts == 0 or at is not None,
            "a claim is an attempt": row.alarm_claim is None or row.alarm_attempts > 0,
            "one expiry per hold": row.expiration_count == (row.expired_at is not None),
            "held means not over": row.status != "held" or row.expiration_count == 0,
        }
        yield from (f"{row.id}: {rule}" for rule, holds in rules.items() if not holds)


def _hold(tables: Tables, row: Row | None, message: Hold, now: int) -> Step:
    events: tuple[Event, ...] = ()
    if row is not None and row.status == "held" and not is_live(row, now):
        tables, events, *_ = _expire(tables, row, "request", now)
        row = tables.row(message.id)
    is_named = message.holder != b""
    if row is not None and row.status == "held" and row.holder == message.holder and is_named:
        return _renew(tables, row, message, now)
    if row is not None and (
        row.status == "confirmed"
        or (row.status == "held" and (is_named or row.holder != message.holder))
    ):
        return Step(tables, events)
    if (until := _limited_until(tables, message, now)) is not None:
        return Step(tables, events, limited_until=until)
    generation = row.generation + 1 if row else 1
    deadline = now + message.ttl_ms
    held = Row(
        message.id, "held", message.holder, generation, now, deadline, None, None, None, 0,
        deadline, deadline, 0, None,
    )  # fmt: skip
    event = Event(message.id, generation, "held", now, "request")
    others = tables.with_plans(one for one in tables.plans if one.reservation != message.id)
    return Step(others.with_row(held), (*events, event), changed=True)


def _renew(tables: Tables, row: Row, message: Hold, now: int) -> Step:
    renewed = _until(tables, row, _later(row, message, now))
    event = Event(row.id, row.generation, "renewed", now, "request")
    return Step(tables.with_row(renewed), (event,), changed=True)


def _limited_until(tables: Tables, message: Hold, now: int) -> int | None:
    """When this holder's first hold ends, if there are as many as there may be."""
    if message.holder == b"" or message.max_per_holder == 0:
        return None
    ends = [
        row.expires_at for row in tables.rows if is_live(row, now) and row.holder == message.holder
    ]
    return min(ends, default=now) if len(ends) >= message.max_per_holder else None


def _expire(
    tables: Tables,
    row: Row | None,
    trigger: str,
    now: int,
    *,
    given: int | None = None,
    retry_count: int = 0,
) -> Step:
    at = now if given is None else given
    if row is None or row.status != "held" or at < row.expires_at:
        return Step(tables)
    over = new_alarm(row, None)._replace(
        status="expired", expired_at=at, expiration_count=row.expiration_count + 1
    )
    data = told(row.expires_at, now, retry_count) if trigger == "alarm" else None
    event = Event(row.id, row.generation, "expired", now, str(trigger), data)
    return Step(tables.with_row(over), (event,), changed=True)


def _extend(tables: Tables, row: Row | None, message: Extend, now: int) -> Step:
    if row is None or not _is_own(row, message) or not is_live(row, now):
        return Step(tables)
    deadline = _later(row, message, now)
    if deadline == row.expires_at:
        return Step(tables)
    event = Event(row.id, row.generation, "extended", now, "request")
    return Step(tables.with_row(_until(tables, row, deadline)), (event,), changed=True)


def _confirm(tables: Tables, row: Row | None, message: Confirm, now: int) -> Step:
    if row is None:
        return Step(tables)
    in_time = is_live(row, now) or (message.if_still_free and row.status in {"held", "expired"})
    if not _is_own(row, message) or not in_time:
        return _reject(tables, row, message, now)
    kept = row._replace(status="confirmed", confirmed_at=now)
    kept = with_slot(kept, earliest(tables, kept))
    event = Event(row.id, row.generation, "confirmed", now, "request")
    return Step(tables.with_row(kept), (event,), changed=True)


def _reject(tables: Tables, row: Row, message: Confirm, now: int) -> Step:
    code = _why_rejected(row, message, now)
    if code is None:
        return Step(tables)
    rejection = Rejection(row.id, row.generation, message.holder, code)
    same_hold = [one for one in tables.rejections if one[:2] == rejection[:2]]
    if rejection in same_hold or len(same_hold) >= REJECTIONS_MAX:
        return Step(tables)
    event = Event(row.id, row.generation, "confirm-rejected", now, "request", {"code": code})
    remembered = tuple(sorted([*tables.rejections, rejection]))
    return Step(tables._replace(rejections=remembered), (event,))


def _why_rejected(row: Row, message: Confirm, now: int) -> str | None:
    if row.holder != message.holder:
        is_taken = row.status == "confirmed" or is_live(row, now)
        return "taken" if message.if_still_free and is_taken else None
    if message.generation not in {None, row.generation} or row.status == "confirmed":
        return None
    return "hold-released" if row.status == "released" else "hold-expired"


def _release(tables: Tables, row: Row | None, message: Release, now: int) -> Step:
    if row is None:
        return Step(tables)
    is_given_up = _is_own(row, message) and is_live(row, now)
    if not is_given_up and not (message.operator and row.status == "confirmed"):
        return Step(tables)
    freed = new_alarm(row, None)._replace(status="released", released_at=now)
    event = Event(row.id, row.generation, "released", now, "request")
    return Step(tables.with_row(freed), (event,), changed=True)


def _settle(tables: Tables, row: Row | None, message: Retry, now: int) -> Step:
    if row is None or row.alarm_claim is None or row.alarm_claim != message.claim:
        return Step(tables)
    assert row.alarm_at is not None
    times = [one.run_at for one in tables.planned_on(row)]
    if row.status == "held":
        times.append(row.expires_at)
    untried = [at for at in times if at > message.seen]  # they do not wait for the backoff
    planned = max(row.alarm_at, min([now + message.delay_ms, *untried]))
    events = (_failure(row, now),) if message.record else ()
    settled = row._replace(alarm_claim=None, alarm_dispatch_at=planned)
    return Step(tables.with_row(settled), events)


def _failure(row: Row, now: int) -> Event:
    assert row.alarm_at is not None
    data = told(row.alarm_at, now, row.alarm_attempts - 1, outcome="failed")
    return Event(row.id, row.generation, "alarm-failed", now, "alarm", data)


def _is_own(row: Row, message: Extend | Confirm | Release) -> bool:
    return row.holder == message.holder and message.generation in {None, row.generation}


def _later(row: Row, message: Hold | Extend, now: int) -> int:
    """A deadline never moves back, and a hold lasts so long at most."""
    return max(row.expires_at, min(now + message.ttl_ms, row.created_at + message.max_hold_ms))


def _until(tables: Tables, row: Row, deadline: int) -> Row:
    """The row with this deadline."""
    moved = row._replace(expires_at=deadline)
    return with_slot(moved, earliest(tables, moved))
