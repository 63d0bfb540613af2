"""The statements behind a request, and behind the alarm's effect: one kind of message each.

Every guard stands in a WHERE; a row that does not match is a message that came too late. Each
statement keeps the slot true to the state: it is the earliest of the deadline and what is planned,
an ending clears it, and where that did not move the slot stays with its attempts as it is.

"""

from reservation_service.storage.sqlite_messages import MESSAGES

EXPIRE = f"""
UPDATE reservation AS r
SET status = 'expired', expired_at = m.now, expiration_count = r.expiration_count + 1,
    alarm_at = NULL, alarm_dispatch_at = NULL, alarm_attempts = 0, alarm_claim = NULL,
    batch = :batch, changed_by = m.changed_by
FROM (SELECT id, "trigger" AS changed_by, coalesce(now, :now) AS now FROM ({MESSAGES})) AS m
WHERE r.id = m.id AND r.status = 'held' AND r.expires_at <= m.now
"""  # noqa: S608 - a constant, no input in it

RECORD_EXPIRED = f"""
INSERT INTO event (reservation, generation, type, at, "trigger", data)
SELECT r.id, r.generation, 'expired', :now, r.changed_by,
       CASE r.changed_by WHEN 'alarm' THEN json_object(
           'scheduledTime', r.expires_at, 'retryCount', m.retry_count,
           'isRetry', json(CASE WHEN m.retry_count > 0 THEN 'true' ELSE 'false' END),
           'lateness', :now - r.expires_at, 'outcome', 'ok') END
FROM ({MESSAGES}) AS m JOIN reservation AS r ON r.id = m.id
WHERE r.batch = :batch
"""  # noqa: S608 - a constant, no input in it

# The earliest of what is planned on a row's own generation; the row is t.
FIRST_PLANNED = """(SELECT min(s.run_at) FROM schedule AS s
                    WHERE s.reservation = t.id AND s.generation = t.generation)"""

# The live holds h of the holder of m, by an index that an expiry need not touch.
_LIVE_OF_HOLDER = """h.holder = m.holder AND h.expires_at > :now AND h.status = 'held' AND
    h.confirmed_at IS NULL AND h.released_at IS NULL AND h.holder <> x''"""

_OVERDUE = "(r.status = 'held' AND r.expires_at <= :now)"

# What is to become of each named hold, by the rows before it; how many holds its holder has, where
# that is limited; and whether it takes over what is overdue.
SORT_NAMED = f"""
SELECT json_group_array(json_array(m.number - :first, CASE
        WHEN {_OVERDUE} THEN 'held'
        WHEN r.status = 'held' AND r.holder = m.holder THEN 'renewed'
        WHEN r.status IN ('held', 'confirmed') THEN 'refused'
        ELSE 'held' END,
    CASE WHEN m.max_per_holder > 0 THEN (
        SELECT count(*) FROM reservation AS h WHERE {_LIVE_OF_HOLDER}) END,
    {_OVERDUE}))
FROM ({MESSAGES}) AS m LEFT JOIN reservation AS r ON r.id = m.id
WHERE m.holder <> x''
"""  # noqa: S608 - a constant, no input in it

# When the first of the holder's holds ends; now, when others of this batch have ended them all.
LIMITED_UNTIL = f"""
SELECT json_group_array(json_array(m.id, coalesce((
    SELECT min(h.expires_at) FROM reservation AS h WHERE {_LIVE_OF_HOLDER}), :now)))
FROM ({MESSAGES}) AS m
"""  # noqa: S608 - a constant, no input in it

HOLD = f"""
INSERT INTO reservation (id, status, holder, generation, created_at, expires_at, expiration_count,
                         alarm_at, alarm_dispatch_at, alarm_attempts, batch, changed_by)
SELECT id, 'held', holder, 1, :now, :now + ttl_ms, 0,
       :now + ttl_ms, :now + ttl_ms, 0, :batch, "trigger"
FROM ({MESSAGES}) WHERE true
ON CONFLICT (id) DO UPDATE
SET status = 'held', holder = excluded.holder, generation = reservation.generation + 1,
    created_at = excluded.created_at, expires_at = excluded.expires_at, expired_at = NULL,
    confirmed_at = NULL, released_at = NULL, expiration_count = 0,
    alarm_at = excluded.alarm_at, alarm_dispatch_at = excluded.alarm_dispatch_at,
    alarm_attempts = 0, alarm_claim = NULL,
    batch = excluded.batch, changed_by = excluded.changed_by
WHERE reservation.status IN ('expired', 'released')
   OR (reservation.status = 'held' AND reservation.holder = x'' AND excluded.holder = x'')
"""  # noqa: S608 - a constant, no input in it

