"""Every guard of the statements, taken away once: each must be missed by the model.

A guard that another one repeats is taken away together with it. What stands in REDUNDANT changes
nothing that can be reached: it is fast, or it waits for something to come. When one of those is
found it has become a guard.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from reservation_service.storage import sqlite_bookings, sqlite_schedule
from reservation_service.storage.sqlite_messages import MESSAGES
from tests.torture.statements import changed


class Edit(NamedTuple):
    """A text in a statement, and what stands there instead."""

    statement: str
    old: str
    new: str = ""


class Mutant(NamedTuple):
    """One bug; its name says what goes wrong."""

    name: str
    edits: Sequence[Edit]

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as stack:
            for edit in self.edits:
                stack.enter_context(changed(*edit))
            yield


def mutant(name: str, statement: str, old: str, new: str = "") -> Mutant:
    return Mutant(name, [Edit(statement, old, new)])


_NO_SLOT = "alarm_at = NULL, alarm_dispatch_at = NULL, alarm_attempts = 0, alarm_claim = NULL,"
_NOT_ENDED = """h.status = 'held' AND
    h.confirmed_at IS NULL AND h.released_at IS NULL AND """
_OVER = "(r.status = 'held' AND r.expires_at <= :now)"
_RUNNING = "id NOT IN (SELECT value FROM json_each(:running))"
_OWN_GENERATION = "(m.generation IS NULL OR m.generation = r.generation)"
_SAME_GENERATION = "(n.generation IS NULL OR n.generation = r.generation)"
_KEEP_DISPATCH = """alarm_dispatch_at = CASE WHEN r.alarm_at IS n.alarm_at THEN r.alarm_dispatch_at
                             ELSE n.alarm_at END,"""
_LATER = "max(t.expires_at, min(:now + m.ttl_ms, t.created_at + m.max_hold_ms))"
_STILL_FREE = "n.if_still_free AND r.status IN ('held', 'expired')"
_TAKEN = "m.if_still_free AND (r.status"
_REJECTED = ("RECORD_REJECTED", "REMEMBER_REJECTED")
_REMEMBERED = """NOT EXISTS (SELECT 1 FROM confirm_rejection AS c
                      WHERE c.reservation = x.id AND c.generation = x.generation
                        AND c.holder = x.holder AND c.code = x.code)"""
_OTHER_GENERATION = "WHEN m.generation IS NOT NULL AND m.generation <> r.generation THEN NULL"

_LIVE = f" AND {sqlite_schedule.LIVE}"
_OWN_PLANS = "\n                               AND s.generation = r.generation"

SCHEDULE = (
    # SORT_PLANS, SCHEDULE_PUT and PLAN_PUT
    mutant("a stranger plans", "SORT_PLANS", "(r.holder = m.holder OR m.operator)", "true"),
    mutant("plan on another generation", "SORT_PLANS", _OWN_GENERATION, "true"),
    mutant("plan on what has ended", "SORT_PLANS", _LIVE),
    mutant("plan after the deadline", "SORT_PLANS", " AND r.expires_at > :now"),
    mutant("plan on nothing confirmed", "SORT_PLANS", "r.status = 'confirmed' OR "),
    mutant("plan as much as you like", "SORT_PLANS", ">= :events_max", "> 1000"),
    mutant("others' plans count", "SORT_PLANS", "c.reservation = r.id AND ", ""),
    mutant("others' plans are one's own", "SORT_PLANS", "ON s.reservation = r.id AND", "ON"),
    mutant("any plan is this one", "SORT_PLANS", " AND s.event_id = m.event_id"),
    mutant("another time is the same", "SORT_PLANS", "s.first_at = m.run_at AND "),
    mutant("what repeats is the same", "SORT_PLANS", " AND s.repeat_ms IS m.repeat_ms"),
    mutant("a repeated call plans anew", "SORT_PLANS", "s.first_at = m", "s.run_at = m"),
    mutant("plan on everybody", "SCHEDULE_PUT", "ON r.id = m.id", "ON true"),
    mutant(
        "a plan keeps the old number",
        "SCHEDULE_PUT",
        "(reservation, event_id, generation, run_at",
        "(id, reservation, event_id, generation, run_at",
    ),
    mutant("a plan moves no slot", "PLAN_PUT", "alarm_at = n.alarm_at,\n"),
    mutant("an earlier plan keeps the alarm", "PLAN_PUT", "x.before IS NOT x.alarm_at OR ", ""),
    mutant("a plan for now keeps the alarm", "PLAN_PUT", " OR x.run_at = x.alarm_at"),
    mutant(
        "a plan waits for a backoff",
        "PLAN_PUT",
        "min(r.alarm_dispatch_at, n.run_at)",
        "r.alarm_dispatch_at",
    ),
    mutant("a plan leaves the lease", "PLAN_PUT", " OR n.run_at < r.alarm_dispatch_at"),
    mutant("a plan forgets attempts", "PLAN_PUT", "ELSE r.alarm_attempts END", "ELSE 0 END"),
    mutant("a plan moves everybody's slot", "PLAN_PUT", "WHERE r.id = n.id"),
    # SCHEDULE_DELETE and PLAN
    mutant("a stranger cancels", "SCHEDULE_DELETE", "r.holder = m.holder", "true"),
    mutant("cancel everything", "SCHEDULE_DELETE", " AND s.event_id = m.event_id"),
    mutant("cancel for everybody", "SCHEDULE_DELETE", "s.reservation = r.id AND ", ""),
    mutant("a cancellation forgets attempts", "PLAN", " AND r.alarm_at IS NOT n.alarm_at"),
    mutant("a cancellation moves everybody's slot", "PLAN", "r.id = n.id AND "),
    # FIRE, FIRE_ADVANCE, FIRE_DROP and PLAN_FIRED
    mutant("an old time fires again", "FIRE", "s.run_at = m.run_at AND "),
    mutant("fire on what is over", "FIRE", _LIVE),
    mutant("fire any plan", "FIRE", "s.id = m.key AND "),
    mutant("nothing fires once confirmed", "FIRE", "r.status = 'confirmed' OR "),
    mutant("what was missed is not told", "FIRE", "(:now - s.run_at) / s.repeat_ms", "0"),
    mutant(
        "what repeats drifts",
        "FIRE_ADVANCE",
        "s.run_at + s.repeat_ms * ((:now - s.run_at) / s.repeat_ms + 1)",
        ":now + s.repeat_ms",
    ),
    mutant(
        "what was missed is made up for",
        "FIRE_ADVANCE",
        "((:now - s.run_at) / s.repeat_ms + 1)",
        "1",
    ),
    mutant("everything is planned anew", "FIRE_ADVANCE", "s.id = m.key AND ", ""),
    mutant("what happens once repeats", "FIRE_ADVANCE", " AND s.repeat_ms IS NOT NULL"),
    mutant("what repeats happens once", "FIRE_DROP", " AND repeat_ms IS NULL"),
    mutant(
        "everything has happened",
        "FIRE_DROP",
        f"id IN (SELECT m.key FROM ({MESSAGES}) AS m) AND ",
    ),
    mutant("each event is another attempt", "PLAN_FIRED", "x.alarm_at <= :now AS", "false AS"),
    mutant("an attempt takes the next alarm", "PLAN_FIRED", " AND x.alarm_at <= :now AS", " AS"),
    mutant("nobody's attempt goes on", "PLAN_FIRED", "t.alarm_claim IS NOT NULL AND "),
    mutant(
        "a lease that is over goes on",
        "PLAN_FIRED",
        "max(r.alarm_dispatch_at, n.alarm_at)",
        "r.alarm_dispatch_at",
    ),
    mutant("a sibling forgets attempts", "PLAN_FIRED", " AND r.alarm_at IS NOT n.alarm_at"),
    mutant("an event moves everybody's slot", "PLAN_FIRED", "r.id = n.id AND "),
    # FORGET_PLANS, and plans in the other statements
    mutant("a new hold keeps the plans", "FORGET_PLANS", "s.generation < r.generation", "false"),
    mutant("a renewal forgets the plans", "FORGET_PLANS", "s.generation < r.generation", "true"),
    mutant(
        "a new hold forgets others' plans",
        "FORGET_PLANS",
        "s.reservation = r.id AND s.generation < r.generation",
        "true",
    ),
    mutant("a retry forgets the deadline", "RETRY", "r.expires_at > m.seen", "false"),
    mutant("a retry forgets what is planned next", "RETRY", "AND s.run_at > m.seen", "AND false"),
    mutant("a retry is at once for what failed", "RETRY", "AND s.run_at > m.seen", ""),
    mutant("a new hold keeps the claim", "HOLD", " alarm_claim = NULL,"),
)

MUTANTS = (
    *SCHEDULE,
    # EXPIRE
    mutant("one alarm expires everybody", "EXPIRE", "r.id = m.id AND "),
    mutant("expire whatever the status", "EXPIRE", "r.status = 'held' AND "),
    mutant("expire whatever the time", "EXPIRE", " AND r.expires_at <= m.now"),
    mutant("expire after the deadline only", "EXPIRE", "<= m.now", "< m.now"),
    mutant("a replay's time is ignored", "EXPIRE", "coalesce(now, :now)", ":now"),
    mutant("an expiry leaves the slot", "EXPIRE", _NO_SLOT),
    # SORT_NAMED and LIMITED_UNTIL
    mutant("an ended hold is renewed", "SORT_NAMED", "r.status = 'held' AND r.holder", "r.holder"),
    mutant("what is over is renewed", "SORT_NAMED", f"WHEN {_OVER} THEN 'held'"),
    mutant("what is over is not ended first", "SORT_NAMED", f"{_OVER}))", "false))"),
    mutant("over after the deadline only", "SORT_NAMED", _OVER, _OVER.replace("<=", "<")),
    mutant("a stranger's hold counts", "SORT_NAMED", "IN ('held', 'confirmed')", "= 'confirmed'"),
    mutant(
        "the limit is one more", "limit_holds", "hold.max_per_holder", "hold.max_per_holder + 1"
    ),
    mutant("the limit is one less", "limit_holds", "> hold", ">= hold"),
    mutant("others in the batch count", "limit_holds", "[hold.holder]", '[b""]'),
    mutant("refused ones in the batch count", "limit_holds", 'verdict == "held" and ', ""),
    mutant("the last come first", "limit_holds", "in found", "in reversed(found)"),
    mutant("those in the batch do not count", "limit_holds", "+= 1", "= 1"),
    mutant("no limit is a limit", "SORT_NAMED", "m.max_per_holder > 0", "true"),
    mutant("what is over counts", "SORT_NAMED", " AND h.expires_at > :now"),
    mutant("what has ended counts", "SORT_NAMED", _NOT_ENDED),
    mutant("what a replay has ended counts", "SORT_NAMED", "h.status = 'held' AND"),
    mutant("others' holds count", "SORT_NAMED", "h.holder = m.holder AND "),
    mutant("wait for the last to end", "LIMITED_UNTIL", "min(h.expires_at)", "max(h.expires_at)"),
    mutant("wait for others' to end", "LIMITED_UNTIL", "h.holder = m.holder AND "),
    # HOLD
    mutant("hold what is confirmed", "HOLD", "IN ('expired', 'released')", "<> 'held'"),
    mutant("anybody takes a named hold", "HOLD", "reservation.holder = x'' AND "),
    Mutant(
        "a named hold takes an anonymous one",
        [
            Edit("HOLD", " AND excluded.holder = x''"),
            Edit("SORT_NAMED", "IN ('held', 'confirmed')", "= 'confirmed'"),
        ],
    ),
    mutant("a new hold keeps the generation", "HOLD", "reservation.generation + 1", "1"),
    mutant("a new hold keeps the attempts", "HOLD", "alarm_attempts = 0, alarm_claim = NULL,"),
    # RENEW
    Mutant(
        "a stranger renews",
        [
            Edit("RENEW", "r.holder = n.holder AND "),
            Edit("SORT_NAMED", "r.status = 'held' AND r.holder = m.holder", "r.status = 'held'"),
        ],
    ),
    mutant("a renewal shortens", "RENEW", _LATER, _LATER.partition(", ")[2][:-1]),
    mutant("a renewal without end", "RENEW", ", t.created_at + m.max_hold_ms"),
    mutant("everybody is renewed", "RENEW", "r.id = n.id AND "),
    mutant(
        "a renewal forgets attempts",
        "RENEW",
        "CASE WHEN r.alarm_at IS n.alarm_at THEN r.alarm_attempts ELSE 0 END",
        "0",
    ),
    mutant("a renewal leaves the old alarm", "RENEW", _KEEP_DISPATCH),
    # EXTEND
    mutant("everybody is extended", "EXTEND", "r.id = n.id AND "),
    mutant("a stranger extends", "EXTEND", "r.holder = n.holder AND "),
    mutant("extend what has ended", "EXTEND", "r.status = 'held' AND "),
    mutant("extend after the deadline", "EXTEND", " AND r.expires_at > :now"),
    mutant(
        "extend another generation",
        "EXTEND",
        _SAME_GENERATION,
        "true",
    ),
    mutant("extend to no later", "EXTEND", " AND n.expires_at > r.expires_at"),
    mutant("extend without end", "EXTEND", ", t.created_at + m.max_hold_ms"),
    # CONFIRM
    mutant("everybody is confirmed", "CONFIRM", "r.id = n.id AND "),
    mutant("a stranger confirms", "CONFIRM", "r.holder = n.holder\n  AND "),
    mutant("confirm another generation", "CONFIRM", _SAME_GENERATION, "true"),
    mutant("confirm what has ended", "CONFIRM", "(r.status = 'held' AND ", "("),
    mutant("confirm after the deadline", "CONFIRM", " AND r.expires_at > :now"),
    mutant("confirm late unasked", "CONFIRM", "n.if_still_free AND "),
    mutant("confirm late what was released", "CONFIRM", _STILL_FREE, "n.if_still_free"),
    mutant("a confirmation leaves the slot", "CONFIRM", "alarm_at = n.alarm_at,\n"),
    mutant("a confirmation leaves the old alarm", "CONFIRM", _KEEP_DISPATCH),
    # RELEASE
    mutant("everybody is released", "RELEASE", "r.id = m.id\n  AND "),
    mutant("a stranger releases", "RELEASE", "r.holder = m.holder AND "),
    mutant("release another generation", "RELEASE", f"{_OWN_GENERATION}\n", "true\n"),
    mutant("release what has ended", "RELEASE", "r.status = 'held' AND "),
    mutant("release after the deadline", "RELEASE", " AND r.expires_at > :now"),
    mutant("anybody revokes", "RELEASE", "m.operator AND "),
    mutant(
        "an operator releases a hold",
        "RELEASE",
        "m.operator AND r.status = 'confirmed'",
        "m.operator",
    ),
    mutant("a release leaves the slot", "RELEASE", _NO_SLOT),
    # confirmations that came too late
    *(
        Mutant(name, [Edit(statement, old, new) for statement in _REJECTED])
        for name, old, new in (
            ("a rejection is recorded again", _REMEMBERED, "true"),
            ("rejections fill the log", f" < {sqlite_bookings.REJECTIONS_MAX}", " < 1000"),
            ("a stranger is rejected unasked", _TAKEN, "(r.status"),
            ("taken though it is over", " AND r.expires_at > :now", ""),
            ("rejected in another generation", _OTHER_GENERATION, "WHEN false THEN NULL"),
            ("everybody is rejected", "ON r.id = m.id", "ON true"),
        )
    ),
    # RECORD
    mutant("expiries of what did not change", "RECORD_EXPIRED", "WHERE r.batch = :batch"),
    mutant(
        "a replay is told as an alarm",
        "RECORD_EXPIRED",
        "WHEN 'alarm' THEN",
        "WHEN r.changed_by THEN",
    ),
    mutant("events of what did not change", "RECORD", "WHERE r.batch = :batch"),
    mutant("failures of old attempts", "RECORD_FAILED", "r.alarm_claim = m.claim AND "),
    mutant("failures that were none", "RECORD_FAILED", " AND m.record"),
    # RETRY
    mutant("settle everybody of a claim", "RETRY", "r.id = m.id AND "),
    mutant("settle without the claim", "RETRY", " AND r.alarm_claim = m.claim"),
    # CLAIM
    mutant("claim before it is due", "DUE", "alarm_dispatch_at <= :now", "alarm_at IS NOT NULL"),
    mutant("claim what is at work", "DUE", _RUNNING, "true"),
    mutant("a new alarm waits for an old attempt", "DUE", "alarm_claim IS NULL OR "),
    mutant("claim more than asked for", "DUE", " LIMIT :limit"),
    mutant("claim the last due first", "DUE", "BY alarm_dispatch_at", "BY alarm_dispatch_at DESC"),
    mutant("claim everybody", "CLAIM", "rowid IN (SELECT value FROM json_each(:rows))", "true"),
    mutant("the last attempt is told", "DUE", "alarm_attempts + 1", "alarm_attempts"),
    mutant("attempts are not counted", "CLAIM", "alarm_attempts + 1", "max(alarm_attempts, 1)"),
    # OUTCOMES and the head of the due index
    mutant("wake for what is at work", "OUTCOMES", _RUNNING, "true"),
    mutant("sleep over a new alarm", "OUTCOMES", "alarm_claim IS NULL\n       OR "),
    mutant("everything has changed", "OUTCOMES", "r.batch = :batch", "1"),
    mutant("everybody owns", "OUTCOMES", "r.holder = m.holder", "1"),
    # RECOVER
    mutant("claims outlive their process", "RECOVER", "alarm_attempts > 0", "false"),
    mutant("a start forgets attempts", "RECOVER", "SET ", "SET alarm_attempts = 1, "),
    mutant("a start forgets backoffs", "RECOVER", ":now + :cap_ms", "alarm_at"),
    mutant("a start keeps any backoff", "RECOVER", ":now + :cap_ms", "alarm_dispatch_at"),
    mutant("a handler that kills spins", "RECOVER", "alarm_attempts = 1", "true"),
    mutant("what was cut short waits", "RECOVER", "alarm_attempts = 1", "false"),
    mutant("a start puts off", "RECOVER", "min(alarm_dispatch_at", "max(alarm_dispatch_at"),
    mutant("a start is early", "RECOVER", "max(alarm_at,", "max(0,"),
)

REDUNDANT = (
    # what is sorted as a renewal is a hold of one's own, and EXPIRE has ended what was over
    mutant("renew what has ended", "RENEW", "r.status = 'held' AND "),
    mutant("renew after the deadline", "RENEW", " AND r.expires_at > :now"),
    # a confirmed row rejects nothing of its own holder
    Mutant(
        "rejected though it was confirmed",
        [Edit(one, "r.batch <> :batch", "true") for one in _REJECTED],
    ),
    # an event that is claimed stays the earliest, whatever the deadline is
    mutant(
        "an extension keeps the claim",
        "EXTEND",
        "CASE WHEN r.alarm_at IS n.alarm_at THEN r.alarm_claim END",
        "r.alarm_claim",
    ),
    # a claim that stands is of an alarm that was due
    mutant("a retry is early", "RETRY", "max(r.alarm_at, ", "max(0, "),
    # FORGET_PLANS leaves no plan of another generation, and plans have numbers of their own
    mutant(
        "plan again on an older hold",
        "SORT_PLANS",
        "s.event_id = m.event_id AND s.generation = r.generation",
        "s.event_id = m.event_id",
    ),
    mutant("older plans count", "SORT_PLANS", " AND c.generation = r.generation"),
    mutant("cancel on an older hold", "SCHEDULE_DELETE", _OWN_PLANS),
    mutant("fire on another generation", "FIRE", " AND r.generation = s.generation"),
    mutant("fire for somebody else", "FIRE", " AND s.reservation = m.id"),
    # the time that was read was due already, and time does not go back while a process lives
    mutant("fire early", "FIRE", "s.run_at <= :now AND "),
    # an index makes it fast; rows without attempts have no claim, and are tried when due
    mutant("a start looks at everything", "RECOVER", "WHERE alarm_attempts > 0"),
)
