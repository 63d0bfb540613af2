"""What happens, as metrics: named events are counted, and what stands now is shown when asked for.

Every label has a bounded number of values: routes and statuses, kinds and triggers, outcomes and
error codes of the code itself, and never a reservation, a holder or a path.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from msgspec import Struct
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from reservation_service.clock import monotonic_s
from reservation_service.errors import ServiceError

M = TypeVar("M")
R = TypeVar("R")

# Each would double a series, to tell when its first sample was made.
disable_created_metrics()  # type: ignore[no-untyped-call]

_MS_PER_SECOND = 1000
_FINE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_LATE_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600, 3600)
_BATCH = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)

OUTCOMES = ("ok", "nothing-due", "failed", "timed-out")
"""What an attempt at an alarm may come to."""


class Standing(Struct, frozen=True):
    """What stands now; None is not known now, and is not shown."""

    queue_depth: int
    feed_readers: int
    clock_divergence_ms: int
    database_bytes: int
    wal_bytes: int
    pending: int | None = None
    overdue: int | None = None
    overdue_ms: int | None = None
    stuck: int | None = None
    transitions: Mapping[tuple[str, str], int] | None = None


_WRITER = "reservation_writer"


class Metrics:
    """All metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._standing = _StandingCollector()
        self._registry.register(self._standing)
        self._answers = _Answers()
        self._registry.register(self._answers)
        self._attempts = _Attempts()
        self._registry.register(self._attempts)
        self._commits = _Commits()
        self._registry.register(self._commits)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._paused = Gauge(
            "reservation_dispatch_paused",
            "1 while no alarm is dispatched, since nothing can be committed.",
            registry=self._registry,
        )
        self._commit_failures = Counter(
            "reservation_commit_failures",
            "Batches that were not committed, by the error's code.",
            ["code"],
            registry=self._registry,
        )
        self._purged = Counter(
            "reservation_purged",
            "Rows that retention removed.",
            ["table"],
            registry=self._registry,
        )
        self._lines_lost = Counter(
            "reservation_log_lines_lost",
            "Lines of the log that could not be written.",
            registry=self._registry,
        )
        self._observed: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "reservation-alarm": self._attempts.count,
            "dispatch-paused": lambda _: self._paused.set(1),
            "dispatch-resumed": lambda _: self._paused.set(0),
            "log-lines-lost": lambda fields: self._lines_lost.inc(fields["lines"]),
            "purged": self._count_purged,
        }

    def watch_writer(self, pid: int) -> None:
        """Tell of the writer's process, too."""
        ProcessCollector(_WRITER, lambda: pid, registry=self._registry)

    def count_event(self, name: str, fields: Mapping[str, Any]) -> None:
        """Count a named event, if it is one that is counted."""
        if count := self._observed.get(name):
            count(fields)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """A request was answered; `route` is a method and a pattern, never a path."""
        self._answers.count(route, status, seconds)

    def measured(
        self, write: Callable[[Sequence[M]], Awaitable[R]]
    ) -> Callable[[Sequence[M]], Awaitable[R]]:
        """The same `write` of a batch, counted and timed, from when the batch before was done."""
        done_at = 0.0

        async def measure(messages: Sequence[M]) -> R:
            nonlocal done_at
            began = monotonic_s()
            try:
                done = await write(messages)
            except ServiceError as error:
                self._commit_failures.labels(error.code).inc()
                raise
            began, done_at = max(began, done_at), monotonic_s()
            self._commits.seconds.count(done_at - began)
            self._commits.sizes.count(len(messages))
            return done

        return measure

    def render(self, standing: Standing) -> bytes:
        """Everything, in the text format of Prometheus."""
        self._standing.standing = standing
        return generate_latest(self._registry)

    def _count_purged(self, fields: Mapping[str, Any]) -> None:
        self._purged.labels("event").inc(fields["events"])
        self._purged.labels("reservation").inc(fields["reservations"])


class _Spread:
    """A histogram in plain numbers: only the event loop counts here, and a lock costs more."""

    __slots__ = ("_by_bucket", "_total", "_upto")

    def __init__(self, upto: Sequence[float]) -> None:
        self._upto = upto
        self._by_bucket = [0] * (len(upto) + 1)
        self._total = 0.0

    def count(self, value: float) -> None:
        self._by_bucket[bisect_left(self._upto, value)] += 1
        self._total += value

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str] = ()) -> None:
        bounds = [*(str(float(bound)) for bound in self._upto), "+Inf"]
        counts = accumulate(self._by_bucket)
        family.add_metric(labels, list(zip(bounds, counts, strict=True)), self._total)


