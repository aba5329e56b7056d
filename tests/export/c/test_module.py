"""A network is written only if its module computes head(core(x)): what surrounds them would be lost without a word."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import orthornn
from orthornn import Householder, OrthogonalRNN, OrthogonalRNNCell
from orthornn.errors import ArgumentError, CheckpointError, OrthornnWarning
from orthornn.export import rounded, to_audio, to_c

WRITE = {
    "to_c": to_c,
    "to_audio": to_audio,
    "rounded": lambda network, folder: rounded(network),
}


class Network(nn.Module):
    """forward: a function of the module and x."""

    def __init__(self, forward, **options):
        super().__init__()
        self.core = OrthogonalRNN(3, 5, nonlinearity="tanh", **options)
        self.head, self.norm, self._forward = nn.Linear(5, 2), nn.LayerNorm(3), forward

    def forward(self, x):
        return self._forward(self, x)


MORE = {
    "before the core": lambda self, x: self.head(self.core(self.norm(x))[0]),
    "scaled": lambda self, x: self.head(self.core(10 * x)[0]),
    "behind the core": lambda self, x: self.head(self.core(x)[0].relu()),
    "behind the head": lambda self, x: self.head(self.core(x)[0]).softmax(-1),
    "mean": lambda self, x: self.head(self.core(x)[0].mean(0)),
}
SAME = {
    "all": lambda self, x: self.head(self.core(x)[0]),
    "last": lambda self, x: self.head(self.core(x)[0][-1]),
    "pair": lambda self, x: (self.head(self.core(x)[0]), None),
    "transposed": lambda self, x: self.head(self.core(x.transpose(0, 1))[0][-1]),
}
OTHER = {
    "raises": lambda self, x: self.head(x),
    "sum": lambda self, x: self.head(self.core(x)[0]).sum(),
    "no tensor": lambda self, x: {"y": self.head(self.core(x)[0])},
}


@pytest.mark.parametrize("write", WRITE)
@pytest.mark.parametrize("case", MORE)
def test_a_forward_that_computes_more_is_refused_before_anything_is_written(case, write, tmp_path):
    with pytest.raises(ArgumentError, match=r"computes head\(core\(x\)\).*but got Network, whose forward differs"):
        WRITE[write](Network(MORE[case]).eval(), tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("case", SAME)
def test_a_forward_in_any_layout_is_compared(case, tmp_path):
    model = Network(SAME[case], batch_first=case == "transposed")
    model.norm.eval()
    modes = [module.training for module in model.modules()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        to_c(model, tmp_path)
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize("case", OTHER)
def test_a_forward_that_cannot_be_compared_is_reported(case, tmp_path):
    with pytest.warns(OrthornnWarning, match="could not be compared with the forward of Network") as caught:
        to_c(Network(OTHER[case]), tmp_path)
    assert caught[0].filename == __file__


def test_a_hook_on_the_core_is_noticed(tmp_path):
    model = Network(SAME["all"])
    model.core.register_forward_hook(lambda core, given, made: (2 * made[0], made[1]))
    for write in (to_c, to_audio):
        with pytest.raises(CheckpointError, match="agree with the module"):
            write(model, tmp_path)


def test_an_orthogonal_readout_is_a_readout(tmp_path):
    model = Network(SAME["all"])
    orthornn.orthogonalize(model.head, "weight", Householder())
    made = to_c(model, tmp_path)
    assert torch.equal(torch.from_numpy(made.network.Y), model.head.weight.double())


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (
            nn.Sequential(OrthogonalRNN(2, 3), nn.Linear(3, 1)),
            "but got Sequential, .*Name the recurrent network `core`",
        ),
        (nn.ModuleDict({"cell": OrthogonalRNNCell(2, 3)}), "but got ModuleDict, .*or pass the recurrent network only"),
        (nn.LSTM(2, 3), "but got LSTM, .*Train an OrthogonalRNN instead"),
    ],
    ids=["sequential", "cell", "lstm"],
)
def test_the_refusal_says_what_to_do(network, message, tmp_path):
    with pytest.raises(ArgumentError, match=message):
        to_c(network, tmp_path)


def test_a_compiled_module_is_refused_with_the_way_to_its_own(tmp_path):
    network = torch.compile(OrthogonalRNN(2, 3))
    with pytest.raises(ArgumentError, match=r"Pass the module before torch\.compile, \._orig_mod"):
        to_c(network, tmp_path)
    to_c(network._orig_mod, tmp_path)
