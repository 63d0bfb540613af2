"""A copy that SQLite makes of a served database is a whole one."""

import sqlite3
from contextlib import closing

from tests.process.conftest import MakeServer
from tests.support.invariants import violations


def test_a_backup_of_a_running_service_has_every_acknowledged_hold(
    make_server: MakeServer,
) -> None:
    server = make_server().start()
    held = [server.hold(f"seat-{number}", 3600) for number in range(50)]
    backup = server.database.with_name("backup.db")
    with (
        closing(sqlite3.connect(f"{server.database.as_uri()}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(backup)) as target,
    ):
        source.backup(target)
    later = server.hold("later", 3600)
    assert server.read("later") == later
    server.stop()

    assert violations(backup) == []
    restored = make_server(backup).start()
    assert [restored.read(row["reservationId"]) for row in held] == held
    assert restored.read("later")["status"] == "missing"
    restored.stop()
