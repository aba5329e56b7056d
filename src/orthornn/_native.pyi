"""
Sequence kernels on addresses; see orthornn.kernels for the interface meant for use.
"""

import torch

interface: int = ...

def isa() -> str:
    """The instruction set in use; ORTHORNN_ISA overrides it."""

def supported_isas() -> list[str]:
    """The instruction sets that this build and this processor have."""

def threading_runtime() -> str | None:
    """Path of the OpenMP runtime whose threads are used, or None."""

def ask_for_large_pages(memory: torch.Tensor | int, bytes: int) -> None:
    """
    Pages of 2 MiB, where the system has them, for memory that is about to be written.
    """

def forward(
    *,
    element_size: int,
    T: int,
    B: int,
    N: int,
    R: int,
    batch_sizes: torch.Tensor | int | None,
    M: int,
    W: torch.Tensor | int | None,
    U: torch.Tensor | int | None,
    S: torch.Tensor | int | None,
    c: torch.Tensor | int | None,
    s: torch.Tensor | int | None,
    activation: int,
    slope: float,
    parameter: torch.Tensor | int | None,
    input_kind: int,
    x: torch.Tensor | int | None,
    weight_ih: torch.Tensor | int | None,
    bias: torch.Tensor | int | None,
    I: int,
    h0: torch.Tensor | int | None,
    states: torch.Tensor | int | None,
    kept: torch.Tensor | int | None,
    last: torch.Tensor | int | None,
    h_tilde: torch.Tensor | int | None,
    threads: int,
    rotations: torch.Tensor | int | None = ...,
    resets: torch.Tensor | int | None = ...,
    restart: torch.Tensor | int | None = ...,
) -> None: ...
def backward(
    *,
    element_size: int,
    T: int,
    B: int,
    N: int,
    R: int,
    batch_sizes: torch.Tensor | int | None,
    M: int,
    W: torch.Tensor | int | None,
    U: torch.Tensor | int | None,
    S: torch.Tensor | int | None,
    c: torch.Tensor | int | None,
    s: torch.Tensor | int | None,
    activation: int,
    slope: float,
    parameter: torch.Tensor | int | None,
    clip: float,
    kept: torch.Tensor | int | None,
    states: torch.Tensor | int | None,
    h0: torch.Tensor | int | None,
    grad_states: torch.Tensor | int | None,
    grad_last: torch.Tensor | int | None,
    delta: torch.Tensor | int | None,
    grad_h0: torch.Tensor | int | None,
    grad_parameter: torch.Tensor | int | None,
    grad_c: torch.Tensor | int | None,
    grad_s: torch.Tensor | int | None,
    grad_W: torch.Tensor | int | None,
    packed: torch.Tensor | int | None,
    free: torch.Tensor | int | None,
    h_tilde: torch.Tensor | int | None,
    grad_reflectors: torch.Tensor | int | None,
    input_kind: int,
    x: torch.Tensor | int | None,
    I: int,
    grad_weight_ih: torch.Tensor | int | None,
    grad_bias: torch.Tensor | int | None,
    threads: int,
    rotations: torch.Tensor | int | None = ...,
    resets: torch.Tensor | int | None = ...,
    restart: torch.Tensor | int | None = ...,
    grad_restart: torch.Tensor | int | None = ...,
) -> None: ...
def factors(
    *,
    element_size: int,
    N: int,
    M: int,
    packed: torch.Tensor | int | None,
    free: torch.Tensor | int | None,
    U: torch.Tensor | int | None,
    S: torch.Tensor | int | None,
    threads: int,
) -> None: ...