_MOVED = f"""
WITH n AS MATERIALIZED (
    SELECT t.id, t.holder, t.asked AS generation, t.expires_at,
           min(t.expires_at, coalesce({FIRST_PLANNED}, t.expires_at)) AS alarm_at
    FROM (SELECT t.id, t.generation, m.holder, m.generation AS asked,
                 max(t.expires_at, min(:now + m.ttl_ms, t.created_at + m.max_hold_ms)) AS expires_at
          FROM ({MESSAGES}) AS m JOIN reservation AS t ON t.id = m.id) AS t)
UPDATE reservation AS r
SET expires_at = n.expires_at, alarm_at = n.alarm_at,
    alarm_dispatch_at = CASE WHEN r.alarm_at IS n.alarm_at THEN r.alarm_dispatch_at
                             ELSE n.alarm_at END,
    alarm_attempts = CASE WHEN r.alarm_at IS n.alarm_at THEN r.alarm_attempts ELSE 0 END,
    alarm_claim = CASE WHEN r.alarm_at IS n.alarm_at THEN r.alarm_claim END,
    batch = :batch, changed_by = 'request'
FROM n
WHERE r.id = n.id AND r.holder = n.holder AND r.status = 'held' AND r.expires_at > :now
"""  # noqa: S608 - a constant, no input in it

RENEW = _MOVED

EXTEND = f"""{_MOVED}
  AND (n.generation IS NULL OR n.generation = r.generation) AND n.expires_at > r.expires_at
"""

# What is planned stays: reminders come days ahead, and a late confirmation takes them up again.
CONFIRM = f"""
WITH n AS MATERIALIZED (
    SELECT t.id, m.holder, m.generation, m.if_still_free, {FIRST_PLANNED} AS alarm_at
    FROM ({MESSAGES}) AS m JOIN reservation AS t ON t.id = m.id)
UPDATE reservation AS r
SET status = 'confirmed', confirmed_at = :now, alarm_at = n.alarm_at,
    alarm_dispatch_at = CASE WHEN r.alarm_at IS n.alarm_at THEN r.alarm_dispatch_at
                             ELSE n.alarm_at END,
    alarm_attempts = CASE WHEN r.alarm_at IS n.alarm_at THEN r.alarm_attempts ELSE 0 END,
    alarm_claim = CASE WHEN r.alarm_at IS n.alarm_at THEN r.alarm_claim END,
    batch = :batch, changed_by = 'request'
FROM n
WHERE r.id = n.id AND r.holder = n.holder
  AND (n.generation IS NULL OR n.generation = r.generation)
  AND ((r.status = 'held' AND r.expires_at > :now)
       OR (n.if_still_free AND r.status IN ('held', 'expired')))
"""  # noqa: S608 - a constant, no input in it

RELEASE = f"""
UPDATE reservation AS r
SET status = 'released', released_at = :now,
    alarm_at = NULL, alarm_dispatch_at = NULL, alarm_attempts = 0, alarm_claim = NULL,
    batch = :batch, changed_by = 'request'
FROM ({MESSAGES}) AS m
WHERE r.id = m.id
  AND ((r.holder = m.holder AND (m.generation IS NULL OR m.generation = r.generation)
        AND r.status = 'held' AND r.expires_at > :now)
       OR (m.operator AND r.status = 'confirmed'))
"""  # noqa: S608 - a constant, no input in it

REJECTIONS_MAX = 20
"""Per hold: a stranger who makes up holder after holder cannot fill the log."""

# Confirmations that came too late, as far as they were not recorded before.
_REJECTED = f"""
WITH x AS (
    SELECT r.id, r.generation, m.holder, CASE
             WHEN r.holder <> m.holder
               THEN CASE WHEN m.if_still_free AND (r.status = 'confirmed'
                              OR (r.status = 'held' AND r.expires_at > :now)) THEN 'taken' END
             WHEN m.generation IS NOT NULL AND m.generation <> r.generation THEN NULL
             WHEN r.status = 'released' THEN 'hold-released'
             WHEN r.status IN ('held', 'expired') THEN 'hold-expired' END AS code
    FROM ({MESSAGES}) AS m JOIN reservation AS r ON r.id = m.id
    WHERE r.batch <> :batch),
  fresh AS (
    SELECT id, generation, holder, code FROM x
    WHERE code IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM confirm_rejection AS c
                      WHERE c.reservation = x.id AND c.generation = x.generation
                        AND c.holder = x.holder AND c.code = x.code)
      AND (SELECT count(*) FROM confirm_rejection AS c
           WHERE c.reservation = x.id AND c.generation = x.generation) < {REJECTIONS_MAX})
"""  # noqa: S608 - a constant, no input in it

RECORD_REJECTED = f"""{_REJECTED}
INSERT INTO event (reservation, generation, type, at, "trigger", data)
SELECT id, generation, 'confirm-rejected', :now, 'request', json_object('code', code) FROM fresh
"""  # noqa: S608 - a constant, no input in it

REMEMBER_REJECTED = f"""{_REJECTED}
INSERT INTO confirm_rejection (reservation, generation, holder, code)
SELECT id, generation, holder, code FROM fresh
"""  # noqa: S608 - a constant, no input in it

RECORD = f"""
INSERT INTO event (reservation, generation, type, at, "trigger")
SELECT r.id, r.generation, :type, :now, r.changed_by
FROM ({MESSAGES}) AS m JOIN reservation AS r ON r.id = m.id
WHERE r.batch = :batch
"""  # noqa: S608 - a constant, no input in it
