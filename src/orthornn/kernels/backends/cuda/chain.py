"""Shapes of the CUDA C++ kernels (chain.cu) and their launch: what both recurrences share.

The weights of a product are dealt out to threads in 4 x 4 tiles; a thread holds `held` tiles of a row of tiles in
registers and reads the others from shared memory. Which shape is best follows from counts of issue slots on one
multiprocessor (SM): 4 warps issue a multiply-add a cycle, shared memory delivers 128 bytes a cycle, a shuffle takes
one cycle. `best` searches the few shapes there are.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from ....compact_wy import Base
from ...call import Call
from .. import multiprocessor
from ..ragged import device_layout
from . import nvrtc

RESERVE = 48  # registers a thread needs besides its weights
WARP = 32


@dataclass(frozen=True)
class Product:
    """The shape of one product in chain.cu: rows x columns over `threads` threads, `lanes` of them a group of rows."""

    rows: int
    columns: int
    threads: int
    lanes: int
    held: int = 0

    @property
    def passes(self) -> int:
        """The number of passes in which groups of 4 rows cover all rows."""
        return -(-self.rows // (4 * (self.threads // self.lanes)))

    @property
    def quads(self) -> int:
        """Tiles of 4 columns of one thread."""
        return -(-self.columns // (4 * self.lanes))

    @property
    def shared(self) -> int:
        """Bytes of weights in shared memory."""
        return self.passes * (self.quads - self.held) * 64 * self.threads

    @property
    def vector(self) -> int:
        """Numbers of the padded vector."""
        return 4 * self.lanes * self.quads

    @property
    def cycles(self) -> float:
        """Issue slots of a step: multiply-adds, reads of the vector, reads of weights, shuffles."""
        warps = self.threads / WARP
        tiles = self.passes * self.quads
        from_shared = self.passes * (self.quads - self.held)
        shuffles = self.passes * (3 + max(self.lanes // 4, 1).bit_length() - 1)
        latency = self.passes * (16 * self.quads + 25 * (2 + max(self.lanes // 8, 1).bit_length()))
        return max(warps * (4 * tiles + 2 * tiles + 16 * from_shared + shuffles), latency)


@dataclass(frozen=True)
class Shape:
    """One kernel's products: (W) or (into M, out of M)."""

    n: int
    m: int
    products: tuple[Product, ...]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.products[0].threads

    @property
    def bytes(self) -> int:
        """Dynamic shared memory: three states and h~, then weights."""
        state = -(-max(self.products[0].vector, self.n) // 4) * 4
        tilde = self.products[1].vector if self.m else 0
        return 4 * (3 * state + tilde) + sum(product.shared for product in self.products)

    @property
    def macros(self) -> dict[str, int]:
        """The macros that chain.cu is compiled with, without the activation."""
        macros = {"N": self.n, "M": self.m, "THREADS": self.threads}
        for k, product in enumerate(self.products, 1):
            macros |= {f"LANES{k}": product.lanes, f"HELD{k}": product.held}
        return macros

    def describe(self) -> str:
        """Return the strategy in one line for a reader."""
        in_shared = sum(product.shared for product in self.products)
        where = "registers" if not in_shared else f"registers and {in_shared // 1024} KB of shared memory"
        return f"one sequence a multiprocessor, {self.threads} threads, weights in {where}"


@functools.cache
def best(n: int, m: int) -> Shape | None:
    """Return the shape of least cost, or None if one SM cannot hold the weights. m = 0 is dense."""
    found: list[tuple[float, Shape]] = []
    most = multiprocessor.shared_limit()
    for threads in range(WARP, 1024 + 1, WARP):
        tiles = (min(255, multiprocessor.REGISTERS // threads // 8 * 8) - RESERVE) // 16  # of registers
        if tiles < 0:
            continue
        for lanes1 in (4, 8, 16, 32):
            for lanes2 in (4, 8, 16, 32) if m else (4,):
                first = Product(m or n, n, threads, lanes1)
                products = [first, Product(n, m, threads, lanes2)] if m else [first]
                if sum(p.passes * p.quads for p in products) > 64:
                    continue
                free, chosen = tiles, []
                for p in products:
                    held = min(p.quads, free // p.passes)
                    free -= held * p.passes
                    chosen.append(Product(p.rows, p.columns, threads, p.lanes, held))
                shape = Shape(n, m, tuple(chosen))
                if shape.bytes <= most:
                    found.append((sum(p.cycles for p in chosen) + threads / WARP, shape))
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _macros(shape: Shape, stored: torch.dtype, call: Call, base: Base, last: bool = False) -> dict[str, int]:
    activation = call.options.activation
    return shape.macros | {
        "CODE": activation.code,
        "UNIT": activation.parameter == "unit",
        "PAIR": activation.parameter == "pair",
        "KEEP": activation.reads == "preactivation",
        "BASE": base is not None,
        "LAST": last,
        "CLIP": call.options.clip is not None,
        "HALVED": stored == torch.bfloat16,
    }


def _vector(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def forward(
    shape: Shape, call: Call, x: Tensor, first: Tensor, second: Tensor | None, base: Base
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return states (R, N), pre-activations (R, N) if phi' reads them, and h~ (R, M).

    Args:
        shape: Of the kernel.
        call: The call.
        x: Projected rows (R, N).
        first: W, or V of compact WY.
        second: U of compact WY, or None.
        base: (c, s) of compact WY, or None.
    """
    layout, activation = call.layout, call.options.activation
    x, h0, parameter = x.contiguous(), call.h0.contiguous(), _vector(call.parameter)
    states, h_tilde = x.new_empty(layout.shape(shape.n)), x.new_empty(layout.rows, shape.m)
    saved = torch.empty_like(x) if activation.reads == "preactivation" else None
    if layout.length and layout.batch:
        (offsets, lengths), (c, s) = (
            device_layout(layout, h0.device),
            (None, None) if base is None else map(_vector, base),
        )
        macros = _macros(shape, x.dtype, call._replace(options=call.options._replace(clip=None)), base)
        nvrtc.load(macros, shape.bytes, h0.device).launch(
            "forward",
            layout.batch,
            nvrtc.Arguments.of(
                x=x,
                h0=h0,
                first=first,
                second=second,
                c=c,
                s=s,
                parameter=parameter,
                states=states,
                saved=saved,
                h_tilde=h_tilde,
                offsets=offsets,
                lengths=lengths,
                steps=layout.length,
                batch=layout.batch,
                slope=activation.slope,
            ),
        )
    return states, saved, h_tilde


def backward(
    shape: Shape,
    call: Call,
    grad: Tensor,
    last: bool,
    saved: Tensor,
    first: Tensor,
    second: Tensor | None,
    base: Base,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Return delta (R, N), dL/dh_0 (B, N), dL/dparameter and C~ (R, M); grad and saved as in the reference."""
    layout, options = call.layout, call.options
    grad, saved, parameter = grad.to(saved.dtype).contiguous(), saved.contiguous(), _vector(call.parameter)
    delta, C_tilde = first.new_empty(saved.shape), first.new_empty(layout.rows, shape.m)
    if not (layout.length and layout.batch):
        grad_h0 = grad.to(first.dtype, copy=True) if last else first.new_zeros(layout.batch, shape.n)
        return delta, grad_h0, None if parameter is None else torch.zeros_like(parameter), C_tilde
    grad_h0 = first.new_empty(layout.batch, shape.n)
    grad_parameter = None if parameter is None else first.new_empty(layout.batch, parameter.shape[0])
    (offsets, lengths), (c, s) = (
        device_layout(layout, saved.device),
        (None, None) if base is None else map(_vector, base),
    )
    macros = _macros(shape, saved.dtype, call, base, last)
    nvrtc.load(macros, shape.bytes, saved.device).launch(
        "backward",
        layout.batch,
        nvrtc.Arguments.of(
            x=grad,
            saved_rows=saved,
            first=first,
            second=second,
            c=c,
            s=s,
            parameter=parameter,
            delta=delta,
            C_tilde=C_tilde,
            grad_h0=grad_h0,
            grad_parameter=grad_parameter,
            offsets=offsets,
            lengths=lengths,
            steps=layout.length,
            batch=layout.batch,
            slope=options.activation.slope,
            clip=options.clip,
        ),
    )
    return delta, grad_h0, None if grad_parameter is None else grad_parameter.sum(dim=0), C_tilde
