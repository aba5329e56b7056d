"""Layers with a linear recurrence, ours and related ones in plain torch, next to torch's LSTM and GRU.

Every layer maps (T, B, 1) to F features at every step, or at the last one, from a state of S real units. It is timed
forward and backward to all its parameters, in processor time, because wall time is meaningless on a shared machine. Our
layers and the scans of the related ones are first verified against a step loop in float64; a wrong layer is an error, not a
row.

contender          recurrence
blocks             rotations on the compiled kernel; the last state by the response to one step
blocks, kernel     the same without the response (last step only)
fft                the same rotations, by a convolution of the input with their response, one for each feature
chunked            the same rotations, in groups of k = sqrt(T) steps: every k-th state, then the steps between as one product
lru                complex diagonal W on a ring, input scaled by sqrt(1 - |w|^2) (Orvieto et al., 2023); scan by doubling
s5                 complex diagonal, zero-order hold with trained steps, feedthrough (Smith et al., 2023); scan by doubling
lstm, gru          torch.nn, S units
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from orthornn.errors import VerificationError
from orthornn.learn.report.table import Column, Table
from orthornn.modules import OrthogonalRNN
from orthornn.modules.forms import Form
from orthornn.modules.layer import Settings
from orthornn.parametrizations import Rotations

PLACES = ("all", "last")
_STEPS_VERIFIED, _BATCH_VERIFIED = 37, 8


@dataclass(frozen=True)
class LayerTime:
    """Processor seconds of a pass of one contender: the least of several."""

    T: int
    batch: int
    place: str
    name: str
    seconds: float
    parameters: int


def scan_by_doubling(w: Tensor, u: Tensor) -> Tensor:
    """Return h_t = w h_{t-1} + u_t for every step, h_0 = 0, in log2(T) passes over (T, B, N)."""
    h, shift = u, 1
    while shift < len(u):
        h = torch.cat([h[:shift], h[shift:] + w * h[:-shift]])
        w, shift = w * w, 2 * shift
    return h


class Diagonal(nn.Module):
    """LRU's and S5's layer: S/2 complex units, real input and output."""

    def __init__(self, kind: str, features: int, state_size: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        n = state_size // 2
        self.kind = kind
        radius = (torch.rand(n, dtype=dtype) * (0.999**2 - 0.9**2) + 0.9**2).sqrt()
        if kind == "lru":
            self.decay = nn.Parameter(torch.log(-torch.log(radius)))
            self.angles = nn.Parameter(2 * math.pi * torch.rand(n, dtype=dtype))
        else:
            self.decay = nn.Parameter(torch.full((n,), math.log(0.5), dtype=dtype))
            self.angles = nn.Parameter(math.pi * torch.arange(n, dtype=dtype))
            self.log_step = nn.Parameter(torch.empty(n, dtype=dtype).uniform_(math.log(1e-3), math.log(1e-1)))
        self.V = nn.Parameter(torch.randn(n, 1, 2, dtype=dtype))
        self.C = nn.Parameter(torch.randn(features, n, 2, dtype=dtype) / math.sqrt(n))
        self.D = nn.Parameter(torch.randn(features, dtype=dtype))

    def discrete(self) -> tuple[Tensor, Tensor]:
        """Return w (N,) and V (N, 1), complex."""
        V = torch.view_as_complex(self.V)
        if self.kind == "lru":
            w = torch.exp(torch.complex(-torch.exp(self.decay), self.angles))
            return w, V * (1 - w.abs().square()).clamp_min(0).sqrt().unsqueeze(1)
        rate = torch.complex(-torch.exp(self.decay), self.angles)
        w = torch.exp(rate * torch.exp(self.log_step))
        return w, V * ((w - 1) / rate).unsqueeze(1)

    def read(self, h: Tensor, x: Tensor) -> Tensor:
        """Return the features of states h and inputs x."""
        return 2 * (h @ torch.view_as_complex(self.C).mT).real + x * self.D

    def forward(self, x: Tensor, place: str = "all") -> Tensor:
        """Return (T, B, F), or (B, F) for the last step."""
        w, V = self.discrete()
        h = scan_by_doubling(w, x.to(V.dtype) @ V.mT)
        return self.read(h, x) if place == "all" else self.read(h[-1], x[-1])

    def by_steps(self, x: Tensor) -> Tensor:
        """Return the same by a loop."""
        w, V = self.discrete()
        h, out = torch.zeros((), dtype=V.dtype), []
        for x_t in x:
            h = w * h + x_t.to(V.dtype) @ V.mT
            out.append(self.read(h, x_t))
        return torch.stack(out)


class Turning(nn.Module):
    """Our linear layer with a readout, in each of its ways."""

    def __init__(self, way: str, features: int, state_size: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.way = way
        form: Form = "compact_wy" if way == "kernel" else "auto"
        self.rnn = OrthogonalRNN(
            1, state_size, nonlinearity="identity", parametrization=Rotations(), form=form, bias=False, dtype=dtype
        )
        self.readout = nn.Linear(state_size, features, dtype=dtype)

    def forward(self, x: Tensor, place: str = "all") -> Tensor:
        """Return (T, B, F), or (B, F) for the last step."""
        if place == "last" or self.way in ("blocks", "kernel"):
            return self.readout(self.rnn(x, output=place)[0])
        if self.way == "fft":
            return convolved(x.squeeze(2), self._response(len(x)) @ self.readout.weight.mT) + self.readout.bias
        return self.readout(self._chunked(x))

    def _response(self, T: int) -> Tensor:
        """Return W^t V for t = 0 ... T - 1, (T, S)."""
        impulse = torch.zeros(T, 1, 1, dtype=self.readout.weight.dtype)
        impulse[0] = 1
        return self.rnn(impulse)[0].squeeze(1)

    def _chunked(self, x: Tensor) -> Tensor:
        T, B, _ = x.shape
        k = math.isqrt(T)
        groups = -(-T // k)
        padded = torch.cat([x.new_zeros(groups * k - T, B, 1), x])
        response = self._response(k)  # (k, S)
        patches = padded.view(groups, k, B)
        (layer,) = self.rnn.layers()
        h0 = x.new_zeros(B, self.rnn.hidden_size)
        ends = layer.every_kth(padded, h0, k, Settings())
        assert ends is not None  # W is a rotation: nothing overflows
        starts = torch.cat([h0.unsqueeze(0), ends[:-1]])  # (G, B, S)
        # Within a group: the state before it turned on, and a lower triangular Toeplitz product with its inputs.
        turned = self.rnn(x.new_zeros(k, groups * B, 1), starts.reshape(1, groups * B, -1))[0]
        turned = turned.view(k, groups, B, -1).transpose(0, 1)
        steps = torch.arange(k)
        lag = steps.unsqueeze(1) - steps
        toeplitz = response[lag.clamp_min(0)] * (lag >= 0).unsqueeze(2)  # (k, k, S)
        inside = torch.einsum("gjb,ijs->gibs", patches, toeplitz)
        return (turned + inside).flatten(0, 1)[groups * k - T :]

    def by_steps(self, x: Tensor) -> Tensor:
        """Return the same by a loop."""
        h, out = None, []
        for x_t in x:
            state, h = self.rnn.step(x_t, h)
            out.append(self.readout(state))
        return torch.stack(out)


def convolved(x: Tensor, kernels: Tensor) -> Tensor:
    """Return the causal convolution of x (T, B) with kernels (T, F): (T, B, F)."""
    T = len(x)
    spectrum = torch.fft.rfft(x, n=2 * T, dim=0).unsqueeze(2) * torch.fft.rfft(kernels, n=2 * T, dim=0).unsqueeze(1)
    return torch.fft.irfft(spectrum, n=2 * T, dim=0)[:T]


class Gated(nn.Module):
    """torch's LSTM or GRU with a readout."""

    def __init__(self, kind: str, features: int, state_size: int) -> None:
        super().__init__()
        self.rnn = (nn.LSTM if kind == "lstm" else nn.GRU)(1, state_size)
        self.readout = nn.Linear(state_size, features)

    def forward(self, x: Tensor, place: str = "all") -> Tensor:
        """Return (T, B, F), or (B, F) for the last step."""
        h = self.rnn(x)[0]
        return self.readout(h if place == "all" else h[-1])


