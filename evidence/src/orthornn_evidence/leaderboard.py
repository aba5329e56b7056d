"""The leaderboard: the results and costs of all runs of a task, and the page that shows them.

    orthornn leaderboard add RUN [RUN ...] --out results/leaderboard
    orthornn leaderboard control --data FOLDER [--permuted] [--shift 2] [--seed 0] --out results/leaderboard
    orthornn leaderboard run --systems all --lrs 0.001,0.004 --epochs 10 -- pixel-mnist --data FOLDER
    orthornn leaderboard page --out results/leaderboard

`add` stores the finished runs in and below these folders in TASK.json, without paths of the machine, and lists the runs that
it leaves out. `control` trains a static perceptron of the same budget on the whole sequence at once, with the same recipe,
and stores it next to them: its result is possible without memory. `run` trains systems at one budget, each with the best
learning rate of a small sweep, and adds them; after -- come the task and the options of `orthornn train` that all systems
share. `page` writes README.md from all stored results, with means over seeds, including those of losing systems.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import shlex
import signal
import sys
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from msgspec import Struct
from torch import nn

from orthornn._checks import check_integer, check_positive
from orthornn._files import read_bytes, write_bytes
from orthornn._printable import printable
from orthornn._shell_word import shell_word
from orthornn._warnings import warn
from orthornn.environment import commit
from orthornn.errors import ArgumentError, DataError, OrthornnError, OrthornnWarning
from orthornn.learn.files.data_frames import shown_name
from orthornn.learn.report.runs import SavedRun, chosen, read_runs
from orthornn.learn.report.table import Column, Table
from orthornn.learn.tasks import Task
from orthornn.learn.tasks.table_task import TableTask
from orthornn.saved.json_files import LARGEST, checked, parse
from orthornn.saved.schemas import Finite, Step

from .leaderboard_options import shown_options
from .leaderboard_runs import Plan, rates_of, run_plan, systems_of
from .once_parser import OnceParser
from .tasks import Groups, ModularSums, PixelMNIST

_WITHOUT = ("--out", "--threads", "--seed")  # options of a command that do not change the kind of training
_TITLE = """# Leaderboard

Each table ranks trained networks on one task by their test result, with their cost.

- *test* uses the weights of the best validation, *last weights* the weights after the last update; ± is the standard
  deviation over seeds.
- ‖W'W − I‖ is the distance of the trained W from orthogonal: about 1e-6 is rounding; if it is larger, W need not be
  orthogonal.
- *CPU s* is the processor time of one training in seconds, with its evaluations.
- Rows are sorted by the test, best first; those that are trained on shifted images come below all others.
- A static perceptron receives the whole sequence as one vector: a network that is not better has not shown that it remembers.

