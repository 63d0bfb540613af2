"""Runs benchmarks: a table for each, the aims at the end, and all of it as JSON if asked.

The exit status is 1 when a benchmark could not run, not when an aim is missed: how fast a machine
is on a given day is no error.
"""

import importlib
import json
import os
import pkgutil
import platform
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import benchmarks
from benchmarks.processes import cores_used_by_others
from benchmarks.report import SHORT, Benchmark, CannotRun, Row, Sheet, Size
from benchmarks.table import as_document, render_table


def registered() -> dict[str, Benchmark]:
    """Every benchmark of the package by its name, in the order of the names."""
    names = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]
    modules = [
        importlib.import_module(f"{benchmarks.__name__}.{name}")
        for name in names
        if name != "__main__"
    ]
    found = [module.BENCHMARK for module in modules if hasattr(module, "BENCHMARK")]
    by_name = {benchmark.name: benchmark for benchmark in found}
    assert len(by_name) == len(found), [benchmark.name for benchmark in found]
    return dict(sorted(by_name.items()))


@click.command()
@click.argument("names", nargs=-1)
@click.option("--rounds", type=click.IntRange(min=1), help="5 by default, 1 when short.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write all figures there.")
@click.option("--short", is_flag=True, help="Tiny sizes: shows that all runs, measures nothing.")
@click.option("--list", "only_list", is_flag=True, help="Show what there is and exit.")
def main(
    names: tuple[str, ...],
    rounds: int | None,
    file: Path | None,
    short: bool,
    only_list: bool,
) -> None:
    """Measure what is called NAMES, everything by default."""
    chosen = _chosen(names)
    if only_list:
        for benchmark in chosen:
            click.echo(f"{benchmark.name:<12} {benchmark.measures}")
        return
    size = SHORT if short else Size()
    size = replace(size, rounds=rounds or size.rounds)
    measured = {benchmark.name: _measure(benchmark, size) for benchmark in chosen}
    _show_aims([row for rows in measured.values() for row in rows or []])
    if file is not None:
        file.write_text(json.dumps(_document(measured, size), indent=1, ensure_ascii=False) + "\n")
    sys.exit(1 if None in measured.values() else 0)


def _chosen(names: Iterable[str]) -> list[Benchmark]:
    known = registered()
    if unknown := sorted(set(names) - known.keys()):
        raise click.UsageError(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] or list(known.values())


def _measure(benchmark: Benchmark, size: Size) -> list[Row] | None:
    """The rows, printed as a table; None when the benchmark could not run."""
    click.echo(f"\n{benchmark.name}: {benchmark.measures}\n")
    sheet, began = Sheet(), time.monotonic()
    others = cores_used_by_others()
    try:
        benchmark.run(sheet, size)
    except CannotRun as reason:
        click.echo(f"  it cannot run here: {reason}")
        return None
    except Exception:  # noqa: BLE001 - the other benchmarks still run
        click.echo(f"  it broke:\n{traceback.format_exc()}")
        return None
    click.echo(render_table(sheet.rows))
    seconds = time.monotonic() - began
    click.echo(f"\n{seconds:.0f} s; others used {others():.2f} cores meanwhile")
    return sheet.rows


def _show_aims(rows: list[Row]) -> None:
    aimed = [row for row in rows if row.aim is not None]
    missed = [row for row in aimed if row.verdict != "reached"]
    click.echo(f"\n{len(aimed) - len(missed)} of {len(aimed)} aims reached")
    for row in missed:
        click.echo(f"  missed: {row.figure}, {row.unit}")


def _document(measured: dict[str, list[Row] | None], size: Size) -> dict[str, Any]:
    return {
        "taken_at": int(time.time()),
        "machine": {
            "cores": os.cpu_count(),
            "load": os.getloadavg(),
            "system": platform.platform(),
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
        },
        "rounds": size.rounds,
        "seconds": size.seconds,
        "share": size.share,
        "benchmarks": {
            name: None if rows is None else [as_document(row) for row in rows]
            for name, rows in measured.items()
        },
    }


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # programs are ended on the way out
    main()
