"""The database is deleted, replaced, damaged or made read-only while clients hold and read.

Once that is met, the process says so in one line and ends with status 1, whatever clients have half
sent; after that line nobody is told that anything was held.
"""

import asyncio
import random
import shutil
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from tests.process.server import PATIENCE_S, eventually, wall_ms
from tests.support.invariants import violations
from tests.torture.clients import HOST, Answer, Client, get, hold
from tests.torture.disks import ext4
from tests.torture.report import CannotRun, Harness, Report
from tests.torture.scratch import allowed, scratch
from tests.torture.seeding import seed
from tests.torture.stops import HALF_SENT
from tests.torture.target import Target, target_on

ROUNDS = 5
EXIT_SECONDS_MAX = 2.0
SEEDED = 30_000
_CLIENTS = 8
_PAGE_BYTES = 4096
_HEALTHY_ANSWERS = 200
_MEETS_IT_SECONDS = 4.0


@dataclass(frozen=True)
class Damage:
    """What is done to a database, and the words in which the process tells it."""

    name: str
    do: Callable[[Path], None]
    words: tuple[str, ...]
    seeded: int = 0
    may_heal: bool = False
    """A page in the write-ahead log repairs the file at the next checkpoint."""


def delete(database: Path) -> None:
    database.unlink()


def replace(database: Path) -> None:
    other = database.with_name("other")
    shutil.copyfile(database, other)
    other.replace(database)


def break_header(database: Path) -> None:
    with database.open("r+b", buffering=0) as file:
        file.write(b"\xff" * 100)


