r"""Finite automata as exact machines: layers of integer registers that each token reflects, projects and writes.

A layer has m registers, a vector x of integers. A rule applies factors I - s u u' / u'u, first one first, and then a write:

- (2, i, j): u = e_i - e_j, a reflection. It swaps registers i and j.
- (1, i, i): u = e_i, a projection. It erases register i.
- the write adds 1 to a register.

All entries stay integers, so that a machine that is right for every state and token is right for words of any length.
docs/derivations/automata.md derives which automata are one layer, how many factors they take, and the cascade for the others.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ._checks import check_integer
from .errors import ArgumentError, DTypeError, ShapeError

Factor = tuple[int, int, int]
"""(strength, i, j): (2, i, j) swaps registers i and j, (1, i, i) erases register i."""


def _integers(name: str, values: ArrayLike) -> np.ndarray:
    """Return int64 of integers or booleans; raise DTypeError for other types, whose fractions would be lost."""
    found = np.asarray(values)
    if found.size and found.dtype.kind not in "biu":
        raise DTypeError(f"Expected {name} to be integers, but got {found.dtype}. Pass numbers without fractions.")
    return found.astype(np.int64)


@dataclass(frozen=True, eq=False, init=False)
class Automaton:
    """A finite automaton with an output at each state.

    Args:
        table: table[q, a] is the state after state q and token a, int64 (Q, A).
        outputs: Output of each state, int64 (Q,).
        start: The state before the first token. Default: 0.

    Raises:
        ShapeError: If the table is not (Q, A) with Q, A >= 1, or outputs not (Q,).
        ArgumentError: If an entry of the table or start is not a state.
        DTypeError: If an entry is not an integer.

    Example::

        >>> parity = Automaton([[0, 1], [1, 0]], [0, 1])
        >>> parity.run([1, 0, 1, 1])
        array([0, 1, 1, 0, 1])
    """

    table: np.ndarray
    outputs: np.ndarray
    start: int

    def __init__(self, table: ArrayLike, outputs: ArrayLike, start: int = 0) -> None:
        table, outputs = _integers("the table", table), _integers("the outputs", outputs)
        if table.ndim != 2 or not table.size or outputs.shape != table.shape[:1]:
            raise ShapeError(
                f"Expected a table (Q, A) and outputs (Q,), but got {table.shape} and {outputs.shape}. "
                "Pass one row and one output for each state."
            )
        if table.min() < 0 or table.max() >= len(table):
            wrong = int(table.min() if table.min() < 0 else table.max())
            raise ArgumentError(
                f"Expected states from 0 to {len(table) - 1} in the table, but got {wrong}. Number the states from 0."
            )
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "outputs", outputs)
        object.__setattr__(self, "start", check_integer("start", start, 0, len(table) - 1))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Automaton)
            and self.start == other.start
            and np.array_equal(self.table, other.table)
            and np.array_equal(self.outputs, other.outputs)
        )

    __hash__ = None  # type: ignore[assignment]

    def states(self, word: ArrayLike) -> np.ndarray:
        """Return the states before the first token and after each.

        Args:
            word: Tokens, (T,), or (T, B) for B words.

        Returns:
            int64 (T + 1,) or (T + 1, B).

        Raises:
            ArgumentError: If a token is outside [0, A).
            DTypeError: If a token is not an integer.
        """
        tokens = _integers("the tokens", word)
        count = self.table.shape[1]
        if tokens.size and not 0 <= int(tokens.min()) <= int(tokens.max()) < count:
            wrong = int(tokens.min() if tokens.min() < 0 else tokens.max())
            raise ArgumentError(f"Expected tokens from 0 to {count - 1}, but got {wrong}. Number the tokens from 0.")
        found = np.empty((len(tokens) + 1, *tokens.shape[1:]), dtype=np.int64)
        found[0] = self.start
        for t, letters in enumerate(tokens):
            found[t + 1] = self.table[found[t], letters]
        return found

    def run(self, word: ArrayLike) -> np.ndarray:
        """Return the outputs before the first token and after each.

        Args:
            word: Tokens, (T,), or (T, B) for B words.

        Returns:
            int64 (T + 1,) or (T + 1, B).

        Raises:
            ArgumentError: If a token is outside [0, A).
            DTypeError: If a token is not an integer.
        """
        return self.outputs[self.states(word)]

    def minimal(self) -> Automaton:
        """Return the automaton of the same outputs with fewest states, numbered in the order of a breadth-first search.

        Two automata have the same outputs for every word if and only if these are equal.
        """
        reached = [self.start]
        for q in reached:
            reached += [p for p in dict.fromkeys(self.table[q].tolist()) if p not in reached]
        place = np.zeros(len(self.table), dtype=np.int64)
        place[reached] = np.arange(len(reached))
        table, outputs = place[self.table[reached]], self.outputs[reached]
        classes = np.unique(outputs, return_inverse=True)[1].ravel()
        while True:
            rows = np.column_stack([classes, classes[table]])
            finer = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
            if finer.max() == classes.max():
                break
            classes = finer
        first = np.unique(classes, return_index=True)[1]
        order = [int(classes[0])]  # breadth first, from the class of the start
        for c in order:
            order += [d for d in dict.fromkeys(classes[table[first[c]]].tolist()) if d not in order]
        number = np.argsort(order)
        return Automaton(number[classes[table[first[order]]]], outputs[first[order]])


def extract(
    step: Callable[[Tensor, Tensor], Tensor],
    read: Callable[[Tensor], Tensor],
    states: Tensor,
    start: Tensor,
    tokens: int,
    radius: float,
    view: Callable[[Tensor], Tensor] | None = None,
) -> Automaton:
    """Return the minimal automaton that a trained network follows, from the means of clusters of its states.

    States within `radius` of the first of their cluster form one. Its mean is moved by every token once, and the nearest
    mean is the next state. Which words a network gets right does not enter: compare the automaton with data.

    Args:
        step: From states (P, N) and tokens int64 (P,) to the next states (P, N).
        read: From states (P, N) to outputs, int64 (P,).
        states: Of words that reach every state of the automaton, (R, N).
        start: The initial state, (N,).
        tokens: Number of tokens, A.
        radius: In Euclidean distance.
        view: From states (P, N) to vectors (P, F) in which distances are measured, such as the probabilities of all outputs
            now and after a few tokens: they are blind to directions of the state that change nothing. Default: None, the
            states themselves.

    Raises:
        ArgumentError: If there are more than 512 clusters.

    Example::

        >>> flip = extract(
        ...     lambda h, a: h * (1 - 2 * a[:, None]), lambda h: (h[:, 0] < 0).long(),
        ...     states=torch.tensor([[1.0], [-1.1], [0.9]]), start=torch.ones(1), tokens=2, radius=0.5,
        ... )
        >>> flip.table
        array([[0, 1],
               [1, 0]])
    """
    seen = view or (lambda h: h)
    points = torch.cat([start[None], states])
    seen_points = seen(points)
    nearest = torch.cdist(seen_points, _centers(seen_points, radius)).argmin(1)
    count = int(nearest.max()) + 1
    sizes = torch.bincount(nearest, minlength=count)[:, None]
    means, seen_means = (
        torch.zeros(count, values.shape[1], dtype=values.dtype).index_add_(0, nearest, values) / sizes
        for values in (points, seen_points)
    )
    moved = step(means.repeat_interleave(tokens, 0), torch.arange(tokens).repeat(count))
    table = torch.cdist(seen(moved), seen_means).argmin(1).view(count, tokens)
    return Automaton(table.numpy(), read(means).numpy(), int(nearest[0])).minimal()


def _centers(points: Tensor, radius: float) -> Tensor:
    """Return points of which no two are within the radius, and all others are within it of one: (C, N)."""
    centers, left = [], points
    while len(left):
        centers.append(left[0])
        if len(centers) > 512:
            raise ArgumentError(f"Expected at most 512 clusters, but got more with radius={radius}. Pass a larger one.")
        left = left[torch.linalg.vector_norm(left - left[0], dim=1) > radius]
    return torch.stack(centers)


@dataclass(frozen=True)
class Rule:
    """Factors and a write, which a token applies to the registers of a layer.

    Attributes:
        factors: Reflections and projections, the first one applied first.
        write: Register that 1 is added to afterwards, or None.
    """

    factors: tuple[Factor, ...]
    write: int | None = None

    def apply(self, registers: np.ndarray) -> np.ndarray:
        """Return the registers after this rule.

        Args:
            registers: int64 (..., m).
        """
        x = registers.copy()
        for strength, i, j in self.factors:
            if strength == 2:
                x[..., [i, j]] = x[..., [j, i]]
            else:
                x[..., i] = 0
        if self.write is not None:
            x[..., self.write] += 1
        return x


@dataclass(frozen=True, eq=False)
class Layer:
    """Registers, and the rule for each token and state of the layers below.

    Attributes:
        codes: The registers of each state of this layer, int64 (S, m).
        rules: All different rules.
        chosen: Number of the rule for a token and the states of the layers below before it, int64 (A, S_1, ..., S_l);
            -1 where these states do not occur.
        start: The state before the first token.
    """

    codes: np.ndarray
    rules: tuple[Rule, ...]
    chosen: np.ndarray
    start: int

    def state(self, registers: np.ndarray) -> int:
        """Return the state whose code the registers are.

        Args:
            registers: int64 (m,).

        Raises:
            ArgumentError: If they are none.
        """
        hits = np.flatnonzero((self.codes == registers).all(1))
        if not len(hits):
            raise ArgumentError(f"Expected the code of a state, but got the registers {registers.tolist()}.")
        return int(hits[0])


@dataclass(frozen=True, eq=False)
class Machine:
    """Layers of registers with the outputs of an automaton for every word. Made by `machine_of`.

    Attributes:
        automaton: The minimal automaton.
        layers: From the lowest.
        states: State of the automaton for states of the layers, int64 (S_1, ..., S_L); -1 where they do not occur.
    """

    automaton: Automaton
    layers: tuple[Layer, ...]
    states: np.ndarray

    def start(self) -> list[np.ndarray]:
        """Return the registers of every layer before the first token."""
        return [layer.codes[layer.start] for layer in self.layers]

    def step(self, now: Sequence[np.ndarray], token: int) -> list[np.ndarray]:
        """Return the registers of every layer after a token.

        Args:
            now: Registers of every layer before it.
            token: From 0 to A - 1.
        """
        below = tuple(layer.state(x) for layer, x in zip(self.layers, now))
        found = []
        for depth, (layer, x) in enumerate(zip(self.layers, now)):
            found.append(layer.rules[int(layer.chosen[(token, *below[:depth])])].apply(x))
        return found

    def run(self, word: Sequence[int]) -> np.ndarray:
        """Return the outputs before the first token and after each, int64 (T + 1,).

        Args:
            word: Tokens, (T,).
        """
        now = self.start()
        outputs = [self.read(now)]
        for token in _integers("the tokens", word).tolist():
            now = self.step(now, token)
            outputs.append(self.read(now))
        return np.array(outputs)

    def read(self, now: Sequence[np.ndarray]) -> int:
        """Return the output of a state.

        Args:
            now: Registers of every layer.
        """
        state = int(self.states[tuple(layer.state(x) for layer, x in zip(self.layers, now))])
        return int(self.automaton.outputs[state])

    def verify(self) -> int:
        """Try every token in every state that occurs, and return how many steps that were.

        Raises:
            ArgumentError: If a step leads to another state than the table, or the start is another one.
        """
        if int(self.states[tuple(layer.start for layer in self.layers)]) != self.automaton.start:
            raise ArgumentError("Expected the start of the automaton, but got another state. Report this as a bug.")
        checked = 0
        for below in np.argwhere(self.states >= 0).tolist():
            q = int(self.states[tuple(below)])
            for token, wanted in enumerate(self.automaton.table[q].tolist()):
                after = self.step([layer.codes[s] for layer, s in zip(self.layers, below)], token)
                got = int(self.states[tuple(layer.state(x) for layer, x in zip(self.layers, after))])
                if got != wanted:
                    raise ArgumentError(
                        f"Expected state {wanted} after state {q} and token {token}, but got {got}. Report this as a bug."
                    )
                checked += 1
        return checked

    @property
    def factors(self) -> int:
        """The most reflections and projections of a rule."""
        return max(len(rule.factors) for layer in self.layers for rule in layer.rules)

    def proof(self) -> dict[str, Any]:
        """Return automaton and machine as a value for JSON, which examples/check_machine.py verifies without orthornn."""
        return {
            "start": self.automaton.start,
            "table": self.automaton.table.tolist(),
            "outputs": self.automaton.outputs.tolist(),
            "layers": [
                {
                    "start": layer.start,
                    "codes": layer.codes.tolist(),
                    "rules": [dataclasses.asdict(rule) for rule in layer.rules],
                    "chosen": layer.chosen.tolist(),
                }
                for layer in self.layers
            ],
            "states": self.states.tolist(),
        }


def machine_of(automaton: Automaton) -> Machine:
    """Return a machine with the outputs of an automaton for every word.

    One layer is enough if every token permutes the states or resets all of them to one, or if, apart from a state that no
    token leaves, no token leads two states to the same one. Others become a cascade, of which each layer's rule also depends
    on the states of those below. Such a layer names the state in its class of a congruence that two states generate, if
    every token leads the states of each class to different ones or all to one. Without such classes there are up to Q - 1
    layers for Q states, and from about 9 states on their tables are too large.

    Args:
        automaton: It need not be minimal.

    Example::

        >>> two_in_a_row = machine_of(Automaton([[0, 1], [0, 2], [2, 2]], [0, 0, 1]))
        >>> len(two_in_a_row.layers), two_in_a_row.verify() > 0
        (2, True)
        >>> two_in_a_row.run([1, 0, 1, 1])
        array([0, 0, 0, 0, 1])
    """
    minimal = automaton.minimal()
    found = _permuting(minimal) or _one_hot(minimal) or _above_classes(minimal) or _cascade(minimal)
    found.verify()
    return found


def _numbered(chosen: Sequence[Rule]) -> tuple[tuple[Rule, ...], np.ndarray]:
    """Return the different rules, and the number of each one given."""
    rules = tuple(dict.fromkeys(chosen))
    return rules, np.array([rules.index(rule) for rule in chosen])


def _moves(images: Sequence[int | None]) -> Rule:
    """Return the fewest factors that move register i to images[i], or erase it for None; no two images are equal.

    A cycle of c registers takes c - 1 reflections, a path of c registers that ends in None c - 1 and a projection.
    """
    factors: list[Factor] = []
    ends = [i for i, image in enumerate(images) if image is None]
    origin = {image: i for i, image in enumerate(images) if image is not None}
    done: set[int] = set()
    for end in ends:
        factors.append((1, end, end))
        while end in origin:
            done.add(end)
            factors.append((2, origin[end], end))
            end = origin[end]
        done.add(end)
    for i in range(len(images)):
        if i in done:
            continue
        cycle, at = [i], images[i]
        while at != i:
            assert at is not None
            cycle.append(at)
            at = images[at]
        done.update(cycle)
        factors += [(2, a, b) for a, b in zip(cycle[-2::-1], cycle[:0:-1])]
    return Rule(tuple(factors))


def _reset(size: int, to: int) -> Rule:
    return Rule(tuple((1, i, i) for i in range(size)), to)


def _one_hot(automaton: Automaton) -> Machine | None:
    """Return a layer with a register for each state but the one that no token leaves; None if one layer is not enough."""
    table, count = automaton.table, len(automaton.table)
    sinks = [q for q in range(count) if (table[q] == q).all()]
    sink = sinks[0] if sinks and count > 1 else None
    kept = [q for q in range(count) if q != sink]
    codes = np.zeros((count, len(kept)), dtype=np.int64)
    codes[kept, np.arange(len(kept))] = 1
    chosen = []
    for column in table.T.tolist():
        images = [None if column[q] == sink else kept.index(column[q]) for q in kept]
        moved = [image for image in images if image is not None]
        if len(set(moved)) == len(moved):
            chosen.append(_moves(images))
        elif len(set(column)) == 1:
            chosen.append(_reset(len(kept), kept.index(column[0])))
        else:
            return None
    rules, numbers = _numbered(chosen)
    return Machine(automaton, (Layer(codes, rules, numbers, automaton.start),), np.arange(count))


def _permuting(automaton: Automaton) -> Machine | None:
    """Return a layer whose registers hold 0, 1, ..., m - 1 in an order for each state; None if m < Q is not enough.

    The registers are the classes of a congruence of a permutation automaton, which every token permutes.
    """
    table, count = automaton.table, len(automaton.table)
    if any(len(set(column)) < count for column in table.T.tolist()):
        return None
    least = next(m for m in itertools.count(1) if math.factorial(m) >= count)
    best: Machine | None = None
    for classes in _congruences(table, automaton.start):
        size = int(classes.max()) + 1
        if best is not None and size >= best.layers[0].codes.shape[1]:
            continue
        found = _orders(automaton, classes, size) if least <= size < count else None
        if found is not None:
            best = found
            if size == least:
                break
    return best


def _congruences(table: np.ndarray, start: int) -> Iterator[np.ndarray]:
    """Yield partitions (Q,) that every token respects: generated by start ~ q, then by start ~ q ~ r."""
    others = [q for q in range(len(table)) if q != start]
    alone = {q: _join(table, [(start, q)]) for q in others}
    distinct = {tuple(classes.tolist()): q for q, classes in alone.items()}
    yield from (alone[q] for q in distinct.values())
    for q, r in itertools.combinations(distinct.values(), 2):
        yield _join(table, [(start, q), (start, r)])


def _join(table: np.ndarray, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the finest partition that every token respects and in which the pairs are together, numbered from 0."""
    classes = np.arange(len(table))
    waiting = list(pairs)
    while waiting:
        p, q = waiting.pop()
        a, b = classes[p], classes[q]
        if a != b:
            classes[classes == max(a, b)] = min(a, b)
            waiting += zip(table[p].tolist(), table[q].tolist())
    return np.unique(classes, return_inverse=True)[1].ravel()


