"""Five times what it can do, planned regardless of answers: it refuses at once and stays itself.

Three bottlenecks: the processor, with nothing slowed down; a disk that takes its time, met by the
limit on requests in flight; the same disk, met by the limit on changes that wait for it.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.support.invariants import violations
from tests.torture.clients import Answer, Client, OpenLoop, Tally, hold
from tests.torture.planted_service import SLOW_BATCH_S
from tests.torture.report import Harness, Report
from tests.torture.scratch import Neighbours, allowed, resident_mib, scratch
from tests.torture.target import Target

OVERLOAD = 5
SECONDS, _SECONDS_MIN = 30.0, 1.5
ACCEPTED_P99_MS_MAX = 2000.0
REFUSED_P99_MS_MAX = 1000.0
NORMAL_AGAIN_SECONDS = 2.0
GROWN_MIB_MAX = 128
CONNECTIONS = 1900
_CAPACITY_CLIENTS = 64
_CAPACITY_SECONDS = 3.0
_CALM = 0.2
_CALM_SECONDS, _CALM_SECONDS_MIN = 5.0, 1.0
_BATCH = 10
_ROOM = 40
"""One second's work of the slow disk."""


@dataclass(frozen=True)
class Bottleneck:
    """What cannot be more, and the settings under which it is met."""

    name: str
    bug: str | None
    settings: Mapping[str, object]
    per_second: float | None = None
    """What it can do, when that need not be measured."""


SLOW = {"writer__batch_max": _BATCH}
DISK_PER_SECOND = _BATCH / SLOW_BATCH_S
PROCESSOR = Bottleneck("processor", None, {})
IN_FLIGHT = Bottleneck(
    "requests in flight", "slow-disk", SLOW | {"server__requests_max": _ROOM}, DISK_PER_SECOND
)
QUEUE = Bottleneck(
    "queue of the writer",
    "slow-disk",
    SLOW | {"server__requests_max": 100_000, "writer__queue_max": _ROOM},
    DISK_PER_SECOND,
)
UNBOUNDED = Bottleneck(
    "nothing",
    "slow-disk",
    SLOW | {"server__requests_max": 100_000, "writer__queue_max": 1_000_000},
    DISK_PER_SECOND,
)


def run(scale: float, *, bottlenecks: list[Bottleneck] | None = None) -> Report:
    """Each bottleneck; the processor's own only in the long version, it needs the machine."""
    report = Report()
    ordinary = [PROCESSOR, IN_FLIGHT, QUEUE] if scale >= 1 else [IN_FLIGHT, QUEUE]
    for bottleneck in bottlenecks or ordinary:
        with scratch(bug=bottleneck.bug, **bottleneck.settings) as target:
            target.start()
            with Neighbours(target) as neighbours:
                asyncio.run(_Overload(target, report, bottleneck, scale).run())
            report.figures[f"{bottleneck.name}: cores used by others"] = neighbours.cores
            target.stop()
            report.violations += violations(target.database)
    return report