class _Answers(Collector):
    """Requests, by route."""

    def __init__(self) -> None:
        self._statuses: defaultdict[str, defaultdict[int, int]] = defaultdict(_counts)
        self._seconds: defaultdict[str, _Spread] = defaultdict(lambda: _Spread(_FINE_S))

    def count(self, route: str, status: int, seconds: float) -> None:
        self._statuses[route][status] += 1
        self._seconds[route].count(seconds)

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "reservation_http_requests",
            "Requests answered, by route and status.",
            labels=["route", "status"],
        )
        durations = HistogramMetricFamily(
            "reservation_http_request_seconds",
            "From a request's head to its answer, by route; a stream lasts until its end.",
            labels=["route"],
        )
        for route, statuses in self._statuses.items():
            for status, count in statuses.items():
                requests.add_metric([route, str(status)], count)
            self._seconds[route].add_to(durations, [route])
        yield from (requests, durations)


class _Attempts(Collector):
    """Attempts at alarms."""

    def __init__(self) -> None:
        self._outcomes = dict.fromkeys(OUTCOMES, 0)
        self._lateness_s = _Spread(_LATE_S)

    def count(self, fields: Mapping[str, Any]) -> None:
        self._outcomes[fields["outcome"]] += 1
        if not fields["is_retry"]:
            self._lateness_s.count(fields["lateness_ms"] / _MS_PER_SECOND)

    def collect(self) -> Iterator[Metric]:
        attempts = CounterMetricFamily(
            "reservation_alarm_attempts",
            "Attempts at alarms, by what they came to.",
            labels=["outcome"],
        )
        for outcome, count in self._outcomes.items():
            attempts.add_metric([outcome], count)
        lateness = HistogramMetricFamily(
            "reservation_alarm_lateness_seconds",
            "From the time an alarm was set to, to the end of its first attempt.",
        )
        self._lateness_s.add_to(lateness)
        yield from (attempts, lateness)


class _Commits(Collector):
    """Batches that were committed."""

    def __init__(self) -> None:
        self.seconds, self.sizes = _Spread(_FINE_S), _Spread(_BATCH)

    def collect(self) -> Iterator[Metric]:
        seconds = HistogramMetricFamily(
            "reservation_commit_seconds", "A batch, from the event loop to the disk and back."
        )
        self.seconds.add_to(seconds)
        sizes = HistogramMetricFamily(
            "reservation_commit_batch_size", "Messages that shared a transaction."
        )
        self.sizes.add_to(sizes)
        yield from (seconds, sizes)


def _counts() -> defaultdict[int, int]:
    return defaultdict(int)


class _StandingCollector(Collector):
    """Shows what `standing` says."""

    standing: Standing | None = None

    def collect(self) -> Iterator[Metric]:
        now = self.standing
        if now is None:
            return
        for name, told, value in (
            ("alarms_pending", "Alarms that are planned.", now.pending),
            ("alarms_overdue", "Alarms that are due now, counted up to 1,000.", now.overdue),
            ("alarms_overdue_seconds", "How long the oldest of them is due.", _s(now.overdue_ms)),
            ("alarms_stuck", "Alarms that keep failing, counted up to 1,000.", now.stuck),
            ("commit_queue_depth", "Changes that wait for a batch.", now.queue_depth),
            ("feed_readers", "Open streams of events.", now.feed_readers),
            (
                "clock_divergence_seconds",
                "The wall clock less the service's time.",
                _s(now.clock_divergence_ms),
            ),
            ("database_bytes", "Size of the database file.", now.database_bytes),
            ("wal_bytes", "Length of the write-ahead log's file.", now.wal_bytes),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"reservation_{name}", told, value)
        if now.transitions is not None:
            yield _transitions(now.transitions)


def _transitions(counts: Mapping[tuple[str, str], int]) -> Metric:
    family = CounterMetricFamily(
        "reservation_transitions",
        "Events recorded since the start, by what happened and what made it happen.",
        labels=["kind", "trigger"],
    )
    for labels, count in sorted(counts.items()):
        family.add_metric(labels, count)
    return family


def _s(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / _MS_PER_SECOND
