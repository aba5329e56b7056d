"""One writer per run: advisory locks that the system releases when their process ends, however it ends.

Both the folder and the file `.lock` in it are locked: the file says who writes, and the folder stays locked when the
file is removed or the folder renamed. A file system that locks no folders (NFS) has the file's lock only. A system
without flock (Windows) has no locks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket

from ..._folder import Folder
from ..._warnings import warn
from ...errors import LockedError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
_LONGEST = 200  # bytes of the owner's name


class Lock:
    """Take the locks of a run's folder, which stays open as long as they are held.

    Raises:
        LockedError: If another process has one; the message names it.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        folder_is_locked = _lock(folder.descriptor, folder)
        self._file = folder.open_to_append(NAME)
        try:
            if not (_lock(self._file, folder) or folder_is_locked):
                place = "this system" if fcntl is None else f"the file system of {folder.path}"
                warn(
                    f"{place} has no locks, so a second process that writes this run would go unnoticed. Start only one. "
                    f"Silence this with warnings.filterwarnings('ignore', category=orthornn.errors.OrthornnWarning)."
                )
            os.ftruncate(self._file, 0)
            os.write(self._file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let others write. The folder's lock goes when it is closed, or here."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            with contextlib.suppress(OSError):
                if fcntl is not None:
                    fcntl.flock(self._folder.descriptor, fcntl.LOCK_UN)


def _lock(descriptor: int, folder: Folder) -> bool:
    """Return whether the lock was acquired; False if the file system does not support locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
            raise LockedError(
                f"{folder.path} is being written by {_owner(folder)}. Wait for it or stop it; the lock goes with its "
                f"process."
            ) from error
        return False  # ENOLCK, EOPNOTSUPP, ENOSYS; of a folder on NFS EBADF
    return True


def _owner(folder: Folder) -> str:
    if not folder.has(NAME):
        return "another process"
    try:
        file = folder.open_to_append(NAME)
    except OSError:
        return "another process"
    try:
        text = os.read(file, _LONGEST).decode("utf-8", "replace").strip()
    finally:
        os.close(file)
    return text if text.isprintable() and text else "another process"
