"""Downloads of published files: fetched once, checked against their sums, and put in place atomically."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orthornn._optional_packages import import_optional
from orthornn.errors import DataError

_BAR = 30  # characters


class Bar:
    """The progress of one file on stderr, in the form that pooch asks for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.total = 0
        self.done = 0

    def update(self, count: int) -> None:
        """Note that `count` more bytes have arrived."""
        self.done += count
        self._show("\r")

    def reset(self) -> None:
        """Begin again at 0."""
        self.done = 0

    def close(self) -> None:
        """Note that the file is complete."""
        self._show("\r", "\n")

    def _show(self, before: str, after: str = "") -> None:
        if not sys.stderr.isatty():
            return
        share = self.done / self.total if self.total else 0.0
        filled = "#" * round(_BAR * min(share, 1.0))
        megabytes = f"{self.done / 1e6:.1f} of {self.total / 1e6:.1f} MB"
        print(f"{before}{self.name} [{filled:<{_BAR}}] {megabytes}", end=after, file=sys.stderr, flush=True)


def downloader(pooch: Any, bar: Bar) -> Any:
    """Return pooch's downloader with the bar."""
    return pooch.HTTPDownloader(progressbar=bar, timeout=30)


def fetch_missing(folder: Path, sources: Mapping[str, tuple[str, str]]) -> None:
    """Download each file that `folder` lacks.

    sources: by file name, its address and checksum ("sha256:..." or "md5:...").

    Raises:
        DataError: If a file cannot be downloaded or has another checksum; the message has its name and address.
    """
    missing = {name: source for name, source in sources.items() if not (folder / name).exists()}
    if not missing:
        return
    pooch = import_optional("pooch", "data", "downloads")
    for name, (url, known) in missing.items():
        print(f"fetching {url} to {folder / name}", file=sys.stderr)
        try:
            pooch.retrieve(url, known, fname=name, path=folder, downloader=downloader(pooch, Bar(name)))
        except Exception as error:  # requests has many, and pooch raises ValueError for a wrong sum
            raise DataError(
                f"Expected to fetch {url}, but got: {error} Fetch {name} by other means and put it into {folder}, "
                f"or name the folder that has it with data, --data FOLDER."
            ) from error
