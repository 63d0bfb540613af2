"""The server under attack: the ordinary one, or one with a planted bug, and its access log off."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.process.server import Server, wall_ms


class Disk(Protocol):
    """Where a database can be, and the environment that a server needs there."""

    folder: Path
    variables: dict[str, str]


class Target(Server):
    """A server process; `bug` names one of `planted.BUGS`, `variables` go into its environment."""

    patience_s = 30.0  # attacks have neighbours

    def __init__(
        self,
        folder: Path,
        database: Path | None = None,
        *,
        bug: str | None = None,
        variables: dict[str, str] | None = None,
        **settings: object,
    ) -> None:
        super().__init__(folder, database, **{"log__access": False} | settings)
        if bug is not None:
            _, _, _, *arguments = self.command
            self.command = [sys.executable, "-m", "tests.torture.planted", bug, *arguments]
        self.variables = variables or {}

    def overdue(self) -> int:
        """How many holds are over by the wall clock, and have not expired."""
        late = f"status = 'held' AND expires_at <= {wall_ms()}"
        return int(self.query(f"SELECT count(*) FROM reservation WHERE {late}")[0][0])

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def exit_status(self, patience_s: float) -> int | None:
        """The status with which it ends on its own, None when it goes on."""
        try:
            return self.wait(patience_s)
        except subprocess.TimeoutExpired:
            return None


@contextmanager
def target_on(disk: Disk, bug: str | None = None, **settings: object) -> Iterator[Target]:
    """A target with its database on `disk` and what it complains about elsewhere; it is ended."""
    database = disk.folder / "reservations.db"
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        target = Target(Path(folder), database, bug=bug, variables=disk.variables, **settings)
        try:
            yield target
        finally:
            target.end()
