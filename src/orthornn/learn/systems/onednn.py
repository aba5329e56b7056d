"""torch's LSTM in bfloat16 on processors for which oneDNN has none.

Under autocast torch rounds the arguments of an LSTM to bfloat16 after it has chosen oneDNN for them, and oneDNN has
that network for some instruction sets only: for others the call ends in an error. torch's own LSTM runs everywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ...kernels.interception import is_autocast


@contextmanager
def lstm_context(core: nn.Module) -> Iterator[None]:
    """Return the context in which to call a core: without oneDNN if it cannot compute an LSTM as autocast requires."""
    if not isinstance(core, nn.LSTM) or torch.compiler.is_compiling():
        yield
        return
    weight = next(core.parameters())
    if not weight.is_cpu or not is_autocast(weight) or computes_lstm(torch.get_autocast_dtype("cpu")):
        yield
        return
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)  # torch.backends.mkldnn.flags changes more than this, and warns of it
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@functools.cache
def computes_lstm(dtype: torch.dtype) -> bool:
    """Return whether torch computes an LSTM of one unit, and its gradient, under autocast in this dtype on the CPU."""
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", dtype):
        weights = [torch.zeros(4, 1, requires_grad=True) for _ in range(2)]
        state = torch.zeros(1, 1, 1)
        try:
            outputs, _, _ = torch.lstm(torch.zeros(1, 1, 1), (state, state), weights, False, 1, 0.0, True, False, False)
            outputs.sum().backward()
        except RuntimeError:
            return False
    return True
