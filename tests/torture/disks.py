"""Disks that can lose their power or be full: small file systems mounted for one attack.

They need root (and ext4 a loop device); every mount is undone, whatever happens meanwhile.
"""

import errno
import fcntl
import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.process.server import eventually
from tests.torture.report import CannotRun

_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
_MIB = 1024 * 1024
_LEFT_OVER = "ballast"


class Mount:
    """A mounted file system; `folder` is where. It dies some time before its processes do.

    In that time Linux may tell them of one more sync that it did not do: in 14 of 300 cuts of a
    program that only wrote and synced, always after the cut had begun. When the power really goes,
    nobody lives to hear that; what processes say then binds nobody.
    """

    agony_s = 0.2

    def __init__(self, source: str, folder: Path, kind: str, options: str) -> None:
        self.folder = folder
        self.variables: dict[str, str] = {}
        self._command = ["mount", "-t", kind, "-o", options, source, str(folder)]
        self._mount()

    def cut(self) -> None:
        """Cut the power: what the disk was not told to keep is gone, its journal too."""
        opened = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(opened, _EXT4_IOC_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(opened)

    def revive(self) -> None:
        """Give the power back: mount anew, which replays the file system's own journal."""
        self.unmount()
        self._mount()

    def fill(self) -> None:
        """Leave no free byte."""
        opened = os.open(self.folder / _LEFT_OVER, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for size in (_MIB, 4096, 1):
                while _could_write(opened, size):
                    pass
        finally:
            os.close(opened)

    def free(self) -> None:
        """Give the space back."""
        (self.folder / _LEFT_OVER).unlink()

    def unmount(self) -> None:
        eventually(lambda: _run("umount", str(self.folder)) == "")

    def _mount(self) -> None:
        if complaint := _run(*self._command):
            raise CannotRun(f"mounting needs root and a loop device ({complaint})")


@contextmanager
def ext4(megabytes: int, options: str = "loop") -> Iterator[Mount]:
    """A fresh ext4 on a loop device. Raises CannotRun."""
    with _folder() as folder:
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(megabytes * _MIB)
        if complaint := _run("mkfs.ext4", "-q", "-F", "-m", "0", str(image)):
            raise CannotRun(f"an ext4 cannot be made ({complaint})")
        with _mounted(str(image), folder / "disk", "ext4", options) as mount:
            yield mount


@contextmanager
def tmpfs(megabytes: int) -> Iterator[Mount]:
    """A file system in memory. Raises CannotRun."""
    with (
        _folder() as folder,
        _mounted("tmpfs", folder / "disk", "tmpfs", f"size={megabytes}m") as mount,
    ):
        yield mount


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="torture-") as name:
        yield Path(name)


@contextmanager
def _mounted(source: str, folder: Path, kind: str, options: str) -> Iterator[Mount]:
    folder.mkdir()
    mount = Mount(source, folder, kind, options)
    try:
        yield mount
    finally:
        if folder.is_mount() and _run("umount", str(folder)):
            _run("umount", "--lazy", str(folder))


def _could_write(opened: int, size: int) -> bool:
    try:
        return os.write(opened, bytes(size)) > 0
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return False
        raise


def _run(*command: str) -> str:
    """What a command complains about; nothing when it went well."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        return f"{command[0]} is not installed"
    return "" if done.returncode == 0 else (done.stderr or "it failed").splitlines()[0]