def _orders(automaton: Automaton, classes: np.ndarray, size: int) -> Machine | None:
    """Return the layer with one register for each class, if the orders of 0, ..., m - 1 tell the states apart."""
    table = automaton.table
    first = np.unique(classes, return_index=True)[1]
    images = classes[table[first]].T  # (A, m): class c moves to images[a, c]
    codes = {automaton.start: tuple(range(size))}
    waiting = [automaton.start]
    while waiting:
        q = waiting.pop(0)
        for a, p in enumerate(table[q].tolist()):
            code = [0] * size
            for c, image in enumerate(images[a].tolist()):
                code[image] = codes[q][c]
            if p not in codes:
                codes[p] = tuple(code)
                waiting.append(p)
            elif codes[p] != tuple(code):
                return None
    if len(set(codes.values())) < len(table):
        return None
    rules, numbers = _numbered([_moves(row) for row in images.tolist()])
    rows = np.array([codes[q] for q in range(len(table))])
    return Machine(automaton, (Layer(rows, rules, numbers, automaton.start),), np.arange(len(table)))


def _above_classes(automaton: Automaton) -> Machine | None:
    """Return a machine of the classes of a congruence, and a layer above it that names the state in its class, or None.

    Every token leads the states of a class to different ones of another, or all to one. Of the congruences that two states
    generate, the one with fewest layers is taken.
    """
    table, count = automaton.table, len(automaton.table)
    joined = (_join(table, [pair]) for pair in itertools.combinations(range(count), 2))
    best: Machine | None = None
    for classes in sorted({tuple(partition.tolist()) for partition in joined}, key=lambda one: (max(one), one)):
        members = [[q for q in range(count) if classes[q] == c] for c in range(max(classes) + 1)]
        moved = [[table[states, a].tolist() for states in members] for a in range(table.shape[1])]
        if len(members) == 1 or any(1 < len(set(to)) < len(to) for row in moved for to in row):
            continue
        quotient = Automaton(
            [[classes[p] for p in table[states[0]].tolist()] for states in members],
            range(len(members)),
            classes[automaton.start],
        ).minimal()
        lower = _permuting(quotient) or _one_hot(quotient) or _above_classes(quotient)
        if lower is not None and (best is None or len(lower.layers) + 1 < len(best.layers)):
            best = _with_members(automaton, lower, members)
    return best


