"""Export a trained network to ONNX, torch.export, plain tensors, C or C++.

The network is folded (every W is a plain matrix that includes the gain) and uses only real numbers: a complex state
becomes [Re h; Im h]. The recurrence is torch's scan, which keeps T and B dynamic. There are two graphs:

graph  inputs                                    outputs
model  x (T, B, I) float32, or (T, B) int64      y (T, B, O), or (B, O) if the network answers at the last step
step   x (B, I) or (B,), and state (S, B, N')    y (B, O), and the next state

The second graph is for streams. S is the number of layers, or twice that for an LSTM, whose state is h and c; N' is N,
or 2N for a complex state. The initial state is the tensor "state" of `weights`.

Unidirectional networks can be exported, including torch's RNN, GRU and LSTM if they have biases and no projection.
`to_c` writes C99 for microcontrollers, `machine_to_c` writes an exact machine of `orthornn.automata` as C99, and
`to_audio` writes the weights for a C++ class for real-time audio.
"""

from __future__ import annotations

from .audio import AudioExport, to_audio
from .c import CExport, RoundedNetwork, rounded, to_c
from .graphs import SequenceGraph, Step, example
from .layers import Gated, Plain, Recurrence
from .machine import machine_to_c
from .network import Network
from .onnx import to_onnx
from .safetensors import to_safetensors, weights
from .torch_export import to_torch_export
from .verify import check

__all__ = [
    "FORMATS",
    "AudioExport",
    "CExport",
    "Gated",
    "Network",
    "Plain",
    "Recurrence",
    "RoundedNetwork",
    "SequenceGraph",
    "Step",
    "check",
    "example",
    "machine_to_c",
    "rounded",
    "to_audio",
    "to_c",
    "to_onnx",
    "to_safetensors",
    "to_torch_export",
    "weights",
]

FORMATS = ("onnx", "torch-export", "safetensors")
