"""The arguments that train and compare share: a task by name, its options, and those of a run."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import torch

from .._checks import check_choice, check_integer, check_number
from ..errors import ArgumentError, OrthornnError
from ..learn import entry_points
from ..learn.files.cells import listed
from ..learn.files.columns import SUFFIXES, is_data, read_columns, suffix_of
from ..learn.files.csv_format import CsvFormat, check_encoding, spellings
from ..learn.files.frames import shown_name
from ..learn.systems import MODELS, Model, options
from ..learn.tasks import TASKS, Forecast, Task
from ..learn.tasks.splits import counts
from ..learn.tasks.table_options import names_in
from ..learn.tasks.table_task import TableTask
from ..learn.tasks.task_choice import choose_task, look_at_series
from ..learn.training import OptimizerConfig, PenaltyConfig, RecordConfig, RunConfig, ScheduleConfig
from ..learn.training.config import Optimizer
from ..learn.training.threads import useful_threads
from .complaints import one_line
from .lines import say

TaskT = TypeVar("TaskT", bound=Task)
_DEFAULT_STEPS = 1000
_TABLE_STEPS = 600
_OF_FORECASTS = ("ahead", "horizons", "quantiles", "known", "embedding")  # options with which the task is one
_OF_AMOUNTS = ("target-transform",)  # options of targets that are numbers
_WARMUP_PARTS = 5
_MOST_THREADS = 64
_MOST_EPOCHS = 1e9
_OFTEN = 50  # updates between two validations at least, in a long run with short epochs

_HELP = "\n    ".join(["Size and options.\n\nArgs:", *(f"{name}: {option.help}" for name, option in options().items())])
# Size and options of every model, each once; the field, its type and its help are those of the models' dataclasses.
ModelOptions: Any = dataclasses.make_dataclass(
    "ModelOptions",
    [(name, str | None if option.parse else option.kind, None) for name, option in options().items()],
    namespace={"__doc__": _HELP},
    frozen=True,
)


@dataclass(frozen=True)
class RunArguments(Generic[TaskT]):
    """The options of a run."""

    task: TaskT
    """Data and sizes of the task."""
    model_options: ModelOptions = dataclass_field(default_factory=ModelOptions)
    """Size and options of the networks."""
    steps: int | None = None
    """Number of updates. Default: 1000 (600 for your own data), or one epoch if that is more."""
    epochs: float | None = None
    """Number of epochs, instead of --steps; for tasks with a fixed training set."""
    batch_size: int | None = None
    """Sequences per update. Default: that of the task, usually 50."""
    optimizer: Optimizer = OptimizerConfig.name
    """Optimizer. rmsprop-tensorflow is RMSprop with a mean of squared gradients that starts at 1, to which it adds 1e-10
    before the root; rmsprop-lasagne adds 1e-6."""
    recurrent_optimizer: Optimizer | None = OptimizerConfig.recurrent
    """Optimizer of the parameters of the recurrent matrix. Default: --optimizer."""
    momentum: float = OptimizerConfig.momentum
    """Nesterov momentum of sgd; 0 for none."""
    lr: float = OptimizerConfig.lr
    """Learning rate."""
    recurrent_lr: float | None = OptimizerConfig.recurrent_lr
    """Learning rate of the parameters of the recurrent matrix. Default: a tenth of --lr."""
    manifold: Literal["cayley-rmsprop", "cayley-sgd"] = OptimizerConfig.manifold
    """Optimizer of matrices that must stay orthogonal, such as the bases of spectral."""
    manifold_lr: float | None = OptimizerConfig.manifold_lr
    """Learning rate of --manifold. Default: --recurrent-lr."""
    spectrum_lr: float | None = OptimizerConfig.spectrum_lr
    """Learning rate of the singular values of spectral, divided by twice the margin. Default: --recurrent-lr."""
    decoupled_decay: float = OptimizerConfig.decoupled_decay
    """Weight decay of adamw. It acts on all parameters except those of an orthogonal recurrent matrix, so also on
    biases, normalizations and the recurrent weights of lstm and gru."""
    clip_norm: float | None = OptimizerConfig.clip_norm
    """Largest norm of the gradient in an update; a larger one is scaled down. Default: no clipping."""
    clip_value: float | None = OptimizerConfig.clip_value
    """Largest absolute value of an entry of the gradient in an update. Default: no clipping."""
    schedule: Literal["constant", "step", "exponential", "cosine", "linear", "plateau"] = ScheduleConfig.name
    """Schedule of the learning rates. step multiplies them by --schedule-factor every --schedule-every updates, and
    exponential does so smoothly; cosine and linear lower them to --schedule-factor by the last update; plateau
    multiplies them when validations stop improving."""
    schedule_factor: float | None = ScheduleConfig.factor
    """Factor of --schedule. Default: 0.1, and 0 for cosine and linear."""
    schedule_every: int | None = ScheduleConfig.every
    """Updates per factor of --schedule; for plateau, validations without improvement. Default: a third of all updates;
    10 validations."""
    warmup: int = ScheduleConfig.warmup
    """Updates over which the learning rates rise from a hundredth, fewer than --steps. That of a recipe is limited to a
    fifth of all updates."""
    accumulate: int = RunConfig.accumulate
    """Parts in which a batch is processed, to save memory; the update is the same."""
    autocast: Literal["bfloat16"] | None = RunConfig.autocast
    """Precision of the forward pass; the recurrent matrix stays in float32. Default: float32."""
    device: str = RunConfig.device
    """Device: cpu, cuda, or cuda:N."""
    patience: int | None = RunConfig.patience
    """Stop after this many validations without improvement. Default: train to the end."""
    checkpoint_every: int | None = RunConfig.checkpoint_every
    """Updates between two checkpoints, in addition to --checkpoint-seconds. Default: none."""
    checkpoint_seconds: float | None = RunConfig.checkpoint_seconds
    """Seconds between two checkpoints."""
    keep_checkpoints: int = RunConfig.keep_checkpoints
    """Number of latest checkpoints to store, besides the best one."""
    seed: int = RunConfig.seed
    """Seed of the initial values and of the training data."""
    validate_every: int | None = None
    """Updates between two validations. Default: one epoch, but no fewer than 50 updates or a
    twentieth of --steps, whichever is less; 200 if the task has no epochs."""
    log_every: int = RunConfig.log_every
    """Updates that one training record averages."""
    record_gradients: int | None = RecordConfig.gradients
    """Updates between two records of the gradient's norm at every time step. Default: no records."""
    gradient_loss: Literal["last", "total"] = RecordConfig.gradient_loss
    """Loss of the recorded gradients: at the last time step, or the total over all steps."""
    record_spectrum: int | None = RecordConfig.spectrum
    """Updates between two records of the singular values and of the distance from orthogonality. Default: no
    records."""
    record_test: bool = RecordConfig.test
    """Also record the test metrics at every validation."""
    soft_orthogonality: float = PenaltyConfig.soft_orthogonality
    """Strength of the penalty ||W'W - I||^2."""
    weight_decay: float = PenaltyConfig.weight_decay
    """Strength of the penalty ||W||^2 on the recurrent matrix."""
    input_decay: float = PenaltyConfig.input_decay
    """Strength of the same penalty on the input weights."""
    readout_decay: float = PenaltyConfig.readout_decay
    """Strength of the same penalty on the readout."""
    spectrum_prior: float = PenaltyConfig.spectrum_prior
    """Strength of the Gaussian prior with mean 1 on the singular values of spectral."""
    norm_stabilizer: float = PenaltyConfig.norm_stabilizer
    """Strength of the penalty on changes of the state's norm from step to step."""
    gradient_norm: float = PenaltyConfig.gradient_norm
    """Strength of the penalty on changes of the gradient's norm from step to step."""
    label_smoothing: float = PenaltyConfig.label_smoothing
    """Share of the target, from 0 to 1, that is spread over all classes: evenly, or in your own data by their frequencies.
    For tasks with one class per sequence, and classes at every step of your own data."""
    seconds: float | None = None
    """Seconds of training after which a run stops, counted over all its parts if it is resumed. Default: no limit."""
    threads: int | None = None
    """Threads of torch. Default: one per core that this process may use, or one for a small network that is computed step by
    step, such as an LSTM."""
    out: Path | None = None
    """Folder for the results. Default: a new one in runs/."""

    def given_model_options(self) -> dict[str, Any]:
        """Return size and options of the networks, those that were given."""
        given: dict[str, Any] = {}
        for name, option in options().items():
            value = getattr(self.model_options, name)
            if value is not None:
                given[name] = value if option.parse is None else option.parse(value)
        if given.get("pool", "last") != "last" and self.task.output == "all":
            raise ArgumentError(
                f"Expected --pool only for one prediction per sequence, but got --pool {given['pool']} for {self.task.name}, "
                f"which predicts at every step. Leave it out."
            )
        return given

    def config(self, model: Model, max_seconds: float | None) -> RunConfig:
        """Return the run that these options describe, with this model; sets torch's threads."""
        if self.threads is not None:
            set_threads(self.threads)
        return RunConfig(
            task=self.task,
            model=model,
            optimizer=OptimizerConfig(
                name=self.optimizer,
                recurrent=self.recurrent_optimizer,
                momentum=self.momentum,
                lr=self.lr,
                recurrent_lr=self.recurrent_lr,
                clip_norm=self.clip_norm,
                decoupled_decay=self.decoupled_decay,
                clip_value=self.clip_value,
                manifold=self.manifold,
                manifold_lr=self.manifold_lr,
                spectrum_lr=self.spectrum_lr,
            ),
            schedule=ScheduleConfig(
                name=self.schedule, factor=self.schedule_factor, every=self.schedule_every, warmup=self.warmup
            ),
            penalties=PenaltyConfig(
                soft_orthogonality=self.soft_orthogonality,
                weight_decay=self.weight_decay,
                input_decay=self.input_decay,
                readout_decay=self.readout_decay,
                spectrum_prior=self.spectrum_prior,
                norm_stabilizer=self.norm_stabilizer,
                gradient_norm=self.gradient_norm,
                label_smoothing=self.label_smoothing,
            ),
            record=RecordConfig(
                gradients=self.record_gradients,
                spectrum=self.record_spectrum,
                gradient_loss=self.gradient_loss,
                test=self.record_test,
            ),
            steps=self._steps(),
            batch_size=self._batch_size(),
            seed=self.seed,
            validate_every=self._validate_every(),
            log_every=self.log_every,
            max_seconds=max_seconds,
            accumulate=self.accumulate,
            autocast=self.autocast,
            device=self.device,
            patience=self.patience,
            checkpoint_every=self.checkpoint_every,
            checkpoint_seconds=self.checkpoint_seconds,
            keep_checkpoints=self.keep_checkpoints,
        )

    def limited_warmup(self) -> int:
        """Return the warmup, at most a fifth of the updates: that of a recipe, which does not know how many there are."""
        return min(self.warmup, self._steps() // _WARMUP_PARTS)

    def folder(self, what: str) -> Path:
        """Return the folder of the results."""
        return self.out or results_folder(f"{self.task.name}-{what}")

    def _validate_every(self) -> int:
        if self.validate_every is not None:
            return self.validate_every
        epoch = self.task.steps_per_epoch(self._batch_size())
        return RunConfig.validate_every if epoch is None else max(epoch, min(_OFTEN, self._steps() // 20), 1)

    def _batch_size(self) -> int:
        if self.batch_size is None:
            return self.task.batch_size
        advice = f"Pass another, or leave it out for the {self.task.batch_size} of {self.task.name}."
        return check_integer("batch_size, --batch-size,", self.batch_size, 1, advice=advice)

    def _steps(self) -> int:
        if self.steps is not None and self.epochs is not None:
            raise ArgumentError(
                f"Expected --steps or --epochs, but got both, {self.steps} and {self.epochs:g}. Pass one."
            )
        if self.steps is not None:
            return self.steps
        epoch = self.task.steps_per_epoch(self._batch_size())
        if self.epochs is None:
            return max(epoch or 0, _TABLE_STEPS if isinstance(self.task, TableTask) else _DEFAULT_STEPS)
        return updates_of_epochs(self.task, self._batch_size(), self.epochs)


ArgumentsT = TypeVar("ArgumentsT", bound=RunArguments[Any])


def updates_of_epochs(task: Task, batch_size: int, epochs: float) -> int:
    """Return how many updates these epochs are. ArgumentError for a task without epochs."""
    epoch = task.steps_per_epoch(batch_size)
    if epoch is None:
        raise ArgumentError(
            f"Expected --steps, as {task.name} has no epochs, but got --epochs {epochs:g}. Pass --steps."
        )
    if check_number("epochs", epochs, 0, _MOST_EPOCHS) == 0:
        raise ArgumentError(
            "Expected epochs to be above 0, but got 0. Pass a part of one, such as 0.5, for a short training."
        )
    return max(1, round(epochs * epoch))


def most_threads() -> int:
    """Return how many threads a machine of today has use for; torch ends without a word at some number above."""
    return max(_MOST_THREADS, os.cpu_count() or 1)


def set_threads(count: int) -> None:
    """Set how many threads torch uses. ArgumentError for less than 1 or more than `most_threads`."""
    torch.set_num_threads(check_integer("threads", count, 1, most_threads()))


def choose_threads(configs: Iterable[RunConfig]) -> None:
    """Let torch use no more threads than each of these runs has use for, unless OMP_NUM_THREADS says how many."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), *map(useful_threads, configs)))


def results_folder(name: str) -> Path:
    """Return a folder in runs/ that carries the time, to the microsecond: several commands may start in one second."""
    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S-%f}"


def parse(command: str, summary: str, arguments: Callable[[type[Task]], Any], words: Sequence[str]) -> Any:
    """Return the arguments of `orthornn COMMAND TASK ...`, as tyro reads them for this task."""
    if not words or words[0] in ("-h", "--help"):
        print(task_manual(command, summary), end="")
        raise SystemExit(0)
    if words[0].startswith("-"):
        raise ArgumentError(
            f"Expected the task first, but got {words[0]}. Write: orthornn {command} TASK {shlex.join(words)}. TASK is one "
            f"of {', '.join(TASKS)}."
        )
    words = own_data(words)
    if words[0] not in TASKS and Path(words[0]).expanduser().exists():
        raise ArgumentError(
            f"Expected a task, a file that ends in {', '.join(SUFFIXES)}, or a folder of sounds, but got {words[0]!r}, which "
            f"is none of them. `orthornn {command} --help` lists the tasks."
        )
    if words[0] not in TASKS and (Path(words[0]).suffix or len(Path(words[0]).parts) > 1):
        raise ArgumentError(
            f"Expected a task, a file that ends in {', '.join(SUFFIXES)}, or a folder of sounds, but there is no "
            f"{words[0]!r}. Correct its name; `orthornn {command} --help` lists the tasks."
        )
    task = TASKS[check_choice("task", words[0], TASKS)]
    first = (task.__doc__ or "").strip().splitlines()[0]
    return read_options(arguments(task), f"orthornn {command} {task.name}", f"{first} {summary}", words[1:])


def own_data(words: Sequence[str]) -> Sequence[str]:
    """Return `DATA.csv --target y ...` as `classify --data DATA.csv --target y ...`, or regress, or forecast."""
    path = Path(words[0])
    if not words[0]:
        raise ArgumentError(
            "Expected a task or your own data, but got an empty name. Name one; . is the folder in which the command runs."
        )
    if words[0] in TASKS or words[0].startswith("-") or not is_data(path.expanduser()):
        return words
    if "-h" in words or "--help" in words:
        return ["classify", "--help"]
    given = options_in(words)
    if "data" in given:
        raise ArgumentError(
            f"Expected the data once, but got {shown_name(words[0])} and --data {shown_name(given['data'])}. Leave --data "
            f"out."
        )
    if "target" not in given and (suffix_of(path) in (".ts", ".npz") or path.expanduser().is_dir()):
        given["target"], words = "y", [*words, "--target", "y"]
    if "target" not in given:
        columns = read_columns(path.expanduser(), csv_format(given)).columns
        raise ArgumentError(
            f"Expected --target COLUMN, the column to be predicted, but got none. {shown_name(path)} has "
            f"{listed(columns)}."
        )
    ahead = [name for name in _OF_FORECASTS if name in given]
    amounts = [name for name in _OF_AMOUNTS if name in given]
    kind, reason = choose_task(path.expanduser(), given["target"], ahead, csv_format(given), amounts)
    say(f"{shown_name(path)}: {reason}, so the task is {kind}")
    more = _of_forecast(path, given) if kind == "forecast" else []
    return [kind, "--data", words[0], *words[1:], *more]


def _of_forecast(path: Path, given: Mapping[str, str]) -> list[str]:
    """Return what a forecast sees and how its series are divided, where nothing else is asked for.

    --skipped such that it sees a whole period of the longest series, if that is long. --split-by time for several series
    of enough steps, which so all have a part in training.
    """
    ready = bool({"skipped", "window"} & given.keys())
    divided = bool({"split-by", "split", "group", "embedding", "validation-data", "test-data"} & given.keys())
    if ready and divided:
        return []
    look = look_at_series(path, given["target"], given.get("sequence"), given.get("time"), csv_format(given))
    words: list[str] = []
    if not ready and look.period is not None and look.period >= Forecast.skipped:
        words = ["--skipped", str(look.period + 1)]
        say(
            f"{shown_name(path)}: {names_in(given['target'])[0]} has a period of {look.period} steps, so {' '.join(words)}"
        )
    try:
        skipped = int(words[1] if words else given.get("skipped", Forecast.skipped))
        needed = skipped + int(given.get("horizons", given.get("ahead", 1)))
        shares = [
            float(given.get(f"{part}-share", usual))
            for part, usual in (("validation", Forecast.validation_share), ("test", Forecast.test_share))
        ]
    except ValueError:  # what reads the options names the one that is no number
        return words
    if not divided and look.series > 1 and look.shortest >= 3 and counts(look.shortest, *shares)[0] > needed:
        words += ["--split-by", "time"]
        say(
            f"{shown_name(path)}: {look.series} series, each of which is divided by time (--split-by sequences: whole ones)"
        )
    return words


def options_in(words: Sequence[str]) -> dict[str, str]:
    """Return the options `--name value` and `--name=value` in the words behind the first, by name with dashes."""
    return dict(pair for word, value in pairwise([*words[1:], ""]) for pair in [_option(word, value)] if pair[0])


def csv_format(given: Mapping[str, str]) -> CsvFormat:
    """Return how a text file is written, by these options."""
    encoding = given.get("encoding")
    marks = (given.get("separator"), given.get("decimal"), given.get("thousands"), spellings(given.get("na")))
    usual = check_choice("default_na", given.get("default-na", "usual"), ("usual", "empty")) == "usual"
    return CsvFormat(*marks, None if encoding is None else check_encoding(encoding), usual=usual)


def announce(task: Task) -> None:
    """Print what was read from the user's own data, and what each column is for."""
    for line in task.told():
        say(line)


def _option(word: str, value: str) -> tuple[str, str]:
    """Return ("name", value) of `--name value` or `--name=value`; ("", "") of another word."""
    if not word.startswith("--"):
        return "", ""
    name, equals, own = word[2:].partition("=")
    return name.replace("_", "-"), own if equals else value


def read_options(kind: Any, prog: str, description: str, words: Sequence[str]) -> Any:
    """Return an instance of the dataclass `kind` from these words. ArgumentError for one that it does not have."""
    import tyro  # here, so that a command without options runs without it

    from .option_help import explained

    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint), explained():
            found = tyro.cli(
                kind,
                prog=prog,
                description=description,
                args=list(words),
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as stop:
        # tyro turns every ValueError of a constructor into an error of its own; ours are clearer
        cause = stop.__context__
        while cause is not None:
            if isinstance(cause, OrthornnError):
                raise cause from None
            cause = cause.__context__
        line = one_line(complaint.getvalue(), prog)
        if line is not None:
            raise ArgumentError(line) from None
        sys.stderr.write(complaint.getvalue())
        raise
    _check_paths(found, words)
    return found


def _check_paths(found: Any, words: Sequence[str]) -> None:
    """Raise ArgumentError for a path of no characters, such as an empty variable of the shell, which Path takes for `.`"""
    values = [word.partition("=")[2] if word.startswith("--") and "=" in word else word for word in words]
    if "" not in values or any(value and Path(value) == Path() for value in values):
        return
    for entry in dataclasses.fields(found):
        value = getattr(found, entry.name)
        if Path() in (value if isinstance(value, tuple) else (value,)) and value != entry.default:
            raise ArgumentError(
                f"Expected a file or a folder as {entry.name.replace('_', '-')}, but got an empty name. Name one; . is the "
                f"folder in which the command runs."
            )


def task_manual(command: str, summary: str) -> str:
    """Return what `orthornn COMMAND --help` prints."""
    tasks = "\n".join(f"  {name:<18}{(task.__doc__ or '').strip().splitlines()[0]}" for name, task in TASKS.items())
    absent = [name for name in entry_points.EVIDENCE[entry_points.TASKS] if name not in set(TASKS)]
    if absent:
        tasks += f"\n\nnot installed: {', '.join(absent)}; each says how to get it"
    models = "\n".join(f"  {name:<18}{kind.summary}" for name, kind in MODELS.items())
    return (
        f"orthornn {command} - {summary}\n\nusage: orthornn {command} TASK [options]\n"
        f"       orthornn {command} FILE --target COLUMN [options]   (your own: {', '.join(SUFFIXES)};\n"
        f"{' ' * len(f'       orthornn {command} FILE --target COLUMN [options]   ')}or a folder of sounds)\n\n"
        f"tasks:\n{tasks}\n\n"
        f"models:\n{models}\n\n`orthornn {command} TASK --help` lists the options, with units and defaults.\n"
    )