class _Overload:
    """One bottleneck under attack."""

    def __init__(
        self, target: Target, report: Report, bottleneck: Bottleneck, scale: float
    ) -> None:
        self._target = target
        self._report = report
        self._bottleneck = bottleneck
        self._scale = scale
        self._acknowledged: set[str] = set()
        self._badly_refused = 0
        self._memory_mib = 0
        self._numbers = iter(range(100_000_000))

    async def run(self) -> None:
        """Calm, five times too much, and calm again."""
        capacity = self._bottleneck.per_second or await self._capacity()
        self._figure("can do per s", round(capacity))
        before_mib = resident_mib(self._target)
        calm_s = max(_CALM_SECONDS_MIN, _CALM_SECONDS * self._scale)
        calm = await self._load(capacity * _CALM, calm_s)
        crowd = await self._load(capacity * OVERLOAD, max(_SECONDS_MIN, SECONDS * self._scale))
        self._check_the_crowd(crowd)
        grown = self._memory_mib - before_mib
        self._figure("memory grown MiB", grown)
        self._require(grown <= GROWN_MIB_MAX, f"the memory has grown by {grown} MiB")
        await asyncio.sleep(NORMAL_AGAIN_SECONDS)
        self._check_normal(calm, await self._load(capacity * _CALM, calm_s))
        kept = {name for (name,) in self._target.query("SELECT id FROM reservation")}
        self._require(self._acknowledged <= kept, f"{len(self._acknowledged - kept)} are lost")

    async def _capacity(self) -> float:
        """How many holds clients get that wait for each other's answers."""
        until, before = time.monotonic() + _CAPACITY_SECONDS, len(self._acknowledged)

        async def hold_until_over() -> None:
            client = await Client.connect(self._target.port)
            while time.monotonic() < until:
                request = next(self._requests())
                if (answer := await client.ask(request)) is not None:
                    self._take(request, answer)
            client.hang_up()

        await asyncio.gather(*(hold_until_over() for _ in range(_CAPACITY_CLIENTS)))
        return (len(self._acknowledged) - before) / _CAPACITY_SECONDS

    async def _load(self, per_second: float, seconds: float) -> Tally:
        loop = OpenLoop(self._target.port, self._requests(), CONNECTIONS, self._take)
        watching = asyncio.create_task(self._watch())
        await loop.run(per_second, seconds)
        tally = await loop.settle()
        watching.cancel()
        loop.close()
        return tally

    def _requests(self) -> Iterator[bytes]:
        while True:
            yield hold(f"seat-{next(self._numbers):08}", 3600)

    def _take(self, request: bytes, answer: Answer) -> None:
        if answer.status == 201:
            self._acknowledged.add(request[19:32].decode())
        elif answer.status == 503:
            wait, code = answer.header("Retry-After"), answer.document["code"]
            self._badly_refused += not wait or code != "overloaded"

    async def _watch(self) -> None:
        while True:
            self._memory_mib = max(self._memory_mib, resident_mib(self._target))
            await asyncio.sleep(0.2)

    def _check_the_crowd(self, crowd: Tally) -> None:
        statuses = {str(status): count for status, count in sorted(crowd.statuses.items())}
        self._figure("answers", str(statuses).replace("'", ""))
        self._figure("planned, unsent, broken", f"{crowd.planned}, {crowd.unsent}, {crowd.broken}")
        self._figure("generator behind s, at most", round(crowd.behind_s, 2))
        accepted, refused = crowd.percentile_ms(99, 201), crowd.percentile_ms(99, 503)
        self._figure("accepted p99 ms", accepted)
        self._figure("refused p50, p99 ms", f"{crowd.percentile_ms(50, 503)}, {refused}")
        bound = allowed(ACCEPTED_P99_MS_MAX, self._scale)
        self._require(accepted <= bound, f"the accepted took {accepted} ms (p99)")
        bound = allowed(REFUSED_P99_MS_MAX, self._scale)
        self._require(refused <= bound, f"the refused took {refused} ms (p99)")
        self._require(set(crowd.statuses) <= {201, 503}, f"answers {crowd.statuses}")
        self._require(crowd.statuses[201] > 0, "nothing was accepted any more")
        self._require(crowd.statuses[503] > 0, "nothing was refused: this was no overload")
        self._require(crowd.broken == 0, f"{crowd.broken} lost their connection")
        self._require(self._badly_refused == 0, f"{self._badly_refused} refusals were not clear")

    def _check_normal(self, before: Tally, after: Tally) -> None:
        was, became = before.percentile_ms(50, 201), after.percentile_ms(50, 201)
        self._figure("calm p50 ms, before and after", f"{was}, {became}")
        self._require(set(after.statuses) == {201}, f"afterwards it answers {after.statuses}")
        bound = allowed(max(3 * was, 50), self._scale)
        self._require(became <= bound, f"afterwards a hold takes {became} ms, before {was} ms")

    def _figure(self, name: str, value: Any) -> None:
        self._report.figures[f"{self._bottleneck.name}: {name}"] = value

    def _require(self, kept: bool, violation: str) -> None:
        self._report.require(kept, f"{self._bottleneck.name}: {violation}")


HARNESS = Harness(
    name="overload",
    promise="5 times too much: 503 at once, p99 of the accepted <= 2 s, normal again in 2 s",
    run=run,
    controls={"no-limit": partial(run, 0.05, bottlenecks=[UNBOUNDED])},
    short=0.05,
)
