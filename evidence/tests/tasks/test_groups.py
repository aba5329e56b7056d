"""Group words against constructions that share nothing with the tables: matrices, complex numbers, rotations of a solid."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from orthornn.errors import ArgumentError
from orthornn_evidence.tasks import Groups, ModularSums, Parity
from orthornn_evidence.tasks.finite_groups import group_named

NAMES = ["S2", "S3", "S4", "S5", "A3", "A4", "A5", "Z1", "Z2", "Z7", "D3", "D4", "D5"]


def as_matrices(name: str) -> np.ndarray:
    """A faithful representation from the labels alone: permutation matrices, complex numbers, rotations of the plane."""
    group, n = group_named(name), int(name[1:])
    if name[0] in "SA":
        matrices = np.zeros((group.order, n, n))
        for i, label in enumerate(group.labels):
            for at, image in enumerate(label):
                matrices[i, int(image) - 1, at] = 1
        return matrices
    if name[0] == "Z":
        return np.exp(2j * np.pi * np.array([int(label) for label in group.labels]) / n)[:, None, None]

    def turn(k: int) -> np.ndarray:
        c, s = math.cos(2 * math.pi * k / n), math.sin(2 * math.pi * k / n)
        return np.array([[c, -s], [s, c]])

    flip = np.diag([1.0, -1.0])
    return np.stack([(flip if label[0] == "s" else np.eye(2)) @ turn(int(label[1:])) for label in group.labels])


@pytest.mark.parametrize("name", NAMES)
def test_the_table_is_that_of_matrices(name):
    group, matrices = group_named(name), as_matrices(name)
    distances = np.abs(matrices[:, None] - matrices[None]).max((2, 3)) + 10 * np.eye(group.order)
    assert distances.min() > 1e-6  # faithful
    for a in range(group.order):
        products = matrices[a] @ matrices
        np.testing.assert_allclose(matrices[group.table[a]], products, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_laws_and_generators(name):
    group = group_named(name)
    table, everything = group.table, np.arange(group.order)
    assert np.array_equal(table[group.identity], everything)
    assert np.array_equal(table[:, group.identity], everything)
    assert all(len(set(row)) == group.order for row in (*table, *table.T))
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(0, group.order, (3, 500))
    assert np.array_equal(table[table[a, b], c], table[a, table[b, c]])
    reached, last = {group.identity}, {group.identity}
    while last:
        last = {int(table[g, x]) for g in group.generators for x in last} - reached
        reached |= last
    assert len(reached) == group.order


@pytest.mark.parametrize(
    ("name", "orders"),
    [
        ("S3", {1: 1, 2: 3, 3: 2}),
        ("S4", {1: 1, 2: 9, 3: 8, 4: 6}),
        ("S5", {1: 1, 2: 25, 3: 20, 4: 30, 5: 24, 6: 20}),
        ("A4", {1: 1, 2: 3, 3: 8}),
        ("A5", {1: 1, 2: 15, 3: 20, 5: 24}),
        ("D4", {1: 1, 2: 5, 4: 2}),
        ("Z6", {1: 1, 2: 1, 3: 2, 6: 2}),
    ],
)
def test_how_many_elements_have_each_order(name, orders):
    group, found = group_named(name), {}
    for a in range(group.order):
        power, order = a, 1
        while power != group.identity:
            power, order = group.table[a, power], order + 1
        found[order] = found.get(order, 0) + 1
    assert found == orders


def test_a5_is_the_icosahedron():
    """The rotations of an icosahedron, from its corners alone, have the class sums of A5's table: it is the same group."""
    golden = (1 + math.sqrt(5)) / 2
    corners = np.array([np.roll((0, s, t * golden), k) for s, t, k in itertools.product((1, -1), (1, -1), range(3))])
    edge = [
        (i, j) for i, j in itertools.permutations(range(12), 2) if abs(np.dot(corners[i], corners[j]) - golden) < 1e-9
    ]
    frame = np.stack([corners[edge[0][0]], corners[edge[0][1]], np.cross(corners[edge[0][0]], corners[edge[0][1]])], 1)
    images = [np.stack([corners[i], corners[j], np.cross(corners[i], corners[j])], 1) for i, j in edge]
    rotations = np.stack([image @ np.linalg.inv(frame) for image in images])
    assert len(rotations) == 60
    code = {tuple(np.round(R, 6).ravel() + 0.0): i for i, R in enumerate(rotations)}
    mine = np.array([[code[tuple(np.round(A @ B, 6).ravel() + 0.0)] for B in rotations] for A in rotations])
    identity = code[tuple(np.eye(3).ravel())]

    def presentation(table: np.ndarray, unit: int) -> int:
        """Pairs (a, b) with a^2 = b^3 = (ab)^5 = 1, none of them 1, which generate A5; their number is an invariant."""

        def is_order(x: int, n: int) -> bool:
            power = x
            for _ in range(n - 1):
                power = table[x, power]
            return power == unit and x != unit

        twos = [a for a in range(60) if is_order(a, 2)]
        threes = [b for b in range(60) if is_order(b, 3)]
        return sum(is_order(table[a, b], 5) for a in twos for b in threes)

    ours = group_named("A5")
    assert presentation(mine, identity) == presentation(ours.table, ours.identity) == 120


