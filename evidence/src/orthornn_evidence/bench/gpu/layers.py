"""Whole layers side by side: ours, cuDNN's, some of them as one CUDA graph, flashrnn's LSTM, and the dense loop.

Forward and backward to all parameters, parametrization and input projection included, each in its precisions. For ours
bfloat16 is torch.autocast: states in 16 bits, W and all sums float32. For the others it is all of the network.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..cases import Case, Work
from ..networks import OURS, Runnable, StepLoop, output_of
from ..timing import Contender, interleave, ratio
from .precision import PRECISIONS, Precision, arithmetic
from .recurrence import peak_bytes

GRU, LOOP, FLASH = "gru", "loop-graph", "flashrnn"
GRAPHS = {f"{name}-graph": name for name in (OURS, "rnn", "lstm")}  # each as one CUDA graph
_CLASSES, _MNIST_SEQUENCES = 10, 60_000
_TILE = 32  # sequences to whose multiples flashrnn's batches are filled up

TITLES = {
    OURS: "orthornn",
    "rnn": "nn.RNN",
    "lstm": "nn.LSTM",
    GRU: "nn.GRU",
    FLASH: "flashrnn LSTM",
    LOOP: "dense loop, CUDA graph",
    "ours-graph": "orthornn, CUDA graph",
    "rnn-graph": "nn.RNN, CUDA graph",
    "lstm-graph": "nn.LSTM, CUDA graph",
}


class FlashLSTM(nn.Module):
    """An LSTM by flashrnn (github.com/NX-AI/flashrnn), one head: (T, B, 1) -> h (T, B, N).

    Its kernels are built for a batch size in tiles of 8, 16 or 32 sequences, so B is filled up to a multiple of 32.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(1, 4 * hidden_size, bias=False)
        self.recurrent = nn.Parameter(torch.randn(4, 1, hidden_size, hidden_size) / hidden_size**0.5)
        self.bias = nn.Parameter(torch.zeros(4, 1, hidden_size))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return states and the last one, with the projection in flashrnn's layout (B, T, gates, heads, N)."""
        from flashrnn import flashrnn

        (T, B, _), n = x.shape, self.recurrent.shape[-1]
        projected = self.projection(x).transpose(0, 1).reshape(B, T, 4, 1, n)
        projected = F.pad(projected, (0,) * 9 + (-B % _TILE,))
        states, last = flashrnn(projected, self.recurrent, self.bias, function="lstm", dtype="bfloat16")
        return states[0, :B, :, 0].transpose(0, 1), last[0, :B].reshape(1, B, n)


def missing(name: str, device: torch.device) -> str | None:
    """Return why a network cannot be timed here, or None."""
    if (name in (LOOP, FLASH) or name in GRAPHS) and device.type != "cuda":
        return "it runs only on CUDA devices"
    if name == FLASH and importlib.util.find_spec("flashrnn") is None:
        return "the package flashrnn is not installed"
    return None


def entries() -> list[tuple[str, Precision]]:
    """Return every network in every precision that it is timed in."""
    found: list[tuple[str, Precision]] = [(name, p) for name in (OURS, "rnn", "lstm", GRU) for p in PRECISIONS]
    graphs: list[tuple[str, Precision]] = [(name, "float32") for name in (*GRAPHS, LOOP)]
    return [*found, *graphs, (LOOP, "tf32"), (FLASH, "bfloat16")]


def _runnable(name: str, precision: Precision, case: Case, work: Work) -> Callable[[], object]:
    """Return the function to time: it clears gradients, then runs forward and backward."""
    device = torch.device(work.device)
    if name in (GRU, LOOP, FLASH):
        make: dict[str, Callable[[], nn.Module]] = {
            GRU: lambda: nn.GRU(1, case.n),
            LOOP: lambda: StepLoop(1, case.n),
            FLASH: lambda: FlashLSTM(case.n),
        }
        module = make[name]().to(device)
        x, grad = torch.rand(work.T, case.batch, 1, device=device), torch.randn(case.batch, case.n, device=device)
        runnable = Runnable(name, module, x, grad, "last")
    else:
        runnable = Runnable.make(GRAPHS.get(name, name), case, work)
    autocast: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if precision == "bfloat16":
        runnable.x, runnable.grad = runnable.x.bfloat16(), runnable.grad.bfloat16()
        if name == OURS:
            autocast = torch.autocast(device.type, torch.bfloat16)
        else:
            runnable.module.bfloat16()
    if isinstance(runnable.module, nn.RNNBase):
        runnable.module.flatten_parameters()  # else they would be copied in every call

    def run() -> None:
        runnable.clear()
        with autocast:
            out = output_of(runnable.module, runnable.x, runnable.output)
        out.backward(runnable.grad)

    return _captured(run, device) if name == LOOP or name in GRAPHS else run


def _captured(run: Callable[[], None], device: torch.device) -> Callable[[], object]:
    """Return the run as one CUDA graph."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def measure(case: Case, work: Work, rounds: int) -> dict[str, Any]:
    """Return for every network and precision ms, us per step, peak memory, and how many times as long as ours in
    float32.

    One that fails is left out, with its error.
    """
    device = torch.device(work.device)
    absent: dict[str, str] = {}
    ready, memory = [], {}
    for name, precision in entries():
        key = f"{name} {precision}"
        reason = missing(name, device)
        if reason is not None:
            absent[key] = reason
            continue
        try:
            with arithmetic(precision):
                run = _runnable(name, precision, case, work)
                memory[key] = peak_bytes(run, device)
        except Exception as error:  # whatever a peer raises, the others are timed
            absent[key] = f"{type(error).__name__}: {error}"[:300]
            continue
        ready.append(Contender(key, _within(precision, run), synchronize=work.synchronize, cap=5.0))
    timings = interleave(ready, rounds)
    own = timings.get(f"{OURS} float32")
    rows = {}
    for key, timing in timings.items():
        against = None if own is None else ratio(timing, own)
        rows[key] = {
            "ms": 1e3 * timing.median,
            "us_per_step": 1e6 * timing.median / work.T,
            "peak_bytes": memory[key],
            "ratio": None if against is None else [against.value, against.low, against.high],
            "rounds": timing.rounds,
        }
    return {"networks": rows, "absent": absent}


def _within(precision: Precision, run: Callable[[], object]) -> Callable[[], None]:
    def inside() -> None:
        with arithmetic(precision):
            run()

    return inside


def epoch(case: Case, work: Work, precision: Precision, rounds: int) -> dict[str, Any]:
    """Return seconds of an epoch of pixel MNIST without the loading of data: training steps of ours with readout and
    Adam.
    """
    device = torch.device(work.device)
    core = Runnable.make(OURS, case, work).module
    readout = nn.Linear(case.n, _CLASSES, device=device)
    x, labels = torch.rand(work.T, case.batch, 1, device=device), torch.randint(_CLASSES, (case.batch,), device=device)
    optimizer = torch.optim.Adam([*core.parameters(), *readout.parameters()], lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            scores = readout(output_of(core, x, "last"))
        F.cross_entropy(scores.float(), labels).backward()
        optimizer.step()

    timing = interleave([Contender("step", _within(precision, step), synchronize=work.synchronize)], rounds)["step"]
    steps = _MNIST_SEQUENCES // case.batch
    return {"step_ms": 1e3 * timing.median, "epoch_s": steps * timing.median}
