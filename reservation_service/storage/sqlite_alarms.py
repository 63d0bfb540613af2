"""The alarm slot's statements: claim, retry, recover.

A claim is the number of the batch that made it, never used twice: an old attempt that settles
late finds another claim, or none, and touches nothing.
"""

from collections.abc import Sequence

from reservation_service.clock import Clock
from reservation_service.storage.sqlite_messages import MESSAGES
from reservation_service.store import Claim

WAIT_S_MAX = 0.005
"""The longest that a claim is waited for; whoever is behind it waits, too."""

RECORD_FAILED = f"""
INSERT INTO event (reservation, generation, type, at, "trigger", data)
SELECT r.id, r.generation, 'alarm-failed', :now, 'alarm', json_object(
    'scheduledTime', r.alarm_at, 'retryCount', r.alarm_attempts - 1,
    'isRetry', json(CASE WHEN r.alarm_attempts > 1 THEN 'true' ELSE 'false' END),
    'lateness', :now - r.alarm_at, 'outcome', 'failed')
FROM ({MESSAGES}) AS m JOIN reservation AS r ON r.id = m.id
WHERE r.alarm_claim = m.claim AND m.record
"""  # noqa: S608 - a constant, no input in it

# What fell due after the claim has not been tried yet: it does not wait for the backoff.
RETRY = f"""
UPDATE reservation AS r
SET alarm_claim = NULL,
    alarm_dispatch_at = max(r.alarm_at, min(:now + m.delay_ms,
        CASE WHEN r.status = 'held' AND r.expires_at > m.seen THEN r.expires_at
             ELSE :now + m.delay_ms END,
        coalesce((SELECT min(s.run_at) FROM schedule AS s
                  WHERE s.reservation = r.id AND s.generation = r.generation
                    AND s.run_at > m.seen), :now + m.delay_ms)))
FROM ({MESSAGES}) AS m
WHERE r.id = m.id AND r.alarm_claim = m.claim
"""  # noqa: S608 - a constant, no input in it

# What is claimed, and the attempts at it with the one that is to begin.
# A lease that is over says that nobody knows of the attempt, unless it is at work in this process.
# An alarm that was set anew has no claim, and waits for no attempt at an older one.
DUE = """
SELECT json_group_array(rowid),
       json_group_array(json_array(id, generation, alarm_at, alarm_attempts + 1))
FROM (SELECT rowid, id, generation, alarm_at, alarm_attempts FROM reservation
      WHERE alarm_dispatch_at <= :now
        AND (alarm_claim IS NULL OR id NOT IN (SELECT value FROM json_each(:running)))
      ORDER BY alarm_dispatch_at LIMIT :limit)
"""

CLAIM = """
UPDATE reservation
SET alarm_attempts = alarm_attempts + 1, alarm_dispatch_at = :now + :lease_ms, alarm_claim = :batch
WHERE rowid IN (SELECT value FROM json_each(:rows))
"""

# A first attempt that was cut short runs again at once; a row that was cut short twice or more
# waits like after a failure, spread out, so that a handler that kills the process cannot spin.
# A backoff stays, unless the wall clock was set back while the process was down.
RECOVER = """
UPDATE reservation
SET alarm_claim = NULL,
    alarm_dispatch_at = max(alarm_at, min(alarm_dispatch_at, CASE
        WHEN alarm_claim IS NULL THEN :now + :cap_ms
        WHEN alarm_attempts = 1 THEN alarm_at
        ELSE :now + :first_ms + (rowid + :seed) * 2654435761 % :first_ms END))
WHERE alarm_attempts > 0
"""

# What a claim left out must wake nobody: every look would find it due, and leave it out again.
NEXT_DUE = """
SELECT min(alarm_dispatch_at) FROM reservation
WHERE alarm_dispatch_at IS NOT NULL
  AND (alarm_dispatch_at > :now OR alarm_claim IS NULL
       OR id NOT IN (SELECT value FROM json_each(:running)))
"""

COUNT_OVERDUE = """
SELECT count(*) FROM (SELECT 1 FROM reservation WHERE alarm_dispatch_at <= :now LIMIT :limit)
"""

OLDEST_DUE = """
SELECT min(alarm_dispatch_at) FROM reservation WHERE alarm_dispatch_at IS NOT NULL
"""

# Those of so many attempts whose last one is still at work may be no more than run at once.
COUNT_STUCK = """
SELECT count(*)
FROM (SELECT 1 FROM reservation
      WHERE alarm_attempts > 0 AND alarm_attempts >= :stuck_after
        AND alarm_attempts - (alarm_claim IS NOT NULL) >= :stuck_after LIMIT :limit)
"""

COUNT_CLAIMED = """
SELECT count(*) FROM reservation WHERE alarm_attempts > 0 AND alarm_claim IS NOT NULL
"""


def wait_for_claims(claims: Sequence[Claim], clock: Clock) -> None:
    """Wait for the time of a claim that has come a little before it."""
    for claim in claims:
        if claim.not_before and 0 < clock.seconds_until(claim.not_before) <= WAIT_S_MAX:
            clock.sleep_until(claim.not_before)
