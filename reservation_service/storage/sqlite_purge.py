"""Removing what is old: events from the head of the log, then ended rows without any event.

Rows are looked through in the order of their deadlines, a few at a time, so that those which
must stay are not looked at again and again.
"""

import sqlite3

import msgspec

from reservation_service.store import Place, Purge, Purged

# As far as the first that must stay, whatever the clock said meanwhile: the log has no holes.
DELETE_EVENTS = """
DELETE FROM event
WHERE seq IN (SELECT seq FROM event ORDER BY seq LIMIT :limit)
  AND seq < coalesce((SELECT min(seq) FROM (SELECT seq, at FROM event ORDER BY seq LIMIT :limit)
                      WHERE at >= :before), 9223372036854775807)
"""

OLD_ROWS = """
SELECT expires_at, id FROM reservation
WHERE (expires_at, id) > (:after_at, :after_id) AND expires_at < :before
ORDER BY expires_at, id LIMIT :limit
"""

DELETE_ROWS = """
DELETE FROM reservation
WHERE id IN (SELECT value FROM json_each(:ids))
  AND status IN ('expired', 'released') AND coalesce(released_at, expired_at) < :before
  AND NOT EXISTS (SELECT 1 FROM event AS e WHERE e.reservation = reservation.id)
"""

FORGET_REJECTED = """
DELETE FROM confirm_rejection
WHERE reservation IN (SELECT value FROM json_each(:ids))
  AND NOT EXISTS (SELECT 1 FROM reservation AS r WHERE r.id = confirm_rejection.reservation)
"""

FORGET_PLANNED = """
DELETE FROM schedule
WHERE reservation IN (SELECT value FROM json_each(:ids))
  AND NOT EXISTS (SELECT 1 FROM reservation AS r WHERE r.id = schedule.reservation)
"""


def purge_some(connection: sqlite3.Connection, purge: Purge) -> Purged:
    """One step: events while there are old ones, then rows."""
    bound = {"before": purge.events_before, "limit": purge.limit}
    events = connection.execute(DELETE_EVENTS, bound).rowcount
    if events:
        return Purged(events, 0, purge)
    after = purge.after or Place(-1, "")
    values = {
        "after_at": after.expires_at,
        "after_id": after.reservation_id,
        "before": purge.reservations_before,
        "limit": purge.limit,
    }
    places = [Place(*row) for row in connection.execute(OLD_ROWS, values)]
    ids = msgspec.json.encode([place.reservation_id for place in places]).decode()
    values |= {"ids": ids}
    rows = connection.execute(DELETE_ROWS, values).rowcount if places else 0
    if rows:
        connection.execute(FORGET_REJECTED, values)
        connection.execute(FORGET_PLANNED, values)
    is_all = len(places) < purge.limit
    following = None if is_all else msgspec.structs.replace(purge, after=places[-1])
    return Purged(0, rows, following)
