"""Training on words in a group, and exact representations from approximate states."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from orthornn.errors import ArgumentError
from orthornn_evidence import group_words
from orthornn_evidence.group_words import (
    Recipe,
    WordNetwork,
    accuracies,
    exact_representation,
    reflectors_of,
    snap,
    train,
)
from orthornn_evidence.tasks.finite_groups import group_named

EXACT = 1e-10


def product(reflectors: torch.Tensor) -> torch.Tensor:
    W = torch.eye(reflectors.shape[1], dtype=torch.float64)
    for u in reflectors:
        W = W - 2 * torch.outer(u, u @ W) / (u @ u)
    return W


@pytest.mark.parametrize(("n", "rank", "count"), [(1, 1, 1), (5, 0, 4), (5, 1, 3), (6, 4, 4), (8, 2, 4), (4, 4, 4)])
def test_reflectors_of_a_matrix(n, rank, count):
    W = product(torch.randn(rank, n, dtype=torch.float64)) if rank else torch.eye(n, dtype=torch.float64)
    found = reflectors_of(W, count)
    assert found.shape == (count, n)
    torch.testing.assert_close(product(found), W, rtol=0, atol=EXACT)


@pytest.mark.parametrize(("rank", "count"), [(4, 2), (2, 3), (3, 4), (0, 1)])
def test_a_matrix_that_takes_other_reflections_is_refused(rank, count):
    W = product(torch.randn(rank, 6, dtype=torch.float64)) if rank else torch.eye(6, dtype=torch.float64)
    with pytest.raises(ArgumentError, match=f"{count} reflections"):
        reflectors_of(W, count)


@pytest.mark.parametrize("name", ["S4", "A5", "D5", "Z7"])
def test_a_representation_from_states_with_noise(name):
    """States of an exact orbit, turned and disturbed by a thousandth: the matrices are exact and near the states."""
    group, generator = group_named(name), torch.Generator().manual_seed(0)
    n = 7
    regular = torch.zeros(group.order, group.order, group.order, dtype=torch.float64)
    table = torch.from_numpy(group.table)
    for g in range(group.order):
        regular[g, table[g], torch.arange(group.order)] = 1
    # An invariant subspace: an eigenspace of an invariant matrix of random class-blind weights.
    weights = torch.randn(group.order, dtype=torch.float64, generator=generator)
    inverse = (table == group.identity).int().argmax(1)
    invariant = weights[table[inverse]]
    values, vectors = torch.linalg.eigh(invariant + invariant.mT)
    close = (values - values[-1]).abs() < 1e-9
    basis = vectors[:, close]
    dimension = basis.shape[1]
    assert dimension <= n
    turn = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator))[0][:, :dimension]
    states = 3 * basis @ turn.mT
    noisy = states + 0.001 * states.abs().max() * torch.randn(states.shape, dtype=torch.float64, generator=generator)
    letters = np.arange(group.order)
    matrices, first, found = exact_representation(group, noisy, letters)
    assert found["dimension"] == dimension
    identity = torch.eye(n, dtype=torch.float64)
    for a in range(group.order):
        torch.testing.assert_close(matrices[a].mT @ matrices[a], identity, rtol=0, atol=EXACT)
        torch.testing.assert_close(matrices[a] @ matrices, matrices[table[a]], rtol=0, atol=EXACT)
        torch.testing.assert_close(matrices[a] @ first, states[a], rtol=0, atol=0.01 * float(states.abs().max()))


def test_words_of_s3_are_learned_and_made_exact():
    recipe = Recipe(group="S3", hidden_size=4, reflections=2, lr=0.05, budget=512, polish=60, longest=32)
    result = train(recipe, 0)
    assert result.finished
    assert [length for length, _, _ in result.lengths] == [4, 8, 16, 32]
    assert accuracies(result.network, recipe, [32], words=50)[32] == 1
    exact, found = snap(result.network, recipe)
    assert found["elements_read_right"] == 6
    assert found["distance"] < 0.5
    assert accuracies(exact, recipe, [10, 20_000], words=20) == {10: 1.0, 20_000: 1.0}
    again = train(recipe, 0)
    assert all(torch.equal(a, b) for a, b in zip(result.network.parameters(), again.network.parameters()))


@pytest.mark.parametrize("letters", group_words.LETTERS)
def test_kinds_of_letters_have_the_parameters_that_are_reported(letters):
    network = WordNetwork(Recipe(letters=letters))
    count = sum(p.numel() for p in network.parameters())
    rest = 8 * 120 + 120 + 8
    assert count - rest == {"elements": 120 * 32, "generators": 2 * 32, "projections": 24 * (120 + 32 + 4)}[letters]
    assert count < 5000
    with pytest.raises(ArgumentError, match="letters"):
        Recipe(letters="words")


def test_time_and_patience_run_out():
    """At a rate of nothing nothing is learned: training starts again, and ends with what it has."""
    result = train(Recipe(group="S3", lr=0.0, patience=5, limit=0.2, budget=64), 0)
    assert not result.finished
    assert result.starts > 2
    assert result.lengths[0][0] == 4


def test_the_command_writes_every_seed(tmp_path, capsys):
    small = "--hidden-size 4 --reflections 2 --longest 8 --polish 20 --lr 0.05 --budget 256"
    before = torch.get_num_threads()
    try:
        group_words.main(
            ["--group", "S3", "--seeds", "2", "--exact-steps", "5000", "--out", str(tmp_path), *small.split()]
        )
    finally:
        torch.set_num_threads(before)
    record = json.loads((tmp_path / "s3-elements-20.json").read_text())  # --polish is in the name
    assert record["recipe"]["hidden_size"] == 4
    assert [run["seed"] for run in record["runs"]] == [0, 1]
    assert len(capsys.readouterr().out.splitlines()) == 2
    for run in record["runs"]:
        assert set(run["accuracy"]) == {"32", "128", "512", "1024", "4096"}
