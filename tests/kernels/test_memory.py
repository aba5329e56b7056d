"""Memory modes: the same outputs and gradients as everything kept, from fewer numbers, at awkward sizes."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from cases import Case
from test_conformance import BACKENDS, DEVICE, DTYPES, check, close, poisoned_memory, refused

from orthornn import activations
from orthornn.errors import ArgumentError, OrthornnWarning
from orthornn.kernels import dense_rnn, memory, native, segments
from orthornn.kernels.compact_wy.recurrence import COMPACT_WY
from orthornn.kernels.dense.recurrence import DENSE
from tolerances import tolerance

__all__ = ["poisoned_memory"]
KINDS = ["dense", "packed", "matrix"]
UNDOABLE = ["identity", "modrelu", "complex_modrelu", "oplu"]


@pytest.mark.parametrize("activation", activations.ACTIVATIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_checkpoint_agrees_with_the_oracle(backend, kind, activation):
    for packed in (False, True):
        for output in ("all", "last"):
            for segment in (None, 3):
                case = Case(kind, activation, n=10, m=3, packed=packed, output=output, inputs=1)
                check(replace(case, memory="checkpoint", segment=segment), backend, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", UNDOABLE)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_reverse_agrees_with_the_oracle(backend, kind, activation, dtype):
    for packed in (False, True):
        for output in ("all", "last"):
            for segment in (None, 3):
                case = Case(kind, activation, n=10, m=3, packed=packed, output=output, grows=True)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")  # neither refused nor found inaccurate
                    check(replace(case, memory="reverse", segment=segment), backend, dtype)
