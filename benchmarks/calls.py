"""What is asked beside holds: reads, the whole life of a thing, and one thing that all want."""

import time

from benchmarks.load import add_pair, compare, require_all_served
from benchmarks.processes import Program, module, scratch, service
from benchmarks.report import Benchmark, Sheet, Size, at_least
from benchmarks.seeding import HOUR_MS, seed

_BARE = "bare aiohttp"
_READ_SEATS = 1000
_AIMED = 64

_LOADS = {
    "GET at 1": ("get", 1, None),
    "GET at 64": ("get", _AIMED, at_least(0.9)),
    "mixed calls at 64": ("mixed", _AIMED, None),
    "holds of one hot ID at 64": ("hot", _AIMED, at_least(0.6)),
}


def measure(sheet: Sheet, size: Size) -> None:
    """Each round asks the bare application and the service in turn."""
    with scratch() as folder:
        database = folder / "calls.db"
        until = time.time_ns() // 1_000_000 + HOUR_MS
        seed(database, range(_READ_SEATS), lambda _: until)
        with (
            Program(module("bare_http"), folder) as bare,
            Program(service(database), folder) as ours,
        ):
            for _ in range(size.rounds):
                for name, (workload, connections, aim) in _LOADS.items():
                    pair = compare(
                        ours, bare, workload, connections=connections, seconds=size.seconds
                    )
                    if workload != "hot":
                        require_all_served(pair)
                    add_pair(sheet, name, pair, _BARE, aim)


BENCHMARK = Benchmark("calls", "GET, mixed calls, and one ID that all but one are refused", measure)
