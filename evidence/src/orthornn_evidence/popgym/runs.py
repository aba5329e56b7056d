"""Train agents with three memories of equal size on environments of POPGym, and store each run when it ends.

    python -m orthornn_evidence.popgym --environments RepeatPreviousHard --out results/popgym

Each environment and memory gets one run per learning rate with a separate seed (the sweep), then one per seed with the best
rate. A file of results/popgym has all runs of an environment; the same command resumes after the last one. Several
environments may be trained at the same time, each by one process. The score is the paper's: the best mean episodic return
during training, averaged over seeds.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from orthornn._checks import check_choice, check_integer
from orthornn._files import write_bytes
from orthornn.environment import environment
from orthornn.errors import ArgumentError

from ..once_parser import OnceParser
from .agent import MEMORIES, Agent
from .ppo import Recipe, learn

DISCOUNTS = {
    "RepeatPreviousHard": 0.0,
    "RepeatPreviousMedium": 0.0,
    "RepeatFirstHard": 0.0,
    "AutoencodeEasy": 0.0,
    "AutoencodeMedium": 0.0,
    "AutoencodeHard": 0.0,
    "CountRecallEasy": 0.0,
    "CountRecallMedium": 0.0,
    "CountRecallHard": 0.0,
    "HigherLowerEasy": 0.0,
    "MultiarmedBanditEasy": 0.99,
    "PositionOnlyCartPoleHard": 0.99,
    "NoisyPositionOnlyCartPoleEasy": 0.99,
    "NoisyPositionOnlyCartPoleMedium": 0.99,
    "NoisyPositionOnlyCartPoleHard": 0.99,
    "VelocityOnlyCartPoleHard": 0.99,
    "PositionOnlyPendulumEasy": 0.99,
    "BattleshipEasy": 0.99,
    "ConcentrationEasy": 0.99,
    "MineSweeperEasy": 0.99,
}
"""The environments and their discounts, the same for all memories: 0 if a reward depends only on the action of the same
step, so that later rewards are noise, and .99 otherwise."""
ENVIRONMENTS = tuple(DISCOUNTS)
RATES = (1e-3, 3e-3)
SWEEP = 1000  # the seed of the sweep, which no other run has
SEEDS = 3
Run = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Score:
    """The scores of a memory in an environment.

    Attributes:
        rate: The best learning rate of the sweep.
        scores: The best mean episodic return of each seed.
        steps: Environment steps of each run.
    """

    rate: float
    scores: list[float]
    steps: int

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return mean(self.scores)

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds, 0 for a single seed."""
        return stdev(self.scores) if len(self.scores) > 1 else 0.0


def scores(record: dict[str, Any]) -> dict[str, Score]:
    """Return the score of every memory whose sweep and seeds are finished, from the record of an environment."""
    found = {}
    for memory in MEMORIES:
        runs = [run for run in record["runs"] if run["memory"] == memory]
        rate = best_rate(runs, record["rates"])
        best = [run["best"] for run in runs if run["lr"] == rate and run["seed"] < record["seeds"]]
        if rate is not None and len(best) == record["seeds"]:
            found[memory] = Score(rate, best, record["recipe"]["steps"])
    return found


def best_rate(runs: Sequence[Run], rates: Sequence[float]) -> float | None:
    """Return the learning rate of the best run of a sweep; None unless all rates were tried."""
    tried = {run["lr"]: run["best"] for run in runs if run["seed"] == SWEEP}
    return max(rates, key=tried.__getitem__) if tried.keys() >= set(rates) else None


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    parser = OnceParser(prog="orthornn_evidence.popgym", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--environments", default=",".join(ENVIRONMENTS), help="names of popgym.envs, separated by commas"
    )
    parser.add_argument("--memories", default=",".join(MEMORIES), help="of these, by commas")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs with the best learning rate")
    parser.add_argument("--steps", type=int, default=Recipe.steps, help="environment steps per run")
    parser.add_argument(
        "--rates", default=",".join(map(str, RATES)), help="learning rates of the sweep, separated by commas"
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results")
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    rates = [float(rate) for rate in given.rates.split(",")]
    memories = [check_choice("memory", memory, MEMORIES) for memory in given.memories.split(",")]
    seeds = check_integer("seeds", given.seeds, 1)
    recipe = Recipe(steps=check_integer("steps", given.steps, 1))
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.environments.split(","):
        own = dataclasses.replace(recipe, discount=DISCOUNTS.get(name, recipe.discount))
        train_environment(given.out / f"{name}.json", name, memories, own, rates, seeds)
    return 0


def train_environment(
    path: Path, name: str, memories: Sequence[str], recipe: Recipe, rates: Sequence[float], seeds: int
) -> None:
    """Train the runs that a file lacks, and store each when it ends.

    Args:
        path: Path of the file.
        name: Name of the environment.
        memories: Memories to train.
        recipe: Hyperparameters; the learning rate is ignored.
        rates: Learning rates of the sweep.
        seeds: Number of runs with the best rate.

    Raises:
        ArgumentError: If the file has runs with another recipe or other rates.
    """
    described = dataclasses.asdict(recipe)
    del described["lr"]
    asked = {"recipe": described, "rates": list(rates), "seeds": seeds}
    started = environment()  # now: the source may change while it runs
    record: dict[str, Any] = {**asked, "runs": []}
    if path.exists():
        record = json.loads(path.read_text(encoding="utf-8"))
        other = [key for key in asked if record[key] != asked[key]]
        if other:
            raise ArgumentError(
                f"Expected the {other[0]} of {path}, {record[other[0]]}, but got {asked[other[0]]}. Write into another "
                f"folder."
            )
    for memory in memories:
        for rate, seed in _left(record, memory, rates, seeds):
            run = train(name, memory, dataclasses.replace(recipe, lr=rate), seed)
            record["runs"].append({**run, "environment": started})
            write_bytes(path, (json.dumps(record, indent=1) + "\n").encode())


def _left(record: dict[str, Any], memory: str, rates: Sequence[float], seeds: int) -> Iterator[tuple[float, int]]:
    """Yield (learning rate, seed) of a memory's missing runs, while the record grows."""

    def runs() -> list[Run]:
        return [run for run in record["runs"] if run["memory"] == memory]

    for rate in rates:
        if not any((run["lr"], run["seed"]) == (rate, SWEEP) for run in runs()):
            yield rate, SWEEP
    best = best_rate(runs(), rates)
    assert best is not None
    for seed in range(seeds):
        if not any((run["lr"], run["seed"]) == (best, seed) for run in runs()):
            yield best, seed


def train(name: str, memory: str, recipe: Recipe, seed: int) -> Run:
    """Return the entry of one run in the results."""
    sizes: list[int] = []

    def build(input_size: int, space: Any) -> Agent:
        agent = Agent(input_size, space, memory)  # type: ignore[arg-type]
        sizes.append(sum(parameter.numel() for parameter in agent.parameters()))
        return agent

    learned = learn(name, build, recipe, seed, lambda line: print(f"{memory}, lr {recipe.lr:g}: {line}", flush=True))
    return {
        "memory": memory,
        "lr": recipe.lr,
        "seed": seed,
        "parameters": sizes[0],
        "best": learned.best,
        "means": [round(value, 5) for value in learned.means],
        "steps": learned.steps,
        "seconds": round(learned.seconds, 1),
        "acting_seconds": round(learned.acting, 1),
    }