def _with_members(automaton: Automaton, lower: Machine, members: list[list[int]]) -> Machine:
    """Return a machine of classes, whose outputs are their numbers, with a layer for their members, (class, member)."""
    size = max(map(len, members))
    place = {q: states.index(q) for states in members for q in states}
    shape, flat = lower.states.shape, lower.states.ravel()
    states, chosen = np.full((flat.size, size), -1), []
    seen = np.flatnonzero(flat >= 0)
    for below in seen.tolist():
        own = members[int(lower.automaton.outputs[flat[below]])]
        states[below, : len(own)] = own
        for column in automaton.table[own].T.tolist():
            chosen.append(_rule_of(list(range(size)), {place[q]: place[p] for q, p in zip(own, column)}))
    rules, numbers = _numbered(chosen)
    table = np.full((automaton.table.shape[1], flat.size), -1)
    table[:, seen] = numbers.reshape(len(seen), -1).T
    layer = Layer(np.eye(size, dtype=np.int64), rules, table.reshape(-1, *shape), place[automaton.start])
    return Machine(automaton, (*lower.layers, layer), states.reshape(*shape, size))


def _cascade(automaton: Automaton) -> Machine:
    """Return layers of Q, Q - 1, ..., 2 registers. Each one names a state where the automaton is not.

    A set of m states that contains the state of the automaton, and the set of m that a token leads it to, differ from the
    sets of m - 1 of the next layer by one state each. If the token is a bijection of the two, it moves the state left out;
    otherwise some state is in no image, and is left out whatever was before: a reset.
    """
    table, count = automaton.table, len(automaton.table)
    tokens = table.shape[1]
    sets: dict[tuple[int, ...], tuple[int, ...]] = {
        (): tuple(range(count))
    }  # states of the layers below -> states left
    start: list[int] = []
    layers = []
    after: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {(a, ()): () for a in range(tokens)}
    for size in range(count, 1, -1):
        chosen = np.full((tokens, *range(count, size, -1)), -1)
        rules: list[Rule] = []
        moved: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
        for (a, below), next_below in after.items():
            left, next_left = sets[below], sets[next_below]
            images = [next_left.index(int(table[q, a])) for q in left]
            if len(set(images)) == size:
                rule, targets = _moves(images), images
            else:
                to = min(set(range(size)) - set(images))
                rule, targets = _reset(size, to), [to] * size
            if rule not in rules:
                rules.append(rule)
            chosen[(a, *below)] = rules.index(rule)
            for i, target in enumerate(targets):
                moved[(a, (*below, i))] = (*next_below, target)
        left = sets[tuple(start)]
        start.append(next(i for i, q in enumerate(left) if q != automaton.start))
        sets = {(*below, i): left[:i] + left[i + 1 :] for below, left in sets.items() for i in range(size)}
        after = moved
        layers.append(Layer(np.eye(size, dtype=np.int64), tuple(rules), chosen, start[-1]))
    states = np.full(tuple(range(count, 1, -1)), -1)
    for below, left in sets.items():
        states[below] = left[0]
    return _reached(Machine(automaton, tuple(layers), states))