`orthornn train --help` describes each system, and the [commands](#commands) of all rows are at the end of this page.
`orthornn leaderboard add RUN` adds a run of yours, and `orthornn leaderboard page` writes this page."""
_COMMANDS = "## Commands\n\nIn the order of the rows."
# Metrics by their names in the results.
_METRICS = {"bpc": "bits per character", "recall": "the share of the symbols that are recalled"}
_RECORDED = "python -m orthornn.lab.leaderboard"  # as older files name this command
# What the page reads of an entry.
_ENTRY = (
    "task", "system", "metric", "higher_is_better", "parameters", "head", "seed", "validation", "test",
    "best_test", "last_test", "orthogonality_error", "epochs", "cpu_seconds", "command",
)  # fmt: skip


class Entry(Struct):
    """A result in a file of results/leaderboard."""

    task: str
    system: str
    metric: str
    higher_is_better: bool
    parameters: Step
    head: str
    seed: Step
    test: Finite
    command: str
    validation: Finite | None
    best_test: Finite | None
    orthogonality_error: Finite | None
    epochs: Finite | None
    cpu_seconds: Finite | None
    last_test: Finite | None


def entry(run: SavedRun) -> dict[str, Any]:
    """Return the entry of a finished run."""
    result = run.result
    if result is None:
        raise ArgumentError(
            f"Expected a finished run, but got {run.path}. Resume it with: orthornn train --resume {shell_word(run.path)}."
        )
    validation, test = chosen(result)
    if run.config.task.metric not in test:
        raise DataError(
            f"Expected a test {run.config.task.metric} in the result of {run.path}, but got {', '.join(test)}."
        )
    config, metric = run.config, run.config.task.metric
    tested = [record[metric] for record in run.of_kind("test") if metric in record]
    epoch = config.task.steps_per_epoch(config.batch_size)
    return {
        "task": task_title(config.task),
        "system": config.model.name,
        "metric": metric,
        "higher_is_better": config.task.higher_is_better,
        "parameters": result["parameters"],
        "head": config.model.head or "linear",
        "seed": config.seed,
        "validation": validation.get(metric),
        "test": test[metric],
        "best_test": (max if config.task.higher_is_better else min)(tested) if config.record.test else None,
        "last_test": result["test"].get(metric),
        "orthogonality_error": result["orthogonality_error"],
        "epochs": None if epoch is None else round(result["steps"] / epoch, 2),
        "updates": result["steps"],
        "cpu_seconds": max((record["cpu_seconds"] for record in run.records), default=None),
        "command": _command_of(run),
        "commit": run.environment.get("commit"),
        "processor": run.environment.get("processor"),
    }


_LONG = 60  # characters of a target and the name of its file


def task_title(task: Task) -> str:
    """Return a task's name with everything that distinguishes it: permuted, variable, and T; a group; a target, its data
    and the question.
    """
    flags = [flag for flag in ("permuted", "variable") if getattr(task, flag, False)]
    if isinstance(task, TableTask):
        flags += [_short(f"{task.target} of {Path(shown_name(task.data)).name}")]
        asked = {
            name: getattr(task, name, None)
            for name in ("ahead", "horizons", "quantiles", "every_step", "target_transform")
        }
        flags += [f"{name} {value}" for name, value in asked.items() if value not in (None, False, 1)]
    elif isinstance(task, Groups):
        flags += [task.group, *([task.tokens] if task.tokens != "elements" else [])]
    elif isinstance(task, ModularSums):
        flags += [f"n {task.modulus}"]
    length = getattr(task, "T", None)
    return ", ".join([task.name, *flags, *([] if length is None else [f"T {length}"])])


def _short(words: str) -> str:
    """Return words on one line, long ones by their beginning and a digest."""
    words = _plain(words)
    return words if len(words) <= _LONG else f"{words[:_LONG]}... {hashlib.sha256(words.encode()).hexdigest()[:8]}"


def _file_name(title: str) -> str:
    """Return the name of the file of a task; a title of other than letters, digits and dots has a digest in it."""
    name = title.replace(", ", "-").replace(" ", "-")
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:100]
    return f"{plain}.json" if plain == name else f"{plain}-{hashlib.sha256(title.encode()).hexdigest()[:8]}.json"


def finished(runs: Sequence[SavedRun]) -> list[SavedRun]:
    """Return the finished runs, with a warning that lists the others. Raise ArgumentError if there are none."""
    ended = [run for run in runs if run.result is not None]
    if not ended:
        entry(runs[0])  # tells how it is resumed
    for run in runs:
        if run.result is None:
            again = f"orthornn train --resume {shell_word(run.path)}"
            _warn(f"a run is left out: {run.path} is not finished. Resume it with: {again}.")
    return ended


def _warn(text: str) -> None:
    warn(text)


def _command_of(run: SavedRun) -> str:
    """Return the command of a run, or the name of its configuration if it was started from Python or a file."""
    words = run.environment.get("command") or []
    if words[1:2] == ["train"] and words[2:] and not words[2].startswith("-"):
        return command(words)
    flat = {name: value for name, value in run.config.flat().items() if name not in ("seed", "device", "max_seconds")}
    said = {name: Path(value).name if isinstance(value, str) else value for name, value in flat.items()}
    digest = hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()
    return f"orthornn train --config {run.config.task.name}-{run.config.model.name}-{digest[:8]}.json"


def command(words: Sequence[str]) -> str:
    """Return a command without the seed, with folders replaced by FOLDER; words with blanks are quoted."""
    kept, words = ["orthornn"], [Path(words[0]).name, *words[1:]] if words else []
    skip = False
    for word, before in zip(words[1:], words):
        if skip or word.partition("=")[0] in _WITHOUT:
            skip = not skip and "=" not in word
            continue
        option, equals, value = word.rpartition("=")
        own = before == "--data" or option == "--data" or value.startswith("~") or Path(value).is_absolute()
        kept.append(f"{option}{equals}FOLDER" if own else shlex.quote(word))
    return " ".join(kept)


def store(entries: Iterable[dict[str, Any]], folder: Path) -> None:
    """Add entries to folder/TASK.json; an entry replaces an earlier one of the same training and seed.

    Raise DataError, and store nothing, if one of them has a metric that is not finite.
    """
    by_task: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
    for one in entries:
        checked(one, Entry, f"the result of {one['command']} with seed {one['seed']}")
        own, key = by_task.setdefault(one["task"], {}), (*_training(one), one["seed"])
        if key in own:
            _warn(
                f"two runs are the same training with seed {one['seed']}, and the later one is stored: {one['command']}."
            )
        own[key] = one
    folder.mkdir(parents=True, exist_ok=True)
    for task, own in by_task.items():
        path = folder / _file_name(task)
        there = stored(path) if path.exists() else []
        merged = [one for one in there if (*_training(one), one["seed"]) not in own] + list(own.values())
        merged.sort(key=lambda one: (one["system"], one["command"], one["seed"]))
        write_bytes(path, (json.dumps(merged, indent=1) + "\n").encode())


class Published(Struct, forbid_unknown_fields=True):
    """A result of others, in a file of results/leaderboard/published. parameters: None if the source does not say."""

    system: str
    test: Finite
    parameters: Step | None
    source: str


def _training(one: dict[str, Any]) -> tuple[Any, ...]:
    """Return the identity of a training: the command, with its options in any order, and the model, which the name of a
    recipe does not determine.
    """
    task, *options = one["command"].split(" --")
    return (task, *sorted(options), *(one[name] for name in ("system", "head", "parameters")))


def stored(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a file. Raise DataError if it has any other content."""
    try:
        entries = parse(read_bytes(path, LARGEST), str(path))
    except DataError as error:
        raise DataError(f"Expected {path} to be results that add has stored, but got no JSON: {error}") from error
    if not isinstance(entries, list) or not entries or not all(isinstance(one, dict) for one in entries):
        raise DataError(f"Expected {path} to be a list of results that add has stored, but got something else.")
    missing = sorted({name for one in entries for name in _ENTRY if name not in one})
    if missing:
        raise DataError(f"Expected {', '.join(missing)} in every result of {path}, but got results without.")
    for place, one in enumerate(entries, start=1):
        checked(one, Entry, f"{path}, result {place},")
        one["command"] = one["command"].replace(_RECORDED, "orthornn leaderboard", 1)
    return entries


def page(folder: Path) -> str:
    """Return the page of all results in a folder."""
    parts, commands = [_TITLE], [_COMMANDS]
    for path in sorted(folder.glob("*.json")):
        entries = stored(path)
        task = _plain(entries[0]["task"])
        words = "\n".join(_folded(_plain(own[0]["command"]).replace("`", "'")) for own in _by_training(entries))
        parts.append(f"## {task}\n\n{_measured(entries[0])}\n\n{markdown(table(entries))}")
        if (others := folder / "published" / path.name).exists():
            parts.append(_published(others))
        commands.append(f"### Commands for {task}\n\n```sh\n{words}\n```")
    if len(parts) == 1:
        raise ArgumentError(
            f"Expected results in {folder}, but it has none. Store some with: add RUN --out {shell_word(folder)}."
        )
    return "\n\n".join([*parts, *commands]) + "\n"


def _published(path: Path) -> str:
    """Return the lines with the accuracies of others, best first. DataError if the file holds anything else."""
    found = parse(read_bytes(path, LARGEST), str(path))
    if not isinstance(found, list):
        raise DataError(f"Expected {path} to be a list of published results, but got something else.")
    ranked = sorted((checked(one, Published, f"{path},") for one in found), key=lambda one: -one["test"])
    lines = ["Published test accuracies, by the training of their authors:", ""]
    for one in ranked:
        size = "" if one["parameters"] is None else f" with {one['parameters']} parameters"
        lines.append(f"- {_plain(one['system'])}, {100 * one['test']:.4g} %{size}: {_plain(one['source'])}")
    return "\n".join(lines)


def _measured(one: Mapping[str, Any]) -> str:
    """Return a sentence that describes the metric of an entry."""
    words, better = _METRICS.get(one["metric"], one["metric"]), "higher" if one["higher_is_better"] else "lower"
    return f"{words[0].upper()}{words[1:]}; {better} is better."


def table(entries: Sequence[dict[str, Any]]) -> Table:
    """Return one row per training, the best mean test first, then those with shifted images, with a note about them."""
    tested = any(one["best_test"] is not None for one in entries)
    last = any(one["last_test"] is not None for one in entries)
    headings = [
        "parameters",
        "head",
        "validation",
        "test",
        *["last weights"] * last,
        *["best test"] * tested,
        "seeds",
        "‖W'W − I‖",
        "epochs",
        "CPU s",
    ]
    columns = [Column("system", left=True), Column("options", left=True), *map(Column, headings)]
    shown = Table(entries[0]["task"], columns)
    groups = _by_training(entries)
    options, common, letters = shown_options([own[0]["command"] for own in groups])
    if common:
        shown.notes.append(f"Every run also has {_quoted(_plain(common))}.")
    if len({_is_shifted(own[0]) for own in groups}) == 2:
        shown.notes.append(
            "Rows with `--shift` are trained on shifted copies of the images, too, and come below the others."
        )
    shown.notes += [f"{letter}: {_quoted(_plain(words))}." for letter, words in letters.items()]
    for words, own in zip(options, groups):
        off = [one["orthogonality_error"] for one in own if one["orthogonality_error"] is not None]
        one = own[0]
        shown.rows.append(
            [
                one["system"],
                _quoted(words),
                str(one["parameters"]),
                one["head"],
                _mean(own, "validation"),
                _mean(own, "test"),
                *[_mean(own, "last_test")] * last,
                *[_mean(own, "best_test")] * tested,
                str(len(own)),
                f"{max(off):.1g}" if off else "-",
                "-" if one["epochs"] is None else f"{one['epochs']:g}",
                _seconds(own),
            ]
        )
    return shown


def _by_training(entries: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the entries of each training, all seeds, the best mean test first, and those with shifted images last."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in entries:
        groups.setdefault(_training(one), []).append(one)
    sign = -1 if entries[0]["higher_is_better"] else 1
    return sorted(groups.values(), key=lambda own: (_is_shifted(own[0]), sign * fmean(one["test"] for one in own)))


def _is_shifted(one: Mapping[str, Any]) -> bool:
    """Return whether a training used shifted copies of its images, and is therefore ranked separately."""
    return re.search(r" --shift[ =](?!0( |$))", one["command"]) is not None


def _quoted(options: str) -> str:
    """Return each option as separate code, after the letter of common options; the command of a run stays in the quotes."""
    letter, _, rest = options.partition(" ") if options[:1].isupper() else ("", "", options)
    parts = rest.replace("`", chr(39)).split(" --")
    code = [f"`{part if at == 0 else f'--{part}'}`" for at, part in enumerate(parts)] if rest else []
    return " ".join([*[letter] * bool(letter), *code])


def _folded(words: str, width: int = 96) -> str:
    """Return a command on lines that a page can show, each but the last one with a backslash at its end."""
    lines = [""]
    for part in re.split(r" (?=--)", words):
        if lines[-1] and len(lines[-1]) + 1 + len(part) > width - 2:
            lines.append(f"    {part}")
        else:
            lines[-1] = f"{lines[-1]} {part}".strip() if len(lines) == 1 else f"{lines[-1]} {part}"
    return " \\\n".join(lines)


def markdown(shown: Table) -> str:
    """Return a table as Markdown, followed by its notes."""
    lines = [
        [column.heading for column in shown.columns],
        ["---" if column.left else "---:" for column in shown.columns],
        *shown.rows,
    ]
    cells = [[_plain(cell).replace("|", "\\|") for cell in line] for line in lines]  # a bar would end its cell
    cells = [[re.sub(r"(?<=\d) %$", "\N{NO-BREAK SPACE}%", cell) for cell in line] for line in cells]
    return "\n\n".join(["\n".join(f"| {' | '.join(line)} |" for line in cells), *shown.notes])


def _plain(cell: str) -> str:
    """Return a cell without line breaks and other control characters, which would end its row."""
    return "".join(character if character.isprintable() else " " for character in cell)


def _mean(own: Sequence[dict[str, Any]], name: str) -> str:
    values = [one[name] for one in own if one.get(name) is not None]
    if not values:
        return "-"
    if own[0]["metric"] in ("accuracy", "recall"):
        spread = f" ± {100 * stdev(values):.2f}" if len(values) > 1 else ""
        return f"{100 * fmean(values):.2f}{spread} %"
    spread = f" ± {stdev(values):.2g}" if len(values) > 1 else ""
    return f"{fmean(values):.4g}{spread}"


def _seconds(own: Sequence[dict[str, Any]]) -> str:
    values = [one["cpu_seconds"] for one in own if one["cpu_seconds"] is not None]
    return f"{fmean(values):.0f}" if values else "-"


def static_perceptron(task: Task, budget: int) -> nn.Sequential:
    """Return the widest perceptron with one hidden layer (gelu) within a budget, which reads all T I numbers at once."""
    schema = task.problem().schema
    inputs, outputs = task.steps * schema["input_size"], schema["output_size"]
    width = (budget - outputs) // (inputs + 1 + outputs)
    if width < 1:
        raise ArgumentError(
            f"Expected a budget for at least one hidden unit, {inputs + 1 + 2 * outputs} parameters, but got {budget}. "
            f"Raise it."
        )
    return nn.Sequential(nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, outputs))


def control(
    task: Task, *, budget: int = 16400, epochs: float = 30, seed: int = 0, lr: float = 4e-3, decay: float = 0.02,
    smoothing: float = 0.05, batch_size: int = 100,
) -> dict[str, Any]:  # fmt: skip
    """Train a static perceptron by the recipe of the blocks (AdamW, warmup, cosine, smoothed labels); return its entry."""
    check_integer("seed", seed, 0)
    check_positive("epochs", epochs)
    torch.manual_seed(seed)
    model = static_perceptron(task, budget)
    epoch = task.steps_per_epoch(batch_size)
    assert epoch is not None
    steps = max(1, round(epochs * epoch))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=decay, fused=True)
    warmup = min(100, steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / warmup) * (1 + math.cos(math.pi * min(step / steps, 1.0))) / 2
    )
    loss = nn.CrossEntropyLoss(label_smoothing=smoothing)
    start = time.process_time()
    best: tuple[float, float] = (-math.inf, -math.inf)
    problem = task.problem()
    for step in range(steps):
        batch = problem.train(step, batch_size, seed)
        optimizer.zero_grad()
        loss(model(_flat(batch.inputs)), batch.targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % epoch == 0 or step + 1 == steps:
            accuracy = _accuracy(model, problem.validation(1000))
            if accuracy > best[0]:
                best = (accuracy, _accuracy(model, problem.test(1000)))
    shift = getattr(task, "shift", 0)
    options = (" --permuted" if getattr(task, "permuted", False) else "") + (f" --shift {shift}" if shift else "")
    return {
        "task": task_title(task),
        "system": "static perceptron",
        "metric": "accuracy",
        "higher_is_better": True,
        "parameters": sum(p.numel() for p in model.parameters()),
        "head": "mlp",
        "seed": seed,
        "validation": best[0],
        "test": best[1],
        "best_test": None,
        "last_test": _accuracy(model, problem.test(1000)),
        "orthogonality_error": None,
        "epochs": epochs,
        "updates": steps,
        "cpu_seconds": round(time.process_time() - start, 1),
        "command": f"orthornn leaderboard control --data FOLDER{options} --budget {budget} --epochs {epochs:g}",
        "commit": commit(),
        "processor": None,
    }


def _flat(inputs: torch.Tensor) -> torch.Tensor:
    return inputs.transpose(0, 1).flatten(1)


@torch.no_grad()
def _accuracy(model: nn.Module, batches: Iterable[Any]) -> float:
    right, count = 0, 0
    for batch in batches:
        right += int((model(_flat(batch.inputs)).argmax(-1) == batch.targets).sum())
        count += len(batch.targets)
    return right / count


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the words before --; each command accepts only its options."""
    parser = OnceParser("orthornn leaderboard", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="what", required=True)

    def command_named(name: str, summary: str, **more: Any) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=summary, description=summary, **more)
        made.add_argument("--out", type=Path, default=Path("results/leaderboard"), help="folder of the leaderboard")
        return made

    add = command_named("add", "store finished runs")
    add.add_argument("folders", nargs="+", type=Path, help="run directories, or folders above them")
    static = command_named("control", "train a static perceptron on pixel MNIST, and store it")
    static.add_argument("--data", default="data/mnist")
    static.add_argument("--permuted", action="store_true")
    static.add_argument("--shift", type=int, default=0, help="largest random shift of the training images, in pixels")
    static.add_argument("--budget", type=int, default=16400, help="parameters")
    static.add_argument("--epochs", type=float, default=30)
    static.add_argument("--seed", type=int, default=0)
    told = "after --: the task and the options of `orthornn train` that all systems share"
    run = command_named("run", "train systems side by side, and store them", epilog=told)
    names = (
        'models or recipe:NAME separated by commas, each with optional options ("blocks --decay True"; quote a value with '
        "commas), or all"
    )
    run.add_argument("--systems", default="all", help=names)
    run.add_argument("--lrs", default="0.001,0.004", help="learning rates of the sweep, separated by commas")
    run.add_argument("--epochs", type=float)
    run.add_argument("--steps", type=int, help="instead of epochs")
    run.add_argument(
        "--sweep", type=float, default=0.1, help="length of a run of the sweep, as a fraction of a full run"
    )
    run.add_argument("--seeds", type=int, default=3, help="runs with the best learning rate")
    run.add_argument("--budget", type=int, default=16400, help="parameters")
    run.add_argument("--runs", type=Path, default=Path("runs/leaderboard"), help="folder of the runs")
    command_named("page", "write the page of all stored results")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status: 2 for an error, 130 after Ctrl-C."""
    typed = list(sys.argv[1:] if words is None else words)
    at = typed.index("--") if "--" in typed else len(typed)
    parser = _parser()
    given = parser.parse_args(typed[:at])
    if at < len(typed) and given.what != "run":
        parser.error(f"Expected words after -- only for run, but got {' '.join(typed[at:])}. Leave them out.")
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: print(f"leaderboard: {printable(message)}", file=sys.stderr)
        warnings.simplefilter("always", OrthornnWarning)
        try:
            _run(given, typed[at + 1 :])
        except KeyboardInterrupt:
            print("\nleaderboard: interrupted. Repeat the command to resume.", file=sys.stderr)
            return 128 + signal.SIGINT
        except OrthornnError as error:
            print(f"leaderboard: {printable(error)}", file=sys.stderr)
            return 2
        except OSError as error:
            place = error.filename or given.out
            print(f"leaderboard: cannot use {printable(place)}: {error.strerror or error}.", file=sys.stderr)
            return 2
    return 0


def _run(given: argparse.Namespace, shared: Sequence[str]) -> None:
    """Run the requested command, and write the page. shared: The words after --."""
    if given.what == "add":
        store(map(entry, finished(read_runs(given.folders))), given.out)
    elif given.what == "control":
        task = PixelMNIST(data=given.data, permuted=given.permuted, shift=given.shift)
        store([control(task, budget=given.budget, epochs=given.epochs, seed=given.seed)], given.out)
    elif given.what == "run":
        systems, rates = systems_of(given.systems), rates_of(given.lrs)
        length = (given.epochs, given.steps, given.sweep)
        plan = Plan(tuple(shared), systems, rates, *length, given.seeds, given.budget)
        paths = run_plan(plan, given.runs)
        if not paths:
            raise ArgumentError(f"Expected at least one run to finish, but none did. See the messages in {given.runs}.")
        store(map(entry, read_runs(paths)), given.out)
    write_bytes(given.out / "README.md", page(given.out).encode())
