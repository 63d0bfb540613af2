"""Commands run in the test's own process: they do the same, and nobody waits for an interpreter."""

import os
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from unittest.mock import patch

from reservation_service import cli
from tests.process.server import environment

Ended = subprocess.CompletedProcess[str]


def run(*arguments: str, **variables: str) -> Ended:
    """Run a command line to its end, with `variables` in its environment."""
    out, err = TextIOWrapper(BytesIO(), "utf-8"), TextIOWrapper(BytesIO(), "utf-8")
    surroundings = patch.dict(os.environ, environment() | variables, clear=True)
    with surroundings, redirect_stdout(out), redirect_stderr(err):
        try:
            cli.main(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
    return Ended(arguments, status, _written(out), _written(err))


def _written(text: TextIOWrapper) -> str:
    text.seek(0)
    return text.read()


def keys(database: Path, *arguments: str) -> str:
    """What `keys` prints; a token is all of it where one was made."""
    ended = run("keys", *arguments, "--database", str(database))
    ended.check_returncode()
    return ended.stdout.strip()
