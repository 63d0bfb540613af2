"""What one sync of this disk costs: the part of an answer that no program can save."""

import itertools
import os
import time
from contextlib import closing
from pathlib import Path
from statistics import median

_PAGE = bytes(4096)
_PAGES = 256
_SYNCS = 50


class SyncedFile:
    """A file that is there already, of which one page after another is written and synced."""

    def __init__(self, file: Path) -> None:
        file.write_bytes(_PAGE * _PAGES)
        self._descriptor = os.open(file, os.O_RDWR)
        self._pages = itertools.cycle(range(_PAGES))
        os.fsync(self._descriptor)

    def write(self) -> None:
        """Write a page, and wait until the disk has it."""
        os.pwrite(self._descriptor, _PAGE, next(self._pages) * len(_PAGE))
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def sync_ms(folder: Path, every_s: float = 0) -> float:
    """The median of some syncs."""
    return median(syncs_ms(folder, _SYNCS, every_s))


def syncs_ms(folder: Path, count: int, every_s: float = 0) -> list[float]:
    """The times of writing a page into a file that is there, and of its fdatasync.

    `every_s` is how long nothing is done before each: an idle disk, or machine, has to wake.
    """
    with closing(SyncedFile(folder / "sync")) as file:
        return [_write_ms(file, every_s) for _ in range(count)]


def _write_ms(file: SyncedFile, every_s: float) -> float:
    time.sleep(every_s)
    began = time.perf_counter()
    file.write()
    return (time.perf_counter() - began) * 1000