NAMES = ("blocks", "kernel", "fft", "chunked", "lru", "s5", "lstm", "gru")


def make(name: str, features: int, state_size: int, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Return a contender with initial values from torch's global generator."""
    if name in ("lstm", "gru"):
        return Gated(name, features, state_size)
    return (Diagonal if name in ("lru", "s5") else Turning)(name, features, state_size, dtype)


@torch.no_grad()
def verify(features: int, state_size: int) -> dict[str, float]:
    """Return the error of every layer that has a step loop, in float64; raise VerificationError above rounding."""
    found = {}
    for name in NAMES[:6]:
        torch.manual_seed(0)
        layer = make(name, features, state_size, torch.float64)
        x = torch.randn(_STEPS_VERIFIED, _BATCH_VERIFIED, 1, dtype=torch.float64)
        expected = layer.by_steps(x)  # type: ignore[operator]
        off = float(
            torch.stack([(layer(x) - expected).abs().max(), (layer(x, "last") - expected[-1]).abs().max()]).max()
        )
        bound = 64 * torch.finfo(torch.float64).eps * _STEPS_VERIFIED * state_size * (1 + float(expected.abs().max()))
        if not off <= bound:
            raise VerificationError(f"Expected {name} to be its step loop to {bound:.1g}, but got {off:.1g}.")
        found[name] = off
    return found


def measure(
    lengths: dict[int, int],
    features: int,
    state_size: int,
    rounds: int,
    say: Callable[[str], object],
    limit: float = 60.0,
) -> list[LayerTime]:
    """Time all layers in turns at each T, in processor seconds of this process.

    Args:
        lengths: T, and the batch size there.
        features: F. state_size: S.
        rounds: Turns of each layer; the fastest counts.
        say: Receives progress messages.
        limit: Processor seconds per layer and T; each gets at least one turn.
    """
    verify(features, state_size)
    found = []
    for T, batch in lengths.items():
        x = torch.randn(T, batch, 1)
        for place in PLACES:
            names = [name for name in NAMES if place == "last" or name != "kernel"]
            names = [name for name in names if place == "all" or name not in ("fft", "chunked")]
            least: dict[str, float] = {}
            layers: dict[str, nn.Module] = {}
            spent = dict.fromkeys(names, 0.0)
            for turn in range(rounds):
                for name in names:
                    if turn and spent[name] > limit:
                        continue
                    torch.manual_seed(0)
                    layer = layers.setdefault(name, make(name, features, state_size))
                    start = time.process_time()
                    layer.zero_grad(set_to_none=True)
                    layer(x, place).sum().backward()
                    seconds = time.process_time() - start
                    spent[name] += seconds
                    least[name] = min(seconds, least.get(name, math.inf))
                    say(f"T={T}, {place}: {name}")
            for name in names:
                count = sum(p.numel() for p in layers[name].parameters())
                found.append(LayerTime(T, batch, place, name, least[name], count))
    return found


def table(times: list[LayerTime]) -> Table:
    """Return one row per layer, T and place."""
    shown = Table(
        "linear recurrences with a readout: forward and backward, processor time",
        [
            Column("layer", left=True),
            Column("T"),
            Column("B"),
            Column("read", left=True),
            Column("ms"),
            Column("of blocks"),
        ],
    )
    ours = {(t.T, t.place): t.seconds for t in times if t.name == "blocks"}
    for t in times:
        share = t.seconds / ours[t.T, t.place]
        shown.rows.append([t.name, str(t.T), str(t.batch), t.place, f"{1e3 * t.seconds:.1f}", f"{share:.2f}x"])
    shown.notes.append(
        "least of several turns; ours, and the relatives' scans, verified against their step loops in float64"
    )
    return shown


def to_dict(times: list[LayerTime]) -> list[dict[str, Any]]:
    """Return the content of results.json."""
    return [asdict(t) for t in times]