def _reached(machine: Machine) -> Machine:
    """Return the machine with the states of each layer that words lead to, and without layers that have only one."""
    layers = machine.layers
    start = tuple(layer.start for layer in layers)
    moved: list[dict[tuple[int, ...], dict[int, int]]] = [{} for _ in layers]  # (token, *below) -> state -> next state
    waiting, seen = [start], {start}
    for now in waiting:
        for token in range(machine.automaton.table.shape[1]):
            registers = machine.step([layer.codes[s] for layer, s in zip(layers, now)], token)
            after = tuple(layer.state(x) for layer, x in zip(layers, registers))
            for depth, (old, new) in enumerate(zip(now, after)):
                moved[depth].setdefault((token, *now[:depth]), {})[old] = new
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    reached = [sorted({now[depth] for now in seen}) for depth in range(len(layers))]
    kept = [depth for depth, states in enumerate(reached) if len(states) > 1]
    sizes = [len(reached[depth]) for depth in kept]

    def renumbered(now: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(reached[depth].index(now[depth]) for depth in kept if depth < len(now))

    smaller: list[Layer] = []
    for depth, size in zip(kept, sizes):
        places = {(p[0], *renumbered(p[1:])): images for p, images in moved[depth].items()}
        rules, numbers = _numbered([_rule_of(reached[depth], images) for images in places.values()])
        chosen = np.full((machine.automaton.table.shape[1], *sizes[: len(smaller)]), -1)
        chosen[tuple(np.array(list(places)).T)] = numbers
        first = reached[depth].index(start[depth])
        smaller.append(Layer(np.eye(size, dtype=np.int64), rules, chosen, first))
    states = np.full(tuple(sizes), -1)
    for now in seen:
        states[renumbered(now)] = machine.states[now]
    return Machine(machine.automaton, tuple(smaller), states)


def _rule_of(states: list[int], images: dict[int, int]) -> Rule:
    """Return the permutation of states that moves those given as they say; or the reset, if they all become one."""
    size = len(states)
    targets = {states.index(old): states.index(new) for old, new in images.items()}
    if len(set(targets.values())) < len(targets):
        return _reset(size, next(iter(targets.values())))
    free = [i for i in range(size) if i not in targets.values()]
    waiting = [i for i in range(size) if i not in targets]
    for i in [i for i in waiting if i in free]:  # the others stay where they are, if they can
        targets[i] = i
        free.remove(i)
        waiting.remove(i)
    targets.update(zip(waiting, free))
    return _moves([targets[i] for i in range(size)])
