"""The dense chain alone: the sequential part of the forward and of the backward pass, by the compiled kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from orthornn import activations
from orthornn.errors import BackendError
from orthornn.kernels.backends import CPP
from orthornn.kernels.backends.cpp import extension
from orthornn.kernels.call import Call, Needs, Options, States
from orthornn.layout import SequenceLayout

from .cases import Work
from .machine import PRODUCT, PRODUCT_MULTIPLY_ADDS, product
from .timing import Contender, Ratio, Timing, interleave, ratio

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class ChainSpeed:
    """Seconds of both chains and of the product; what share of its rate each chain reaches."""

    n: int
    batch: int
    T: int
    timings: dict[str, Timing]
    shares: dict[str, Ratio]


# Any other gradient would be summed on the way.
CHAIN_ALONE = Needs(*(name == "h0" for name in Needs._fields))


def chain_speed(work: Work, n: int, batch: int, rounds: int) -> ChainSpeed:
    """Time h_t = phi(W h_{t-1} + x_t) on projected inputs, and its chain from a gradient of only the last state.

    BackendError without the compiled kernels.
    """
    reason = extension.missing()
    if reason is not None:
        raise BackendError(f"the chain is timed in the compiled kernels: {reason}.")
    torch.manual_seed(0)
    phi, layout = activations.get(work.nonlinearity), SequenceLayout(work.T, batch)
    W = torch.linalg.qr(torch.randn(n, n)).Q
    x, h0, grad = torch.randn(work.T, batch, n) / math.sqrt(n), torch.zeros(batch, n), torch.randn(batch, n)
    size = phi.parameter_size(n)
    parameter = torch.full((size,), phi.initial) if size else None
    call = Call(x, None, None, h0, W, None, None, parameter, None, layout, Options("dense", phi))
    _, residuals = CPP.forward(call, True)

    def forward() -> None:
        CPP.forward(call, True)

    def backward() -> None:
        CPP.backward(call, States(None, grad), residuals, CHAIN_ALONE)

    contenders = [Contender(FORWARD, forward), Contender(BACKWARD, backward), product(work)]
    timings = interleave(contenders, rounds)
    # share = (multiply-adds / seconds) / (the product's / its seconds)
    factor = float(n * n) * layout.rows / PRODUCT_MULTIPLY_ADDS
    shares = {}
    for name in (FORWARD, BACKWARD):
        r = ratio(timings[PRODUCT], timings[name])
        shares[name] = Ratio(factor * r.value, factor * r.low, factor * r.high, r.rounds)
    return ChainSpeed(n, batch, work.T, timings, shares)
