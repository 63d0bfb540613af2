"""The log of events as it is read: in the order of `seq`, in pages, all or by reservation.

One statement is one snapshot: the page, and where the log begins and ends, belong together.
"""

import sqlite3

import msgspec

from reservation_service.events import Event, EventPage, EventQuery
from reservation_service.storage.sqlite_errors import failure_before_commit

_PAGE = """json_group_array(json_array(
    seq, type, reservation, generation, at, "trigger", json(data))),
    (SELECT min(seq) FROM event),
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0)"""

READ_ALL = f"""
SELECT {_PAGE}
FROM (SELECT * FROM event WHERE seq > :after ORDER BY seq LIMIT :limit)
"""  # noqa: S608 - a constant, no input in it

# The index over reservations has `seq` in it: none of them costs more than its part of a page.
READ_NAMED = f"""
SELECT {_PAGE}
FROM (SELECT e.* FROM json_each(:names) AS n JOIN event AS e
      ON e.seq IN (SELECT seq FROM event WHERE reservation = n.value AND seq > :after
                   ORDER BY seq LIMIT :limit)
      ORDER BY e.seq LIMIT :limit)
"""  # noqa: S608 - a constant, no input in it

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Event]).decode


def read_events(connection: sqlite3.Connection, query: EventQuery) -> EventPage:
    """One page, and how the log stood when it was read."""
    values: dict[str, object] = {"after": query.after, "limit": query.limit}
    sql = READ_ALL
    if query.names is not None:
        sql, values["names"] = READ_NAMED, _encode(sorted(query.names)).decode()
    try:
        text, oldest, newest = connection.execute(sql, values).fetchone()
    except sqlite3.Error as error:
        raise failure_before_commit(error) from error
    items = _decode(text)
    following = newest if len(items) < query.limit else items[-1].seq
    return EventPage(items, following, newest + 1 if oldest is None else oldest, newest)
