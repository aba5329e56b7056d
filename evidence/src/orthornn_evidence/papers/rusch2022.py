"""Rusch, Mishra, Erichson and Mahoney, 2022: Long expressive memory for sequence modeling; the adding problem across
ten thousand steps (section 5), and beyond the paper copying across a hundred thousand and a million.

Both by networks whose transition is linear and orthogonal, which is where orthogonality holds the gradient best: it has
the same norm at every step. What must be selected is selected at the input or at the readout.

adding   h_t = W h_{t-1} + relu(V x_t + b), W of 16 reflections, so that N - 16 of its eigenvalues are 1: these
         directions add up what the relu lets through. b starts at -0.9: at first only a marked number can pass.
copying  h_t = W h_{t-1} + V x_t, W of random rotations that are not trained, Y h_t + d the logits. The response
         of Y W^k V to a symbol k steps before is a sum of N/2 turning phases; V and Y learn phases that meet at k = T +
         10 and nowhere else. d starts at the logarithms of the classes' shares. W as rotations
         costs O(N) a step, readout included (docs/derivations/rotations.md).

Each is one loop here, not a run of orthornn train, because the readout is absorbed into the basis of the rotations.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from orthornn.learn.tasks import Adding, Batch, Copying, Task
from orthornn.modules import OrthogonalRNN
from orthornn.parametrizations import Householder, Rotations

from .experiment import Plan, Published, Setting, reproduces
from .result_table import ResultTable, Row, Runs

_PERCENT = "{:.2%}"
_MEAN_OF = 10  # updates whose losses are averaged


class Adder(nn.Module):
    """h_t = W h_{t-1} + relu(V x_t + b), the last state read out."""

    def __init__(self, n: int, reflections: int) -> None:
        super().__init__()
        self.rnn = OrthogonalRNN(
            2, n, parametrization=Householder(reflections), nonlinearity="relu", linear_transition=True
        )
        self.readout = nn.Linear(n, 1)
        nn.init.uniform_(self.rnn.get_parameter("weight_ih_l0"), -1, 1)
        nn.init.constant_(self.rnn.get_parameter("bias_ih_l0"), -0.9)
        nn.init.zeros_(self.readout.weight)
        nn.init.ones_(self.readout.bias)  # the mean answer

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (B, 1) from (T, B, 2)."""
        return self.readout(self.rnn(inputs, output="last")[0])


