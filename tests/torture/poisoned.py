"""Alarms that cannot succeed: they keep their slot and their count, and they delay nobody.

Whether an attempt fails, or the process is killed in the middle of it or between two of them, it
was counted before it began; once the cause is gone, the alarm fires as if nothing had been.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.process.server import eventually, wait_until_past, wall_ms
from tests.support.invariants import violations
from tests.support.poison import Poison
from tests.torture.report import Harness, Report
from tests.torture.scratch import allowed, scratch
from tests.torture.seeding import seed
from tests.torture.target import Target

OTHERS = 1000
LATE_MS_MAX = 1000
KILLS_BETWEEN = KILLS_INSIDE = 10
POISONED = "poisoned"
RETRY = {"alarms__retry_first_ms": 100, "alarms__retry_cap_ms": 200, "alarms__stuck_after": 3}
_ROW = f"""
SELECT status, alarm_at, alarm_attempts, alarm_claim IS NOT NULL, expiration_count
FROM reservation WHERE id = '{POISONED}'
"""
_OTHERS = f"""
SELECT expired_at - expires_at FROM reservation WHERE id <> '{POISONED}' AND status = 'expired'
"""


def run(scale: float, *, bug: str | None = None) -> Report:
    """One among a thousand; killed between attempts; killed inside of them; and healed."""
    report = Report()
    one_among_many(report, scale, bug)
    kill_between_attempts(report, max(2, round(KILLS_BETWEEN * scale)), bug)
    kill_inside_attempts(report, max(2, round(KILLS_INSIDE * scale)), bug)
    return report


def one_among_many(report: Report, scale: float, bug: str | None) -> None:
    """A thousand holds run out in one second, and one of them cannot expire."""
    with scratch(bug=bug, **RETRY) as target:
        due = wall_ms() + 2000
        names = [POISONED, *(f"other-{number:04}" for number in range(OTHERS - 1))]
        seed(target.database, [(name, due + n % 1000) for n, name in enumerate(names)])
        Poison(target.database).plant(POISONED)
        target.start()
        wait_until_past(due + 1000)
        _happens(lambda: len(_lateness_ms(target)) == OTHERS - 1)
        late, bound = _lateness_ms(target), allowed(LATE_MS_MAX, scale)
        worst = max(late, default=0)
        report.figures["others expired late ms, at most"] = worst
        report.require(len(late) == OTHERS - 1, f"{OTHERS - 1 - len(late)} others did not expire")
        report.require(worst <= bound, f"another one was {worst} ms late")
        _keep_failing(target, report, due)
        _heal(target, report)


def _lateness_ms(target: Target) -> list[int]:
    """How late each of the others was, as far as they have expired."""
    return [late for (late,) in target.query(_OTHERS)]


def kill_between_attempts(report: Report, kills: int, bug: str | None) -> None:
    """Every life lets a few attempts fail and ends in a backoff."""
    with scratch(bug=bug, **RETRY) as target:
        due = wall_ms() - 1000
        seed(target.database, [(POISONED, due)])
        Poison(target.database).plant(POISONED)
        counted = 0
        for _ in range(kills):
            target.start()
            failed = _more_than(target, report, counted + random.randint(1, 2))
            target.kill()
            counted = _keep_count(target, report, due, counted)
            report.require(failed, "it was not tried any more")
            report.count("kills between attempts")
        report.figures["attempts counted over all lives"] = counted
        target.start()
        _heal(target, report)


def kill_inside_attempts(report: Report, kills: int, bug: str | None) -> None:
    """Every life ends in the middle of an attempt, which is counted all the same."""
    with scratch(bug=bug, **RETRY) as target:
        due = wall_ms() - 1000
        seed(target.database, [(POISONED, due)])
        sound, target.command = target.command, lingering(target)
        counted = 0
        for number in range(kills):
            target.start()
            running = _happens(lambda: target.query(_ROW)[0][3] == 1)
            target.kill()
            report.require(running, "no attempt began")
            before, counted = counted, _keep_count(target, report, due, counted)
            report.require(counted > before, f"kill {number + 1} inside an attempt left no count")
            report.count("kills inside attempts")
        target.command = sound
        target.start()
        retry = target.line("reservation-alarm")["retryCount"]
        report.figures["retry count after them"] = retry
        report.require(retry == counted, f"retry {retry} after {counted} attempts")
        _heal(target, report)


def lingering(target: Target) -> list[str]:
    """The same command line, with attempts that never end."""
    python, minus_m, _, *arguments = target.command
    arguments = arguments[arguments.index("serve") :]
    return [python, minus_m, "tests.torture.planted_service", "linger-in-attempts", *arguments]


def _more_than(target: Target, report: Report, attempts: int) -> bool:
    return _happens(lambda: target.query(_ROW)[0][2] > attempts)


def _happens(condition: Callable[[], bool]) -> bool:
    try:
        return eventually(condition)
    except AssertionError:
        return False


def _keep_count(target: Target, report: Report, due: int, counted: int) -> int:
    """The slot is there, and the count has not gone back."""
    status, alarm_at, attempts, _, expired = target.query(_ROW)[0]
    report.require((status, alarm_at, expired) == ("held", due, 0), f"slot lost: {alarm_at}")
    report.require(attempts >= counted, f"{attempts} attempts after {counted}: some are forgotten")
    report.violations += violations(target.database)
    return int(attempts)


def _keep_failing(target: Target, report: Report, due: int) -> None:
    """It goes on for ever, and is shown as stuck."""
    stuck = _happens(lambda: bool(target.read(POISONED)["alarmStuck"]))
    report.require(stuck, f"it is not shown as stuck: {target.read(POISONED)}")
    goes_on = _more_than(target, report, int(target.query(_ROW)[0][2]))
    report.require(goes_on, "it is not retried any more")
    _keep_count(target, report, due, 1)


def _heal(target: Target, report: Report) -> None:
    """The cause is gone: it fires, once."""
    if POISONED in _planted(target):
        Poison(target.database).heal(POISONED)
    fired = _happens(lambda: target.read(POISONED)["status"] == "expired")
    row: dict[str, Any] = target.read(POISONED)
    report.require(fired and row["expirationCount"] == 1, f"healed, it does not expire: {row}")
    target.kill()
    report.violations += violations(target.database)


def _planted(target: Target) -> list[str]:
    known = target.query("SELECT name FROM sqlite_schema WHERE name = 'planted'")
    return [name for (name,) in target.query("SELECT id FROM planted")] if known else []


def _control(attack: Callable[[Report, int, str | None], None], bug: str) -> Report:
    report = Report()
    attack(report, 2, bug)
    return report


def _delayed_control() -> Report:
    report = Report()
    one_among_many(report, 1.0, "queue-behind-the-failing")
    return report


HARNESS = Harness(
    name="poisoned",
    promise="a failing alarm keeps slot and count over any kill; one in 1,000 delays nobody",
    run=run,
    controls={
        "count-retries-in-memory": partial(
            _control, kill_between_attempts, "count-retries-in-memory"
        ),
        "give-up": partial(_control, kill_between_attempts, "give-up"),
        "queue-behind-the-failing": _delayed_control,
    },
    short=0.2,
)
