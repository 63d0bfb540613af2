"""What one sync of this disk costs: the part of an answer that no program can save."""

import os
import time
from pathlib import Path
from statistics import median

_PAGE = bytes(4096)
_PAGES = 256
_SYNCS = 50


def sync_ms(folder: Path, every_s: float = 0) -> float:
    """The median time of writing a page into a file that is there, and of its fdatasync.

    `every_s` is how long nothing is done before each: an idle disk, or machine, has to wake.
    """
    file = folder / "sync"
    file.write_bytes(_PAGE * _PAGES)
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.fsync(descriptor)
        return median(_sync(descriptor, number % _PAGES, every_s) for number in range(_SYNCS))
    finally:
        os.close(descriptor)


def _sync(descriptor: int, page: int, every_s: float) -> float:
    time.sleep(every_s)
    began = time.perf_counter()
    os.pwrite(descriptor, _PAGE, page * len(_PAGE))
    os.fdatasync(descriptor)
    return (time.perf_counter() - began) * 1000
