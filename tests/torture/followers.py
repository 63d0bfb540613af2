"""kill -9 under load while readers follow the feed: each comes again and has seen exactly the log.

A reader knows nothing but the id of its last frame, as a browser does. When all is over, what it
has put together over all the lives of the service is compared with the event table.
"""

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Self

from tests.process.server import PATIENCE_S, Server, eventually
from tests.support.streams import Frame, frame
from tests.torture.clients import HOST
from tests.torture.report import Harness, Report
from tests.torture.scratch import scratch
from tests.torture.target import Target
from tests.torture.traffic import SOON_S, Ledger, Traffic

KILLS = 50
CLIENTS = 24
_LOAD_MAX = 800
_NAMED = 200
_LOOK_S = 0.02


class Follower:
    """Within `with`, one reader on a thread of its own, through every life of the server."""

    def __init__(self, server: Server, names: tuple[str, ...] = ()) -> None:
        self.names = names
        self.seen: list[int] = []
        self.strange: list[Frame] = []
        self.position: int | None = None
        self.came = 0
        self._server = server
        self._query = "&".join(f"reservation={name}" for name in names)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive(), "a reader hangs"

    def has_come_to(self, seq: int) -> bool:
        return self.position is not None and self.position >= seq

    def expected(self) -> list[int]:
        """What it should have seen by now, out of the database."""
        rows = self._server.query("SELECT seq, reservation FROM event ORDER BY seq")
        return [seq for seq, name in rows if not self.names or name in self.names]

    def _follow(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            try:
                self._read_on()
            except OSError:
                continue  # it has been killed, or is not there yet

    def _read_on(self) -> None:
        address = HOST, self._server.port
        with closing(socket.create_connection(address, PATIENCE_S)) as connection:
            connection.settimeout(_LOOK_S)
            connection.sendall(self._request())
            self.came += 1
            for found in _frames(connection, self._is_over):
                self._take(found)

    def _request(self) -> bytes:
        head = [
            f"GET /events?{self._query} HTTP/1.0",
            "Host: torture",
            "Accept: text/event-stream",
        ]
        if self.position is not None:
            head.append(f"Last-Event-ID: {self.position}")
        return "\r\n".join([*head, "", ""]).encode()

    def _take(self, found: Frame) -> None:
        if found.event == "reset":
            self.strange.append(found)
        elif found.data is not None:
            self.seen.append(found.data["seq"])
        if found.id is not None:
            self.position = found.id


def _frames(connection: socket.socket, is_over: threading.Event) -> Iterator[Frame]:
    """Whole frames behind the head, until somebody hangs up."""
    lines: list[str] = []
    text, has_head = b"", False
    while not is_over.is_set():
        try:
            came = connection.recv(1 << 16)
        except TimeoutError:
            continue
        if not came:
            return
        *whole, text = (text + came).split(b"\n")
        for line in whole:
            if line.strip():
                lines.append(line.decode().rstrip())
                continue
            if has_head:
                yield frame(lines)
            has_head, lines = True, []


def run(scale: float, *, bug: str | None = None) -> Report:
    """Kill it so many times, and let everybody read to the end once."""
    report, ledger = Report(), Ledger()
    soon = tuple(f"load-{number:07}" for number in range(0, 4 * _NAMED, 4))
    with scratch(bug=bug) as target, ExitStack() as opened:
        target.start()
        followers = [
            opened.enter_context(Follower(target, names))
            for names in ((), (), soon, soon[:1], ("load-0000002", "never-held"))
        ]
        for _ in range(max(3, round(KILLS * scale))):
            with _traffic(target, ledger) as traffic:
                traffic.wait_for(random.randint(1, _LOAD_MAX))
                target.kill()
            target.start()
            report.count("kills")
        with _traffic(target, ledger) as traffic:
            traffic.wait_for(_LOAD_MAX)
        compare(target, followers, report)
    report.figures["acknowledged"] = len(ledger.acknowledged)
    return report


def _traffic(target: Target, ledger: Ledger) -> Traffic:
    """Holds that all end soon, so that the log comes to an end, too."""
    return Traffic(target, ledger, clients=CLIENTS, ttl_seconds=(SOON_S,))


def compare(target: Server, followers: list[Follower], report: Report) -> None:
    """Once nothing more happens, everybody comes to the end."""
    eventually(lambda: not target.query("SELECT 1 FROM reservation WHERE status = 'held' LIMIT 1"))
    for follower in followers:
        try:
            eventually(partial(follower.has_come_to, follower.expected()[-1]))
        except AssertionError:
            report.violations.append(f"a reader of {follower.names[:1]} never came to the end")
        seen, expected = list(follower.seen), follower.expected()
        doubled = len(seen) - len(set(seen))
        missing = len(set(expected) - set(seen))
        report.require(not doubled, f"{doubled} events came twice")
        report.require(not missing, f"{missing} events did not come")
        report.require(seen == sorted(seen), "events came out of order")
        report.require(not follower.strange, f"what was there is told as gone: {follower.strange}")
        report.count("events seen", len(seen))
        report.count("times that readers came", follower.came)


HARNESS = Harness(
    name="followers",
    promise="50 kill -9 under load: whoever follows the feed has seen every event once, in order",
    run=run,
    controls={
        bug: partial(run, 0.06, bug=bug) for bug in ("resume-at-the-end", "resume-with-the-last")
    },
    short=0.06,
)
