"""A folder that a run writes, held by its descriptor: no link is followed, and nothing but named files is removed.

Every name is opened relative to the descriptor, so a run whose folder is renamed continues in the renamed folder,
and with O_NOFOLLOW, so links in it are not followed. A file that is appended to must be a regular file with one
name: a hard link would be a second name of a file elsewhere.

Windows opens no folders: there names are joined to the folder's path, a link is found by looking before opening, and a
run whose folder is renamed fails.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from .errors import CheckpointError, OrthornnError

BY_DESCRIPTOR = os.open in os.supports_dir_fd
# What a system lacks is 0. O_BINARY is for Windows, which would write \r\n for \n.
_NO_LINK, _ANYWAY = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_OPEN_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _ANYWAY
_KEPT_OUT = _NO_LINK | getattr(os, "O_NONBLOCK", 0) | _ANYWAY  # no link; no pipe that waits for a writer
_F_GETPATH = 50  # of macOS


class Folder:
    """An open folder; made by `open` or `inner`."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.descriptor = descriptor
        self._path = path
        self._close = weakref.finalize(self, _close, descriptor)

    @classmethod
    def open(cls, path: Path) -> Folder:
        """Open the folder that the user named, following links in that name. OSError if there is none."""
        return cls(_open_folder(path), path)

    @property
    def path(self) -> Path:
        """Return the current path of the folder: the path it was opened by, or its new path if it was renamed."""
        if self._base is not None and self._close.alive and not self._is_at(self._path):
            moved = _path_of(self.descriptor)
            if moved is not None and self._is_at(moved):
                self._path = moved
        return self._path

    def inner(self, name: str, create: bool = False) -> Folder:
        """Open a folder in this one. CheckpointError if it is a link or a file, FileNotFoundError if there is none."""
        with self._named(name):
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(self._at(name), dir_fd=self._base)
            self._refuse_link(name)
            return Folder(_open_folder(self._at(name), _NO_LINK, self._base), self._path / name)

    def names(self) -> list[str]:
        """Return the names in the folder, in order."""
        with self._named(""):
            return sorted(os.listdir(self._path if self._base is None else self._base))

    def has(self, name: str) -> bool:
        """Return whether there is anything of this name, be it a link that leads nowhere."""
        try:
            os.stat(self._at(name), dir_fd=self._base, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def check_own(self, name: str, is_folder: bool) -> None:
        """Raise CheckpointError if this name exists and is neither a folder nor a file without further hard links."""
        try:
            found = os.stat(self._at(name), dir_fd=self._base, follow_symlinks=False)
        except FileNotFoundError:
            return
        if not (stat.S_ISDIR(found.st_mode) if is_folder else stat.S_ISREG(found.st_mode)):
            raise self._not_own(name)
        if not is_folder and found.st_nlink > 1:
            raise self._shared(name)

    def open_to_append(self, name: str) -> int:
        """Return a descriptor to read `name` and to append to it; it is made if it is missing.

        Raises CheckpointError if it is a link, no regular file, or a file that has another name.
        """
        with self._named(name):
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | _KEPT_OUT
            self._refuse_link(name)
            descriptor = os.open(self._at(name), flags, 0o666, dir_fd=self._base)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            os.close(descriptor)
            raise self._shared(name) if stat.S_ISREG(found.st_mode) else self._not_own(name)
        return descriptor

    def _mode(self, name: str) -> int | None:
        """Return the permissions of a regular file, or None."""
        try:
            found = os.stat(self._at(name), dir_fd=self._base, follow_symlinks=False)
        except OSError:
            return None
        return stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) else None

    def write(self, name: str, write: Callable[[IO[bytes]], object], mode: int | None = None) -> None:
        """Let `write` fill a new file and flush it to the disk; a file or a link that has its name is removed first.

        mode: Permissions of the file, if they differ from the default for new files.
        """
        with self._named(name):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._at(name), dir_fd=self._base)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _ANYWAY
            with open(os.open(self._at(name), flags, 0o666, dir_fd=self._base), "wb") as file:
                if mode is not None and hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), mode)
                write(file)
                file.flush()
                os.fsync(file.fileno())

    def write_atomically(self, name: str, write: Callable[[IO[bytes]], object]) -> None:
        """Write a file next to `name`, flush it to the disk, and rename it to `name`.

        Whoever reads `name`, at any moment and after a crash, finds the old file or the whole new one.
        """
        in_main = threading.current_thread() is threading.main_thread()  # another thread may write the same file
        beside = f".{name}.{os.getpid()}" + ("" if in_main else f"-{threading.get_native_id()}")
        try:
            self.write(beside, write, self._mode(name))
            with self._named(name):
                os.replace(self._at(beside), self._at(name), src_dir_fd=self._base, dst_dir_fd=self._base)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(self._at(beside), dir_fd=self._base)
            raise
        self.sync()

    def rename(self, old: str, new: str) -> None:
        """Rename within the folder. OSError if `new` is a folder that is not empty."""
        with self._named(old):
            os.rename(self._at(old), self._at(new), src_dir_fd=self._base, dst_dir_fd=self._base)

    def remove(self, name: str) -> None:
        """Remove a file, or a link itself, if it is there."""
        with self._named(name), contextlib.suppress(FileNotFoundError):
            os.unlink(self._at(name), dir_fd=self._base)

    def remove_folder(self, name: str, files: Iterable[str]) -> bool:
        """Remove these files of a folder, and the folder if nothing else is in it; whether it is gone."""
        try:
            inside = self.inner(name)
        except FileNotFoundError:
            return True
        except OSError:  # a link or a file: not what the program made
            return False
        try:
            for file in files:
                with contextlib.suppress(OSError):
                    os.unlink(inside._at(file), dir_fd=inside._base)
            os.rmdir(self._at(name), dir_fd=self._base)
        except OSError:
            return False
        finally:
            inside.close()
        return True

    def sync(self) -> None:
        """Bring the names in the folder to the disk: a rename is not safe from a crash before that."""
        if self._base is not None:
            os.fsync(self._base)

    def close(self) -> None:
        """Close the descriptor; `path` stays what it was last."""
        if self._close.alive:
            _ = self.path
        self._close()

    @property
    def _base(self) -> int | None:
        """The descriptor that names are relative to; None if the system has none, and `_at` returns absolute paths."""
        return self.descriptor if self.descriptor >= 0 else None

    def _at(self, name: str) -> str | Path:
        return name if self.descriptor >= 0 else self._path / name

    def _refuse_link(self, name: str) -> None:
        if not _NO_LINK and os.path.islink(self._path / name):
            raise self._not_own(name)

    @contextlib.contextmanager
    def _named(self, name: str) -> Iterator[None]:
        """Raise errors that name the whole path, and a separate error for a link that is not allowed."""
        try:
            yield
        except OSError as error:
            if isinstance(error, OrthornnError):
                raise
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR) and name:
                raise self._not_own(name) from error
            if error.errno is None:
                raise
            raise type(error)(error.errno, error.strerror, str(self._path / name)) from error

    def _not_own(self, name: str) -> CheckpointError:
        return CheckpointError(
            f"Expected {self._path / name} to be a file or folder of the run itself, but got {self._kind(name)}. "
            f"Remove it, or replace it by the file it points to."
        )

    def _shared(self, name: str) -> CheckpointError:
        return CheckpointError(
            f"Expected {self._path / name} to be a file of this run only, but got a file with several names (hard links). "
            f"Replace it by a copy."
        )

    def _kind(self, name: str) -> str:
        try:
            mode = os.stat(self._at(name), dir_fd=self._base, follow_symlinks=False).st_mode
        except OSError:
            return "something else"
        kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a folder", stat.S_IFREG: "a file"}
        return kinds.get(stat.S_IFMT(mode), "a pipe, a socket or a device")

    def _is_at(self, path: Path) -> bool:
        try:
            return os.path.samestat(os.stat(path), os.fstat(self.descriptor))
        except OSError:
            return False


def _open_folder(path: str | Path, flags: int = 0, base: int | None = None) -> int:
    """Return a descriptor of a folder, or -1 if the system cannot open folders."""
    if BY_DESCRIPTOR:
        return os.open(path, _OPEN_FOLDER | flags, dir_fd=base)
    os.listdir(path)  # the same errors
    return -1


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


def _path_of(descriptor: int) -> Path | None:
    """Return the system's path of an open folder; None if the system does not report one."""
    try:
        if sys.platform == "darwin":
            import fcntl

            return Path(os.fsdecode(fcntl.fcntl(descriptor, _F_GETPATH, bytes(1024)).rstrip(b"\0")))
        return Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    except OSError:
        return None
