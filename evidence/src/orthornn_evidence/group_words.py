"""Train a ReflectionRNN on words in a finite group, test it at long lengths, and make it exact.

    orthornn group-words --group S5 --letters elements --seeds 5 --out results/group-words

Three kinds of letters:

elements      each element of the group is a token with separate reflectors
generators    two or three tokens
projections   each element is a trained vector, from which reflectors and strengths are linear maps, as in DeltaNet and
              DeltaProduct (Siems et al., 2025)

Words start at 4 letters and double in length when 97 % of the products are right. The learning rate falls with the length,
because the gradient grows with it; it is halved every 500 updates at one length, and falls to zero over the last length. If a
length takes too long, training starts again from other initial values. Times are processor time of one thread. A number of
updates at the last length other than the default (`--polish 4000`) becomes part of the file's name.

`snap` replaces the trained transitions by an exact representation of the group. With s_a the mean state after words of
product a, kappa(x) = mean over c of s_c . s_cx defines a Gram matrix kappa(a^-1 b), which is the invariant matrix nearest to
the Gram matrix of the states. Its eigenspaces are invariant under the group: on the leading ones, a permutation of the
elements acts exactly as an orthogonal matrix. A Procrustes rotation aligns them with the states, for the trained readout.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from orthornn._checks import check_choice
from orthornn._files import write_bytes
from orthornn.environment import commit
from orthornn.errors import ArgumentError
from orthornn.modules import ReflectionRNN

from .once_parser import OnceParser
from .tasks.finite_groups import FiniteGroup
from .tasks.groups import Groups

LETTERS = ("elements", "generators", "projections")


@dataclass(frozen=True)
class Recipe:
    """The architecture and training of a network.

    Attributes:
        group, letters: The words; see above.
        hidden_size, reflections, embedding: N, M, and the size of the vectors of ``projections``.
        lr: Learning rate of Adam for words of up to 16 letters. budget: Letters per update. polish: Updates at the last
            length.
        reads: Products per word in the loss, evenly spaced and including the last.
        longest: Letters of the longest training words. enough: Share of right products that doubles the length.
        patience: Updates at one length, but the last, after which training starts again from other initial values.
        limit: Seconds after which training stops, starts included.
    """

    group: str = "S5"
    letters: str = "elements"
    hidden_size: int = 8
    reflections: int = 4
    embedding: int = 24
    lr: float = 0.02
    budget: int = 4096
    polish: int = 1500
    reads: int = 64
    longest: int = 512
    enough: float = 0.97
    patience: int = 1000
    limit: float = 60.0

    def __post_init__(self) -> None:
        check_choice("letters", self.letters, LETTERS)

    def task(self, length: int) -> Groups:
        """Return the task with words of this length."""
        kind = "generators" if self.letters == "generators" else "elements"
        return Groups(group=self.group, tokens=kind, T=length, test_length=length)  # type: ignore[arg-type]


class WordNetwork(nn.Module):
    """A ReflectionRNN whose input acts only as a transition, with a linear readout of the product after each letter."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        task = recipe.task(1)
        n, schema = recipe.hidden_size, task.problem().schema
        letters = schema["input_size"]
        projects = recipe.letters == "projections"
        self.embedding = nn.Embedding(letters, recipe.embedding) if projects else None
        self.rnn = ReflectionRNN(
            recipe.embedding if projects else letters,
            n,
            reflections=recipe.reflections,
            beta="input" if projects else 2.0,
            additive=False,
            bias=False,
            learn_h0=True,
        )
        self.head = nn.Linear(n, schema["output_size"])
        with torch.no_grad():
            nn.init.normal_(self.rnn.get_parameter("h0"))
            nn.init.normal_(self.head.weight, std=0.5)
            nn.init.zeros_(self.head.bias)

    def forward(self, tokens: Tensor, h0: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return (logits (T, B, G), the last state (1, B, N)) from tokens (T, B)."""
        states, last = self.states(tokens, h0)
        return self.head(states), last

    def states(self, tokens: Tensor, h0: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return all states (T, B, N) and the last one (1, B, N)."""
        return self.rnn(tokens if self.embedding is None else self.embedding(tokens), h0)


@dataclass
class Trained:
    """A trained network and a summary of its training.

    Attributes:
        updates, seconds: Totals over all starts. starts: Number of sets of initial values. finished: Whether the last length
            is done.
        lengths: (letters, updates so far, seconds so far) at the end of each stage of the last start.
    """

    network: WordNetwork
    updates: int
    seconds: float
    starts: int
    finished: bool
    lengths: list[tuple[int, int, float]]


def train(recipe: Recipe, seed: int) -> Trained:
    """Train one network; `finished` is False if the time limit is reached before the end of the last length."""
    torch.manual_seed(seed)
    started, updates, starts = time.process_time(), 0, 1
    stages: list[tuple[int, int, float]] = []
    first = length = min(4, recipe.longest)
    network, parameters, optimizer = _start(recipe)
    while True:
        task, share, here, is_last, again = recipe.task(length), 0.0, 0, length == recipe.longest, False
        rate = recipe.lr * min(1.0, (16 / length) ** 0.75)
        batch_size = max(8, min(512, recipe.budget // length))
        while time.process_time() - started < recipe.limit:
            for group in optimizer.param_groups:
                group["lr"] = rate * (max(0.01, 1 - here / recipe.polish) if is_last else 0.5 ** (here / 500))
            tokens, products = task.problem().train(updates, batch_size, seed)
            spacing = max(1, length // recipe.reads)
            logits = network.head(network.states(tokens)[0][spacing - 1 :: spacing])
            products = products[spacing - 1 :: spacing]
            loss = task.objective().loss(logits, products)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            updates, here = updates + 1, here + 1
            share = 0.9 * share + 0.1 * float((logits.detach().argmax(-1) == products).float().mean())
            if here >= recipe.polish if is_last else share > recipe.enough:
                break
            if here == recipe.patience and not is_last:
                network, parameters, optimizer = _start(recipe)
                starts, share, here = starts + 1, 0.0, 0
                if length != first:
                    length, again = first, True
                    break
        seconds = time.process_time() - started
        if again and seconds < recipe.limit:
            stages.clear()
            continue
        stages.append((length, updates, round(seconds, 2)))
        if is_last or seconds >= recipe.limit:
            return Trained(network, updates, seconds, starts, is_last and here >= recipe.polish, stages)
        length = min(2 * length, recipe.longest)


def _start(recipe: Recipe) -> tuple[WordNetwork, list[nn.Parameter], torch.optim.Optimizer]:
    """Return a network with initial values from torch's generator, its parameters and their optimizer."""
    network = WordNetwork(recipe)
    parameters = list(network.parameters())
    return network, parameters, torch.optim.Adam(parameters, lr=recipe.lr)


@torch.no_grad()
def accuracies(network: WordNetwork, recipe: Recipe, lengths: Sequence[int], words: int = 200) -> dict[int, float]:
    """Return, for each length L, the share of words whose product of the first L letters is right."""
    task, found, state, done = recipe.task(1), {}, None, 0
    group, generator = task.finite_group, np.random.default_rng(0)
    element: np.ndarray | None = None
    for end in sorted(set(lengths)):
        while done < end:
            count = min(end - done, max(1, 1_000_000 // words))
            tokens = generator.integers(0, len(task.letters), (count, words))
            products = group.after(task.letters[tokens], element)
            states, state = network.states(torch.from_numpy(tokens), state)
            element, done = products[-1], done + count
        assert element is not None
        hits = network.head(states[-1]).argmax(-1) == torch.from_numpy(element)
        found[end] = float(hits.double().mean())
    return found


@torch.no_grad()
def snap(network: WordNetwork, recipe: Recipe) -> tuple[WordNetwork, dict[str, Any]]:
    """Return the network with exact transitions, in double precision, and a summary.

    Raises:
        ArgumentError: If an element does not occur, or a letter's exact matrix needs more reflections than the network has.
    """
    task = recipe.task(64)
    group, n = task.finite_group, recipe.hidden_size
    tokens, products = task.problem().train(0, 256, 12345)
    states = network.states(tokens)[0].double().flatten(0, 1)
    counts = torch.bincount(products.flatten(), minlength=group.order)
    if not bool(counts.all()):
        raise ArgumentError(
            f"Expected words that reach every element, but {int((counts == 0).sum())} elements do not occur. Pass more words."
        )
    means = torch.zeros(group.order, n, dtype=torch.float64).index_add_(0, products.flatten(), states)
    means /= counts[:, None]
    matrices, first, found = exact_representation(group, means, task.letters)
    exact = copy.deepcopy(network).double()
    trained = trained_matrices(network).double()
    place = found.pop("place")
    found["distance"] = float(torch.linalg.matrix_norm((matrices - trained) @ place).max())
    reflectors = torch.stack([reflectors_of(W, recipe.reflections) for W in matrices])
    exact.embedding = None
    exact.rnn = ReflectionRNN(
        len(task.letters),
        n,
        reflections=recipe.reflections,
        additive=False,
        bias=False,
        learn_h0=True,
        dtype=torch.float64,
    )
    exact.rnn.get_parameter("weight_k_l0").copy_(reflectors.flatten(1).mT)
    exact.rnn.get_parameter("h0").copy_(first[None])
    right = exact.head(_orbit(group, task.letters, matrices, first)).argmax(-1) == torch.arange(group.order)
    found["elements_read_right"] = int(right.sum())
    return exact, found


def trained_matrices(network: WordNetwork) -> Tensor:
    """Return W of each letter, (I, N, N)."""
    if network.embedding is None:
        return network.rnn.transition_matrices()
    return network.rnn.transition_matrices(network.embedding.weight)


def exact_representation(
    group: FiniteGroup, means: Tensor, letters: np.ndarray
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Return exact matrices of the letters (I, N, N), the state of the identity (N,), and a summary.

    Args:
        group: Group of the words.
        means: The mean state after words of each product, float64 (G, N).
        letters: Elements, (I,).
    """
    order, n = means.shape
    table = torch.from_numpy(group.table)
    products = means @ means.mT  # s_a . s_b
    everything = torch.arange(order)
    inverse = (table == group.identity).int().argmax(1)
    kappa = torch.stack([products[everything, table[:, x]].mean() for x in range(order)])
    gram = kappa[table[inverse]]  # kappa(a^-1 b)
    values, vectors = torch.linalg.eigh((gram + gram.mT) / 2)
    values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
    most = min(n, order)
    below = torch.cat([values[1:], values.new_zeros(1)])[:most]
    gaps = values[:most] / below.clamp_min(1e-12 * float(values[0]))
    dimension = int(gaps.argmax()) + 1
    basis = vectors[:, :dimension]  # rows a; row ga is rho(g) times row a
    points = basis * values[:dimension].sqrt()
    left, _, right = torch.linalg.svd(means.mT @ points, full_matrices=False)
    place = left @ right  # (N, dimension), orthonormal columns
    rest = torch.linalg.svd(torch.eye(n, dtype=torch.float64) - place @ place.mT)[0][:, : n - dimension]
    matrices = []
    for letter in letters:
        rho = basis[table[int(letter)]].mT @ basis
        W = place @ rho @ place.mT
        if n > dimension:  # directions that states never reach: the first one carries the determinant
            signs = torch.ones(n - dimension, dtype=torch.float64)
            signs[0] = torch.sign(torch.linalg.det(rho))
            W = W + (rest * signs) @ rest.mT
        matrices.append(W)
    first = place @ points[group.identity]
    found = {"dimension": dimension, "gap": float(gaps[dimension - 1]), "place": place}
    return torch.stack(matrices), first, found


def reflectors_of(W: Tensor, count: int) -> Tensor:
    """Return reflectors (M, N) whose reflections multiply to the orthogonal matrix W, the first one applied first.

    Raises:
        ArgumentError: If W needs more reflections, or its determinant has the wrong sign.
    """
    n = W.shape[0]
    taken: list[Tensor] = []
    left = W.clone()
    while len(taken) < count and float(torch.linalg.matrix_norm(left - torch.eye(n, dtype=W.dtype))) > 1e-6:
        # For any x, u = Wx - x: H(u)W fixes x and all that W fixes. The x that W moves most loses least precision.
        _, _, right = torch.linalg.svd(left - torch.eye(n, dtype=W.dtype))
        u = left @ right[0] - right[0]
        u = u / u.norm()
        taken.append(u)
        left = left - 2 * torch.outer(u, u @ left)
    spare = count - len(taken)
    if float(torch.linalg.matrix_norm(left - torch.eye(n, dtype=W.dtype))) > 1e-6 or spare % 2:
        raise ArgumentError(
            f"Expected a product of {count} reflections, but this matrix needs another number of them. Pass more."
        )
    other = torch.zeros(n, dtype=W.dtype)
    other[0] = 1
    return torch.stack([*taken, *[other] * spare][::-1])


def _orbit(group: FiniteGroup, letters: np.ndarray, matrices: Tensor, first: Tensor) -> Tensor:
    """Return the state of every element (G, N), each reached by letters from the identity."""
    states: dict[int, Tensor] = {group.identity: first}
    waiting = [group.identity]
    while waiting:
        a = waiting.pop(0)
        for W, letter in zip(matrices, letters):
            b = int(group.table[int(letter), a])
            if b not in states:
                states[b] = W @ states[a]
                waiting.append(b)
    return torch.stack([states[a] for a in range(group.order)])


def measure(recipe: Recipe, seed: int, exact_steps: int = 0) -> dict[str, Any]:
    """Train, test and snap one network; return the entry of the results."""
    result = train(recipe, seed)
    lengths = [32, 128, 512, 1024, 4096]
    entry: dict[str, Any] = {
        "seed": seed,
        "parameters": sum(p.numel() for p in result.network.parameters()),
        "seconds": round(result.seconds, 1),
        "updates": result.updates,
        "starts": result.starts,
        "finished": result.finished,
        "stages": result.lengths,
        "accuracy": accuracies(result.network, recipe, lengths),
    }
    try:
        exact, entry["snapped"] = snap(result.network, recipe)
    except ArgumentError as error:
        entry["snapped"] = {"failed": str(error)}
        return entry
    entry["snapped"]["accuracy"] = accuracies(exact, recipe, lengths)
    if exact_steps:
        entry["snapped"]["accuracy"] |= accuracies(exact, recipe, [exact_steps], words=4)
        entry["snapped"]["accuracy_in_float32"] = accuracies(exact.float(), recipe, [exact_steps], words=4)
    return entry


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, which writes one JSON file per group and kind of letters; return the exit status."""
    parser = OnceParser(prog="orthornn group-words", description=__doc__.splitlines()[0])
    parser.add_argument("--group", default="S5")
    parser.add_argument("--letters", choices=LETTERS, default="elements")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--exact-steps", type=int, default=0, help="letters of the longest test of seed 0, exact")
    for entry in dataclasses.fields(Recipe):
        if entry.name not in ("group", "letters"):
            kind = type(entry.default)
            parser.add_argument(f"--{entry.name.replace('_', '-')}", type=kind, default=entry.default)
    given = vars(parser.parse_args(arguments))
    recipe = Recipe(**{entry.name: given[entry.name] for entry in dataclasses.fields(Recipe)})
    torch.set_num_threads(1)
    machine = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": 1,
        "time": "processor seconds",
        "commit": commit(),
    }
    folder: Path | None = given["out"]
    longer = "" if recipe.polish == Recipe.polish else f"-{recipe.polish}"
    path = None if folder is None else folder / f"{recipe.group.lower()}-{recipe.letters}{longer}.json"
    runs = [] if path is None else _finished(path, recipe)
    for seed in range(len(runs), given["seeds"]):
        runs.append(measure(recipe, seed, 0 if seed else given["exact_steps"]))
        print(json.dumps(runs[-1]), flush=True)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            record = {"recipe": dataclasses.asdict(recipe), "machine": machine, "runs": runs}
            write_bytes(path, (json.dumps(record, indent=1) + "\n").encode())
    return 0


def _finished(path: Path, recipe: Recipe) -> list[dict[str, Any]]:
    """Return the runs in a file, seeds 0, 1, ..., if they have this recipe; else none."""
    if not path.exists():
        return []
    record = json.loads(path.read_text())
    return list(record["runs"]) if record["recipe"] == dataclasses.asdict(recipe) else []