def break_pages(database: Path) -> None:
    """Nine pages of ten, all over the file but for its first ones."""
    with database.open("r+b", buffering=0) as file:
        for page in range(4, database.stat().st_size // _PAGE_BYTES):
            if random.random() < 0.9:
                file.seek(page * _PAGE_BYTES)
                file.write(b"\xff" * _PAGE_BYTES)


def make_read_only(database: Path) -> None:
    """What ext4 does to itself after an error, with files open for writing."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    device = next(m[0] for m in mounts if m[1] == str(database.parent))
    Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error").write_text("planted")


UNUSABLE = "The database cannot be used any more"
DAMAGES = [
    Damage("deleted", delete, (UNUSABLE,)),
    Damage("replaced", replace, (UNUSABLE,)),
    Damage("header", break_header, (UNUSABLE,), may_heal=True),
    Damage("pages", break_pages, (UNUSABLE,), seeded=SEEDED),
]
READ_ONLY = Damage("read-only", make_read_only, (UNUSABLE, "The commit failed"))


class Crowd:
    """Within `with`, clients hold and read on a thread of their own and note what comes of it."""

    def __init__(self, port: int, seeded: int) -> None:
        self.statuses: Counter[int] = Counter()
        self.acknowledged: set[str] = set()
        self.last_held_ms = 0
        self.refused_at: float | None = None
        self._port = port
        self._seeded = seeded
        self._numbers = iter(range(10_000_000))
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive(), "clients hang"

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as clients:
            for _ in range(_CLIENTS):
                clients.create_task(self._ask_until_over())

    async def _ask_until_over(self) -> None:
        with suppress(OSError):
            client = await Client.connect(self._port)
            while not self._is_over.is_set() and (answer := await client.ask(self._request())):
                self._take(answer)
            client.hang_up()

    def _take(self, answer: Answer) -> None:
        self.statuses[answer.status] += 1
        if answer.status == 201:
            self.acknowledged.add(answer.document["reservationId"])
            told_ms = int(answer.header("Server-Time") or 0)
            self.last_held_ms = max(self.last_held_ms, told_ms)
        elif answer.status >= 500 and self.refused_at is None:
            self.refused_at = time.monotonic()

    def _request(self) -> bytes:
        number = next(self._numbers)
        if number % 2:
            return get(f"/reservations/seeded-{random.randrange(self._seeded or 10):06}")
        return hold(f"crowd-{number:07}", 3600)


def run(scale: float) -> Report:
    """Every damage so many times; made read-only as well where that is possible."""
    report, rounds = Report(), max(1, round(ROUNDS * scale))
    damage_files(report, DAMAGES * rounds, allowed(EXIT_SECONDS_MAX, scale))
    try:
        for _ in range(rounds):
            damage_file_system(report, allowed(EXIT_SECONDS_MAX, scale))
    except CannotRun as reason:
        report.figures["read-only"] = f"not here: {reason}"
    return report


def damage_files(
    report: Report, damages: list[Damage], seconds_max: float, bug: str | None = None
) -> Report:
    """Each on a database of its own."""
    for damage in damages:
        with scratch(bug=bug) as target:
            _attack(target, report, damage, seconds_max)
    return report


def damage_file_system(report: Report, seconds_max: float) -> None:
    """What is below becomes read-only. Raises CannotRun without root and a loop device."""
    with ext4(64, "loop,errors=remount-ro") as disk, target_on(disk) as target:
        _attack(target, report, READ_ONLY, seconds_max)


def _attack(target: Target, report: Report, damage: Damage, seconds_max: float) -> None:
    if damage.seeded:
        later = wall_ms() + 3_600_000
        seed(target.database, ((f"seeded-{n:06}", later) for n in range(damage.seeded)))
    target.start()
    target.line("integrity-checked")
    with _half_sent(target.port), Crowd(target.port, damage.seeded) as crowd:
        eventually(lambda: crowd.statuses.total() >= _HEALTHY_ANSWERS)
        damage.do(target.database)
        damaged_at = time.monotonic()
        patience_s = _MEETS_IT_SECONDS if damage.may_heal else 2 * seconds_max
        status = target.exit_status(patience_s)
        seconds = time.monotonic() - (crowd.refused_at or damaged_at)
    report.count(f"{damage.name}: times")
    if status is None and damage.may_heal:
        _check_that_it_healed(target, report, damage, crowd)
        return
    longest = f"{damage.name}: exit after s, at most"
    report.figures[longest] = max(round(seconds, 2), float(report.figures.get(longest, 0)))
    report.require(status == 1, f"{damage.name}: the exit status is {status}")
    report.require(seconds <= seconds_max, f"{damage.name}: the end took {seconds:.1f} s")
    _check_the_message(target, report, damage, crowd)


def _check_that_it_healed(target: Target, report: Report, damage: Damage, crowd: Crowd) -> None:
    """It was never met: then nothing is lost, either."""
    target.stop()
    target.start()
    target.line("integrity-checked")
    kept = {name for (name,) in target.query("SELECT id FROM reservation")}
    lost = crowd.acknowledged - kept
    report.count(f"{damage.name}: healed")
    report.require(not lost, f"{damage.name}: {len(lost)} acknowledged holds are lost")
    target.stop()
    report.violations += violations(target.database)


def _check_the_message(target: Target, report: Report, damage: Damage, crowd: Crowd) -> None:
    told = target.seen("service-failed")
    clear = [line for line in told if line["reason"].startswith(damage.words)]
    report.require(bool(clear), f"{damage.name}: nobody was told clearly: {told}")
    complaints = target.complaints()
    report.require(complaints == "", f"{damage.name}: it complained: {complaints[-300:]}")
    if told:
        after = crowd.last_held_ms - told[0]["timestamp"]
        report.require(after <= 0, f"{damage.name}: a 201 came {after} ms after the message")
    report.require(
        set(crowd.statuses) <= {200, 201, 503}, f"{damage.name}: answers {crowd.statuses}"
    )


@contextmanager
def _half_sent(port: int) -> Iterator[None]:
    with ExitStack() as opened:
        for text in HALF_SENT:
            client = opened.enter_context(socket.create_connection((HOST, port), PATIENCE_S))
            client.sendall(text)
        yield


def _control(bug: str) -> Report:
    return damage_files(Report(), DAMAGES[:1], EXIT_SECONDS_MAX, bug)


HARNESS = Harness(
    name="damage",
    promise="a database lost, damaged or read-only: a clear line, exit 1 in 2 s, no 201 after it",
    run=run,
    controls={bug: partial(_control, bug) for bug in ("ignore-the-file", "wait-for-every-client")},
    short=0.2,
)
