"""Where the databases of tests live: in memory, where the system has a file system for that.

These tests are about what the service does, and it waits for the disk at every commit.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_MEMORY = Path("/dev/shm")


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A new directory, gone at the end."""
    is_there = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)
    with TemporaryDirectory(prefix="reservation-", dir=_MEMORY if is_there else None) as name:
        yield Path(name)
