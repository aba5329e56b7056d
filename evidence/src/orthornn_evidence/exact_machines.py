"""Train a ReflectionRNN on the words of a finite automaton, and extract an exact machine from its states.

    orthornn exact-machines --tasks tomita-4,s5 --seeds 10 --out results/exact-machines

After each letter of a word the network predicts the output of the automaton: whether the word so far is in the language,
a bit, a count, or an element of a group. Half of the words are uniform; the others avoid, up to a random letter, the
state that no letter leaves. Words start at 4 letters and double in length when a share `enough` of the outputs is right,
up to `longest`.

After each length, `orthornn.automata.extract` searches for an automaton in the mean states, with clusters of six sizes, the
largest first. States are close if the probabilities of the outputs are, now and after all words of a few letters. The first
automaton that reproduces the outputs of new training words of `longest` letters is the result, and becomes a machine. Only
then is the table of the task used: the automaton is exact if its minimal table equals the task's, entry by entry.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from orthornn._checks import check_choice
from orthornn._files import write_bytes
from orthornn.automata import Automaton, extract, machine_of
from orthornn.environment import commit
from orthornn.errors import ArgumentError
from orthornn.export import machine_to_c
from orthornn.learn.tasks.streams import stream
from orthornn.modules import ReflectionRNN

from .once_parser import OnceParser
from .tasks.finite_groups import group_named

RADII = (1.4, 1.0, 0.7, 0.5, 0.3, 0.15)
"""Radii of the clusters, in probabilities."""
_NUMBERS = 512  # largest number of probabilities of a state, over words and outputs
_AT_ONCE = 16  # training batches that are drawn together
_TESTED = 1024  # words of the longest length that an automaton must get right


def _group(name: str) -> Automaton:
    group = group_named(name)
    return Automaton(group.table[list(group.generators)].T, np.arange(group.order), group.identity)


def _counter(modulus: int) -> Automaton:
    """Return the counter whose second token changes nothing."""
    q = np.arange(modulus)
    return Automaton(np.column_stack([(q + 1) % modulus, q]), q)


def _dyck(depth: int) -> Automaton:
    """Return the automaton of balanced brackets nested at most `depth` deep; its last state is the state of invalid words."""
    q = np.arange(depth + 1)
    opened, closed = np.where(q < depth, q + 1, depth + 1), np.where(q > 0, q - 1, depth + 1)
    table = np.vstack([np.column_stack([opened, closed]), [[depth + 1] * 2]])
    return Automaton(table, np.concatenate([q == 0, [False]]))


def _flip_flop(values: int) -> Automaton:
    """Return the store of one value: token 0 changes nothing, token 1 + v writes v."""
    rows = [[q, *range(values)] for q in range(values)]
    return Automaton(rows, np.arange(values))


def _arithmetic(modulus: int) -> Automaton:
    """Return the value of 0 +1 *3 -2 ..., products first; token 0 to m - 1 is + and that number, then come -, then *.

    State s m + p: p is the product that the word ends with, with its sign, and s the sum before it.
    """
    s, p = np.divmod(np.arange(modulus**2), modulus)
    sums = (s + p) % modulus * modulus
    columns = [sums + d for d in range(modulus)] + [sums + -d % modulus for d in range(modulus)]
    columns += [s * modulus + p * d % modulus for d in range(modulus)]
    return Automaton(np.column_stack(columns), (s + p) % modulus)


TASKS: dict[str, Automaton] = {
    "tomita-1": Automaton([[1, 0], [1, 1]], [1, 0]),  # 1*
    "tomita-2": Automaton([[2, 1], [0, 2], [2, 2]], [1, 0, 0]),  # (10)*
    "tomita-3": Automaton([[0, 1], [2, 0], [3, 4], [2, 1], [4, 4]], [1, 1, 0, 1, 0]),  # no odd 0s after odd 1s
    "tomita-4": Automaton([[1, 0], [2, 0], [3, 0], [3, 3]], [1, 1, 1, 0]),  # no 000
    "tomita-5": Automaton([[1, 2], [0, 3], [3, 0], [2, 1]], [1, 0, 0, 0]),  # even 0s and even 1s
    "tomita-6": Automaton([[1, 2], [2, 0], [0, 1]], [1, 0, 0]),  # as many 0s as 1s modulo 3
    "tomita-7": Automaton([[0, 1], [2, 1], [2, 3], [4, 3], [4, 4]], [1, 1, 1, 1, 0]),  # 0*1*0*1*
    "parity": _counter(2),
    "counter-3": _counter(3),
    "counter-5": _counter(5),
    "flip-flop-2": _flip_flop(2),
    "flip-flop-4": _flip_flop(4),
    "dyck-2": _dyck(2),
    "dyck-4": _dyck(4),
    "arithmetic-3": _arithmetic(3),
    "arithmetic-5": _arithmetic(5),
    "s3": _group("S3"),
    "s4": _group("S4"),
    "a5": _group("A5"),
    "s5": _group("S5"),
}
"""Automata by name."""


def words(automaton: Automaton, length: int, count: int, random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return tokens (T, B) and the outputs before the first and after each, (T + 1, B)."""
    table, letters = automaton.table, automaton.table.shape[1]
    tokens = random.integers(0, letters, (length, count))
    sinks = (table == np.arange(len(table))[:, None]).all(1)
    if sinks.any() and not sinks.all():
        ends = random.integers(0, 2 * length, count)
        ends[: count // 2] = 0
        safe = [[a for a in range(letters) if not sinks[row[a]]] or list(range(letters)) for row in table]
        many = np.array([len(row) for row in safe])
        choices = np.array([(row * letters)[:letters] for row in safe])
        others = random.integers(0, many.prod(), (length, count))
        state = np.full(count, automaton.start)
        for t in range(length):
            bad = sinks[table[state, tokens[t]]] & (t < ends)
            tokens[t] = np.where(bad, choices[state, others[t] % many[state]], tokens[t])
            state = table[state, tokens[t]]
    return torch.from_numpy(tokens), torch.from_numpy(automaton.run(tokens))


@dataclass(frozen=True)
class Recipe:
    """The architecture and training of a network.

    Attributes:
        hidden_size, reflections, nonlinearity: N, M and phi.
        lr: Learning rate of Adam for words of up to 16 letters. budget: Letters per update.
        longest: Letters of the longest training words. enough: Share of right outputs that doubles the length.
        patience: Updates at one length after which training starts again from other initial values.
        limit: Seconds after which training stops, starts included.
    """

    hidden_size: int = 16
    reflections: int = 6
    nonlinearity: str = "identity"
    lr: float = 0.02
    budget: int = 2048
    longest: int = 512
    enough: float = 0.97
    patience: int = 600
    limit: float = 60.0


_OF_ARITHMETIC = Recipe(hidden_size=32, reflections=24, patience=2000, limit=120.0)
RECIPES: dict[str, Recipe] = {"arithmetic-3": _OF_ARITHMETIC, "arithmetic-5": _OF_ARITHMETIC}
"""Recipes of the tasks that have their own."""


class Network(nn.Module):
    """A ReflectionRNN with strengths of its tokens, and a linear readout that also reads the initial state."""

    def __init__(self, recipe: Recipe, tokens: int, outputs: int) -> None:
        super().__init__()
        self.rnn = ReflectionRNN(
            tokens,
            recipe.hidden_size,
            reflections=recipe.reflections,
            beta="input",
            nonlinearity=recipe.nonlinearity,  # type: ignore[arg-type]
            bias=False,
            learn_h0=True,
        )
        self.head = nn.Linear(recipe.hidden_size, outputs)
        with torch.no_grad():
            nn.init.normal_(self.rnn.get_parameter("h0"))
            nn.init.uniform_(self.rnn.get_parameter("weight_beta_l0"), 0, 3.14159)

    def states(self, tokens: Tensor) -> Tensor:
        """Return the states before the first token and after each, (T + 1, B, N)."""
        first = self.rnn.get_parameter("h0").expand(tokens.shape[1], -1)
        return torch.cat([first[None], self.rnn(tokens)[0]])

    def step(self, states: Tensor, tokens: Tensor) -> Tensor:
        """Return the next states (P, N) from states (P, N) and tokens (P,)."""
        return self.rnn(tokens[None], states[None])[0][0]


@dataclass
class Found:
    """An automaton found in a network, or None, and a summary of the training.

    Attributes:
        updates, seconds: Totals over all starts. starts: Number of sets of initial values. length: Letters of the last
            training words.
    """

    automaton: Automaton | None
    network: Network
    updates: int
    seconds: float
    starts: int
    length: int


def train(task: Automaton, recipe: Recipe, seed: int) -> Found:
    """Train networks until an automaton is found in the states of one, or the time is up."""
    torch.manual_seed(seed)
    started, updates, starts = time.process_time(), 0, 0
    tokens, outputs = task.table.shape[1], int(task.outputs.max()) + 1
    first = min(4, recipe.longest)
    while True:
        network, starts, length, here, share = Network(recipe, tokens, outputs), starts + 1, first, 0, 0.0
        parameters = list(network.parameters())
        optimizer = torch.optim.Adam(parameters, lr=recipe.lr)
        while here < recipe.patience:
            if time.process_time() - started > recipe.limit:
                return Found(None, network, updates, time.process_time() - started, starts, length)
            for group in optimizer.param_groups:
                group["lr"] = recipe.lr * min(1.0, (16 / length) ** 0.75) * 0.5 ** (here / 500)
            batch_size = max(8, min(256, recipe.budget // length))
            if here % _AT_ONCE == 0:
                many = words(task, length, _AT_ONCE * batch_size, stream("train", seed, updates))
            letters, targets = (part[:, here % _AT_ONCE :: _AT_ONCE] for part in many)
            logits = network.head(network.states(letters))
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            updates, here = updates + 1, here + 1
            share = 0.9 * share + 0.1 * float((logits.detach().argmax(-1) == targets).float().mean())
            longer = share > recipe.enough and here >= 20 and length < recipe.longest
            if longer or here % 100 == 0:
                automaton = found_in(network, task, recipe, seed, updates)
                if automaton is not None:
                    return Found(automaton, network, updates, time.process_time() - started, starts, length)
            if longer:
                length, here, share = min(2 * length, recipe.longest), 0, 0.0


@torch.no_grad()
def found_in(network: Network, task: Automaton, recipe: Recipe, seed: int, update: int) -> Automaton | None:
    """Return the first automaton in the network's states that reproduces the outputs of new training words, or None."""
    random = stream("validation", seed, update)
    letters, _ = words(task, 64, 24, random)
    states = network.states(letters).flatten(0, 1)
    count = task.table.shape[1]
    tested, targets = words(task, recipe.longest, _TESTED, random)
    for radius in RADII:
        try:
            automaton = extract(
                network.step,
                lambda h: network.head(h).argmax(-1),
                states,
                network.rnn.get_parameter("h0")[0],
                count,
                radius,
                lambda h: outlook(network, h, count),
            )
        except ArgumentError:  # too many clusters
            break
        if np.array_equal(automaton.run(tested.numpy()), targets.numpy()):
            return automaton
    return None


def outlook(network: Network, states: Tensor, tokens: int) -> Tensor:
    """Return the probabilities of the outputs now and after all words of up to a few letters, (P, F) from (P, N)."""
    found = [network.head(states).softmax(-1)]
    total = width = found[0].shape[1]
    ends = states
    while total + width * tokens <= _NUMBERS:
        width *= tokens
        total += width
        ends = network.step(ends.repeat_interleave(tokens, 0), torch.arange(tokens).repeat(len(ends)))
        found.append(network.head(ends).softmax(-1).view(len(states), -1))
    return torch.cat(found, 1)


@torch.no_grad()
def accuracy(network: Network, task: Automaton, length: int, count: int = 50) -> float:
    """Return the share of words whose output after the last letter is right."""
    letters, targets = words(task, length, count, stream("test", 0, length))
    hits = network.head(network.rnn(letters, output="last")[0]).argmax(-1) == targets[-1]
    return float(hits.double().mean())


def measure(task: Automaton, recipe: Recipe, seed: int) -> dict[str, Any]:
    """Train one network, extract its automaton, and compare it with the task; return the entry of the results."""
    result = train(task, recipe, seed)
    states = None if result.automaton is None else len(result.automaton.table)
    return {
        "seed": seed,
        "exact": result.automaton == task.minimal(),
        "states": states,
        "updates": result.updates,
        "seconds": round(result.seconds, 2),
        "starts": result.starts,
        "longest_words": result.length,
        "accuracy_of_the_network": {length: accuracy(result.network, task, length) for length in (512, 4096)},
    }


def machine_facts(task: Automaton, steps: int = 1_000_000) -> dict[str, Any]:
    """Return the size of a task's machine, and the number of steps in which its C code differs from the automaton."""
    machine = machine_of(task)
    found: dict[str, Any] = {
        "states": len(machine.automaton.table),
        "tokens": machine.automaton.table.shape[1],
        "registers": [layer.codes.shape[1] for layer in machine.layers],
        "factors": machine.factors,
        "steps_tried": machine.verify(),
    }
    compiler = shutil.which("cc")
    if compiler is not None:
        word = long_word(task, steps, stream("test", 0, 1))
        found["c_bytes"] = c_bytes(machine_to_c(machine), compiler)
        found["c_steps"] = steps
        found["c_wrong"] = int((c_outputs(machine_to_c(machine), word, compiler) != task.run(word)).sum())
    return found


def long_word(task: Automaton, steps: int, random: np.random.Generator) -> np.ndarray:
    """Return a word (T,) that avoids the state that no letter leaves, up to its last quarter."""
    table = task.table.tolist()
    word: list[int] = random.integers(0, task.table.shape[1], steps).tolist()
    state = task.start
    for t, letter in enumerate(word):
        after = table[state][letter]
        if t < steps - steps // 4 and set(table[after]) == {after}:
            word[t] = letter = next((a for a, p in enumerate(table[state]) if set(table[p]) != {p}), letter)
        state = table[state][letter]
    return np.array(word)


def c_outputs(header: str, word: np.ndarray, compiler: str) -> np.ndarray:
    """Return the outputs of a machine in C, whose name is "machine", before the first token and after each."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "machine.h").write_text(header)
        (path / "main.c").write_text(
            '#include "machine.h"\n#include <stdio.h>\n'
            "int main(void) {\n    uint8_t x[MACHINE_REGISTERS];\n    int c;\n    machine_start(x);\n"
            "    putchar((int)machine_output(x));\n    while ((c = getchar()) != EOF) {\n"
            "        machine_step(x, (unsigned)c);\n        putchar((int)machine_output(x));\n    }\n    return 0;\n}\n"
        )
        flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2"]
        subprocess.run([compiler, *flags, "main.c", "-o", "main"], cwd=path, check=True)
        done = subprocess.run([path / "main"], input=word.astype(np.uint8).tobytes(), capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.uint8).astype(np.int64)


def c_bytes(header: str, compiler: str) -> int:
    """Return the bytes of code and constants of a machine in C, compiled for size."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "machine.h").write_text(header)
        (path / "all.c").write_text(
            '#include "machine.h"\nvoid start(uint8_t *x) { machine_start(x); }\n'
            "void step(uint8_t *x, unsigned token) { machine_step(x, token); }\n"
            "unsigned output(const uint8_t *x) { return machine_output(x); }\n"
        )
        flags = ["-std=c99", "-Os", "-fno-asynchronous-unwind-tables", "-c"]
        subprocess.run([compiler, *flags, "all.c", "-o", "all.o"], cwd=path, check=True)
        sizes = subprocess.run(["size", "all.o"], cwd=path, capture_output=True, text=True, check=True).stdout
    return int(sizes.splitlines()[1].split()[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, which writes one JSON file per task and the proof of its machine; return the exit status."""
    parser = OnceParser(prog="orthornn exact-machines", description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", default=",".join(TASKS), help="names, separated by commas")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=None)
    for entry in dataclasses.fields(Recipe):
        text = f"default: {entry.default}, or that of the task"
        parser.add_argument(f"--{entry.name.replace('_', '-')}", type=type(entry.default), help=text)
    given = vars(parser.parse_args(arguments))
    changes = {e.name: given[e.name] for e in dataclasses.fields(Recipe) if given[e.name] is not None}
    names = [check_choice("tasks", name, tuple(TASKS)) for name in given["tasks"].split(",")]
    torch.set_num_threads(1)
    environment = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": 1,
        "time": "processor seconds",
        "commit": commit(),
    }
    folder: Path | None = given["out"]
    for name in names:
        task, runs = TASKS[name], []
        recipe = dataclasses.replace(RECIPES.get(name, Recipe()), **changes)
        for seed in range(given["seeds"]):
            runs.append(measure(task, recipe, seed))
            print(name, json.dumps(runs[-1]), flush=True)
        if folder is not None:
            (folder / "proofs").mkdir(parents=True, exist_ok=True)
            record = {
                "recipe": dataclasses.asdict(recipe),
                "environment": environment,
                "machine": machine_facts(task),
                "runs": runs,
            }
            write_bytes(folder / f"{name}.json", (json.dumps(record, indent=1) + "\n").encode())
            proof = json.dumps(machine_of(task).proof())
            write_bytes(folder / "proofs" / f"{name}.json", (proof + "\n").encode())
    return 0
