"""A real server process: started, called, signalled, and its log read line by line.

Nothing waits without an end: whatever does not come within `PATIENCE_S` fails the test.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from reservation_service.errors import StartupError
from reservation_service.storage.lock import DatabaseLock

ROOT = Path(__file__).parents[2]
PREFIX = "RESERVATION_SERVICE__"
PATIENCE_S = 20.0
STOP_SECONDS_MAX = 5.0
_POLL_S = 0.01

Line = dict[str, Any]
T = TypeVar("T")


class Answer(NamedTuple):
    """What the server said."""

    status: int
    headers: dict[str, str]
    body: Any


def eventually(condition: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """What `condition` returns as soon as it is true; fails when that takes too long."""
    until = time.monotonic() + patience_s
    never = threading.Event()
    while not (found := condition()):
        assert time.monotonic() < until, f"still not true after {patience_s} s"
        never.wait(_POLL_S)
    return found


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def wait_until_past(at_ms: int) -> None:
    """Until the deadline is over by the wall clock."""
    eventually(lambda: wall_ms() > at_ms)


def command(*arguments: str) -> list[str]:
    """The command line under test, out of this checkout wherever it runs."""
    return [sys.executable, "-m", "reservation_service", *arguments]


def environment(**settings: object) -> dict[str, str]:
    """This process's environment, with `section__key=value` as the only settings in it.

    Nobody here speaks TLS: each start would read all certificates of the system for nothing.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX)}
    given = {PREFIX + key.upper(): str(value) for key, value in settings.items()}
    return inherited | {"PYTHONPATH": str(ROOT), "SSL_CERT_FILE": os.devnull} | given


class Server:
    """One database in `folder`, and one process on it at a time.

    A hold of one second is allowed, so that nobody waits longer for a deadline. An attacker may
    put another program around `command`, and give it `variables`, before it starts.
    """

    patience_s = PATIENCE_S
    """How long a line of the log may take to come."""

    def __init__(self, folder: Path, database: Path | None = None, **settings: object) -> None:
        self.database = database or folder / "reservations.db"
        self.settings = {"reservations__ttl_seconds_min": 1, "server__port": 0} | settings
        self.command = command("serve", "--database", str(self.database))
        self.variables: dict[str, str] = {}
        self.lines: list[Line] = []
        self.written: list[bytes] = []
        self.port = 0
        self._folder = folder
        self._stderr = folder / "stderr"
        self._news = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = threading.Thread()
        self._log_is_over = False
        self._not_json: list[bytes] = []

    def start(self) -> Self:
        """Start a process and wait for its word that it listens; nothing is requested."""
        self._spawn()
        self.port = self.line("service-started")["port"]
        return self

    def call(
        self, method: str, path: str, body: object = None, *, token: str | None = None
    ) -> Answer:
        """One request on a connection of its own."""
        text = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)) as connection:
            connection.request(method, path, text, headers)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.headers), json.loads(answer.read()))

    def hold(self, reservation_id: str, ttl_seconds: int) -> Line:
        answer = self.call("POST", f"/reservations/{reservation_id}", {"ttlSeconds": ttl_seconds})
        assert answer.status == 201, answer
        row: Line = answer.body
        return row

    def read(self, reservation_id: str) -> Line:
        answer = self.call("GET", f"/reservations/{reservation_id}")
        assert answer.status == 200, answer
        row: Line = answer.body
        return row

    def seen(self, event: str, **fields: object) -> list[Line]:
        """The log lines of the present run that match."""
        with self._news:
            return _matching(self.lines, event, fields)

    def line(self, event: str, nth: int = 1, **fields: object) -> Line:
        """The `nth` matching log line of the present run, as soon as it is there."""
        with self._news:
            self._news.wait_for(
                lambda: len(_matching(self.lines, event, fields)) >= nth or self._log_is_over,
                self.patience_s,
            )
            found = _matching(self.lines, event, fields)
        assert len(found) >= nth, (event, fields, self.lines[-20:], self.complaints())
        return found[nth - 1]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def writer_pid(self) -> int:
        """The process that writes for it."""
        (writer,) = family(self.pid)[1:]
        return writer

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """The exit status; every line of the log was JSON, whatever happened."""
        assert self._process is not None
        status = self._process.wait(patience_s)
        self._reader.join(PATIENCE_S)
        assert not self._reader.is_alive()
        assert self._not_json == []
        self._process = None
        return status

    def kill(self) -> None:
        """kill -9: no handler, no goodbye; its writer ends when it sees that."""
        self.send(signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL
        eventually(lambda: is_free(self.database))

    def kill_writer(self) -> None:
        """kill -9 of the process that writes: the one that answers ends with status 1."""
        os.kill(self.writer_pid, signal.SIGKILL)
        assert self.wait() == 1

    def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Stop it as it should be stopped, and how many seconds that took."""
        began = time.monotonic()
        self.send(number)
        assert self.wait() == 0, (self.lines, self.complaints())
        assert self.complaints() == ""
        return time.monotonic() - began

    def end(self) -> None:
        """Leave no process behind, whatever the test did."""
        if self._process is not None:
            self._process.kill()
            self.wait()
            eventually(lambda: is_free(self.database))

    def complaints(self) -> str:
        """What the process wrote to standard error."""
        return self._stderr.read_text()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Read the database as another process may: read-only."""
        uri = f"{self.database.as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            return connection.execute(sql).fetchall()

    def change(self, *statements: str) -> None:
        """Change the database behind the back of a server that is down."""
        assert self._process is None
        with closing(sqlite3.connect(self.database)) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    def _spawn(self) -> None:
        assert self._process is None
        self.lines, self.written, self._log_is_over = [], [], False
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                self.command,
                cwd=self._folder,
                env=environment(**self.settings) | self.variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        self._reader = threading.Thread(target=self._read_log, args=[self._process], daemon=True)
        self._reader.start()

    def _read_log(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as log:
            for text in log:
                if text.endswith(b"\n"):  # a kill may cut the last line short
                    self._take(text)
        with self._news:
            self._log_is_over = True
            self._news.notify_all()

    def _take(self, text: bytes) -> None:
        with self._news:
            self.written.append(text.rstrip(b"\n"))
            try:
                self.lines.append(json.loads(text))
            except ValueError:
                self._not_json.append(text)
            self._news.notify_all()


def family(pid: int) -> list[int]:
    """A process and its children, where the system shows them as files."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [pid, *map(int, children.split())]


def is_free(database: Path) -> bool:
    """No process has this database."""
    try:
        DatabaseLock(database.resolve()).release()
    except StartupError:
        return False
    return True


def _matching(lines: Sequence[Line], event: str, fields: dict[str, object]) -> list[Line]:
    return [line for line in lines if line["event"] == event and line.items() >= fields.items()]


def json_documents(text: str) -> Iterator[Any]:
    """The JSON documents in `text`, one after another."""
    decoder, rest = json.JSONDecoder(), text.strip()
    while rest:
        document, end = decoder.raw_decode(rest)
        yield document
        rest = rest[end:].lstrip()
