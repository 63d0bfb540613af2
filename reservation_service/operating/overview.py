"""`status`: how the service is, out of its readiness and its metrics, on one screen."""

import asyncio
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from reservation_service.operating.remote import Remote

_OK = "ok"
_PREFIX = "reservation_"

Overview = dict[str, Any]


async def overview(remote: Remote) -> Overview:
    """What `status` shows. Raises RemoteError."""
    service, readiness, metrics = await asyncio.gather(
        remote.document("/"), remote.document("/readyz", also=503), remote.text("/metrics")
    )
    samples = _Samples(metrics)
    return {
        "service": service["service"],
        "ready": readiness.get("status") == "ready",
        "checks": readiness["checks"],
        "alarms": {
            "pending": samples.whole("alarms_pending"),
            "overdue": samples.whole("alarms_overdue"),
            "overdueSeconds": samples.value("alarms_overdue_seconds"),
            "stuck": samples.whole("alarms_stuck"),
            "paused": bool(samples.value("dispatch_paused")),
            "attempts": samples.by("alarm_attempts_total", "outcome"),
            "lateUpTo": samples.quantiles("alarm_lateness_seconds"),
        },
        "transitions": samples.by("transitions_total", "kind", "trigger"),
        "commits": {
            "batches": samples.whole("commit_seconds_count"),
            "messages": samples.whole("commit_batch_size_sum"),
            "waiting": samples.whole("commit_queue_depth"),
            "failures": samples.by("commit_failures_total", "code"),
            "secondsUpTo": samples.quantiles("commit_seconds"),
        },
        "requests": samples.by("http_requests_total", "route", "status"),
        "feedReaders": samples.whole("feed_readers"),
        "clockDivergenceSeconds": samples.value("clock_divergence_seconds"),
        "databaseBytes": samples.whole("database_bytes"),
        "walBytes": samples.whole("wal_bytes"),
    }


def show_overview(told: Overview, console: Console) -> None:
    """For people."""
    state = "[green]ready[/]" if told["ready"] else "[red]not ready[/]"
    console.print(f"[bold]{told['service']}[/] is {state}")
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for name, text in _rows(told):
        table.add_row(name, text)
    console.print(table)


def _rows(told: Overview) -> list[tuple[str, str]]:
    alarms, commits = told["alarms"], told["commits"]
    wrong = {name: why for name, why in told["checks"].items() if why != _OK}
    return [
        ("checks", _pairs(wrong) or "all ok"),
        (
            "alarms",
            f"{_number(alarms['pending'])} pending, {_number(alarms['overdue'])} overdue"
            f" (by {_number(alarms['overdueSeconds'])} s), {_number(alarms['stuck'])} stuck"
            + (", dispatch is paused" if alarms["paused"] else ""),
        ),
        ("attempts", _pairs(alarms["attempts"])),
        ("lateness", _quantiles(alarms["lateUpTo"])),
        ("transitions", _pairs(told["transitions"])),
        ("commits", f"{_number(commits['messages'])} in {_number(commits['batches'])} batches"),
        ("waiting", _number(commits["waiting"])),
        ("commit time", _quantiles(commits["secondsUpTo"])),
        ("failures", _pairs(commits["failures"]) or "none"),
        ("feed readers", _number(told["feedReaders"])),
        ("clock", f"{_number(told['clockDivergenceSeconds'])} s from the wall clock"),
        ("files", f"{_size(told['databaseBytes'])}, write-ahead log {_size(told['walBytes'])}"),
    ]


class _Samples:
    """A scrape, asked by names without their prefix."""

    def __init__(self, text: str) -> None:
        self._samples = [
            (sample.name.removeprefix(_PREFIX), sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.startswith(_PREFIX)
        ]

    def value(self, name: str) -> float | None:
        return next((value for known, _, value in self._samples if known == name), None)

    def whole(self, name: str) -> int | None:
        value = self.value(name)
        return None if value is None else int(value)

    def by(self, name: str, *labels: str) -> dict[str, int]:
        """Its values by their labels, those that are zero left out."""
        return {
            " ".join(given[label] for label in labels): int(value)
            for known, given, value in self._samples
            if known == name and value
        }

    def quantiles(self, name: str) -> dict[str, float | None]:
        """The bucket that half of all are in or below, and that 99 of 100 are."""
        buckets = [
            (float(labels["le"]), value)
            for known, labels, value in self._samples
            if known == f"{name}_bucket"
        ]
        total = max((count for _, count in buckets), default=0)
        return {
            f"p{part}": next(
                (le for le, count in buckets if total and count * 100 >= total * part), None
            )
            for part in (50, 99)
        }


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {_number(value)}" for name, value in values.items())


def _quantiles(values: dict[str, float | None]) -> str:
    return ", ".join(
        f"{part} {'unknown' if value is None else f'up to {value:g} s'}"
        for part, value in values.items()
    )


def _number(value: float | str | None) -> str:
    if value is None:
        return "unknown"
    return value if isinstance(value, str) else f"{value:,g}" if value % 1 else f"{int(value):,}"


def _size(value: int | None) -> str:
    return "unknown" if value is None else f"{value / 1_048_576:,.1f} MiB"