class Copier(nn.Module):
    """h_t = W h_{t-1} + V x_t with W of rotations whose phases are spread over the half circle, every state read out.

    Each of the N/2 phases is random in the middle half of its own part of (0, pi). A phase near 0 would add up the blanks,
    which are all the same, for as many steps as it needs to turn; so does an eigenvalue of exactly 1, which every W of even
    size and determinant -1 has. With such a W, training diverges.
    """

    def __init__(self, n: int, task: Copying) -> None:
        super().__init__()
        schema = task.problem().schema
        self.rnn = OrthogonalRNN(
            schema["input_size"], n, parametrization=Rotations(), nonlinearity="identity", bias=False, form="rotations"
        )
        self.readout = nn.Linear(n, schema["output_size"])
        angles = self.rnn.get_parameter("transition_l0.angles").requires_grad_(False)
        angles.copy_((torch.arange(len(angles)) + 0.25 + 0.5 * torch.rand(len(angles))) * math.pi / len(angles))
        nn.init.normal_(self.rnn.get_parameter("weight_ih_l0"), std=n**-0.5)
        nn.init.zeros_(self.readout.weight)
        nn.init.zeros_(self.readout.bias)
        with torch.no_grad():  # blanks are asked for T / 10 times as often as all symbols together
            self.readout.bias[0] = math.log(task.T * task.symbols / task.items)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (T, B, O) from (T, B)."""
        return self.rnn.forward_readout(tokens, self.readout)


def train(
    model: nn.Module, task: Task, optimizer: torch.optim.Optimizer, updates: int, batch: int, seed: int
) -> tuple[list[float], float]:
    """Return the loss at every update, and the processor seconds that they took; every batch is fresh."""
    losses, start = [], time.process_time()
    problem, objective = task.problem(), task.objective()
    for update in range(updates):
        data = problem.train(update, batch, seed)
        loss = objective.loss(model(data.inputs), data.targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, time.process_time() - start


@torch.no_grad()
def evaluate(model: nn.Module, task: Task, batches: Iterator[Batch]) -> dict[str, float]:
    """Return the metrics over these batches."""
    sums: dict[str, list[tuple[float, float]]] = {}
    objective = task.objective()
    for data in batches:
        for name, one in objective.metrics(model(data.inputs), data.targets).items():
            sums.setdefault(name, []).append(one)
    return {name: sum(total for total, _ in parts) / sum(count for _, count in parts) for name, parts in sums.items()}


def first_below(losses: list[float], bound: float) -> int | None:
    """Return the update after which the mean of ten losses is first below the bound."""
    for update in range(_MEAN_OF, len(losses) + 1):
        if statistics.fmean(losses[update - _MEAN_OF : update]) < bound:
            return update
    return None


def _curves(losses: Sequence[Sequence[float]], trivial: float, title: str) -> Callable[[Any], None]:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for seed, own in enumerate(losses):
            label = "orthogonal, linear transition" if seed == 0 else None
            axes.semilogy(range(1, len(own) + 1), own, color="C0", alpha=1 - 0.3 * seed, label=label)
        axes.axhline(trivial, color="gray", linestyle=":", label="trivial baseline")
        axes.set_xlabel("updates")
        axes.set_ylabel("loss")
        axes.set_title(title)
        axes.legend()

    return draw


_LEM = "adding, T=10000: updates until the squared error is below 0.01"


@reproduces(
    "very long adding problem",
    section="5",
    published=(Published(_LEM, 1900, "{:.0f}", "(LEM, 128 units, batches of 50)"),),
    hours=(0.15, 4.0),
    laptop=("batches of 20, 250 updates, tested on 200 sequences; three seeds",),
)
def adding(setting: Setting) -> Plan:
    """The adding problem at T = 10000, n = 128, with h_t = W h_{t-1} + relu(V x_t + b), W orthogonal."""

    def tabulate(runs: Runs) -> ResultTable:
        task = Adding(T=setting.at(20, 10_000, 10_000), test_size=setting.at(4, 200, 10_000))
        batch, updates = setting.at((2, 12), (20, 250), (50, 1900))
        curves, errors, minutes = [], [], []
        for seed in range(setting.at(1, 3, 3)):
            torch.manual_seed(seed)
            model = Adder(setting.at(8, 128, 128), setting.at(2, 16, 16))
            transition = list(model.rnn.transition_l0.parameters())
            others = [p for p in model.parameters() if all(p is not one for one in transition)]
            groups = [{"params": others, "lr": 3e-3}, {"params": transition, "lr": 1e-4}]
            losses, seconds = train(model, task, torch.optim.Adam(groups), updates, batch, seed)
            errors.append(evaluate(model, task, task.problem().test(batch))["loss"])
            curves.append(losses)
            minutes.append(seconds / 60)
        reached = [update for update in (first_below(losses, 0.01) for losses in curves) if update is not None]
        took = statistics.fmean(minutes)
        note = f"batches of {batch}"
        rows = (
            [Row.of_seeds(_LEM, reached, form="{:.0f}", minutes=took, note=note)] if len(reached) == len(curves) else []
        )
        return ResultTable(
            [
                *rows,
                Row.of_seeds(
                    "adding, T=10000: squared error on the test sequences", errors, minutes=took, form="{:.1e}"
                ),
            ],
            numbers={"losses": curves, "T": task.T},
            draw=_curves(curves, task.objective().trivial_loss, f"adding, T = {task.T}"),
        )

    return Plan({}, tabulate)


def _copying(setting: Setting, T: int, batch: int, updates: int, tested: int, seeds: int) -> ResultTable:
    """Return copiers trained and tested, with rows for recall, loss and time."""
    task = Copying(T=setting.at(30, T, T), test_size=setting.at(4, tested, 10 * tested))
    n = 256
    if setting.budget == "smoke":
        n, batch, updates, seeds = 8, 2, 12, 1
    curves, found, took = [], [], []
    for seed in range(seeds):
        torch.manual_seed(seed)
        model = Copier(n, task)
        groups = [
            {"params": [model.rnn.get_parameter("weight_ih_l0")], "lr": 1e-3},
            {"params": list(model.readout.parameters()), "lr": 1e-2},
        ]
        losses, seconds = train(model, task, torch.optim.Adam(groups), updates, batch, seed)
        found.append(evaluate(model, task, task.problem().test(batch)))
        curves.append(losses)
        took.append(seconds)
    minutes = statistics.fmean(took) / 60
    name, trivial = f"copying, T={T}", task.objective().trivial_loss
    return ResultTable(
        [
            Row.of_seeds(
                f"{name}: recall of the ten symbols, test",
                [one["recall"] for one in found],
                minutes=minutes,
                form=_PERCENT,
            ),
            Row.of_seeds(
                f"{name}: loss over the trivial baseline, test",
                [one["loss"] / trivial for one in found],
                minutes=minutes,
                form="{:.2g}",
            ),
            Row.of_seeds(
                f"{name}: processor time per update (s)",
                [seconds / updates for seconds in took],
                form="{:.2f}",
                note=f"n={n}, batches of {batch}",
            ),
        ],
        numbers={"losses": curves, "T": task.T, "updates": updates},
        draw=_curves(curves, trivial, f"copying, T = {task.T}"),
    )


@reproduces(
    "ours",
    section="-",
    published=(),
    hours=(0.15, 1.5),
    laptop=("150 updates of 4 sequences, tested on 40; three seeds",),
)
def copying(setting: Setting) -> Plan:
    """Copying ten symbols across a hundred thousand steps, n = 256, by a linear orthogonal network."""
    updates = setting.at(12, 150, 400)
    return Plan({}, lambda runs: _copying(setting, 100_000, 4, updates, 40, seeds=3))


@reproduces(
    "ours",
    section="-",
    published=(),
    hours=(0.4, 1.0),
    laptop=("300 updates of 2 sequences, tested on 20",),
)
def copying_million(setting: Setting) -> Plan:
    """Copying ten symbols across a million steps, n = 256, by a linear orthogonal network."""
    updates = setting.at(12, 300, 600)
    return Plan({}, lambda runs: _copying(setting, 1_000_000, 2, updates, 20, seeds=1))
