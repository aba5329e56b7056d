"""Networks of OrthogonalBlocks with all that surrounds them in a network of a table, in float64, and what they compute."""

from __future__ import annotations

import torch
from torch import nn

from orthornn import Householder, OrthogonalBlocks, RestrictedUnitary
from orthornn.learn.systems import SequenceModel
from orthornn.learn.systems.recent_steps import RecentSteps
from orthornn.learn.systems.series_vectors import SeriesVectors

PARTS = {"last": 1, "mean": 1, "both": 2, "summary": 3}


def made_of(core, pool="last", head="linear", **options):
    """A network of these blocks in float64, its parameters far from initial values, which hide factors and places."""
    with torch.no_grad():
        for name, parameter in core.named_parameters():
            if "norm" in name or "bias" in name or "h0" in name:
                parameter.add_(0.5 * torch.randn_like(parameter))
    width = core.hidden_size * PARTS[pool]
    reader = nn.Linear(width, 3) if head == "linear" else nn.Sequential(nn.Linear(width, 5), nn.GELU(), nn.Linear(5, 3))
    output = options.pop("output", "all" if pool == "last" else "last")
    return SequenceModel(core, reader, pool=pool, output=output, **options).double().eval()


def blocks(inputs, *sizes, **options):
    return OrthogonalBlocks(inputs, *sizes, learn_h0=True, dtype=torch.float64, **options)


CASES = {
    "default": lambda: made_of(blocks(3, 7, depth=2)),
    "one input, mean": lambda: made_of(blocks(1, 5, 6, depth=2, decay=True), "mean"),
    "one feature": lambda: made_of(blocks(2, 1, 2, depth=3)),
    "both, perceptron": lambda: made_of(blocks(2, 9, 10, depth=2, mixing="mlp", expansion=3), "both", "mlp"),
    "summary, gelu, rms": lambda: made_of(blocks(2, 8, 4, depth=3, mixing="gelu", norm="rms", decay=True), "summary"),
    "rms without decay": lambda: made_of(blocks(2, 6, 8, depth=2, norm="rms", decay=False)),
    "no norm, no bias": lambda: made_of(blocks(2, 6, 8, depth=2, norm="none", bias=False, radii=(0.1, 0.5))),
    "no residual": lambda: made_of(blocks(3, 5, 8, depth=3, residual=False, mixing="mlp")),
    "one block": lambda: made_of(blocks(4, 6, 2), "mean"),
    "reflections, odd": lambda: made_of(blocks(2, 5, 33, depth=2, parametrization=Householder(reflections=2))),
    "complex": lambda: made_of(blocks(2, 5, 6, depth=2, parametrization=RestrictedUnitary())),
    "tokens": lambda: made_of(blocks(5, 6, 8, depth=2), "mean", token_classes=5),
    "lags": lambda: with_lags(made_of(blocks(3, 6, 8, depth=2)), lags=5),
    "one lag": lambda: with_lags(made_of(blocks(3, 6, 8), "both"), lags=1),
    "lags, known": lambda: with_lags(made_of(blocks(4, 6, 8), "mean"), lags=3, known_inputs=1),
    "lags, all known": lambda: with_lags(made_of(blocks(2, 6, 8)), lags=3, known_inputs=2),
    "series": lambda: with_series(made_of(blocks(4, 6, 8, depth=2), "mean")),
    "series, lags": lambda: with_series(with_lags(made_of(blocks(4, 6, 8, depth=2)), lags=3, width=2)),
    "lags of one input": lambda: with_lags(made_of(blocks(1, 6, 8)), lags=4),
}


def with_lags(model, lags, known_inputs=0, width=None):
    width = model.core.input_size if width is None else width
    model.recent = RecentSteps(lags, width, 3, known_inputs, dtype=torch.float64)
    nn.init.normal_(model.recent.weight)
    return model


def with_series(model):
    """Of 4 inputs of the core, 2 are a vector of one of 3 series."""
    model.series = SeriesVectors(3, 2, dtype=torch.float64)
    return model


def inputs_of(model, steps):
    if model.token_classes is not None:
        return torch.randint(model.token_classes, (steps,))
    x = torch.randn(steps, model.core.input_size).double() * 2 + 0.5
    if model.series is not None:
        x = torch.cat([x[:, :2], torch.randint(4, (steps, 1))], 1)
    return x


def every_step(model, x):
    """The prediction after each step, by the definition of the pools, and the largest number on the way to it."""
    with torch.no_grad():
        read, lagged = model.read(x[:, None])[:2]
        out = model.core(read)[0][:, 0]
        count = torch.arange(1, len(out) + 1)[:, None]
        pools = {"last": out, "mean": out.cumsum(0) / count, "largest": out.cummax(0).values}
        names = {"both": ("last", "mean"), "summary": ("last", "mean", "largest")}.get(model.pool, (model.pool,))
        y = model.head(torch.cat([pools[name] for name in names], -1))
        if model.recent is not None:
            y = y + model.recent(lagged, "all")[:, 0]
        whole = model(x[:, None])
    last = whole[0] if model.output == "last" else whole[-1, 0]
    assert torch.allclose(y[-1], last, rtol=1e-9, atol=1e-9)
    return y.numpy()
