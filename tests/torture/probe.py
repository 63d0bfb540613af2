"""A bystander in a process of its own: what an ordinary client notices while others attack.

It asks at a steady pace for as long as its parent keeps its standard input open:
`python -m tests.torture.probe PORT PATH PER_SECOND` prints its figures at the end.
"""

import asyncio
import itertools
import json
import subprocess
import sys
import threading
from functools import partial
from typing import Self

from tests.process.server import PATIENCE_S, ROOT, environment
from tests.torture.clients import OpenLoop, get

CONNECTIONS = 64
OK = 200
SECONDS_MAX = 600.0
_WARM_UP_S = 0.25


class Probe:
    """Within `with` somebody asks; afterwards the figures of it are there, in milliseconds."""

    def __init__(self, port: int, path: str = "/", per_second: int = 40) -> None:
        self.answers = 0
        self.failures: dict[str, int] = {}
        self.p50_ms = self.p99_ms = self.worst_ms = 0.0
        self._command = [
            *(sys.executable, "-m", "tests.torture.probe"),
            *(str(port), path, str(per_second)),
        ]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        try:
            figures = self._process.communicate(timeout=2 * PATIENCE_S)[0]
        finally:
            self._process.kill()
        vars(self).update(json.loads(figures))

    @property
    def percentiles(self) -> str:
        return f"{self.p50_ms:.0f} / {self.p99_ms:.0f} / {self.worst_ms:.0f}"


async def _probe(port: int, path: str, per_second: int) -> dict[str, object]:
    requests = itertools.repeat(get(path))
    warm_up = OpenLoop(port, requests, CONNECTIONS)
    await warm_up.run(per_second, _WARM_UP_S)
    await warm_up.settle()
    warm_up.close()
    print("ready", flush=True)  # noqa: T201 - this is what its parent waits for
    loop = OpenLoop(port, requests, CONNECTIONS)
    stop = partial(asyncio.get_running_loop().call_soon_threadsafe, loop.stop)
    threading.Thread(target=lambda: (sys.stdin.read(), stop()), daemon=True).start()
    await loop.run(per_second, SECONDS_MAX)
    tally = await loop.settle()
    loop.close()
    failures = {f"{status}": count for status, count in tally.statuses.items() if status != OK}
    failures |= {"broken": tally.broken, "unsent": tally.unsent}
    return {
        "answers": tally.statuses[OK],
        "failures": {what: count for what, count in failures.items() if count},
        "p50_ms": tally.percentile_ms(50),
        "p99_ms": tally.percentile_ms(99),
        "worst_ms": tally.percentile_ms(100),
    }


if __name__ == "__main__":
    port, path, per_second = sys.argv[1:]
    figures = asyncio.run(_probe(int(port), path, int(per_second)))
    sys.stdout.write(json.dumps(figures))
