"""What was committed, counted by the database itself: transitions, and alarms that are planned.

Temporary triggers on the writer's connection count inside the transaction that makes the change. So
a rollback takes its counts back, whatever writes an event is counted, and no batch needs one
statement more, each of which costs the event loop a pause.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

BEGIN_TALLY = (
    """CREATE TEMP TABLE transition_tally (
           type TEXT, "trigger" TEXT, count INTEGER NOT NULL, PRIMARY KEY (type, "trigger")
       ) WITHOUT ROWID""",
    "CREATE TEMP TABLE slot_tally (planned INTEGER NOT NULL)",
    "INSERT INTO slot_tally VALUES (0)",
    """CREATE TEMP TRIGGER tally_transition AFTER INSERT ON main.event BEGIN
           INSERT INTO transition_tally VALUES (NEW.type, NEW."trigger", 1)
           ON CONFLICT (type, "trigger") DO UPDATE SET count = count + 1;
       END""",
    """CREATE TEMP TRIGGER tally_inserted AFTER INSERT ON main.reservation
       WHEN NEW.alarm_at IS NOT NULL BEGIN
           UPDATE slot_tally SET planned = planned + 1;
       END""",
    """CREATE TEMP TRIGGER tally_changed AFTER UPDATE OF alarm_at ON main.reservation
       WHEN (OLD.alarm_at IS NULL) <> (NEW.alarm_at IS NULL) BEGIN
           UPDATE slot_tally SET planned = planned + iif(OLD.alarm_at IS NULL, 1, -1);
       END""",
    """CREATE TEMP TRIGGER tally_deleted AFTER DELETE ON main.reservation
       WHEN OLD.alarm_at IS NOT NULL BEGIN
           UPDATE slot_tally SET planned = planned - 1;
       END""",
)

PLANNED = "SELECT planned FROM slot_tally"
TRANSITIONS = 'SELECT type, "trigger", count FROM transition_tally'

COUNT_PLANNED = "SELECT count(*) FROM reservation WHERE alarm_dispatch_at IS NOT NULL"
"""All of the due index: some ten milliseconds for a million, and none of them the writer's."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Since the start: how many more alarms are planned than were, and transitions by what they
    are and what made them."""

    planned: int
    transitions: Mapping[tuple[str, str], int]


def begin_tally(connection: sqlite3.Connection) -> None:
    """Count from now on what this connection commits."""
    for statement in BEGIN_TALLY:
        connection.execute(statement)


def read_tally(connection: sqlite3.Connection) -> Tally:
    """The counts as committed; only the connection that counts can tell."""
    planned = connection.execute(PLANNED).fetchone()[0]
    rows = connection.execute(TRANSITIONS).fetchall()
    return Tally(planned, {(kind, trigger): count for kind, trigger, count in rows})


def freeze(reader: sqlite3.Connection) -> None:
    """Let `reader` see what is committed now, and nothing later, until `count_planned`."""
    reader.execute("BEGIN")
    reader.execute("SELECT epoch FROM namespace").fetchone()


def count_planned(reader: sqlite3.Connection) -> int:
    """All alarms that were planned when `freeze` was called."""
    planned: int = reader.execute(COUNT_PLANNED).fetchone()[0]
    reader.execute("ROLLBACK")
    return planned
