"""Crowds of hostile clients at once: idle ones, slow ones, greedy ones. Nobody else notices.

While a crowd is there, a bystander's `/` is answered in less than 100 ms, the server's memory and
its open connections stay within bounds, and what lingers too long is closed.
"""

import asyncio
import random
import resource
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.torture.clients import HOST, get, hold
from tests.torture.probe import Probe
from tests.torture.report import CannotRun, Harness, Report
from tests.torture.scratch import Neighbours, allowed, resident_mib, scratch
from tests.torture.target import Target

P99_MS_MAX = 100.0
GROWN_MIB_MAX = 128
CONNECTIONS_MAX = 2000
"""The default of the configuration."""

SPARE_FILES = 300
LINGER_SECONDS = 30.0
_SIZE_MIN = 1
_AT_ONCE = 50
_COMING_PER_SECOND = 1000
_PIPELINED = 2000
_HALF_A_BODY = hold("half-a-body", 60)[:-5]
_ANSWER = b"HTTP/1.1 200 OK"
_HALF_A_HEAD = get("/")[:-10]


@dataclass(frozen=True)
class Crowd:
    """So many clients that each send a text; what they do then, and how long they stay."""

    name: str
    size: int
    text: bytes
    then: Callable[["Visitor"], Awaitable[None]]
    stay_s: float = 1.0


class Visitor:
    """One hostile client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.is_closed = False
        self.answers = 0

    async def wait(self) -> None:
        """Say nothing more until the server hangs up."""
        with suppress(OSError):
            while await self.reader.read(4096):
                pass
        self.is_closed = True

    async def drip(self) -> None:
        """Send another byte now and then."""
        with suppress(OSError):
            while not self.writer.transport.is_closing():
                self.writer.write(b"a")
                await asyncio.sleep(1 + random.random())
        self.is_closed = True

    async def count_answers(self) -> None:
        """Read as many answers as were asked for."""
        read = b""
        with suppress(OSError):
            while self.answers < _PIPELINED and (text := await self.reader.read(1 << 16)):
                read = read[1 - len(_ANSWER) :] + text  # an answer's first line may come in two
                self.answers += read.count(_ANSWER)

    async def never_read(self) -> None:
        """Let the answers pile up."""
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(LINGER_SECONDS)


CROWDS = [
    Crowd("idle", 10_000, b"", Visitor.wait),
    Crowd("slow heads", 3000, _HALF_A_HEAD, Visitor.drip),
    Crowd("half bodies", 3000, _HALF_A_BODY, Visitor.wait),
    Crowd("line ends", 1000, b"\r\n" * 1000, Visitor.wait),
    Crowd("pipelining", 10, get("/") * _PIPELINED, Visitor.count_answers, LINGER_SECONDS),
    Crowd("deaf", 100, get("/") * _PIPELINED, Visitor.never_read),
]


def run(scale: float, *, bug: str | None = None, crowds: Sequence[Crowd] | None = None) -> Report:
    """One crowd after another against one server; in the long version they stay until closed.

    In a short one they are smaller, and so is the number of connections that is allowed.
    """
    report = Report()
    with scratch(bug=bug, server__connections_max=round(CONNECTIONS_MAX * scale)) as target:
        target.start()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < max(crowd.size for crowd in CROWDS) + SPARE_FILES:
            raise CannotRun(f"ulimit -n allows {hard} open files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            for crowd in CROWDS if crowds is None else crowds:
                _visit(target, report, crowd, scale)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        target.stop()
    return report


def _visit(target: Target, report: Report, crowd: Crowd, scale: float) -> None:
    before_mib = resident_mib(target)
    watch = _Watch(target)
    with Neighbours(target) as neighbours, Probe(target.port) as probe:
        visitors = asyncio.run(_come(target.port, crowd, watch, scale))
    grown = watch.memory_mib - before_mib
    report.figures[f"{crowd.name}: / p50, p99, worst ms"] = probe.percentiles
    report.figures[f"{crowd.name}: files, MiB grown"] = f"{watch.files}, {grown}"
    report.figures[f"{crowd.name}: cores used by others"] = neighbours.cores
    bound = allowed(P99_MS_MAX, scale)
    report.require(probe.p99_ms <= bound, f"{crowd.name}: / took {probe.p99_ms} ms (p99)")
    report.require(probe.answers > 0, f"{crowd.name}: / was never answered")
    report.require(not probe.failures, f"{crowd.name}: bystanders failed: {probe.failures}")
    report.require(grown <= GROWN_MIB_MAX, f"{crowd.name}: {grown} MiB more")
    files_max = CONNECTIONS_MAX * scale + SPARE_FILES
    report.require(watch.files <= files_max, f"{crowd.name}: {watch.files} open files")
    if crowd.then is Visitor.count_answers:
        answers = {visitor.answers for visitor in visitors}
        report.require(answers == {_PIPELINED}, f"{crowd.name}: {answers} answers")
    if crowd.then is Visitor.wait and scale >= 1:
        left = sum(not visitor.is_closed for visitor in visitors)
        report.require(left == 0, f"{crowd.name}: {left} are still there after {LINGER_SECONDS} s")


class _Watch:
    """The most memory and the most open files that the server was seen with."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._files = Path(f"/proc/{target.pid}/fd")
        self.memory_mib = self.files = 0

    async def look(self) -> None:
        """Until cancelled."""
        while True:
            self.memory_mib = max(self.memory_mib, resident_mib(self._target))
            self.files = max(self.files, len(list(self._files.iterdir())))
            await asyncio.sleep(0.1)


async def _come(port: int, crowd: Crowd, watch: _Watch, scale: float) -> list[Visitor]:
    """Everybody comes, one after another, does what this crowd does, and goes like that."""
    looking = asyncio.create_task(watch.look())
    visitors: list[Visitor] = []
    tasks: list[asyncio.Task[None]] = []
    stay_s = LINGER_SECONDS if scale >= 1 else crowd.stay_s
    whole = max(_SIZE_MIN, round(crowd.size * scale))
    for begin in range(0, whole, _AT_ONCE):
        size = min(_AT_ONCE, whole - begin)
        came = await asyncio.gather(*(_connect(port, crowd.text) for _ in range(size)))
        visitors += came
        tasks += [asyncio.create_task(_stay(crowd, visitor)) for visitor in came]
        await asyncio.sleep(size / _COMING_PER_SECOND)
    await asyncio.wait(tasks, timeout=stay_s)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for begin in range(0, len(visitors), _AT_ONCE):
        for visitor in visitors[begin : begin + _AT_ONCE]:
            visitor.writer.transport.abort()
        await asyncio.sleep(_AT_ONCE / _COMING_PER_SECOND)
    looking.cancel()
    await asyncio.wait([looking])
    return visitors


async def _connect(port: int, text: bytes) -> Visitor:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(text)
    return Visitor(reader, writer)


async def _stay(crowd: Crowd, visitor: Visitor) -> None:
    await crowd.then(visitor)


HARNESS = Harness(
    name="crowds",
    promise="10,000 idle, slow or greedy clients: / in 100 ms, bounded memory and connections",
    run=run,
    controls={"admit-everybody": partial(run, 0.1, bug="admit-everybody", crowds=CROWDS[:1])},
)
