"""The overview of a network names every parameter once."""

from __future__ import annotations

import xml.etree.ElementTree

import pytest
import torch

from orthornn import (
    GORU,
    Householder,
    OrthogonalBlocks,
    OrthogonalRNN,
    OrthogonalRNNCell,
    PeepholeLSTM,
    ReflectionRNN,
    RestrictedUnitary,
)
from orthornn.learn.systems import model_named
from orthornn.learn.systems.build import build

NETWORKS = {
    "rnn": lambda: OrthogonalRNN(3, 8, 2, bidirectional=True, parametrization=Householder(4)),
    "unitary": lambda: OrthogonalRNN(3, 8, parametrization=RestrictedUnitary(), nonlinearity="modrelu"),
    "blocks": lambda: OrthogonalBlocks(3, 8, 2),
    "goru": lambda: GORU(3, 8),
    "lstm": lambda: PeepholeLSTM(3, 8),
    "reflections": lambda: ReflectionRNN(3, 8),
    "cell": lambda: OrthogonalRNNCell(3, 8, parametrization=Householder(4)),
    "whole": lambda: build(model_named("ornn", hidden_size=8), 3, 2, output="last", tokens=False),
}


def cells(network):
    tree = xml.etree.ElementTree.fromstring(network._repr_html_())
    title = tree.find("table/caption").text
    return title, [[cell.text or "" for cell in row] for row in tree.findall("table/tbody/tr")]


@pytest.mark.parametrize("name", NETWORKS)
def test_every_parameter_is_counted_once(name):
    network = NETWORKS[name]()
    title, rows = cells(network)
    total = sum(parameter.numel() for parameter in network.parameters())
    assert f"{type(network).__name__}: {total:,} parameters" in title
    assert sum(int(row[3].replace(",", "")) for row in rows) == total
    shapes = [part for row in rows for part in row[2].split(", ")]
    assert len(shapes) == len(list(network.parameters()))
    errors = [float(row[4]) for row in rows if row[4]]
    assert all(error < 1e-4 for error in errors)


def test_transitions_show_how_orthogonal_they_are():
    network = OrthogonalRNN(3, 8, num_layers=2)
    assert len([row for row in cells(network)[1] if row[4]]) == 2


def test_networks_without_values_and_weights_that_are_not_trained():
    assert [row[4] for row in cells(OrthogonalRNN(3, 8, device="meta"))[1]] == ["", ""]
    network = torch.nn.Sequential(OrthogonalRNN(3, 8), torch.nn.Linear(8, 2))
    network[1].requires_grad_(False)
    from orthornn.modules.overview import network_html

    assert "18 of them not trained" in network_html(network)
