"""What `serve` refuses: one sentence on standard error, exit status 1, no thread left over."""

import os
import pwd
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Timer

import pytest

from tests.process.server import PATIENCE_S, Server, command, environment, json_documents

REFUSAL_SECONDS_MAX = 5
"""From the sentence to the end; how long a busy machine takes to get there is not ours."""

PROGRAM = "reservation-service: "


def refusal(*arguments: str, start: list[str] | None = None) -> str:
    """The sentence with which `serve` refuses to start; it ends at once when that is said."""
    process = subprocess.Popen(
        [*(start or command()), "serve", "--port", "0", *arguments],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    patience = Timer(PATIENCE_S, process.kill)
    patience.start()
    try:
        assert process.stderr is not None
        sentence = process.stderr.readline().strip()
        log, more = process.communicate(timeout=REFUSAL_SECONDS_MAX)
    finally:
        patience.cancel()
        process.kill()
        process.wait()
    assert (process.returncode, more) == (1, ""), sentence + more
    assert [line for line in json_documents(log) if line["event"] == "service-started"] == []
    assert sentence.startswith(PROGRAM)
    assert sentence.endswith(".")
    return sentence.removeprefix(PROGRAM)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "refused.db"


def test_a_second_process_is_refused_and_the_first_unharmed(server: Server) -> None:
    held = server.start().hold("mine", 3600)
    alias = server.database.with_name("alias.db")
    alias.symlink_to(server.database)

    for path in (server.database, alias):
        sentence = refusal("--database", str(path))
        assert sentence == (
            f"Another process is using the database {server.database}; stop it first."
        )
    assert server.read("mine") == held
    server.hold("yours", 3600)
    server.stop()


def test_a_port_in_use_is_refused(database: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        sentence = refusal("--database", str(database), "--port", str(port))
    assert sentence == f"Cannot listen on 127.0.0.1:{port}: Address already in use."


def test_a_database_newer_than_the_code_is_refused(database: Path) -> None:
    subprocess.run(
        [*command("migrate"), "--database", str(database)], env=environment(), check=True
    )
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA user_version = 9999")
    before = database.read_bytes()
    assert "The database is at schema 9999, newer than" in refusal("--database", str(database))
    assert database.read_bytes() == before


def test_a_database_of_another_program_is_refused_and_left_as_it_is(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    before = database.read_bytes()
    sentence = refusal("--database", str(database))
    assert sentence == "The database was made by another program; choose another file."
    assert database.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(database: Path) -> None:
    database.write_bytes(b"This is a diary. " * 1000)
    sentence = refusal("--database", str(database))
    assert sentence == f"Cannot use the database {database}: file is not a database."
    assert database.read_bytes() == b"This is a diary. " * 1000


def test_a_corrupt_header_is_refused(server: Server) -> None:
    server.start().stop()
    with server.database.open("r+b") as file:
        file.write(b"\xff" * 100)
    sentence = refusal("--database", str(server.database))
    assert sentence == f"Cannot use the database {server.database}: file is not a database."


def test_a_directory_is_refused(tmp_path: Path) -> None:
    sentence = refusal("--database", str(tmp_path))
    assert sentence == f"{tmp_path} is not a file; choose another database."


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    sentence = refusal("--database", str(tmp_path / "missing" / "r.db"))
    assert sentence == f"The directory {tmp_path / 'missing'} does not exist; create it first."


AS_NOBODY = """
import os, sys
from reservation_service import cli, service
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
cli.main(sys.argv[2:])
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user can reach, too."""
    with tempfile.TemporaryDirectory(prefix="refused-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def refusal_to_the_powerless(database: Path) -> str:
    """Root may do anything, and so starts `serve` as nobody."""
    nobody = pwd.getpwnam("nobody").pw_uid
    as_nobody = [sys.executable, "-c", AS_NOBODY, str(nobody)] if os.getuid() == 0 else None
    return refusal("--database", str(database), start=as_nobody)


@pytest.mark.parametrize("mode", [0o000, 0o400], ids=["unreadable", "read-only"])
def test_a_file_that_may_not_be_written_is_refused(folder: Path, mode: int) -> None:
    database = folder / "r.db"
    database.touch(mode)
    folder.chmod(0o777)
    assert refusal_to_the_powerless(database) == (
        f"Cannot open the database {database}: Permission denied."
    )


def test_a_directory_that_may_not_be_entered_is_refused(folder: Path) -> None:
    (folder / "closed").mkdir(mode=0o000)
    database = folder / "closed" / "r.db"
    assert refusal_to_the_powerless(database) == (
        f"Cannot open the database {database}: Permission denied."
    )


OLD_SQLITE = """
import sqlite3, sys
sqlite3.sqlite_version_info = (3, 37, 2)
from reservation_service.cli import main
main(sys.argv[1:])
"""


def test_a_sqlite_too_old_is_refused(database: Path) -> None:
    sentence = refusal("--database", str(database), start=[sys.executable, "-c", OLD_SQLITE])
    assert sentence == "SQLite 3.38.0 or newer is needed; this Python has 3.37.2."
    assert not database.exists()
