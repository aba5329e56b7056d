"""A trained network for real-time audio: a header-only C++17 class, and the weights as JSON.

`to_audio` writes orthornn_audio.hpp and NAME.json, which the class loads before audio starts. See docs/how_to/audio.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..._checks import check_flag, check_number
from ...errors import ArgumentError, NonFiniteError
from ..c import model_of, write_files
from ..c.folded import CForm, FoldedLayer, FoldedNetwork, fold_network
from ..c.module import check_against_module
from ..c.source import MARK
from ..c.text import check_identifier
from ..held_steps import warn_of_held_steps
from ..units import warn_of_large_offsets

__all__ = ["HEADER", "AudioExport", "to_audio"]

HEADER = Path(__file__).parent / "orthornn_audio.hpp"
"""The C++ class."""
_FASTEST = 1_000_000  # Hz
_CLASSES = {
    "identity": "Identity",
    "tanh": "Tanh",
    "scaled_tanh": "ScaledTanh",
    "relu": "ReLU",
    "modrelu": "ModReLU",
}


@dataclass(frozen=True)
class AudioExport:
    """The files written by `to_audio`.

    Attributes:
        files: Paths of the files.
        type: C++ type that matches the JSON.
        multiply_adds: Multiply-adds per sample.
        sample_rate: Sample rate of the training sounds; None if unknown.
    """

    files: tuple[Path, ...]
    type: str
    multiply_adds: int
    sample_rate: float | None = None


def to_audio(
    network: Any,
    folder: str | Path,
    *,
    name: str = "network",
    form: CForm = "auto",
    sample_rate: float | None = None,
    force: bool = False,
) -> AudioExport:
    """Write a network of one layer for the C++ class of orthornn_audio.hpp.

    Args:
        network: Same as for :func:`orthornn.export.to_c`, with one layer and identity, tanh, scaled_tanh, relu, or real
            modrelu.
        folder: Output folder; it is created if it does not exist.
        name: Name of the JSON file, without its suffix. Default: ``"network"``.
        form: ``"dense"``, ``"reflections"`` or ``"rotations"``; ``"auto"`` chooses the one with the fewest
            multiply-adds. Default: ``"auto"``.
        sample_rate: Sample rate of the training sounds; the class warns if the host runs at another rate. Default: the
            sample rate of the run, if `network` is a run trained on sounds.
        force: Replace files that orthornn did not write. Default: ``False``.

    Raises:
        ArgumentError: If the class does not support the network, if the network's ``forward`` computes more than its
            head and core, or if a file that orthornn did not write is in the way. Nothing is written then.
        NonFiniteError: If a weight is NaN, infinite, or beyond float32.

    Example::

        >>> import tempfile
        >>> from orthornn import Householder, OrthogonalRNN
        >>> rnn = OrthogonalRNN(1, 64, parametrization=Householder(reflections=8))
        >>> to_audio(rnn, tempfile.mkdtemp()).type
        'orthornn::Network<orthornn::Reflections<64, 8>, orthornn::ScaledTanh, 1, 64>'
    """
    check_identifier(name)
    check_flag("force", force)
    model, description = model_of(network)
    rate = (description or {}).get("sample_rate") if sample_rate is None else sample_rate
    rate = None if rate is None else check_number("sample_rate", rate, 1, _FASTEST)
    warn_of_large_offsets(description)
    warn_of_held_steps(description)
    folded = fold_network(model, description, form)
    if form == "auto" and folded.layers[0].form == "hadamard":  # the audio class has no transform
        folded = fold_network(model, description, "dense")
    _check(folded)
    check_against_module(folded, model, description)
    content = _json(folded, rate)
    files = {f"{name}.json": json.dumps(content) + "\n", HEADER.name: f"// {MARK}.\n{HEADER.read_text('utf-8')}"}
    layer = folded.layers[0]
    transition = f"DenseTransition<{layer.size}>"
    if layer.form != "dense":
        transition = f"Reflections<{layer.size}, {content['reflections']}>"
    kind = f"orthornn::Network<orthornn::{transition}, orthornn::{_CLASSES[layer.phi.name]}"
    sizes = (folded.input_size, folded.output_size)
    kind += ">" if sizes == (1, 1) else f", {sizes[0]}, {sizes[1]}>"
    return AudioExport(write_files(Path(folder), files, force), kind, folded.multiply_adds, rate)


def _check(network: FoldedNetwork) -> None:
    layer = network.layers[0]
    reasons = {
        "OrthogonalBlocks": bool(network.blocks),
        f"pool={network.reading.pool!r}": network.reading.pool != "last",
        "lags": network.reading.A is not None,
        "vectors of series": network.vectors is not None,
        f"{len(network.layers)} layers": len(network.layers) > 1,
        "tokens as input": network.tokens,
        f"nonlinearity={layer.phi.name!r}": layer.phi.name not in _CLASSES,
        "a perceptron as readout": network.H is not None,
        "a network that reads sequences in another order": network.order is not None,
        "form='hadamard'": layer.form == "hadamard",
        "linear_transition=True": layer.linear and layer.phi.name != "identity",
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if found:
        raise ArgumentError(
            f"Expected one layer with identity, tanh, scaled_tanh, relu, or real modrelu, but got {', '.join(found)}. The "
            f"audio class does not support such a network; to_c does."
        )


def _json(network: FoldedNetwork, sample_rate: float | None) -> dict[str, Any]:
    """Return the content of the file; matrices are rows of rows, as orthornn_audio.hpp stores them."""
    layer = network.layers[0]
    n = layer.size
    V, b = layer.V, np.zeros(n) if layer.b is None else layer.b
    if network.input_scale is not None and network.input_offset is not None:
        b, V = b + V @ network.input_offset, V * network.input_scale
    Y = np.eye(n) if network.Y is None else network.Y
    content: dict[str, Any] = {
        "format": "orthornn-audio-1",
        "generator": MARK,
        "nonlinearity": layer.phi.name,
        "inputs": network.input_size,
        "outputs": network.output_size,
        "units": n,
        "transition": "dense" if layer.form == "dense" else "reflections",
        "reflections": 0 if layer.U is None else layer.U.shape[1],
        **({} if sample_rate is None else {"sample_rate": sample_rate}),
    }
    weights = {
        **_transition(layer),
        "V": V.T,
        "b": b,
        "parameter": layer.parameter,
        "h0": layer.h0,
        "Y": Y,
        "d": network.d,
    }
    zeros = {"parameter": n, "d": network.output_size}
    for name, values in weights.items():
        found = np.zeros(zeros[name]) if values is None else values
        if not (np.abs(found) <= np.finfo(np.float32).max).all():
            raise NonFiniteError(
                f"Expected numbers that float32 can hold, but got larger ones in {name}. Retrain the network."
            )
        content[name] = np.asarray(found, np.float32).astype(np.float64).tolist()
    return content


def _transition(layer: FoldedLayer) -> dict[str, np.ndarray]:
    n = layer.size
    if layer.W is not None:
        return {"W": layer.W.T}
    c, s = (np.ones(n), np.zeros(n)) if layer.base is None else (layer.base.c, layer.base.s)
    if layer.U is None:
        return {"c": c, "s": s}
    gram = layer.U.T @ layer.U
    diagonal = np.where(gram.diagonal() > 0, gram.diagonal() / 2, 1)
    A = layer.U @ np.linalg.inv(np.triu(gram, 1) + np.diag(diagonal))
    return {"U": layer.U, "A": A.T, "c": c, "s": s}
