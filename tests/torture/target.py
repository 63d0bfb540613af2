"""The server under attack: the ordinary one, or one with a planted bug, and its access log off."""

import subprocess
import sys
from pathlib import Path

from tests.process.server import Server


class Target(Server):
    """A server process; `bug` names one of `planted.BUGS`, `variables` go into its environment."""

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

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def exit_status(self, patience_s: float) -> int | None:
        """The status with which it ends on its own, None when it goes on."""
        try:
            return self.wait(patience_s)
        except subprocess.TimeoutExpired:
            return None
