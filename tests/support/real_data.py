"""Where real data lie, if they do: beside the repository, or where ORTHORNN_DATA says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REAL_DATA = Path(os.environ.get("ORTHORNN_DATA", Path(__file__).parents[3] / "shared" / "data"))


def needs(folder: str):
    """Skip a test unless this folder of real data is there."""
    path = REAL_DATA / folder
    return pytest.mark.skipif(not path.is_dir(), reason=f"no data in {path}; set ORTHORNN_DATA to their folder")
