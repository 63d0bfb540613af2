"""The kill-and-restart demo: a real server, killed for real, and what it promises all the same.

It works on a scratch database and a free port, takes less than 40 s, and leaves neither process
nor file behind, also when it is interrupted.
"""

import asyncio
import signal
import tempfile
from pathlib import Path

from rich.console import Console

from reservation_service.demo.server import Server
from reservation_service.demo.stage import Stage
from reservation_service.demo.story import tell

TERMINATED = 128 + signal.SIGTERM


def run() -> int:
    """Tell the whole story on the terminal; 0 only if every promise was kept."""
    with tempfile.TemporaryDirectory(prefix="reservation-demo-") as scratch:
        try:
            return asyncio.run(_perform(Path(scratch)))
        except asyncio.CancelledError:
            return TERMINATED


async def _perform(scratch: Path) -> int:
    _end_on(signal.SIGTERM, signal.SIGHUP)
    server = Server(scratch)
    stage = Stage(Console())
    try:
        with stage:
            await tell(stage, server)
    finally:
        await server.kill()
    return stage.verdict()


def _end_on(*signals: signal.Signals) -> None:
    """End like Ctrl-C does: by cancellation, so that everything is cleaned up."""
    task = asyncio.current_task()
    assert task is not None
    for number in signals:
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
