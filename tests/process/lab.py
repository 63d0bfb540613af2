"""The lab's story as one bash script: real curl and jq, a real server, real half minutes.

It takes the lab's own port, 8787, when nobody has it.
"""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.process.server import environment, json_documents

PORT = 8787
STORY_SECONDS_MAX = 100
_SCRIPT = Path(__file__).with_name("lab.sh")


class Story:
    """One telling in `folder`; `way` is the command that ends the runtime before its alarm."""

    def __init__(self, folder: Path, way: str) -> None:
        self.folder = folder
        self._port = _keep(PORT)
        script = _SCRIPT.read_text().replace(str(PORT), str(self._port.getsockname()[1]))
        (folder / "lab.sh").write_text(script.replace('\nkill "', f'\n{way} "'))
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "lab.sh"],
                cwd=folder,
                env=environment() | {"PYTHON": sys.executable},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def answers(self) -> list[Any]:
        """Everything that the story printed, once it is over."""
        assert self._process.wait(STORY_SECONDS_MAX) == 0, self._output.read_text()
        return list(json_documents(self._output.read_text()))

    def end(self) -> None:
        """Leave no process of the story behind: all are in its own session."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._port.close()


def _keep(port: int) -> socket.socket:
    """A socket that keeps `port`, or another free one, from everybody but a server told of it."""
    keeper = socket.socket()
    try:
        keeper.bind(("127.0.0.1", port))
    except OSError:
        keeper.bind(("127.0.0.1", 0))
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as that server does
    return keeper
