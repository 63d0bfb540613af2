"""Durable holds over HTTP, beside an application that stores nothing."""

from functools import partial

from benchmarks.disk import sync_ms
from benchmarks.load import Pair, add_pair, compare, drive, require_all_served
from benchmarks.processes import Program, module, scratch, service
from benchmarks.report import Aim, Benchmark, Beside, Sheet, Size, at_least, at_most

_CONNECTIONS = (1, 16, 64, 256)
_AIMED = 64
_BARE = "bare aiohttp"
_COMMITTED = f"{_BARE} that commits"
_BETWEEN_LONE_S = 0.001
"""About as long as the disk is idle between two holds of one connection."""


def measure(sheet: Sheet, size: Size) -> None:
    """Each round asks the bare application and the service in turn."""
    with (
        scratch() as folder,
        Program(module("bare_http"), folder) as bare,
        Program(module("bare_http", folder / "bare.db"), folder) as committed,
        Program(service(folder / "holds.db"), folder) as ours,
        Program(service(folder / "logged.db"), folder, log__access=True) as logged,
    ):
        for _ in range(size.rounds):
            sync = sync_ms(folder, _BETWEEN_LONE_S)
            sheet.add("1 sync of the disk", "ms", sync)
            for connections in _CONNECTIONS:
                at = partial(compare, connections=connections, seconds=size.seconds)
                name, pair = f"holds at {connections}", at(ours, bare, "hold")
                _add(sheet, name, pair, at_least(0.9) if connections == _AIMED else None)
                if connections == 1:
                    limit = Beside(f"{_BARE} + 1 sync", pair.reference.p50_ms + sync)
                    p50 = pair.ours.p50_ms
                    sheet.add(f"{name}: p50", "ms", p50, limit, at_most(0.3, factor=1))
                    least = drive(committed, "hold", connections, size.seconds)
                    sheet.add(f"{name}: p50", "ms", p50, Beside(_COMMITTED, least.p50_ms))
            at = partial(compare, connections=_AIMED, seconds=size.seconds)
            name = f"holds at {_AIMED}"
            _add(sheet, f"{name}, without a holder", at(ours, bare, "hold_anonymous"))
            _add(sheet, f"{name}, with an access log", at(logged, bare, "hold"))


def _add(sheet: Sheet, name: str, pair: Pair, aim: Aim | None = None) -> None:
    require_all_served(pair)
    add_pair(sheet, name, pair, _BARE, aim)


BENCHMARK = Benchmark(
    "holds", "durable holds/s over HTTP at 1, 16, 64 and 256 connections", measure
)
