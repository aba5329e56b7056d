"""The whole description of a run, as frozen dataclasses, and its strict reading from JSON."""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..._checks import check_below_1, check_choice, check_float32, check_integer, check_number
from ..._files import read_bytes
from ...errors import ArgumentError, ConfigError, DataError, OrthornnError
from ..systems import MODEL_OPTIONS, MODELS, Model, foreign, model_named
from ..tasks import TASKS, Copying, Task
from .json_files import LARGEST, parse, shortened, without_sum

_LONGEST_NAME = 100
OPTIMIZERS = ("adam", "adamw", "rmsprop", "rmsprop-tensorflow", "rmsprop-lasagne", "sgd")
Optimizer = Literal["adam", "adamw", "rmsprop", "rmsprop-tensorflow", "rmsprop-lasagne", "sgd"]
_RATE = "Pass 0.001, for example."
_LARGEST = 2**63 - 1
SCHEDULES = ("constant", "step", "exponential", "cosine", "linear", "plateau")


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and its learning rates.

    Args:
        name: "adam", "adamw" (Adam with decoupled weight decay), "rmsprop", "rmsprop-tensorflow" (its mean of squared
            gradients starts at 1, not 0, so that the first updates are smaller, and 1e-10 is added to it before the root,
            not 1e-8 after it), "rmsprop-lasagne" (1e-6 is added to the mean before the root, so that gradients well below
            1e-3 move a parameter less) or "sgd". Default: "adam".
        recurrent: Optimizer of what parametrizes the recurrent matrix. Default: None, that of `name`.
        lr: Learning rate. Default: 1e-3.
        recurrent_lr: Learning rate of what parametrizes the recurrent matrix. Default: None, a tenth of lr.
        momentum: Nesterov's, of SGD. Default: 0.
        decay: Of RMSprop's squared gradients. Default: 0.9, what Helfrich et al., 2018, had from TensorFlow; torch's own
            is 0.99.
        clip_norm: The gradient's norm is cut to this before every update. Default: None, it is not.
        clip_value: Every entry of the gradient is cut to [-clip_value, clip_value], before clip_norm. Default: None, it is
            not.
        manifold: Optimizer of tensors that must stay on the Stiefel manifold (the bases of spectral, the matrix of
            full-urnn), "cayley-rmsprop" or "cayley-sgd". Default: "cayley-rmsprop".
        manifold_lr: Its learning rate. Default: None, recurrent_lr.
        reorthogonalize_every: Updates between two corrections of its drift; None: never, as published. Default: 10.
        spectrum_lr: Of the spectrum of spectral, which is divided by twice the margin. Default: None, recurrent_lr.
        decoupled_decay: Of adamw: every update takes lr times this off all parameters but the free tensors of recurrent
            matrices that have a parametrization (optim.param_groups); so off biases, normalizations, initial states, and
            off the recurrent weights of LSTM, GRU and of networks whose input chooses their transitions. Default: 0.01.
    """

    name: Optimizer = "adam"
    recurrent: Optimizer | None = None
    lr: float = 1e-3
    recurrent_lr: float | None = None
    momentum: float = 0.0
    decay: float = 0.9
    clip_norm: float | None = None
    clip_value: float | None = None
    manifold: Literal["cayley-rmsprop", "cayley-sgd"] = "cayley-rmsprop"
    manifold_lr: float | None = None
    reorthogonalize_every: int | None = 10
    spectrum_lr: float | None = None
    decoupled_decay: float = 0.01

    def __post_init__(self) -> None:
        check_choice("optimizer", self.name, OPTIMIZERS)
        check_float32("lr", self.lr, _RATE)
        if self.recurrent is not None:
            check_choice("recurrent", self.recurrent, OPTIMIZERS)
        check_number("momentum", self.momentum, 0, 1)
        check_below_1("decay", self.decay, "With 1 the mean of squared gradients never changes.")
        check_float32("decoupled_decay", self.decoupled_decay, "Pass 0 for no decay, or for example 0.01.")
        if self.decoupled_decay != type(self).decoupled_decay and self.name != "adamw":
            raise ArgumentError(
                f"Expected decoupled_decay only with the optimizer adamw, but got {self.decoupled_decay:g} with "
                f"{self.name}. Choose adamw, or leave it out."
            )
        if self.decoupled_decay * min(self.lr, 1.0) >= 1:  # a rate above 1 is at fault itself
            raise ArgumentError(
                f"Expected decoupled_decay to be below {1 / min(self.lr, 1.0):g}, as every update takes lr times it off a "
                f"parameter, but got {self.decoupled_decay:g}. Lower it."
            )
        if self.momentum and "sgd" not in (self.name, self.recurrent):
            raise ArgumentError(
                f"Expected momentum only with the optimizer sgd, but got {self.momentum:g} with {self.name}. Choose sgd, or "
                f"leave it out."
            )
        check_choice("manifold", self.manifold, ("cayley-rmsprop", "cayley-sgd"))
        if self.reorthogonalize_every is not None:
            check_integer("reorthogonalize_every", self.reorthogonalize_every, 1)
        for name in ("recurrent_lr", "manifold_lr", "spectrum_lr"):
            if getattr(self, name) is not None:
                check_float32(name, getattr(self, name), _RATE)
        for name in ("clip_norm", "clip_value"):
            if getattr(self, name) is not None:
                check_float32(name, getattr(self, name), "Leave it out for no clipping.", zero=False)

    def check_learns(self) -> None:
        """Raise ArgumentError if every learning rate is 0."""
        if not any((self.lr, self.recurrent_lr, self.manifold_lr, self.spectrum_lr)):
            raise ArgumentError(f"Expected a learning rate above 0, but got lr={self.lr:g}. {_RATE}")


@dataclass(frozen=True)
class ScheduleConfig:
    """The schedule of the learning rates; every rate is multiplied by the same factor (torch.optim.lr_scheduler).

    Args:
        name: "constant"; "step" (StepLR: times `factor` every `every` updates); "exponential" (ExponentialLR: the same,
            smoothly, so that `every` updates make `factor`); "cosine" (LambdaLR) and "linear" (LinearLR): from 1
            down to `factor`, which an update after the last would have; "plateau" (ReduceLROnPlateau: times `factor`
            when the task's metric has not improved for `every` validations). Default: "constant".
        factor: See `name`. Default: None, 0.1; 0 for cosine and linear.
        every: See `name`. Default: None, a third of all updates; 10 validations for plateau.
        warmup: Updates over which the rate first rises linearly from a hundredth (LinearLR), fewer than the run has.
            Default: 0.
    """

    name: Literal["constant", "step", "exponential", "cosine", "linear", "plateau"] = "constant"
    factor: float | None = None
    every: int | None = None
    warmup: int = 0

    def __post_init__(self) -> None:
        check_choice("schedule", self.name, SCHEDULES)
        if self.factor is not None:
            check_number("factor", self.factor, 0, 1)
            if self.factor == 0 and self.name in ("step", "exponential", "plateau"):
                raise ArgumentError(
                    f"Expected a factor above 0 with the schedule {self.name}, but got 0, after which nothing is learned. "
                    f"Pass 0.1, for example."
                )
            if self.factor == 1 and self.name == "plateau":
                raise ArgumentError(
                    "Expected a factor below 1 with the schedule plateau, but got 1, which lowers nothing. Pass 0.1, for "
                    "example."
                )
            if self.name == "constant":
                raise ArgumentError(
                    f"Expected schedule_factor (--schedule-factor) only with a schedule that changes the rates, but got "
                    f"{self.factor:g} with constant. Choose one, or leave the factor out."
                )
        if self.every is not None:
            check_integer("every", self.every, 1)
            if self.name in ("constant", "cosine", "linear"):
                raise ArgumentError(
                    f"Expected schedule_every (--schedule-every) only with the schedules step, exponential and plateau, but "
                    f"got {self.every} with {self.name}. Choose one of them, or leave it out."
                )
        check_integer("warmup", self.warmup, 0)
        if self.name == "plateau" and self.warmup:
            raise ArgumentError(
                f"Expected warmup=0 with the schedule plateau, but got {self.warmup}. Leave one of them out."
            )


@dataclass(frozen=True)
class PenaltyConfig:
    """Terms added to the training loss, each with its strength; 0 leaves it out. See orthornn.penalties.

    Args:
        soft_orthogonality: On every recurrent matrix W.
        weight_decay: ||W||^2 of every recurrent matrix W.
        input_decay: The same of the input weights of every layer.
        readout_decay: The same of the readout's matrix, or of all matrices of a perceptron.
        spectrum_prior: On the spectrum of spectral.
        norm_stabilizer: On the states of every layer.
        gradient_norm: On the backward signal of every layer; costs a second backward pass.
        label_smoothing: Of classifiers: the share of the target that is spread over all classes, evenly
            (torch.nn.functional.cross_entropy), or for your own data by their frequencies in training, times their weights,
            so that the probabilities of rare classes are not raised (Szegedy et al., 2016, section 7; Pereyra et al., 2017).
    """

    soft_orthogonality: float = 0.0
    weight_decay: float = 0.0
    spectrum_prior: float = 0.0
    norm_stabilizer: float = 0.0
    gradient_norm: float = 0.0
    label_smoothing: float = 0.0
    input_decay: float = 0.0
    readout_decay: float = 0.0

    def __post_init__(self) -> None:
        for entry in dataclasses.fields(self):
            check_float32(entry.name, getattr(self, entry.name), "Pass 0 to leave it out.")
        check_below_1("label_smoothing", self.label_smoothing, "With 1 the target is the same for every class.")


@dataclass(frozen=True)
class RecordConfig:
    """The quantities recorded during a run, besides its loss; see training/recording.py.

    Args:
        gradients: Updates between two records of ||dL/dh_t||. Default: None, there are none.
        spectrum: Updates between two records of the singular values and of the loss of orthogonality of every recurrent
            matrix. Default: None, there are none.
        gradient_loss: L is the task's loss, only at the last step ("last") or as it is trained ("total"). Default: "last".
        sequences: Number of validation sequences that the gradients are of; always the same ones. Default: 10.
        test: Record the test metrics with every validation, for papers that report the best test epoch; nothing is selected
            by them. Default: False.
    """

    gradients: int | None = None
    spectrum: int | None = None
    gradient_loss: Literal["last", "total"] = "last"
    sequences: int = 10
    test: bool = False

    def __post_init__(self) -> None:
        for name in ("gradients", "spectrum"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)
        check_choice("gradient_loss", self.gradient_loss, ("last", "total"))
        if self.gradient_loss != "last" and self.gradients is None:
            raise ArgumentError(
                f"Expected gradient_loss only where gradients are recorded, but got {self.gradient_loss!r} with "
                f"gradients=None. Leave it out, or record some with record_gradients, --record-gradients."
            )
        check_integer("sequences", self.sequences, 1)


@dataclass(frozen=True)
class RunConfig:
    """The configuration of a run.

    Args:
        task: Data, loss and metric. Default: Copying().
        model: The network with its readout. Default: that of the command line.
        optimizer: Optimizers and learning rates.
        schedule: How the learning rates change.
        penalties: Terms added to the loss.
        record: Quantities recorded besides the loss.
        steps: Number of updates. Default: 1000.
        batch_size: Sequences per update. Default: 50.
        seed: Of the initial values and of the training data. Default: 0.
        validate_every: Updates between two validations (the last update is always followed by one). Default: 200.
        log_every: Updates over which a training record averages. Default: 20.
        evaluation_batch: Sequences at once in validation and test; changes nothing but the memory used. Default: 250.
        max_seconds: Stop after so many seconds, wherever the run is. Default: None, do not.
        accumulate: Parts in which a batch is processed, whose gradients are added up; saves memory. Default: 1.
        autocast: "bfloat16" to run the forward pass under torch.autocast; the recurrent matrix stays float32. Default: None.
        device: "cpu", "cuda" or "cuda:N". Data are made on the CPU; the same bits as on another device are not promised.
            Default: "cpu".
        patience: Stop when the task's metric has not improved for so many validations. Default: None, do not.
        checkpoint_every: Updates between two checkpoints. One is also written at every best validation, at the end, and when
            the run is interrupted. Default: None, only by checkpoint_seconds.
        checkpoint_seconds: Seconds between two checkpoints; None: only by checkpoint_every. Default: 60.
        keep_checkpoints: Number of the last checkpoints that are stored, besides the best one. Default: 2.
        orthogonality_bound: A warning is given when ||W'W - I||_F of a recurrent matrix that should be orthogonal exceeds
            this; looked at with every validation. Default: 1e-4.
    """

    task: Task = field(default_factory=Copying)
    model: Model = field(default_factory=model_named)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    penalties: PenaltyConfig = field(default_factory=PenaltyConfig)
    record: RecordConfig = field(default_factory=RecordConfig)
    steps: int = 1000
    batch_size: int = 50
    seed: int = 0
    validate_every: int = 200
    log_every: int = 20
    evaluation_batch: int = 250
    max_seconds: float | None = None
    accumulate: int = 1
    autocast: Literal["bfloat16"] | None = None
    device: str = "cpu"
    patience: int | None = None
    checkpoint_every: int | None = None
    checkpoint_seconds: float | None = 60.0
    keep_checkpoints: int = 2
    orthogonality_bound: float = 1e-4

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "validate_every", "log_every", "evaluation_batch", "keep_checkpoints"):
            check_integer(name, getattr(self, name), 1, _LARGEST)
        check_integer("accumulate", self.accumulate, 1, self.batch_size, "A part has at least one sequence.")
        for name in ("patience", "checkpoint_every"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)
        if self.autocast is not None:
            check_choice("autocast", self.autocast, ("bfloat16",))
        check_device(self.device)
        if self.checkpoint_seconds is not None:
            check_number("checkpoint_seconds", self.checkpoint_seconds, 0)
        check_number("orthogonality_bound", self.orthogonality_bound, 0)
        check_integer("seed", self.seed, 0, _LARGEST)
        if self.max_seconds is not None:
            check_number("max_seconds", self.max_seconds, 0)
        if self.task.predicts_ahead and getattr(self.model, "bidirectional", None):
            raise ArgumentError(
                f"Expected bidirectional, --bidirectional, to be False for {self.task.name}, which predicts later values of "
                f"its own inputs, but got True: a network that reads a sequence backwards has seen them. Leave it out."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return what config.json holds; `read` is the inverse."""
        plain = dataclasses.asdict(self)
        plain["task"] = {"name": self.task.name, **plain["task"]}
        plain["model"] = {"name": self.model.name, **plain["model"], **dict.fromkeys(self._foreign_options())}
        return plain

    def _foreign_options(self) -> list[str]:
        """Return the options of other models: config.json has the same entries for every model, null where there is
        none.
        """
        return [option for option in MODEL_OPTIONS if option not in self.model.options()]

    def flat(self) -> dict[str, Any]:
        """Return the same as one level of dotted names: "model.hidden_size"."""
        return flat(self.to_dict())

    @classmethod
    def read(cls, plain: object) -> RunConfig:
        """Return the config in a parsed JSON value. ConfigError lists everything that is wrong with it, at once."""
        problems: list[str] = []
        config = _read_dataclass(cls, plain, "", problems)
        if problems:
            raise ConfigError("the configuration is not valid:" + "".join(f"\n  {line}" for line in problems))
        return config


def check_device(device: str) -> None:
    """Raise ArgumentError if this names no device that a run can be trained on."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ArgumentError(f"Expected device to be 'cpu', 'cuda' or 'cuda:N', but got {device!r}.")


def flat(plain: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested dictionaries as one, with dotted names."""
    made: dict[str, Any] = {}
    for key, value in plain.items():
        made |= flat(value, f"{above}{key}.") if isinstance(value, dict) else {above + key: value}
    return made


def read_config(path: str | Path) -> RunConfig:
    """Return the config in a JSON file. ConfigError if it is missing, is not JSON, or has anything wrong in it."""
    path = Path(path)
    try:
        plain = without_sum(parse(read_bytes(path, LARGEST), str(path)), str(path))
    except DataError as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise ConfigError(
            f"Expected to read {path}, but got: {error.strerror or error}. Correct its name, or allow reading it."
        ) from error
    try:
        return RunConfig.read(plain)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _read_dataclass(kind: type, plain: object, where: str, problems: list[str]) -> Any:
    if not isinstance(plain, Mapping):
        problems.append(f"{where or 'the whole'}: needed an object, got {shortened(repr(plain))}")
        return None
    before = len(problems)
    entries = dict(plain)
    if kind is Task:
        name = entries.pop("name", None)
        if not isinstance(name, str) or name not in TASKS:
            problems.append(f"{where}.name: {_unknown(name, TASKS)}")
            return None
        kind = TASKS[name]
    if kind is Model:
        name = entries.pop("name", model_named().name)
        if not isinstance(name, str) or name not in MODELS:
            problems.append(f"{where}.name: {_unknown(name, MODELS)}")
            return None
        kind = MODELS[name]
        for option in (option for option in MODEL_OPTIONS if option in entries and option not in kind.options()):
            value = entries.pop(option)
            if value is not None:
                problems.append(f"{where}: {foreign(kind, option, value)}")
    hints = typing.get_type_hints(kind)
    names = [entry.name for entry in dataclasses.fields(kind)]
    values: dict[str, Any] = {}
    for key, value in entries.items():
        place = shortened(f"{where}.{key}" if where else str(key))
        if key not in names:
            problems.append(f"{place}: {_unknown(key, names)}")
        elif dataclasses.is_dataclass(hints[key]) or hints[key] is Task:
            values[key] = _read_dataclass(hints[key], value, place, problems)
        elif _fits(value, hints[key]):
            values[key] = value
        else:
            problems.append(f"{place}: needed {_describe(hints[key])}, got {shortened(repr(value))}")
    if len(problems) > before:
        return None
    try:
        return kind(**values)
    except OrthornnError as error:
        problems.append(f"{where or 'the whole'}: {shortened(str(error))}")
        return None


def _unknown(name: object, known: typing.Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(str(name)[:_LONGEST_NAME], known, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
    return f"unknown name {shortened(repr(name))}{hint}"


def _fits(value: object, hint: Any) -> bool:
    if typing.get_origin(hint) is Literal:
        return any(type(value) is type(known) and value == known for known in typing.get_args(hint))
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return any(_fits(value, part) for part in typing.get_args(hint))
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _describe(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return " or ".join(_describe(part) for part in typing.get_args(hint))
    names = {int: "an integer", float: "a number", str: "a string", bool: "true or false", type(None): "null"}
    return names[hint]
