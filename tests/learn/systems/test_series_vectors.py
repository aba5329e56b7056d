"""Vectors of series: what the core reads, everywhere that a network is run."""

from __future__ import annotations

import pytest
import torch

from orthornn.errors import ArgumentError
from orthornn.export.graphs import prepare
from orthornn.learn.systems import build
from orthornn.learn.systems.series_vectors import SeriesVectors
from orthornn.learn.systems.streaming import Stream


def network(name="gru", output="all", **options):
    torch.manual_seed(1)
    model = build(name, 4, 3, hidden_size=5, output=output, last_input=(6, 2), known_inputs=1, **options).eval()
    if model.recent is not None:
        torch.nn.init.normal_(model.recent.weight)
    return model


def rows(*shape, series):
    x = torch.randn(*shape, 4)
    x[..., -1] = torch.as_tensor(series).float()
    return x


def test_a_series_is_its_vector_and_another_one_the_mean_of_all():
    vectors = SeriesVectors(6, 2)
    x = torch.randn(7, 3)
    x[:, -1] = torch.arange(7.0)
    found = vectors(x)
    assert found.shape == (7, 4)
    torch.testing.assert_close(found[:, :2], x[:, :2])
    torch.testing.assert_close(found[:6, 2:], vectors.weight)
    torch.testing.assert_close(found[6, 2:], vectors.weight.mean(0))
    (gradient,) = torch.autograd.grad(found[2, 2:].sum() + found[6, 2:].sum(), vectors.weight)
    assert (gradient[:, 0] * 6).round().tolist() == [1, 1, 7, 1, 1, 1]


@pytest.mark.parametrize("name", ["gru", "ornn", "blocks", "goru"])
@pytest.mark.parametrize("output", ["all", "last"])
def test_whole_sequences_packed_ones_and_streams_agree(name, output):
    model = network(name, output, lags=3)
    sequences = [rows(length, series=place) for place, length in ((0, 4), (5, 7), (6, 1))]
    alone = [model(one.unsqueeze(1)) for one in sequences]
    packed = torch.nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
    together = model(packed)
    if output == "last":
        torch.testing.assert_close(together, torch.cat(alone))
    else:
        expected = torch.nn.utils.rnn.pack_sequence([one[:, 0] for one in alone], enforce_sorted=False).data
        torch.testing.assert_close(together, expected)
    stream = Stream(model)
    steps = torch.stack([stream(x.unsqueeze(0)) for x in sequences[1]])
    torch.testing.assert_close(steps if output == "all" else steps[-1], alone[1])
    other = sequences[1].clone()
    other[:, -1] = 2
    assert not torch.allclose(model(other.unsqueeze(1)), alone[1])


@pytest.mark.parametrize("output", ["all", "last"])
def test_both_graphs_of_an_export_read_the_number_of_the_series(output):
    model = network("gru", output, lags=2)
    model, sequence, step, _ = prepare(model)
    x = rows(6, 3, series=[0, 4, 6])
    expected = model(x)
    torch.testing.assert_close(sequence(x), expected, atol=1e-5, rtol=1e-5)
    state, found = step.state.unsqueeze(1).expand(-1, 3, -1).contiguous(), []
    for own in x:
        y, state = step(own, state)
        found.append(y)
    torch.testing.assert_close(torch.stack(found) if output == "all" else found[-1], expected, atol=1e-5, rtol=1e-5)


def test_sizes_that_no_vector_has():
    for wrong in ((0, 2), (6, 0), (6, 5000)):
        with pytest.raises(ArgumentError, match=r"Expected (series|embedding) to be"):
            build("gru", 4, 3, hidden_size=5, last_input=wrong)
