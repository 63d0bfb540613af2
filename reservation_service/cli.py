"""The command line: `serve`, `keys`, `migrate`, `demo`, `destroy`, and what operators ask with.

Exit status 0 is success, 1 a refusal told in one sentence on standard error, 2 a command line
that is not understood, 130 an interruption. A mistake of the operator never shows a stack trace.

What takes long to import is imported by the command that needs it: help comes at once, and Ctrl-C
finds somebody who handles it.
"""

import asyncio
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from reservation_service.command_line import (
    NAME,
    Refusal,
    config_option,
    database_option,
    refusals,
    settings_of,
)
from reservation_service.operating.commands import OPERATING

if TYPE_CHECKING:
    from reservation_service.config import Settings
    from reservation_service.keys.key_file import KeyFile

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status."""
    try:
        status = commands.main(arguments, prog_name=NAME, standalone_mode=False) or 0
    except click.Abort:
        click.echo(f"{NAME}: interrupted", err=True)
        status = INTERRUPTED
    except click.ClickException as refusal:
        refusal.show()
        status = refusal.exit_code
    sys.exit(status)


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        try:
            click.echo(f"{NAME} {metadata.version(NAME)}")
        except metadata.PackageNotFoundError as error:
            raise Refusal(
                "Only an installed package has a version, and this one is not."
            ) from error
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def commands() -> None:
    """Reservations that release themselves, by one durable alarm each."""


@commands.command()
@click.option("--host", help="The address to listen on.  [server.host]")
@click.option("--port", type=int, help="The port, 0 for any free one.  [server.port]")
@database_option
@config_option
def serve(host: str | None, port: int | None, database: Path | None, file: Path | None) -> int:
    """Run the service until SIGTERM or Ctrl-C."""
    from reservation_service import service  # noqa: PLC0415 - see above

    with refusals():
        settings = settings_of(file, host=host, port=port, database=database)
        return asyncio.run(service.serve(settings))


@commands.command()
@database_option
@config_option
def migrate(database: Path | None, file: Path | None) -> None:
    """Bring the database up to date; `serve` does it too."""
    from reservation_service import service  # noqa: PLC0415 - see above

    with refusals():
        settings = settings_of(file, database=database)
        applied = asyncio.run(service.migrate(settings))
    for name in applied:
        click.echo(f"applied {name}")
    if not applied:
        click.echo(f"{settings.storage.database} is up to date")


@commands.command()
def demo() -> int:
    """Kill the service and watch its reservations expire all the same, in less than 40 s.

    Works on a scratch database of its own and leaves nothing behind. The exit status is 0 only
    if every promise was kept.
    """
    from reservation_service.demo import run  # noqa: PLC0415 - see above

    return run()


@commands.command()
@database_option
@config_option
@click.option("--yes", "name", metavar="NAME", help="Confirm in advance, for scripts.")
def destroy(database: Path | None, file: Path | None, name: str | None) -> None:
    """Delete every reservation for good.

    The service must be stopped. Asks for the name of the namespace, service.name in the
    configuration. Until the database file is removed, `serve` then answers 410 to everything.
    """
    from reservation_service import service  # noqa: PLC0415 - see above

    with refusals():
        settings = settings_of(file, database=database)
        _confirm(settings, name)
        deleted = asyncio.run(service.destroy(settings))
    click.echo(f"deleted {deleted} reservations from {settings.storage.database}")


@commands.group()
def keys() -> None:
    """Say who may call: add a key, list them, revoke one.

    They are in a small file beside the database. A running service follows it within a second.
    """


@keys.command("add")
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(["reserve", "operate"]),
    required=True,
    help="reserve: a hold's own calls; operate: replays, lists and other people's holds, too.",
)
@database_option
@config_option
def add_key(name: str, scope: str, database: Path | None, file: Path | None) -> None:
    """Make a key called NAME and show its token, this one time."""
    from reservation_service.access import Scope  # noqa: PLC0415 - see above
    from reservation_service.clock import BootClock  # noqa: PLC0415 - see above

    with refusals():
        token = _key_file(file, database).add(name, Scope(scope), BootClock().now())
    click.echo(token)
    click.echo("Keep it as a secret; it is not shown again.", err=True)


@keys.command("list")
@database_option
@config_option
def list_keys(database: Path | None, file: Path | None) -> None:
    """Show every key: its name, its scope and since when there is it; no tokens."""
    from reservation_service.clock import utc_text  # noqa: PLC0415 - see above

    with refusals():
        known = _key_file(file, database).read() or ()
    for key in known:
        click.echo(f"{key.name:<40} {key.scope:<8} {utc_text(key.created_at)}")


@keys.command("revoke")
@click.argument("name")
@database_option
@config_option
def revoke_key(name: str, database: Path | None, file: Path | None) -> None:
    """Take the key called NAME back, for good."""
    with refusals():
        _key_file(file, database).revoke(name)
    click.echo(f"revoked {name}")


for command in OPERATING:
    commands.add_command(command)


def _key_file(file: Path | None, database: Path | None) -> "KeyFile":
    from reservation_service.keys.key_file import KeyFile  # noqa: PLC0415 - see above

    return KeyFile(settings_of(file, database=database).storage.database)


def _confirm(settings: "Settings", name: str | None) -> None:
    if name is None:
        name = _ask(settings)
    if name != settings.service.name:
        raise Refusal("That is not the name of the namespace; nothing was deleted.")


def _ask(settings: "Settings") -> str:
    target = f"{settings.service.name} in {settings.storage.database}"
    click.echo(f"This deletes every reservation of {target} for good.", err=True)
    try:
        return str(click.prompt("Type its name to go on", default="", show_default=False, err=True))
    except click.Abort as error:
        click.echo(err=True)
        raise Refusal("No name was typed; nothing was deleted.") from error
