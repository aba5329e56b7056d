"""Warnings are at the user's line, whatever is between it and them."""

from __future__ import annotations

import ast
import functools
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import orthornn
from orthornn import Householder, MatrixExponential, OrthogonalRNN, Stiefel, convert
from orthornn._warnings import warn
from orthornn.errors import OrthornnWarning
from orthornn.kernels.backends import CPP
from orthornn.kernels.dispatch import _warn_of_reference
from orthornn.learn.tasks import Forecast

SOURCE = Path(orthornn.__file__).parent


def constructor() -> None:
    OrthogonalRNN(2, 3, dropout=0.5)


def conversion() -> None:
    convert(OrthogonalRNN(2, 4, parametrization=MatrixExponential()), Householder(reflections=1), approximate=True)


def hook_of_an_optimizer() -> None:
    net = OrthogonalRNN(2, 3, parametrization=Stiefel())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    net(torch.randn(4, 2, 2))[0].sum().backward()
    optimizer.step()


def forward_of_a_network() -> None:
    _warn_of_reference.cache_clear()
    torch.nn.Sequential(OrthogonalRNN(2, 3))(torch.randn(4, 2, 2))
    _warn_of_reference.cache_clear()


def cached_property() -> None:
    Forecast(data="a.csv", target="x", skipped=1, window=4).table()


@pytest.mark.parametrize("act", [constructor, conversion, hook_of_an_optimizer, forward_of_a_network, cached_property])
def test_a_warning_is_at_the_users_line(act, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(CPP, "unavailable", lambda device: "they are hidden")
    Path("a.csv").write_text("at,x\n" + "".join(f"{i},{np.sin(i)}\n" for i in range(40)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        functools.partial(act)()
    told = [warning for warning in caught if issubclass(warning.category, OrthornnWarning)]
    assert told
    first, last = act.__code__.co_firstlineno, max(line for *_, line in act.__code__.co_lines() if line)
    assert all(warning.filename == __file__ and first < warning.lineno <= last for warning in told)


def test_once_per_line_and_as_an_error():
    def twice() -> None:
        for _ in range(2):
            warn("as before")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        twice()
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OrthornnWarning, match="as before"):
            twice()


def test_no_module_counts_frames():
    """`warnings.warn` names a frame by its distance, which a decorator changes."""
    counting = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "warn" and ast.unparse(node) == "warnings.warn"
    ]
    assert not counting, f"Expected orthornn._warnings.warn, but got warnings.warn in {', '.join(counting)}."
