"""Train systems for the leaderboard: find the learning rate of each with a small sweep, then train several seeds with it.

Every run is a separate process, `orthornn train`, and a run directory with the command in command.json. An interrupted call
can be repeated: it skips finished runs and those that failed during training, resumes others, and retries runs that did not
begin.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orthornn._checks import check_choice, check_integer, check_number, check_positive
from orthornn._command_words import split_words
from orthornn._files import read_bytes, write_bytes
from orthornn._printable import printable
from orthornn.errors import ArgumentError, DataError
from orthornn.learn.report.runs import chosen, read_run
from orthornn.learn.systems import MODELS
from orthornn.saved.json_files import LARGEST, parse
from orthornn.saved.run_files import CONFIG, RESULT

_RECIPE = "recipe:"
_OF_PLAN = ("--parameters (as --budget)", "--lr (as --lrs)", "--epochs or --steps", "--seed", "--out (in --runs)")
_PART = re.compile(r"""(?:[^,'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""", re.DOTALL)  # what a shell keeps together
_LONGEST = 1 << 16  # bytes of a reason
FAILED = "failed.txt"  # in the folder of a run that failed: the reason
COMMAND = "command.json"  # in the folder of a run: the words after `orthornn`


@dataclass(frozen=True)
class Plan:
    """The systems of a comparison, and the training of each.

    task: The words after `orthornn train`: the task and the options that all systems share.
    systems: Names of models, or recipe:NAME, optionally with options after a blank ("blocks --decay True"). No option may
        occur twice: here, in `task`, or in the fields below, which are --parameters, --lr, --epochs or --steps, and
        --seed.
    rates: Learning rates of the sweep.
    epochs, steps: Length of a run; one of them is None.
    share: Length of a run of the sweep, as a fraction of this length.
    seeds: Runs with the best rate.
    budget: Parameters.
    """

    task: tuple[str, ...]
    systems: tuple[str, ...]
    rates: tuple[float, ...]
    epochs: float | None = None
    steps: int | None = None
    share: float = 0.1
    seeds: int = 3
    budget: int = 16400

    def __post_init__(self) -> None:
        if not self.task:
            raise ArgumentError("Expected a task after --, but there is none. Add it, with its options.")
        if not self.systems or not self.rates:
            raise ArgumentError("Expected at least one system and one learning rate. Pass --systems and --lrs.")
        if (self.epochs is None) == (self.steps is None):
            raise ArgumentError(
                f"Expected epochs or steps, but got epochs={self.epochs} and steps={self.steps}. Give one of them."
            )
        check_positive("epochs", self.epochs)
        check_integer("steps", 1 if self.steps is None else self.steps, 1)
        if check_number("share", self.share, 0.0, 1.0) == 0:
            raise ArgumentError("Expected share to be above 0, but got 0. Pass a part of a run, such as 0.1.")
        for rate in self.rates:
            if check_number("learning rate", rate, 0.0) == 0:
                raise ArgumentError("Expected learning rates above 0, but got 0. Leave it out.")
        check_integer("seeds", self.seeds, 1)
        check_integer("budget", self.budget, 1)
        for system in self.systems:
            name = _split(system)[0]
            if not name.startswith(_RECIPE):
                _check_model(name, system, self.systems)
            self._check_options(system)

    def _check_options(self, system: str) -> None:
        """Raise ArgumentError if two parts of the plan name one option of a run."""
        parts = f"its own options, those behind --, and {', '.join(_OF_PLAN)}"
        advice = f"A run of {system!r} has {parts}. Name each in one place."
        split_words([*self.words(system, self.rates[0], 0), "--out", "the folder of each run"], lambda typed: 1, advice)
        length = {"--epochs", "--steps"} & {word.partition("=")[0] for word in (*_split(system), *self.task)}
        if length:
            raise ArgumentError(
                f"Expected the length of a run only as --epochs or --steps of the leaderboard, but got {min(length)} among "
                f"the options of {system!r}. Leave it out."
            )

    def words(self, system: str, rate: float, seed: int, share: float = 1.0) -> list[str]:
        """Return the words of a run after `orthornn`, but for its folder."""
        system, *own = _split(system)
        kind = ("--recipe", system.removeprefix(_RECIPE)) if system.startswith(_RECIPE) else ("--model", system)
        if self.epochs is None:
            length = ("--steps", str(max(1, round(share * (self.steps or 1)))))
        else:
            length = ("--epochs", f"{share * self.epochs:g}")
        name, *shared = self.task
        options = [
            *kind,
            *own,
            "--parameters",
            str(self.budget),
            *shared,
            "--lr",
            f"{rate:g}",
            *length,
            "--seed",
            str(seed),
        ]
        return ["train", name, *options]


def run_plan(plan: Plan, folder: Path, say: Callable[[str], object] = print) -> list[Path]:
    """Return the folders of the finished runs with the best rate of each system, all seeds.

    If a run of a system does not begin, its other runs are skipped, since they would fail for the same reason.

    Args:
        plan: The comparison.
        folder: Folder of the run directories, created if missing.
        say: Receives a line about each run.

    Raises:
        ArgumentError: If the first two systems fail to begin for the same reason, which must be in the shared options.
    """
    folder.mkdir(parents=True, exist_ok=True)
    finished: list[Path] = []
    refused: list[_NotBegunError] = []
    for count, system in enumerate(plan.systems):
        try:
            _train(plan, system, folder, finished, say)
        except _NotBegunError as error:
            refused.append(error)
            if count == 1 and len({str(found) for found in refused}) < len(refused):
                raise ArgumentError(
                    f"Expected a task and options that suit all systems, but {plan.systems[0]!r} and {system!r} do not "
                    f"begin, for the reason above. Nothing was trained. Correct the words after --."
                ) from None
            say(f"{system}: {error}")
    return finished


class _NotBegunError(Exception):
    """A run ended before its training began; the reason."""


def _train(plan: Plan, system: str, folder: Path, finished: list[Path], say: Callable[[str], object]) -> None:
    """Append the folders of a system's finished runs with its best rate. Raise _NotBegunError if a run does not begin."""
    name = "-".join(re.findall(r"[\w.]+", system))
    rate = plan.rates[0]
    if len(plan.rates) > 1:
        scores = {}
        for candidate in plan.rates:
            path = folder / f"{name}-sweep-{candidate:g}"
            if _finish(plan.words(system, candidate, 0, plan.share), path, say):
                score = _score(path)
                if math.isfinite(score):
                    scores[candidate] = score
                else:
                    say(f"{path.name}: validation {score}")
        if not scores:
            say(f"{system}: no learning rate of {', '.join(f'{rate:g}' for rate in plan.rates)} finished")
            return
        rate = max(scores, key=lambda candidate: scores[candidate])
        say(f"{system}: the learning rate {rate:g}")
    for seed in range(plan.seeds):
        path = folder / f"{name}-{rate:g}-s{seed}"
        if _finish(plan.words(system, rate, seed), path, say):
            finished.append(path)


def _split(system: str) -> list[str]:
    """Return the words of a system, split as by a shell. Raise ArgumentError if a quote is not closed or there are none."""
    try:
        words = shlex.split(system)
    except ValueError as error:
        raise ArgumentError(
            f"Expected a system with its options, but got {system!r}: {error}. Close the quote."
        ) from None
    if not words:
        raise ArgumentError(f"Expected the name of a model or recipe:NAME, but got {system!r}. Name one.")
    return words


def _check_model(name: str, system: str, systems: Sequence[str]) -> None:
    """Raise ArgumentError unless this is the name of a model; a comma within an option of the system before is likely."""
    place = list(systems).index(system)
    if (
        name not in MODELS
        and place
        and len(_split(systems[place - 1])) > 1
        and not difflib.get_close_matches(name, MODELS)
    ):
        raise ArgumentError(
            f"Expected the name of a model or recipe:NAME after a comma, but got {name!r}. If it belongs to "
            f"{systems[place - 1]!r}, put that value into quotes: \"lstm --quantiles '0.1,0.9'\"."
        )
    check_choice("system", name, MODELS)


def _finish(words: list[str], path: Path, say: Callable[[str], object]) -> bool:
    """Return whether the run finished, now or before.

    Raises ArgumentError if the folder holds another run, _NotBegunError if the run did not begin.
    """
    begun = (path / CONFIG).exists()
    if begun:
        _check_same(words, path)
    if (path / RESULT).exists():
        return True
    if begun and (path / FAILED).exists():
        why = read_bytes(path / FAILED, _LONGEST).decode(errors="replace").strip()
        say(f"{path.name}: failed before, {printable(why)} (to try again, remove {path})")
        return False
    if not begun:
        path.mkdir(parents=True, exist_ok=True)
        (path / FAILED).unlink(missing_ok=True)
        write_bytes(path / COMMAND, json.dumps(words).encode())
    status, said = _run(["train", "--resume", str(path)] if begun else [*words, "--out", str(path)])
    if status == 0:
        say(f"{path.name}: finished")
        return True
    if status >= 128 or status < 0:  # somebody stopped it: it can be resumed
        raise ArgumentError(f"Expected {path.name} to come to an end, but it was stopped. Give the command again.")
    lines = said.strip().splitlines()
    why = lines[-1] if lines else f"exit status {status}"
    write_bytes(path / FAILED, f"{printable(why)}\n".encode())
    if not (path / CONFIG).exists():
        raise _NotBegunError(why)
    say(f"{path.name}: {why}")
    return False


def _check_same(words: list[str], path: Path) -> None:
    """Raise ArgumentError unless the run in a folder has this command."""
    found = _words_of(path)
    if found != words:
        raise ArgumentError(
            f"Expected {path} to hold the run of this command, {shlex.join(words)}, but got "
            f"{'one that a leaderboard did not begin' if found is None else f'that of {shlex.join(found)}'}. Pass another "
            f"folder with --runs, or remove this one."
        )


def _words_of(path: Path) -> list[str] | None:
    """Return the command of the run in a folder; None if a leaderboard did not begin it."""
    if not (path / COMMAND).exists():
        return None
    words = parse(read_bytes(path / COMMAND, LARGEST), str(path / COMMAND))
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise DataError(f"Expected a list of words in {path / COMMAND}, but got something else. Remove the folder.")
    return words


def _run(words: list[str]) -> tuple[int, str]:
    """Run `orthornn` as a process; return its exit status and stderr."""
    done = subprocess.run([sys.executable, "-m", "orthornn", *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def _score(path: Path) -> float:
    run = read_run(path)
    assert run.result is not None
    validation = chosen(run.result)[0]
    task = run.config.task
    value = validation.get(task.metric, math.nan)
    return value if task.higher_is_better else -value


def systems_of(words: str) -> tuple[str, ...]:
    """Return the systems in a list separated by commas, except within quotes; "all" is replaced by every model.

    Raises ArgumentError if a quote is not closed.
    """
    if words.strip() == "all":
        return tuple(MODELS)
    if _PART.sub("", words).strip(","):
        raise ArgumentError(
            f"Expected systems separated by commas, but got {words!r}: No closing quotation. Close the quote."
        )
    return tuple(word.strip() for word in _PART.findall(words) if word.strip())


def rates_of(words: str) -> tuple[float, ...]:
    """Return the learning rates in a list separated by commas."""
    try:
        return tuple(float(word) for word in words.split(",") if word.strip())
    except ValueError:
        raise ArgumentError(
            f"Expected learning rates separated by commas, but got {words!r}. Write 0.001,0.004."
        ) from None