@pytest.mark.parametrize("name", ["S1", "S8", "A2", "D2", "Z0", "Q8", "5", "", "S-3", "s5", None, 5])
def test_an_unknown_group_is_named(name):
    with pytest.raises(ArgumentError, match="Expected a group"):
        group_named(name)


@pytest.mark.parametrize("tokens", ["elements", "generators"])
@pytest.mark.parametrize("name", ["S5", "A5", "D4", "Z3"])
def test_targets_are_products_of_matrices(name, tokens):
    task = Groups(group=name, tokens=tokens, T=9, test_length=20)
    matrices, letters = as_matrices(name), task.letters
    inputs, targets = task.problem().train(3, 4, 1)
    assert inputs.shape == targets.shape == (9, 4)
    assert (task.problem().schema["input_size"], task.problem().schema["output_size"]) == (len(letters), len(matrices))
    assert int(inputs.max()) < task.problem().schema["input_size"]
    for b in range(4):
        product = np.eye(matrices.shape[1])
        for token, target in zip(inputs[:, b], targets[:, b]):
            product = matrices[letters[token]] @ product
            np.testing.assert_allclose(matrices[target], product, atol=1e-9)


def test_parity_and_modular_sums():
    inputs, targets = Parity(T=30).problem().train(0, 5, 0)
    assert torch.equal(targets, inputs.cumsum(0) % 2)
    inputs, targets = ModularSums(T=30, modulus=7).problem().train(0, 5, 0)
    assert torch.equal(targets, inputs.cumsum(0) % 7)
    assert Parity().objective().trivial_loss == pytest.approx(math.log(2))
    assert ModularSums(modulus=7).objective().trivial_metric == pytest.approx(1 / 7)


def test_the_curriculum_doubles_up_to_t():
    task = Groups(group="S3", T=50, start=4, double_every=10)
    assert [task.length_at(step) for step in (0, 9, 10, 20, 30, 40, 10**9)] == [4, 4, 8, 16, 32, 50, 50]
    assert [len(task.problem().train(step, 2, 0).inputs) for step in (0, 10, 40)] == [4, 8, 50]
    assert Groups(T=50).length_at(0) == 50
    assert task.test_lengths == (50, 100, 200, 400, 800, 1024)
    assert Groups(T=64, test_length=64).test_lengths == (64,)


def test_the_trivial_answer_of_elements_is_uniform():
    task = Groups(group="A5")
    assert task.objective().trivial_loss == pytest.approx(math.log(60))
    assert task.objective().trivial_metric == pytest.approx(1 / 60)
    assert task.marginals(3) == pytest.approx(np.full((3, 60), 1 / 60))


def test_the_trivial_answer_of_generators_is_a_walk():
    """S3 with (1 2) and (1 2 3): by enumeration of all words of up to five letters."""
    task = Groups(group="S3", tokens="generators", T=5, test_length=5)
    words = np.array(list(itertools.product(range(task.problem().schema["input_size"]), repeat=5))).T
    products = task.finite_group.after(task.letters[words])
    shares = np.stack([np.bincount(row, minlength=6) / words.shape[1] for row in products])
    assert task.marginals(5) == pytest.approx(shares)
    entropy = -sum(p * math.log(p) for row in shares for p in row if p > 0) / 5
    assert task.objective().trivial_loss == pytest.approx(entropy)
    assert task.objective().trivial_metric == pytest.approx(shares.max(1).mean())


def test_metrics_at_every_length_and_batches_that_add_up():
    task = Groups(group="S3", T=4, test_length=16, test_size=7)
    batches = list(task.problem().test(3))
    assert [batch.inputs.shape for batch in batches] == [(16, 3), (16, 3), (16, 1)]
    targets = batches[0].targets
    right = torch.nn.functional.one_hot(targets, 6).float() * 100
    right[8:] = right[8:].roll(1, -1)  # wrong after the eighth letter
    found = task.objective().metrics(right, targets)
    assert {name: total / count for name, (total, count) in found.items() if name != "loss"} == {
        "accuracy": 0.5,
        "accuracy_4": 1.0,
        "accuracy_8": 1.0,
        "accuracy_16": 0.0,
    }
    (validation,) = task.problem().validation(500)
    assert validation.inputs.shape == (4, 200)
    assert set(task.objective().metrics(right[:4], targets[:4])) == {"loss", "accuracy", "accuracy_4"}


def test_bad_descriptions_are_refused():
    for wrong in ({"T": 0}, {"tokens": "letters"}, {"group": "M11"}, {"test_length": 31}, {"double_every": -1}):
        with pytest.raises(ArgumentError):
            Groups(**wrong)
    with pytest.raises(ArgumentError):
        ModularSums(modulus=0)
