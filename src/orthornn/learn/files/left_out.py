"""Names of files and folders that hold no data: an operating system, an editor or a program put them there.

Every reader of folders and archives leaves them out: hidden ones, whose names begin with a dot (.ipynb_checkpoints,
.Trash-1000, the ._x.wav of macOS), and these, in either case:
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from ..._warnings import warn
from .cells import listed

NAMES = (
    *("__macosx", "icon\r", "network trash folder", "temporary items"),  # macOS
    *("$recycle.bin", "recycler", "system volume information", "thumbs.db", "desktop.ini"),  # Windows
    *("lost+found", "@eadir", "@recycle", "#recycle", "#snapshot"),  # Linux, and storage on a network
    *("__pycache__", "_background_noise_"),  # Python; Speech Commands, whose long noises belong to no class
)
_MOST = 5  # in a message


def is_left_out(path: Path | str) -> bool:
    """Return whether a path inside a folder, or of a member of an archive, has such a name in it."""
    parts = path.parts if isinstance(path, Path) else PurePosixPath(path).parts
    return any(part.startswith(".") or part.lower() in NAMES for part in parts)


def warn_of_left_out(folder: Path, names: Sequence[str], reason: str = "") -> None:
    """Warn of sounds in a folder that are not read, by their paths in it; do nothing if there are none.

    reason: Why. Default: because of their names.
    """
    if names:
        several = len(names) > 1
        reason = reason or f"because of {'their names' if several else 'its name'}"
        warn(
            f"{folder}: {len(names)} sound{'s are' if several else ' is'} left out {reason}: "
            f"{listed(sorted(names), _MOST)}. To silence this, remove {'them' if several else 'it'}; to read "
            f"{'them' if several else 'it'}, rename the folder or the file."
        )
