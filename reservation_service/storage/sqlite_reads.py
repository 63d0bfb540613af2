"""What is read: rows by name, and pages of a list in the order of their deadlines.

A page looks at a bounded number of rows, however rare what is asked for is: a page may be short,
or empty, and still not be the last.
"""

import sqlite3
from collections.abc import Sequence

import msgspec

from reservation_service.reservation import Reservation
from reservation_service.storage.sqlite_errors import failure_before_commit
from reservation_service.store import Page, Place, Query

SCANNED_MAX = 10_000
"""Rows that one page looks at; some ten milliseconds."""

ROW = """json_array(m.id, coalesce(r.status, 'missing'), coalesce(r.generation, 0),
    r.created_at, r.expires_at, r.expired_at, r.confirmed_at, r.released_at,
    coalesce(r.expiration_count, 0), r.alarm_at, coalesce(r.alarm_attempts, 0),
    r.alarm_claim IS NOT NULL)"""

ROWS = f"""
SELECT json_group_array({ROW})
FROM (SELECT value AS id FROM json_each(:ids)) AS m LEFT JOIN reservation AS r ON r.id = m.id
"""  # noqa: S608 - a constant, no input in it

FIND = """
SELECT json_group_array(id)
FROM (SELECT id
      FROM (SELECT id, status, expires_at FROM reservation
            WHERE (expires_at, id) > (:after_at, :after_id)
            ORDER BY expires_at, id LIMIT :scanned_max)
      WHERE (:status IS NULL OR status = :status)
        AND substr(id, 1, length(:id_prefix)) = :id_prefix
      ORDER BY expires_at, id LIMIT :limit)
"""

SCANNED_TO = """
SELECT expires_at, id FROM reservation WHERE (expires_at, id) > (:after_at, :after_id)
ORDER BY expires_at, id LIMIT 1 OFFSET :scanned_max - 1
"""

_encode = msgspec.json.Encoder().encode
_decode_rows = msgspec.json.Decoder(list[Reservation], strict=False).decode


def read_rows(connection: sqlite3.Connection, ids: Sequence[str]) -> list[Reservation]:
    """The committed rows of these IDs, in their order; missing ones included."""
    try:
        return _rows(connection, _encode(ids).decode(), ids)
    except sqlite3.Error as error:
        raise failure_before_commit(error) from error


def find_rows(connection: sqlite3.Connection, query: Query) -> Page:
    """One page of the rows that match, and where the next one begins."""
    after = query.after or Place(-1, "")
    is_filtered = query.status is not None or query.id_prefix != ""
    values = {
        "after_at": after.expires_at,
        "after_id": after.reservation_id,
        "status": query.status,
        "id_prefix": query.id_prefix,
        "scanned_max": SCANNED_MAX if is_filtered else query.limit + 1,
        "limit": query.limit + 1,
    }
    try:
        connection.execute("BEGIN")  # both statements see the same rows
        ids = connection.execute(FIND, values).fetchone()[0]
        found = _rows(connection, ids, msgspec.json.decode(ids))
        scanned_to = connection.execute(SCANNED_TO, values).fetchone()
    except sqlite3.Error as error:
        raise failure_before_commit(error) from error
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    if len(found) > query.limit:
        return Page(found[:-1], _place(found[-2]))
    return Page(found, Place(*scanned_to) if scanned_to else None)


def _rows(connection: sqlite3.Connection, ids: str, order: Sequence[str]) -> list[Reservation]:
    rows = _decode_rows(connection.execute(ROWS, {"ids": ids}).fetchone()[0])
    found = {row.reservation_id: row for row in rows}
    return [found[reservation_id] for reservation_id in order]


def _place(row: Reservation) -> Place:
    assert row.expires_at is not None
    return Place(row.expires_at, row.reservation_id)
