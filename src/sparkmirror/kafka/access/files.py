"""Files that client properties name, such as keystores: their contents as the driver has sent them, or as they are here."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_LARGEST: Final = 16 << 20
"""Truststores with all public authorities have 0.2 MiB."""


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file, and the property that names it."""

    key: str
    location: str
    is_followed: bool = True
    """Whether running copy tasks need a new content at once; otherwise the next job gets it."""


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """Where the files of client properties are read: what was sent counts, other files are read on this machine.

    Plans for the executors of a Spark cluster hold all contents. On a local master nothing is sent.
    """

    sent: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    """Contents by location."""

    def read(self, location: str) -> bytes:
        """The content of a file; OSError if it cannot be read, or is none that belongs to a client."""
        content = self._sent(location)
        return read_file(location) if content is None else content

    def stamp(self, location: str) -> Hashable:
        """Another value when the content is another; None for a file that is not there."""
        content = self._sent(location)
        return stamp(location) if content is None else content

    @contextmanager
    def path(self, location: str) -> Iterator[str]:
        """The file, for a library that takes no bytes."""
        content = self._sent(location)
        if content is None:
            require_file(location)
            yield location
            return
        with file_in_memory(content) as path:
            yield path

    def _sent(self, location: str) -> bytes | None:
        return next((content for name, content in self.sent if name == location), None)


HERE = ClientFiles()


def read_file(location: str) -> bytes:
    """Whoever may send a config names it: neither a device, nor a pipe that nobody writes to, nor gigabytes are read."""
    descriptor = os.open(location, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        _check(os.fstat(descriptor), location)
        return file.read(_LARGEST)


def require_file(location: str) -> None:
    """OSError if a library that opens the file by itself would read what `read_file` does not."""
    if Path(location).exists():
        _check(Path(location).stat(), location)


def _check(found: os.stat_result, location: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "Not a regular file", location)
    if found.st_size > _LARGEST:
        raise OSError(errno.EFBIG, f"Larger than {_LARGEST} bytes", location)


def stamp(location: str) -> tuple[int, ...] | None:
    """Another value when a file on this machine was written, replaced or given other rights; None if it is not there."""
    try:
        found = Path(location).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns


@contextmanager
def file_in_memory(content: bytes) -> Iterator[str]:
    """The path of a file that exists in the memory of this process only, until the block ends."""
    descriptor = os.memfd_create("client-file", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
