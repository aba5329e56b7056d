"""The trained model of a run directory, with its configuration."""

from __future__ import annotations

from pathlib import Path

from ...saved.network import load_network
from ...saved.run_files import CONFIG, check_is_run
from ..systems import SequenceModel
from ..training.config import RunConfig, read_config


def load_model(path: str | Path, which: str | int = "last") -> tuple[RunConfig, SequenceModel]:
    """Return the configuration of a run and its model in eval mode; see `orthornn.saved.network.load_network`."""
    check_is_run(Path(path))
    return read_config(Path(path) / CONFIG), load_network(path, which).model
