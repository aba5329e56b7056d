"""Finite automata and the machines made of them, against matrices, brute force and ReflectionRNN."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from orthornn import ReflectionRNN
from orthornn.automata import Automaton, Layer, Machine, Rule, extract, machine_of
from orthornn.errors import ArgumentError, DTypeError, ShapeError

NO_000 = Automaton([[1, 0], [2, 0], [3, 0], [3, 3]], [1, 1, 1, 0])  # Tomita 4
BRACKETS = Automaton([[1, 4], [2, 0], [3, 1], [4, 2], [4, 4]], [1, 0, 0, 0, 0])  # at most 3 deep
FLIP_FLOP = Automaton([[0, 0, 1], [1, 0, 1]], [0, 1])


def some_automaton(seed: int) -> Automaton:
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 6))
    return Automaton(random.integers(0, count, (count, 1 + seed % 3)), random.integers(0, 2, count), seed % count)


def symmetric_group(n: int) -> Automaton:
    """The orders of n things as states; the tokens swap the first two, and move all by one place."""
    orders = list(itertools.permutations(range(n)))
    swapped = [orders.index((o[1], o[0], *o[2:])) for o in orders]
    turned = [orders.index((*o[1:], o[0])) for o in orders]
    return Automaton(np.column_stack([swapped, turned]), range(len(orders)))


def matrix(rule: Rule, size: int) -> np.ndarray:
    """Return the product of I - s u u' / u'u, the first factor on the right."""
    W, identity = np.eye(size), np.eye(size)
    for strength, i, j in rule.factors:
        u = identity[i] - identity[j] if i != j else identity[i]
        W = (identity - strength * np.outer(u, u) / (u @ u)) @ W
    return W


def all_maps(table: np.ndarray) -> list[tuple[int, ...]]:
    """Return the map of every word, as the images of the states."""
    found = [tuple(range(len(table)))]
    for images in found:
        found += [f for f in (tuple(column[list(images)].tolist()) for column in table.T) if f not in found]
    return found


def is_ruled_out(table: np.ndarray) -> bool:
    """Return whether step 5 of the derivation rules out every single layer."""
    count = len(table)
    identity = np.eye(count)
    maps = all_maps(table)
    matrices = [identity[:, list(f)] for f in maps]  # column q is e_f(q)
    idempotent = [T for T in matrices if (T @ T == T).all()]
    differences = identity[:, 1:] - identity[:, :1]
    relations = [(E @ F - F @ E) @ differences for E, F in itertools.combinations(idempotent, 2)]
    if not relations:
        return False
    span = np.hstack([T @ c for T in matrices for c in relations])
    rank = np.linalg.matrix_rank(span)
    return any(
        np.linalg.matrix_rank(np.column_stack([span, identity[p] - identity[q]])) == rank
        for p, q in itertools.combinations(range(count), 2)
    )


@pytest.mark.parametrize("seed", range(12))
def test_the_minimal_automaton_has_the_same_outputs_and_no_two_equal_states(seed):
    automaton = some_automaton(seed)
    minimal = automaton.minimal()
    word = np.random.default_rng(seed).integers(0, automaton.table.shape[1], (60, 3))
    assert np.array_equal(minimal.run(word), automaton.run(word))
    for p, q in itertools.combinations(range(len(minimal.table)), 2):
        tails = itertools.product(range(minimal.table.shape[1]), repeat=len(minimal.table))
        starts = [Automaton(minimal.table, minimal.outputs, start) for start in (p, q)]
        assert any((starts[0].run(tail) != starts[1].run(tail)).any() for tail in tails)


@pytest.mark.parametrize("seed", range(12))
def test_other_numbers_of_the_states_leave_the_minimal_automaton(seed):
    automaton = some_automaton(seed)
    count = len(automaton.table)
    new = np.random.default_rng(seed).permutation(count)
    old = np.argsort(new)
    renumbered = Automaton(new[automaton.table[old]], automaton.outputs[old], int(new[automaton.start]))
    assert renumbered.minimal() == automaton.minimal()
    other = Automaton(automaton.table, 1 - automaton.outputs, automaton.start)
    assert other.minimal() != automaton.minimal()


def test_automata_that_are_none_are_refused():
    with pytest.raises(ShapeError, match=r"outputs \(Q,\)"):
        Automaton([[0, 1], [1, 0]], [0])
    with pytest.raises(ShapeError, match="table"):
        Automaton([0, 1], [0, 1])
    with pytest.raises(ArgumentError, match="from 0 to 1 in the table, but got 2"):
        Automaton([[0, 2], [1, 0]], [0, 1])
    with pytest.raises(ArgumentError, match="start"):
        Automaton([[0], [1]], [0, 1], 2)
    for token in (-1, 2):
        with pytest.raises(ArgumentError, match=f"tokens from 0 to 1, but got {token}"):
            NO_000.run([0, token])


def test_fractions_are_refused_and_not_cut():
    with pytest.raises(DTypeError, match="the table to be integers, but got float64"):
        Automaton([[0, 1.5], [1, 0]], [0, 1])
    with pytest.raises(DTypeError, match="the outputs"):
        Automaton([[0, 1], [1, 0]], [0.5, 1])
    for run in (NO_000.run, machine_of(NO_000).run):
        with pytest.raises(DTypeError, match="the tokens"):
            run([0.5, 1])
        assert len(run([])) == 1
    assert np.array_equal(Automaton([[0, 1], [1, 0]], [False, True]).run(np.uint8([1, 1])), [0, 1, 0])


@pytest.mark.parametrize("seed", range(40))
def test_a_machine_has_the_outputs_of_its_automaton(seed):
    automaton = some_automaton(seed)
    machine = machine_of(automaton)
    word = np.random.default_rng(seed).integers(0, automaton.table.shape[1], 200)
    assert np.array_equal(machine.run(word), automaton.run(word))
    count = len(machine.automaton.table)
    assert len(machine.layers) <= max(1, count - 1)
    for depth, layer in enumerate(machine.layers):
        assert layer.codes.shape[1] <= max(1, count - depth)
        assert all(len(rule.factors) <= layer.codes.shape[1] for rule in layer.rules)


@pytest.mark.parametrize("automaton", [NO_000, BRACKETS, FLIP_FLOP, symmetric_group(4)])
def test_rules_are_reflections_and_projections(automaton):
    for layer in machine_of(automaton).layers:
        size = layer.codes.shape[1]
        x = np.random.default_rng(0).integers(-9, 9, (7, size))
        for rule in layer.rules:
            moved = x @ matrix(rule, size).T
            if rule.write is not None:
                moved[:, rule.write] += 1
            assert np.array_equal(rule.apply(x), moved)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_partial_injections_take_the_fewest_factors(count):
    """Every map of Q states to states or to one that is never left: as many factors as rank(I - W), which is least."""
    sink, tried = count, 0
    for images in itertools.product(range(count + 1), repeat=count):
        moved = [image for image in images if image != sink]
        if len(set(moved)) < len(moved):
            continue
        # Two more tokens reach all states from the first: a turn, and a way out.
        turn = [*((q + 1) % count for q in range(count)), sink]
        table = np.column_stack([[*images, sink], turn, [sink] * (count + 1)])
        machine = machine_of(Automaton(table, range(count + 1)))
        (layer,) = machine.layers
        assert layer.codes.shape[1] == count
        rule = layer.rules[int(layer.chosen[0])]
        W = matrix(rule, count)
        assert len(rule.factors) == np.linalg.matrix_rank(np.eye(count) - W)
        projections = sum(strength == 1 for strength, _, _ in rule.factors)
        assert projections == np.linalg.matrix_rank(np.eye(count) - W.T @ W)
        tried += 1
    assert tried == sum(math.comb(count, k) ** 2 * math.factorial(k) for k in range(count + 1))


@pytest.mark.parametrize(("size", "defect"), [(1, 1), (3, 0), (3, 1), (4, 2), (4, 4)])
def test_a_contraction_is_reflections_and_then_projections_along_new_units(size, defect):
    """Step 14: rank(I - W) reflections of R^(n + r), then r = rank(I - W'W) projections, for one fixed direction too."""
    random = np.random.default_rng(size + defect)
    kept = np.linalg.qr(random.standard_normal((size - 1, size - 1)))[0] if size > defect else None
    basis = np.linalg.qr(random.standard_normal((size, size)))[0]
    W = np.zeros((size, size))
    if kept is None:
        W = 0.5 * basis
    else:  # keeps one direction as it is, turns the others, and shortens `defect` of them
        W[0, 0] = 1
        W[1:, 1:] = kept * np.where(np.arange(size - 1) < defect, 0.6, 1)
        W = basis @ W @ basis.T
    values, vectors = np.linalg.eigh(np.eye(size) - W.T @ W)
    root = np.sqrt(values.clip(0))[:, None] * vectors.T
    isometry = np.vstack([W, root[size - defect :]])  # (n + r, n): the new units hold what W shortens
    start = np.eye(size + defect, size)
    left, reflectors = isometry.copy(), []
    while np.abs(left - start).max() > 1e-9:
        x = random.standard_normal(size)
        u = left @ x - start @ x
        reflectors.append(u / np.linalg.norm(u))
        left = left - 2 * np.outer(reflectors[-1], reflectors[-1] @ left)
    assert len(reflectors) == np.linalg.matrix_rank(np.eye(size) - W, tol=1e-9)
    made = start
    for u in reflectors[::-1]:
        made = made - 2 * np.outer(u, u @ made)
    made[size:] = 0  # the projections
    np.testing.assert_allclose(made, np.vstack([W, np.zeros((defect, size))]), rtol=0, atol=1e-9)


def test_what_is_ruled_out_is_never_one_layer():
    """Of all automata of three states and two tokens."""
    layers = {True: set(), False: set()}
    for entries in itertools.product(range(3), repeat=6):
        automaton = Automaton(np.reshape(entries, (3, 2)), range(3))
        if len(automaton.minimal().table) == 3:
            layers[is_ruled_out(automaton.table)].add(len(machine_of(automaton).layers))
    assert 1 not in layers[True]
    assert 1 in layers[False]


def arithmetic(modulus: int) -> np.ndarray:
    """The table of sums s of products p modulo m; tokens +0 to +(m - 1), then ·0 to ·(m - 1); state m s + p."""
    s, p = np.divmod(np.arange(modulus**2), modulus)
    terms = [(s + p) % modulus * modulus + d for d in range(modulus)]
    return np.column_stack([*terms, *(s * modulus + p * d % modulus for d in range(modulus))])


@pytest.mark.parametrize(
    ("table", "ruled_out"),
    [
        (NO_000.table, True),
        (arithmetic(3), True),
        (np.array([[0, 1], [2, 0], [3, 4], [2, 1], [4, 4]]), True),  # Tomita 3
        (np.array([[0, 1], [2, 1], [2, 3], [4, 3], [4, 4]]), True),  # Tomita 7
        (np.array([[2, 1], [0, 2], [2, 2]]), False),  # Tomita 2
        (BRACKETS.table, False),
        (FLIP_FLOP.table, False),
        (symmetric_group(3).table, False),
    ],
)
def test_which_automata_are_one_layer(table, ruled_out):
    assert is_ruled_out(table) == ruled_out
    assert (len(machine_of(Automaton(table, range(len(table)))).layers) == 1) == (not ruled_out)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_orders_of_n_things_take_n_registers(n):
    machine = machine_of(symmetric_group(n))
    assert [layer.codes.shape for layer in machine.layers] == [(math.factorial(n), n)]
    assert machine.factors == n - 1  # of the turn by one place
    assert machine.verify() == 2 * math.factorial(n)


@pytest.mark.parametrize("modulus", [5, 7])
def test_a_counter_of_a_prime_modulus_has_no_smaller_machine(modulus):
    q = np.arange(modulus)
    assert machine_of(Automaton(((q + 1) % modulus)[:, None], q)).layers[0].codes.shape == (modulus, modulus)


def over_classes(lower: np.ndarray, sizes: list[int], seed: int) -> Automaton:
    """Return an automaton of pairs (class, member), mixed. A token leads a class to different members, or all to one."""
    random = np.random.default_rng(seed)
    states = [(c, i) for c, size in enumerate(sizes) for i in range(size)]
    mixed = random.permutation(len(states))
    table = np.empty((len(states), lower.shape[1]), dtype=int)
    for c, size in enumerate(sizes):
        for a, to in enumerate(lower[c].tolist()):
            images = random.permutation(sizes[to])[:size]
            if len(images) < size or random.random() < 0.3:
                images = np.full(size, images[0])
            for i in range(size):
                table[mixed[states.index((c, i))], a] = mixed[states.index((to, int(images[i])))]
    return Automaton(table, range(len(states)), int(mixed[0]))


@pytest.mark.parametrize("seed", range(6))
def test_over_classes_there_are_few_layers(seed):
    """Of 14 states, for which the tables of a cascade would have 14! entries. Other classes than ours may be found."""
    lower = np.array([[1, 0, 0], [2, 1, 0], [3, 2, 0], [0, 3, 0]])  # tokens permute these classes, or reset them
    automaton = over_classes(lower, [4, 3, 4, 3], seed)
    machine = machine_of(automaton)
    count = len(automaton.minimal().table)
    assert len(machine.layers) <= 4
    assert machine.verify() == 3 * count
    word = np.random.default_rng(seed).integers(0, 3, 200)
    assert np.array_equal(machine.run(word.tolist()), automaton.run(word))


def group(name: str) -> list[tuple[int, ...]]:
    """Return the permutations of a group: Sn all of n things, An the even ones, Zn the turns."""
    n, everything = int(name[1:]), list(itertools.permutations(range(int(name[1:]))))
    if name[0] == "Z":
        return [tuple((i + k) % n for i in range(n)) for k in range(n)]
    odd = [sum(p[i] > p[j] for i, j in itertools.combinations(range(n), 2)) % 2 for p in everything]
    return [p for p, is_odd in zip(everything, odd) if name[0] == "S" or not is_odd]


@pytest.mark.parametrize(
    ("name", "fewest"), [("Z2", 1), ("Z3", 2), ("Z5", 2), ("Z7", 2), ("S3", 2), ("S4", 2), ("A5", 2), ("S5", 4)]
)
def test_how_few_reflections_the_elements_of_a_group_take(name, fewest):
    """Steps 22 to 25: over all sums of real irreducible representations that tell the elements apart."""
    elements = group(name)
    number = {g: k for k, g in enumerate(elements)}
    order = len(elements)
    times = np.array([[number[tuple(g[i] for i in h)] for h in elements] for g in elements])  # gh
    inverse = times.argmin(1)  # the identity is number 0
    weights = np.random.default_rng(0).standard_normal(order)
    weights += weights[inverse]
    values, vectors = np.linalg.eigh(weights[times[inverse]])  # S[b, a] = c(b^-1 a) commutes with the group
    ends = np.flatnonzero(np.diff(values, append=np.inf) > 1e-6) + 1
    powers = [[0] for _ in elements]
    for g, found in enumerate(powers):
        while (after := times[g, found[-1]]) != 0:
            found.append(after)
    irreducible = {}
    for begin, end in zip([0, *ends[:-1]], ends):
        U = vectors[:, begin:end]
        characters = np.array([(U[times[g]] * U).sum() for g in range(order)])
        fixed = np.array([characters[found].mean() for found in powers])
        rank = np.rint(end - begin - fixed)  # of I - rho(g)
        irreducible[tuple(np.rint(1e4 * characters).astype(int).tolist())] = rank
    best = math.inf
    for count in range(1, min(3, len(irreducible)) + 1):
        for chosen in itertools.combinations(irreducible.values(), count):
            ranks = sum(chosen)
            if (ranks[1:] > 0).all():  # none but the identity acts as 1
                best = min(best, ranks.max())
    assert best == fewest


@pytest.mark.parametrize("automaton", [NO_000, BRACKETS, FLIP_FLOP, symmetric_group(4), some_automaton(5)])
def test_every_layer_is_a_reflection_network_that_rounds_nothing(automaton):
    """Tokens of a layer are the letter together with the states below; float32 has exactly the registers."""
    machine = machine_of(automaton)
    word = np.random.default_rng(3).integers(0, automaton.table.shape[1], 400)
    now = machine.start()
    registers, places = [], []
    for token in word:
        below = [layer.state(x) for layer, x in zip(machine.layers, now)]
        places.append(
            [np.ravel_multi_index((token, *below[:d]), layer.chosen.shape) for d, layer in enumerate(machine.layers)]
        )
        now = machine.step(now, int(token))
        registers.append(now)
    for depth, layer in enumerate(machine.layers):
        size = layer.codes.shape[1]
        count = max(1, *(len(rule.factors) for rule in layer.rules))
        rnn = ReflectionRNN(
            layer.chosen.size, size, reflections=min(count, size), beta="input", bias=False, learn_h0=True
        )
        k = torch.zeros(layer.chosen.size, count, size)
        angles = torch.zeros(layer.chosen.size, count)
        add = torch.zeros(layer.chosen.size, size)
        for place, number in enumerate(layer.chosen.ravel().tolist()):
            rule = layer.rules[number]
            for f, (strength, i, j) in enumerate(rule.factors):
                k[place, f, j] -= 1
                k[place, f, i] = 1
                angles[place, f] = math.pi * strength / 2  # beta = 1 - cos z
            if rule.write is not None:
                add[place, rule.write] = 1
        with torch.no_grad():
            rnn.get_parameter("weight_k_l0").copy_(k.flatten(1).mT)
            rnn.get_parameter("weight_beta_l0").copy_(angles.mT)
            rnn.get_parameter("weight_ih_l0").copy_(add.mT)
            rnn.get_parameter("h0").copy_(torch.tensor(layer.codes[layer.start], dtype=torch.float32)[None])
            states = rnn(torch.tensor([[place[depth]] for place in places]))[0][:, 0]
        assert torch.equal(states, torch.tensor(np.array([now[depth] for now in registers]), dtype=torch.float32))


def test_a_machine_that_is_wrong_does_not_verify():
    machine = machine_of(BRACKETS)
    (layer,) = machine.layers
    first = layer.rules[0]
    for rule, match in [
        (Rule(first.factors[1:]), "after state|code of a state"),
        (Rule(first.factors, 0), "code of a state"),
    ]:
        broken = Layer(layer.codes, (rule, *layer.rules[1:]), layer.chosen, layer.start)
        with pytest.raises(ArgumentError, match=match):
            Machine(machine.automaton, (broken,), machine.states).verify()
    with pytest.raises(ArgumentError, match="start"):
        Machine(machine.automaton, (Layer(layer.codes, layer.rules, layer.chosen, 1),), machine.states).verify()


@pytest.mark.parametrize("automaton", [NO_000, BRACKETS, FLIP_FLOP, symmetric_group(3)])
def test_an_automaton_comes_back_from_states_with_noise(automaton):
    """Registers of all layers side by side, each state in two copies that differ by noise below the radius."""
    machine = machine_of(automaton)
    generator = torch.Generator().manual_seed(0)
    waiting = [tuple(np.concatenate(machine.start()).tolist())]
    splits = np.cumsum([layer.codes.shape[1] for layer in machine.layers])[:-1]
    tokens = automaton.table.shape[1]

    def after(x: torch.Tensor, token: int) -> torch.Tensor:
        parts = machine.step(np.split(np.rint(x.numpy()).astype(int), splits), token)
        return torch.tensor(np.concatenate(parts), dtype=torch.float64)

    for x in waiting:
        found = [tuple(after(torch.tensor(x), a).long().tolist()) for a in range(tokens)]
        waiting += [y for y in dict.fromkeys(found) if y not in waiting]
    states = torch.tensor(waiting, dtype=torch.float64).repeat(2, 1)
    noisy = states + 0.1 * (torch.rand(states.shape, generator=generator, dtype=torch.float64) - 0.5)
    found = extract(
        lambda h, a: torch.stack([after(x, int(t)) for x, t in zip(h, a)]),
        lambda h: torch.tensor([machine.read(np.split(np.rint(x.numpy()).astype(int), splits)) for x in h]),
        noisy,
        states[0],
        tokens,
        radius=0.5,
    )
    assert found == automaton.minimal()


def test_directions_that_change_nothing_are_left_out_by_a_view():
    """Parity in the first unit, and any number in the second one, which the view does not see."""
    random = torch.Generator().manual_seed(0)
    states = torch.stack([torch.ones(600) - 2 * (torch.arange(600) % 2), 100 * torch.rand(600, generator=random)], 1)

    def step(h, tokens):
        return torch.stack([h[:, 0] * (1 - 2 * tokens), h[:, 1] + 1], 1)

    def read(h):
        return (h[:, 0] < 0).long()

    parity = Automaton([[0, 1], [1, 0]], [0, 1])
    assert extract(step, read, states, torch.tensor([1.0, 0.0]), 2, 0.5, lambda h: h[:, :1]) == parity
    with pytest.raises(ArgumentError, match="clusters"):
        extract(step, read, states, torch.tensor([1.0, 0.0]), 2, 0.001)


def test_too_many_clusters_are_refused():
    with pytest.raises(ArgumentError, match="at most 512 clusters"):
        extract(lambda h, a: h, lambda h: h[:, 0].long(), torch.arange(600.0)[:, None], torch.zeros(1), 1, radius=0.5)
