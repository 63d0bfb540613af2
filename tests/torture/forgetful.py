"""A disk that forgets what it was not told to sync, and fails when it is told to: no root needed.

The library in `shim/disk.c` logs what the service does to its files. A power cut keeps what was
synced, and of all that came later what the disk felt like: nothing, or some sectors of some writes.
A failed sync promises nothing, not even when the next one succeeds: that is what Linux does.
"""

import errno
import random
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from tests.torture.report import CannotRun

_HEAD = struct.Struct("<IIQQ")
_SECTOR_BYTES = 512
_SOURCE = Path(__file__).parent / "shim" / "disk.c"


class Kind(IntEnum):
    """As in the library."""

    WRITE = 1
    TRUNCATE = 2
    SYNC = 3
    FAILED_SYNC = 4
    UNLINK = 5


class Step(NamedTuple):
    """One thing that the service did to one file."""

    kind: Kind
    path: Path
    offset: int
    data: bytes


class ForgetfulDisk:
    """A folder whose contents a power cut may take; `variables` let a server live on it."""

    agony_s = 0.0

    def __init__(self, folder: Path, library: Path, random_bits: random.Random) -> None:
        self.folder = folder
        self._random = random_bits
        self._log = library.with_name("log")
        self._faults = library.with_name("faults")
        self._before: dict[Path, bytes] = {}
        self._faults.mkdir()
        self.variables = {
            "LD_PRELOAD": str(library),
            "DISK_FOLDER": str(folder),
            "DISK_LOG": str(self._log),
            "DISK_FAULTS": str(self._faults),
        }
        self.remember()

    def remember(self) -> None:
        """Take the files as they are for safe; no server runs."""
        files = [path for path in self.folder.iterdir() if path.is_file()]
        self._before = {path: path.read_bytes() for path in files}
        self._log.unlink(missing_ok=True)

    def cut(self) -> None:
        """The power is gone with the process; what is left is made up when it comes back."""

    def revive(self) -> None:
        """Make the files what a power cut might have left of them."""
        steps = list(_steps(self._log))
        is_harsh = self._random.random() < 0.5
        after = {path: bytearray(content) for path, content in self._before.items()}
        for step, is_safe in zip(steps, _safe(steps), strict=True):
            if is_safe:
                _apply(after, step)
            elif not is_harsh:
                self._apply_some(after, step)
        for path in self.folder.iterdir():
            path.unlink()
        for path, content in after.items():
            path.write_bytes(content)
        self.remember()

    def fill(self) -> None:
        """From now on every write finds the disk full."""
        self.fail("write", errno.ENOSPC)

    def free(self) -> None:
        self.heal()

    def fail(self, call: str, error: int, suffix: str = "", *, once: bool = False) -> None:
        """From now on `call` (write, read, sync) fails for files that end with `suffix`."""
        plan = self._faults / "plan"
        plan.write_text(f"{error} {suffix}")
        plan.rename(self._faults / (f"{call}-once" if once else call))

    def is_failing(self) -> bool:
        """Whether a fault is still planted; one that hits once is gone when it has."""
        return any(self._faults.iterdir())

    def heal(self) -> None:
        for fault in self._faults.iterdir():
            fault.unlink(missing_ok=True)

    def _apply_some(self, after: dict[Path, bytearray], step: Step) -> None:
        """Apply a step that was never synced: all of it, nothing, or some sectors."""
        fate = self._random.choice(("all", "nothing", "some"))
        if fate == "all" or (fate == "some" and step.kind is not Kind.WRITE):
            _apply(after, step)
        elif fate == "some":
            for start in range(0, len(step.data), _SECTOR_BYTES):
                if self._random.random() < 0.5:
                    sector = step.data[start : start + _SECTOR_BYTES]
                    _apply(after, step._replace(offset=step.offset + start, data=sector))


@contextmanager
def forgetful_disk(seed: int = 1) -> Iterator[ForgetfulDisk]:
    """A fresh one in a temporary folder. Raises CannotRun without gcc."""
    with tempfile.TemporaryDirectory(prefix="torture-") as name:
        top = Path(name).resolve()
        (top / "disk").mkdir()
        yield ForgetfulDisk(top / "disk", _compile(top), random.Random(seed))


def _compile(folder: Path) -> Path:
    compiler, library = shutil.which("gcc"), folder / "disk.so"
    if compiler is None:
        raise CannotRun("gcc is not installed")
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", library, _SOURCE, "-ldl"], check=True, timeout=60)
    return library


def _steps(log: Path) -> Iterator[Step]:
    text = log.read_bytes() if log.exists() else b""
    at = 0
    while at + _HEAD.size <= len(text):
        kind, path_bytes, offset, data_bytes = _HEAD.unpack_from(text, at)
        start = at + _HEAD.size
        at = start + path_bytes + data_bytes
        if at > len(text):
            return  # the process was killed in the middle of its last record
        path = text[start : start + path_bytes].decode()
        yield Step(Kind(kind), Path(path), offset, text[start + path_bytes : at])


def _safe(steps: list[Step]) -> list[bool]:
    """Which steps a power cut cannot take: those that the next sync of their file was good for.

    A removal is kept by a sync of the folder.
    """
    synced: dict[Path, bool] = {}
    safe = []
    for step in reversed(steps):
        if step.kind in (Kind.SYNC, Kind.FAILED_SYNC):
            synced[step.path] = step.kind is Kind.SYNC
        owner = step.path.parent if step.kind is Kind.UNLINK else step.path
        safe.append(synced.get(owner, False))
    return safe[::-1]


def _apply(after: dict[Path, bytearray], step: Step) -> None:
    if step.kind is Kind.UNLINK:
        after.pop(step.path, None)
    elif step.kind in (Kind.WRITE, Kind.TRUNCATE):
        content = after.setdefault(step.path, bytearray())
        content.extend(bytes(max(0, step.offset - len(content))))
        end = len(content) if step.kind is Kind.TRUNCATE else step.offset + len(step.data)
        content[step.offset : end] = step.data
