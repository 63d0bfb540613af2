"""Reservations by the thousand, put into a database that nobody serves yet."""

import sqlite3
import subprocess
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from tests.process.server import command, environment

_HELD_MS = 60_000
_ROW = """
INSERT INTO reservation (id, status, holder, generation, created_at, expires_at, expiration_count,
                         alarm_at, alarm_dispatch_at, alarm_attempts, batch, changed_by)
VALUES (:id, 'held', x'', 1, :created_at, :expires_at, 0, :expires_at, :expires_at, 0, 0, 'request')
"""
_EVENT = """
INSERT INTO event (reservation, generation, type, at, "trigger")
VALUES (:id, 1, 'held', :created_at, 'request')
"""


def seed(database: Path, deadlines: Iterable[tuple[str, int]]) -> None:
    """Hold each ID until its deadline (epoch ms), as if that had been asked for a minute before."""
    migrate = [*command("migrate"), "--database", str(database)]
    subprocess.run(migrate, env=environment(), check=True, stdout=subprocess.DEVNULL)
    rows = [
        {"id": name, "created_at": expires_at - _HELD_MS, "expires_at": expires_at}
        for name, expires_at in deadlines
    ]
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executemany(_ROW, rows)
        connection.executemany(_EVENT, rows)
