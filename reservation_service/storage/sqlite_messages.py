"""The messages of a batch as a table, of which each statement takes its range.

The table is temporary and in memory. It is filled once for a batch, from one JSON text for each
kind of message, so the text is taken apart once and not again by each statement.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from reservation_service.reservation import (
    Cancel,
    Confirm,
    Expire,
    Extend,
    Fire,
    Hold,
    Message,
    Plan,
    Release,
)
from reservation_service.store import Retry

MESSAGES = "SELECT * FROM message WHERE number BETWEEN :first AND :last"

AnyMessage = Message | Retry

KINDS: tuple[type[AnyMessage], ...] = (
    Expire,
    Hold,
    Extend,
    Confirm,
    Release,
    Plan,
    Cancel,
    Fire,
    Retry,
)
"""In the order in which a batch does what they ask for."""

_HOLDER_BYTES = 32
_FIELDS = {kind: [field.name for field in msgspec.structs.fields(kind)] for kind in KINDS}
_COLUMNS = sorted({name for names in _FIELDS.values() for name in names})

CREATE = f"""
CREATE TEMP TABLE message (number INTEGER PRIMARY KEY, {", ".join(map('"{}"'.format, _COLUMNS))})
"""

# JSON cannot carry bytes: `:holders` is all digests in a row.
_HOLDER = """CASE value->>{0} WHEN '' THEN x''
            ELSE substr(:holders, 1 + {1} * key, {1}) END"""


def _fill(names: Sequence[str]) -> str:
    """A field's place in a message's JSON array is its place in the struct, behind the tag."""
    values = [
        _HOLDER.format(place, _HOLDER_BYTES) if name == "holder" else f"value->>{place}"
        for place, name in enumerate(names, 1)
    ]
    return f"""
INSERT OR REPLACE INTO message (number, {", ".join(map('"{}"'.format, names))})
SELECT :first + key, {", ".join(values)} FROM json_each(:messages)
"""  # noqa: S608 - made of the structs' own names


FILL = {kind: _fill(names) for kind, names in _FIELDS.items()}

_encode = msgspec.json.Encoder().encode


class Span(NamedTuple):
    """Messages with neighbouring numbers; `last` is before `first` when there are none."""

    first: int
    last: int

    def __bool__(self) -> bool:
        return self.first <= self.last


EMPTY = Span(0, -1)


class MessageTable:
    """A batch's messages; what an earlier batch left in the table is written over.

    `spans` has the kinds that there are, in the order of `KINDS`.
    """

    def __init__(
        self, connection: sqlite3.Connection, messages: Mapping[type, Sequence[AnyMessage]]
    ) -> None:
        self._connection = connection
        self._end = 0
        self.spans = {kind: self.put(messages[kind]) for kind in KINDS if kind in messages}
        self.all = Span(0, self._end - 1)

    def put(self, messages: Sequence[AnyMessage]) -> Span:
        """Put messages of one kind behind the others, though they may be there already."""
        if not messages:
            return EMPTY
        span = Span(self._end, self._end + len(messages) - 1)
        self._end += len(messages)
        values: dict[str, object] = {"first": span.first, "messages": _encode(messages).decode()}
        kind = type(messages[0])
        if "holder" in _FIELDS[kind]:
            holders = [message.holder for message in messages]  # type: ignore[union-attr]
            values["holders"] = b"".join([one.ljust(_HOLDER_BYTES, b"\0") for one in holders])
        self._connection.execute(FILL[kind], values)
        return span


def create_message_table(connection: sqlite3.Connection) -> None:
    """What a connection needs before it can run batches; nothing of it is ever in the file."""
    connection.execute(CREATE)
