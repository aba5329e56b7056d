"""Graphs of torch.jit.trace: right for the lengths of their example, and an error for others."""

from __future__ import annotations

import io
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from orthornn import GORU, DeltaRNN, OrthogonalBlocks, OrthogonalRNN, PeepholeLSTM, ReflectionRNN
from support.tolerances import tolerance

T, B, I, N = 7, 3, 2, 6
EXACT = tolerance(torch.float64, 70 * N * 10)
MAKE = {
    "OrthogonalRNN": lambda: OrthogonalRNN(I, N, num_layers=2, bidirectional=True),
    "linear OrthogonalRNN": lambda: OrthogonalRNN(I, N, nonlinearity="identity"),
    "GORU": lambda: GORU(I, N),
    "PeepholeLSTM": lambda: PeepholeLSTM(I, N),
    "ReflectionRNN": lambda: ReflectionRNN(I, N),
    "DeltaRNN": lambda: DeltaRNN(I, N),
    "OrthogonalBlocks": lambda: OrthogonalBlocks(I, N, 4, depth=2),
}
EVERY = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


class Padded(nn.Module):
    """A network that packs its input."""

    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        states = self.rnn(pack_padded_sequence(x, lengths, enforce_sorted=False))[0]
        return pad_packed_sequence(states)[0]


def traced(net: nn.Module, *example: Tensor) -> torch.jit.ScriptModule:
    """A trace that has been saved and loaded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace, file = torch.jit.trace(net, example), io.BytesIO()
        torch.jit.save(trace, file)
        file.seek(0)
        return torch.jit.load(file)


def inputs(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.sampled(1)
@torch.no_grad()
@EVERY
def test_a_trace_reads_one_number_of_steps_and_any_number_of_sequences(make):
    net = make().double().eval()
    trace = traced(net, inputs(T, B, I))
    for batch in (1, B, 5):
        x = inputs(T, batch, I)
        torch.testing.assert_close(trace(x)[0], net(x)[0], rtol=0, atol=EXACT)
    for steps in (1, T - 1, T + 1, 70):  # DeltaRNN's steps come in blocks of 64
        with pytest.raises(torch.jit.Error, match=rf"Expected an input of {T} steps.* but got {steps}\. Trace again"):
            trace(inputs(steps, B, I))


@torch.no_grad()
def test_a_trace_of_batch_first_and_unbatched_inputs():
    for options, example, other, wrong in (
        ({"batch_first": True}, (B, T, I), (T, T, I), (T, B, I)),
        ({}, (T, I), (T, I), (T + 1, I)),
    ):
        net = OrthogonalRNN(I, N, dtype=torch.float64, **options)
        trace = traced(net, inputs(*example))
        torch.testing.assert_close(trace(inputs(*other))[0], net(inputs(*other))[0], rtol=0, atol=EXACT)
        with pytest.raises(torch.jit.Error, match=f"Expected an input of {T} steps"):
            trace(inputs(*wrong))


@pytest.mark.sampled(1)
@torch.no_grad()
@EVERY
def test_a_trace_reads_sequences_packed_as_its_example_was(make):
    """As many rows, divided into other steps, would give wrong states."""
    net, x = Padded(make()).double().eval(), inputs(T, 2, I)
    trace = traced(net, x, torch.tensor([4, 7]))
    for lengths in (torch.tensor([4, 7]), torch.tensor([7, 4])):
        torch.testing.assert_close(trace(x, lengths), net(x, lengths), rtol=0, atol=EXACT)
    for lengths in ([6, 5], [5, 7], [4, 4]):
        with pytest.raises(
            torch.jit.Error, match=r"with batch_sizes \[2, 2, 2, 2, 1, 1, 1\], .* but got \[2, .* Trace"
        ):
            trace(x, torch.tensor(lengths))
