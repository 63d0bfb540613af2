"""What all commands share: refusals, options, and the settings that they work with."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from reservation_service.errors import StartupError

if TYPE_CHECKING:
    from reservation_service.config import Settings

NAME = "reservation-service"


class Refusal(click.ClickException):
    """Ends a command with status 1 and its sentences, a line for each."""

    def show(self, file: IO[Any] | None = None) -> None:
        for sentence in self.message.splitlines():
            click.echo(f"{NAME}: {sentence}", file=file, err=True)


database_option = click.option(
    "--database",
    type=click.Path(readable=False, path_type=Path),
    help="The SQLite file, relative to the working directory.  [storage.database]",
)
config_option = click.option(
    "--config",
    "file",
    type=click.Path(readable=False, path_type=Path),
    help="The configuration file; ./config.toml if there is one.",
)


@contextmanager
def refusals() -> Iterator[None]:
    """What the operator has to mend is told in a sentence."""
    from reservation_service.config import ConfigurationError  # noqa: PLC0415 - it takes long
    from reservation_service.keys.key_file import KeyFileError  # noqa: PLC0415 - it takes long

    try:
        yield
    except (ConfigurationError, KeyFileError, StartupError) as error:
        raise Refusal(str(error)) from error


def settings_of(file: Path | None, **options: object) -> "Settings":
    """The settings from file and environment, with these options of the command line on top."""
    from reservation_service import config  # noqa: PLC0415 - it takes long

    sections = {"host": "server", "port": "server", "database": "storage"}
    overrides: dict[str, dict[str, object]] = {}
    for key, value in options.items():
        if value is not None:
            overrides.setdefault(sections[key], {})[key] = value
    return config.load(file, overrides, os.environ)
