"""Runs harnesses and their controls; exit status 1 when a promise is broken or a control missed.

What cannot run here is told in one sentence and counts as broken: nothing is skipped silently.
"""

import importlib
import pkgutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress

import click

from tests import torture
from tests.torture.report import CannotRun, Harness, Report

SHOWN_MAX = 20
"""Violations that are printed of one run."""


def harnesses() -> dict[str, Harness]:
    """Every harness of the package by its name, in the order of the names."""
    names = [module.name for module in pkgutil.iter_modules(torture.__path__)]
    modules = [importlib.import_module(f"{torture.__name__}.{name}") for name in names]
    found = [module.HARNESS for module in modules if hasattr(module, "HARNESS")]
    by_name = {harness.name: harness for harness in found}
    assert len(by_name) == len(found), [harness.name for harness in found]
    return dict(sorted(by_name.items()))


@click.command()
@click.argument("names", nargs=-1)
@click.option("--short", is_flag=True, help="The versions of the test suite.")
@click.option("--scale", type=click.FloatRange(min=0, min_open=True), help="1.0 is the long one.")
@click.option("--list", "only_list", is_flag=True, help="Show what there is and exit.")
def main(names: tuple[str, ...], short: bool, scale: float | None, only_list: bool) -> None:
    """Attack the service by the harnesses called NAMES, all of them by default."""
    chosen = _chosen(names)
    if only_list:
        for harness in chosen:
            click.echo(f"{harness.name:<20} {harness.promise}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # mounts are undone on the way out
    scales = [scale or (harness.short if short else 1.0) for harness in chosen]
    kept = [attack(*pair) for pair in zip(chosen, scales, strict=True)]
    click.echo(f"{sum(kept)} of {len(kept)} promises kept")
    sys.exit(0 if all(kept) else 1)


def _chosen(names: Iterable[str]) -> list[Harness]:
    known = harnesses()
    if unknown := sorted(set(names) - known.keys()):
        raise click.UsageError(f"no harness {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] or list(known.values())


def attack(harness: Harness, scale: float) -> bool:
    """Run one harness and all its controls, and print what they found; True when it holds."""
    click.echo(f"{harness.name}: {harness.promise}")
    report = _run(lambda: harness.run(scale))
    for name, figure in report.figures.items():
        click.echo(f"    {name:<40} {_shown(figure):>12}")
    for violation in report.violations[:SHOWN_MAX]:
        click.echo(f"    VIOLATION {violation}")
    missed = [name for name, run in harness.controls.items() if not _is_caught(name, run)]
    kept = not report.violations and not missed
    detail = f"{len(report.violations)} violations, {len(missed)} controls missed"
    click.echo(f"  {harness.name}: {'KEPT' if kept else 'BROKEN'}, {detail}\n")
    return kept


def _is_caught(name: str, run: Callable[[], Report]) -> bool:
    try:
        violations = run().violations
    except Exception as error:  # noqa: BLE001 - a control that breaks has caught nothing
        click.echo(f"    control {name:<32}       BROKE {error!r:.200}")
        traceback.print_exc()
        return False
    verdict = f"caught: {violations[0]}" if violations else "MISSED"
    click.echo(f"    control {name:<32} {verdict}")
    return bool(violations)


def _run(run: Callable[[], Report]) -> Report:
    began = time.monotonic()
    try:
        report = run()
    except CannotRun as reason:
        return Report(violations=[f"it cannot run here: {reason}"])
    except Exception as error:  # noqa: BLE001 - the other harnesses still run
        traceback.print_exc()
        return Report(violations=[f"the harness itself broke: {error!r:.200}"])
    report.figures["seconds"] = round(time.monotonic() - began, 1)
    return report


def _shown(figure: float | str) -> str:
    return figure if isinstance(figure, str) else f"{figure:,}"


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main()
