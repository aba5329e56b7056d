"""The suite trains what is missing, stores what it found, and compares fairly."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn

from orthornn.errors import ArgumentError
from orthornn_evidence.swap import suite
from orthornn_evidence.swap.layers import LAYERS, MEASURE
from orthornn_evidence.swap.script import Places, Script, seconds_per_update, train
from orthornn_evidence.swap.scripts import SCRIPTS
from orthornn_evidence.swap.table import lines, swap

WITHOUT_DATA = ["packed", "packed-both-ways", "forecast", "copying-200", "adding-400", "oscillator"]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", WITHOUT_DATA)
def test_every_layer_is_trained_by_every_script(name, layer):
    script = SCRIPTS[name](Places())
    torch.manual_seed(0)
    network = script.network(LAYERS[layer])
    loss = script.loss(network, script.batch(0, torch.Generator().manual_seed(0)))
    loss.backward()
    assert math.isfinite(loss.item())
    assert all(p.grad.isfinite().all() for p in network.parameters() if p.grad is not None)


class Line(nn.Module):
    """y = w x; the "layer" makes w."""

    def __init__(self, layer):
        super().__init__()
        self.w = nn.Parameter(layer(1, 1))

    def forward(self, x):
        return self.w * x


def toy(updates: int = 5) -> Script:
    return Script(
        network=Line,
        batch=lambda number, generator: torch.randn(4, generator=generator),
        loss=lambda network, x: (network(x) - 2 * x).square().mean(),
        score=lambda network: float((network.w - 2).square()),
        chance=4.0,
        updates=updates,
        metric="squared error",
    )


def zero(inputs, width):
    return torch.zeros(1)


def test_a_score_is_read_after_each_number_of_updates():
    one = train(toy(), zero, 0.1, 0, [1])
    assert train(toy(), zero, 0.1, 0, [7, 1, 7])[1] == one[0]
    first, again, last = train(toy(), zero, 0.1, 0, [2, 2, 9])
    assert first == again > last
    assert train(toy(), zero, 0.1, 1, [7]) != train(toy(), zero, 0.1, 0, [7])  # another seed, other batches


def test_what_diverges_has_no_score():
    broken = toy()
    script = Script(**{**vars(broken), "loss": lambda network, x: broken.loss(network, x) * math.nan})
    assert all(map(math.isnan, train(script, zero, 0.1, 0, [1, 3])))


def test_times_are_of_every_layer():
    found = seconds_per_update(toy(), {"a": zero, "b": zero}, rounds=3, each=1)
    assert set(found) == {"a", "b"}
    assert min(found.values()) > 0


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "LAYERS", {name: zero for name in LAYERS})
    suite.run(tmp_path / "swap" / "packed.json", "packed", toy(), ["nn.RNN", MEASURE], 2)
    return tmp_path


def test_what_is_stored_is_not_trained_again(results, monkeypatch):
    file = results / "swap" / "packed.json"
    before = json.loads(file.read_text())
    assert len(before["cells"]) == 2 * len(suite.RATES) * 2
    assert {cell["seed"] for cell in before["cells"][:4]} == {0}  # one seed of all layers first
    monkeypatch.setattr(suite, "train", lambda *_: pytest.fail("trained again"))
    suite.run(file, "packed", toy(), ["nn.RNN", MEASURE], 2)
    assert json.loads(file.read_text()) == before


def test_a_layer_that_comes_later_has_the_time_of_the_same_lstm(results, monkeypatch):
    file = results / "swap" / "packed.json"
    before = json.loads(file.read_text())["seconds"]
    monkeypatch.setattr(
        suite, "seconds_per_update", lambda script, layers: dict.fromkeys(layers, 7.0) | {MEASURE: 14.0}
    )
    suite.run(file, "packed", toy(), ["OrthogonalRNN"], 1)
    stored = json.loads(file.read_text())
    assert {name: stored["seconds"][name] for name in before} == before
    assert stored["seconds"]["OrthogonalRNN"] == pytest.approx(before[MEASURE] / 2, abs=1e-5)
    assert stored["cells"][-1]["updates"] == [5, 10]


def store(folder, name, cells, **entries):
    file = folder / "swap" / f"{name}.json"
    file.parent.mkdir(exist_ok=True)
    given = {"metric": "squared error", "higher_is_better": False, "chance": 1.0, "seconds": {}, **entries}
    given["cells"] = [
        {"layer": layer, "rate": rate, "seed": seed, "updates": [1, 2], "scores": scores}
        for layer, rate, seed, scores in cells
    ]
    file.write_text(json.dumps(given))


def test_tables_have_the_better_rate_and_the_best_layer_bold(tmp_path):
    cells = [("nn.RNN", rate, seed, [rate + seed / 100, 0.5]) for rate in (0.1, 0.3) for seed in range(2)]
    cells += [("OrthogonalRNN", 0.1, seed, [0.2 + seed / 100, None if seed else 0.1]) for seed in range(2)]
    store(tmp_path, "packed", cells)
    (line,) = lines(tmp_path, "width")
    assert line.scores["nn.RNN"].values == [0.1, 0.11]
    assert "**0.105 ± 0.007**" in swap(tmp_path, "width")
    assert lines(tmp_path, "time")[0].scores["OrthogonalRNN"].values == [0.1, 1.0]  # what diverged counts as chance
    assert "nn.LSTM" not in swap(tmp_path, "width")
    assert "width and updates: better than `nn.RNN` in 0 of 1 scripts, worse in 1 (packed)." in swap(
        tmp_path, "verdicts"
    )


def test_accuracies_are_percent_and_more_is_better(tmp_path):
    cells = [("nn.LSTM", 0.1, 0, [0.5, 0.5]), ("OrthogonalRNN", 0.1, 0, [0.75, 0.75])]
    store(tmp_path, "packed", cells, metric="accuracy", higher_is_better=True, chance=0.25)
    assert "| packed | accuracy | 25.0 | 50.0 | **75.0** |" in swap(tmp_path, "time")
    assert "better than `nn.LSTM` in 1 of 1 scripts, worse in 0." in swap(tmp_path, "verdicts")
    assert "`OrthogonalBlocks`" not in swap(tmp_path, "verdicts")  # there is nothing to say
    sentence = "better than `nn.RNN` in 0 and worse in 0, better than `nn.LSTM` in 1 and worse in 0"
    assert sentence in swap(tmp_path, "short")
    assert swap(tmp_path, "front").splitlines()[-1] == "| packed (%) |  | 50.0 |  | **75.0** |  |"


def test_what_no_layer_learns_is_neither_won_nor_lost(tmp_path):
    store(tmp_path, "packed", [("nn.RNN", 0.1, 0, [1.3, 1.3]), ("OrthogonalRNN", 0.1, 0, [1.1, 1.1])])
    assert swap(tmp_path, "verdicts") == ""
    assert "packed" in swap(tmp_path, "time")


def test_another_kind_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="kind"):
        swap(tmp_path, "length")
