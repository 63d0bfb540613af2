"""The commands of operators: `status`, `list`, `show`, `tail`, `backup`, `check`.

The first four ask a running service; the key comes from the environment or a file, never from the
command line, which everybody on the machine can read. The last two read the database's file.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from reservation_service.command_line import (
    Refusal,
    config_option,
    database_option,
    refusals,
    settings_of,
)

if TYPE_CHECKING:
    from rich.console import Console

    from reservation_service.operating.remote import Remote
    from reservation_service.storage.backup import Checked

T = TypeVar("T")
Command = Callable[..., Any]

LIST_MAX = 100_000

json_option = click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")


def remote_options(command: Command) -> Command:
    """Where the service is, and who asks."""
    for option in (
        click.option(
            "--key-file",
            type=click.Path(path_type=Path),
            envvar="RESERVATION_SERVICE_KEY_FILE",
            help="A file with the key.  [or the key itself in RESERVATION_SERVICE_KEY]",
        ),
        click.option(
            "--url",
            default="http://127.0.0.1:8787",
            envvar="RESERVATION_SERVICE_URL",
            show_default=True,
            help="Where the service is.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@remote_options
@json_option
def status(url: str, key_file: Path | None, as_json: bool) -> int:
    """Show how the service is. The exit status is 1 while it is not ready."""
    from reservation_service.operating.overview import overview, show_overview  # noqa: PLC0415

    told, _ = _ask(url, key_file, overview)
    if as_json:
        _print_json(told)
    else:
        show_overview(told, _console())
    return 0 if told["ready"] else 1


@click.command("list")
@remote_options
@click.option(
    "--status",
    type=click.Choice(["held", "confirmed", "released", "expired"]),
    help="Only these.",
)
@click.option("--id-prefix", default="", help="How the ID begins.")
@click.option(
    "--limit",
    type=click.IntRange(1, LIST_MAX),
    default=50,
    show_default=True,
    help="How many at most.",
)
@json_option
def list_reservations(
    url: str, key_file: Path | None, limit: int, as_json: bool, **filters: Any
) -> None:
    """List reservations in the order of their deadlines."""
    from reservation_service.operating.timeline import find, show_list  # noqa: PLC0415

    found, now_ms = _ask(url, key_file, lambda remote: find(remote, limit, **filters))
    if as_json:
        _print_json(found)
    else:
        show_list(found, now_ms, _console())


@click.command()
@click.argument("reservation_id", metavar="ID")
@remote_options
@json_option
def show(reservation_id: str, url: str, key_file: Path | None, as_json: bool) -> None:
    """Show the reservation called ID and its history."""
    from reservation_service.operating.timeline import history, show_history  # noqa: PLC0415

    told, now_ms = _ask(url, key_file, lambda remote: history(remote, reservation_id))
    if as_json:
        _print_json(told)
    else:
        show_history(told, now_ms, _console())


@click.command()
@remote_options
@click.option("--reservation", "reservations", multiple=True, help="Only this one; repeatable.")
@click.option("--after", default="latest", show_default=True, help="A seq, or latest.")
@json_option
def tail(
    url: str, key_file: Path | None, reservations: Sequence[str], after: str, as_json: bool
) -> None:
    """Show events as they are committed, until Ctrl-C."""
    from reservation_service.operating.following import follow  # noqa: PLC0415

    async def print_all(remote: "Remote") -> None:
        async for kind, document in follow(remote, reservations, after):
            _print_event(kind, document, as_json=as_json)

    _ask(url, key_file, print_all)


@click.command()
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@database_option
@config_option
@json_option
def backup(target: Path, database: Path | None, file: Path | None, as_json: bool) -> None:
    """Copy the database to FILE, also while it is served, and verify the copy."""
    from reservation_service.operating.progress import showing_progress  # noqa: PLC0415
    from reservation_service.storage.backup import back_up  # noqa: PLC0415

    with refusals():
        source = settings_of(file, database=database).storage.database
        with showing_progress("copying") as tell:
            copied = back_up(source, target, tell)
    _report(target, copied, as_json=as_json)
    if copied.findings:
        raise Refusal(f"The copy of {source} is damaged, and so was not kept; see check.")


@click.command()
@database_option
@config_option
@json_option
def check(database: Path | None, file: Path | None, as_json: bool) -> int:
    """Look at every page of the database and at every invariant. The exit status is 1 if one is
    broken."""
    from reservation_service.storage.backup import check_database  # noqa: PLC0415

    with refusals():
        source = settings_of(file, database=database).storage.database
        checked = check_database(source)
    _report(source, checked, as_json=as_json)
    return 1 if checked.findings else 0


OPERATING = (status, list_reservations, show, tail, backup, check)


def _ask(url: str, key_file: Path | None, ask: Callable[["Remote"], Awaitable[T]]) -> tuple[T, int]:
    """What the service says, and its time."""
    from reservation_service.operating.remote import Remote  # noqa: PLC0415

    async def ask_it() -> tuple[T, int]:
        async with Remote(url, _key(key_file)) as remote:
            return await ask(remote), remote.now_ms

    with refusals():
        return asyncio.run(ask_it())


def _key(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get("RESERVATION_SERVICE_KEY") or None
    try:
        return file.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Refusal(f"The key file {file} cannot be read: {reason}.") from error


def _console() -> "Console":
    from rich.console import Console  # noqa: PLC0415

    return Console(highlight=False)


def _print_json(document: object) -> None:
    import msgspec  # noqa: PLC0415

    click.echo(msgspec.json.encode(document))


def _print_event(kind: str, document: Any, *, as_json: bool) -> None:
    from reservation_service.operating.timeline import event_line  # noqa: PLC0415

    if kind == "broken":
        click.echo(f"{document['reason']}; trying again", err=True)
    elif kind == "reset":
        click.echo(f"events before {document['oldest']} are gone", err=True)
    elif as_json:
        _print_json(document)
    else:
        click.echo(event_line(document))
    sys.stdout.flush()


def _report(database: Path, checked: "Checked", *, as_json: bool) -> None:
    if as_json:
        _print_json(
            {
                "database": str(database),
                "reservations": checked.reservations,
                "events": checked.events,
                "findings": checked.findings,
            }
        )
        return
    for finding in checked.findings:
        click.echo(finding)
    if not checked.findings:
        counted = f"{checked.reservations:,} reservations and {checked.events:,} events"
        click.echo(f"{database}: {counted}, nothing wrong")
