"""The budget of one hold: the service cut off below each of its layers, one after the other.

What a layer costs is the difference to the row before it.
"""

from contextlib import ExitStack
from pathlib import Path

from benchmarks.disk import sync_ms
from benchmarks.load import drive
from benchmarks.processes import Program, module, scratch, service
from benchmarks.report import Benchmark, Beside, Sheet, Size
from benchmarks.seeding import open_durable

_CONNECTIONS = 64
_PARTIAL = ("web", "group commit", "process", "SQLite")


def measure(sheet: Sheet, size: Size) -> None:
    """Each round goes down the layers."""
    with scratch() as folder, ExitStack() as running:
        programs = {
            layer: running.enter_context(Program(command, folder))
            for layer, command in _commands(folder).items()
        }
        for _ in range(size.rounds):
            above, name = None, ""
            for layer, program in programs.items():
                load = drive(program, "hold", _CONNECTIONS, size.seconds)
                assert load.refused == 0, (layer, load)
                upper = above or load
                rate, cpu, loop = (
                    Beside(name or layer, value)
                    for value in (upper.per_second, upper.cpu_us, upper.loop_us)
                )
                sheet.add(f"down to {layer}: holds", "1/s", load.per_second, rate)
                sheet.add(f"down to {layer}: CPU each", "µs", load.cpu_us, cpu)
                sheet.add(f"down to {layer}: event loop each", "µs", load.loop_us, loop)
                above, name = load, layer


def _commands(folder: Path) -> dict[str, list[str]]:
    sync = sync_ms(folder)
    databases = {layer: folder / f"{number}.db" for number, layer in enumerate(_PARTIAL)}
    for database in databases.values():
        open_durable(database).close()
    partial = {
        layer: module("partial_service", layer, database, sync)
        for layer, database in databases.items()
    }
    whole = service(folder / "whole.db")
    return {"bare aiohttp": module("bare_http")} | partial | {"the disk": whole}


BENCHMARK = Benchmark("layers", "what each layer adds to a hold at 64 connections", measure)
