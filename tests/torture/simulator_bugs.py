"""Planted bugs that the simulator must find, by its own eyes alone.

The schema's second defence (CHECKs, the unique index on expiries) is off: it would refuse most of
these bugs, and then it would be the schema that is proved and not the simulator.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from reservation_service.storage import sqlite, sqlite_alarms, sqlite_schedule
from reservation_service.storage.group_commit import GroupCommit
from reservation_service.store import Claim, Claimed, Result, StoreMessage
from tests.torture.simulator_disk import Disk
from tests.torture.simulator_process import Process
from tests.torture.statements import changed

Bug = Callable[[], AbstractContextManager[object]]


@contextmanager
def without_second_defence() -> Iterator[None]:
    """No schema that refuses what the statements let through."""
    attach = Disk.attach

    def weaken(disk: Disk, *args: Any) -> None:
        disk.execute("PRAGMA ignore_check_constraints = ON")
        disk.execute("DROP INDEX IF EXISTS event_expired_once")
        disk.execute("DROP INDEX IF EXISTS event_fired_once")
        attach(disk, *args)

    with patch.object(Disk, "attach", weaken):
        yield


@contextmanager
def _slot_cleared_before_the_effect() -> Iterator[None]:
    """A claim takes the alarm out of the table; the handler is to do the rest."""
    claim = sqlite._Statements.claim

    def claim_and_clear(run: sqlite._Statements, message: Claim) -> list[Claimed]:
        claimed = claim(run, message)
        for one in claimed:
            run._connection.execute(
                """UPDATE reservation SET alarm_at = NULL, alarm_dispatch_at = NULL,
                   alarm_attempts = 0, alarm_claim = NULL WHERE id = ?""",
                [one.id],
            )
        return claimed

    with patch.object(sqlite._Statements, "claim", claim_and_clear):
        yield


@contextmanager
def _answer_before_commit() -> Iterator[None]:
    """Callers and the log hear the outcome, and then it is written."""
    commit = GroupCommit._commit

    async def answer_first(group: Any, batch: Sequence[Any]) -> None:
        process = getattr(getattr(group._run, "__self__", None), "_host", None)
        if isinstance(process, Process) and process.is_alive:
            for waiting, result in zip(batch, _rehearse(process, batch), strict=False):
                if not waiting.answer.done():
                    waiting.answer.set_result(result)
        await commit(group, batch)

    with patch.object(GroupCommit, "_commit", answer_first):
        yield


def _rehearse(process: Process, batch: Sequence[Any]) -> Sequence[Result]:
    """What the batch's outcomes will be, unless something goes wrong."""
    messages: list[StoreMessage] = [waiting.message for waiting in batch]
    if not all(hasattr(message, "holder") or hasattr(message, "now") for message in messages):
        return []
    disk = process._disk
    world, disk._world = disk._world, None
    try:
        disk.execute("BEGIN")
        results, _ = process._transaction._work(disk, messages)
        return results
    finally:
        disk.execute("ROLLBACK")
        disk._world = world


BUGS: Mapping[str, Bug] = {
    "expire-whatever-the-status": lambda: changed("EXPIRE", "r.status = 'held' AND "),
    "expire-whatever-the-time": lambda: changed("EXPIRE", " AND r.expires_at <= m.now"),
    "clear-the-slot-before-the-effect": _slot_cleared_before_the_effect,
    "settle-without-the-claim": lambda: changed("RETRY", " AND r.alarm_claim = m.claim"),
    "answer-before-commit": _answer_before_commit,
    "recover-drops-claimed-rows": lambda: changed(
        "RECOVER",
        sqlite_alarms.RECOVER,
        "DELETE FROM reservation WHERE alarm_claim IS NOT NULL AND :now + :first_ms + :cap_ms"
        " + :seed",
    ),
    "recover-keeps-claims-for-ever": lambda: changed("RECOVER", "alarm_attempts > 0", "false"),
    "recover-forgets-the-count": lambda: changed(
        "RECOVER", "SET alarm_claim = NULL", "SET alarm_claim = NULL, alarm_attempts = 1"
    ),
    "retry-in-a-day": lambda: changed("RETRY", ":now + m.delay_ms", ":now + 86400000"),
    "claim-excludes-nothing": lambda: changed(
        "DUE", "id NOT IN (SELECT value FROM json_each(:running))", "true"
    ),
    "claim-does-not-count": lambda: changed("CLAIM", "alarm_attempts + 1", "1"),
    "head-includes-what-is-at-work": lambda: changed(
        "OUTCOMES", "id NOT IN (SELECT value FROM json_each(:running))", "true"
    ),
    "hold-keeps-the-old-alarm": lambda: changed(
        "HOLD", "alarm_dispatch_at = excluded.alarm_dispatch_at,"
    ),
    "hold-takes-from-others": lambda: changed(
        "HOLD", "reservation.holder = x'' AND excluded.holder = x''", "true"
    ),
    "extend-after-the-deadline": lambda: changed("EXTEND", " AND r.expires_at > :now"),
    "extend-keeps-the-old-alarm": lambda: changed("EXTEND", "alarm_at = n.alarm_at,"),
    "confirm-for-anybody": lambda: changed("CONFIRM", " AND r.holder = n.holder"),
    "confirm-leaves-the-slot": lambda: changed(
        "CONFIRM", "alarm_at = n.alarm_at,\n    alarm_dispatch_at", "alarm_dispatch_at"
    ),
    "release-whatever-was-held-before": lambda: changed("RELEASE", " AND r.status = 'held'"),
    "fire-what-is-over": lambda: changed("FIRE", f" AND {sqlite_schedule.LIVE}"),
    "plan-from-now": lambda: changed(
        "FIRE_ADVANCE",
        "s.run_at + s.repeat_ms * ((:now - s.run_at) / s.repeat_ms + 1)",
        ":now + s.repeat_ms",
    ),
    "an-event-leaves-the-slot": lambda: changed(
        "PLAN_FIRED", "WHERE r.id = n.id AND", "WHERE false AND"
    ),
    "a-new-hold-keeps-the-plans": lambda: changed(
        "FORGET_PLANS", "s.generation < r.generation", "false"
    ),
    "no-limit-per-holder": lambda: changed("SORT_NAMED", "m.max_per_holder > 0", "false"),
}
"""By name; a name says what goes wrong."""
