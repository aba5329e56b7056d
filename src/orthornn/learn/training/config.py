"""The whole description of a run as frozen dataclasses, and a strict parser from JSON."""

from __future__ import annotations

import dataclasses
import re
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..._checks import check_below_1, check_float32, check_integer, check_number
from ...errors import ArgumentError
from ...saved.config_file import MODEL_FAMILY, naming, read_dataclass, read_plain
from ..fields import check_choices
from ..files.data_frames import Frame
from ..systems import MODEL_OPTIONS, Model, model_named
from ..tasks import TASKS, Copying, Task

Optimizer = Literal["adam", "adamw", "rmsprop", "rmsprop-tensorflow", "rmsprop-lasagne", "sgd"]
OPTIMIZERS = typing.get_args(Optimizer)
_RATE = "Pass 0.001, for example."
_LARGEST = 2**63 - 1
Schedule = Literal["constant", "step", "exponential", "cosine", "linear", "plateau"]
SCHEDULES = typing.get_args(Schedule)


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and its learning rates."""

    name: Optimizer = field(default="adam", metadata={"option": "optimizer"})
    """Optimizer. adamw is Adam with decoupled weight decay. rmsprop-tensorflow is RMSprop whose mean of squared
    gradients starts at 1, which makes the first updates smaller, and adds 1e-10 to the mean before the square root,
    instead of 1e-8 after it; rmsprop-lasagne adds 1e-6, so gradients well below 1e-3 move a parameter less.
    """
    recurrent: Optimizer | None = field(default=None, metadata={"option": "recurrent_optimizer"})
    """Optimizer of the parameters of the recurrent matrix. Default: --optimizer."""
    lr: float = 1e-3
    """Learning rate."""
    recurrent_lr: float | None = None
    """Learning rate of the parameters of the recurrent matrix. Default: a tenth of --lr."""
    momentum: float = 0.0
    """Nesterov momentum of sgd; 0 for none."""
    decay: float = field(default=0.9, metadata={"option": "rmsprop_decay"})
    """Decay of RMSprop's mean of squared gradients. Helfrich et al., 2018, used TensorFlow's 0.9; torch's default is
    0.99.
    """
    clip_norm: float | None = None
    """Largest norm of the gradient in an update; a larger one is scaled down. Default: no clipping."""
    clip_value: float | None = None
    """Largest absolute value of an entry of the gradient in an update, before --clip-norm. Default: no clipping."""
    manifold: Literal["cayley-rmsprop", "cayley-sgd"] = "cayley-rmsprop"
    """Optimizer of matrices that must stay orthogonal, such as the bases of spectral and the matrix of full-urnn."""
    manifold_lr: float | None = None
    """Learning rate of --manifold. Default: --recurrent-lr."""
    reorthogonalize_every: int | None = 10
    """Updates between two corrections of the drift of --manifold; None for no corrections, as published."""
    spectrum_lr: float | None = None
    """Learning rate of the singular values of spectral, divided by twice the margin. Default: --recurrent-lr."""
    decoupled_decay: float = 0.01
    """Weight decay of adamw: every update subtracts --lr times this share of all parameters except those of an
    orthogonal recurrent matrix. This includes biases, normalizations, initial states, and the recurrent weights of
    lstm, gru and networks whose input chooses their transitions.
    """

    def __post_init__(self) -> None:
        check_choices(self)
        check_float32("lr", self.lr, _RATE)
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
    """The schedule of the learning rates; every rate is multiplied by the same factor (torch.optim.lr_scheduler)."""

    name: Schedule = field(default="constant", metadata={"option": "schedule"})
    """Schedule of the learning rates. step multiplies them by --schedule-factor every --schedule-every updates, and
    exponential does so smoothly; cosine and linear lower them to --schedule-factor by the last update; plateau
    multiplies them when validations stop improving."""
    factor: float | None = field(default=None, metadata={"option": "schedule_factor"})
    """Factor of --schedule. Default: 0.1, and 0 for cosine and linear."""
    every: int | None = field(default=None, metadata={"option": "schedule_every"})
    """Updates per factor of --schedule; for plateau, validations without improvement. Default: a third of all updates;
    10 validations.
    """
    warmup: int = 0
    """Updates over which the learning rates rise from a hundredth, fewer than --steps. The warmup of a recipe is
    limited to a fifth of all updates.
    """

    def __post_init__(self) -> None:
        check_choices(self)
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
    """Terms added to the training loss, each with its strength; 0 leaves it out. See orthornn.penalties."""

    soft_orthogonality: float = 0.0
    """Strength of the penalty ||W'W - I||^2 on every recurrent matrix W."""
    weight_decay: float = 0.0
    """Strength of the penalty ||W||^2 on every recurrent matrix."""
    spectrum_prior: float = 0.0
    """Strength of the Gaussian prior with mean 1 on the singular values of spectral."""
    norm_stabilizer: float = 0.0
    """Strength of the penalty on changes of the state's norm from step to step, in every layer."""
    gradient_norm: float = 0.0
    """Strength of the penalty on changes of the gradient's norm from step to step, in every layer; costs a second
    backward pass."""
    label_smoothing: float = 0.0
    """Share of the target, from 0 to 1, that is spread over all classes: evenly, or for your own data by their training
    frequencies times their weights, which does not raise the probabilities of rare classes (Szegedy et al., 2016,
    section 7; Pereyra et al., 2017). For tasks with one class per sequence, and for classes at every step of your own
    data.
    """
    input_decay: float = 0.0
    """Strength of the penalty ||W||^2 on the input weights of every layer."""
    readout_decay: float = 0.0
    """Strength of the penalty ||W||^2 on the readout, or on all matrices of a perceptron."""

    def __post_init__(self) -> None:
        for entry in dataclasses.fields(self):
            check_float32(entry.name, getattr(self, entry.name), "Pass 0 to leave it out.")
        check_below_1("label_smoothing", self.label_smoothing, "With 1 the target is the same for every class.")


@dataclass(frozen=True)
class RecordConfig:
    """The quantities recorded during a run in addition to its loss; see runs/recording.py."""

    gradients: int | None = field(default=None, metadata={"option": "record_gradients"})
    """Updates between two records of the gradient's norm at every time step. Default: no records."""
    spectrum: int | None = field(default=None, metadata={"option": "record_spectrum"})
    """Updates between two records of the singular values and of the distance from orthogonality of every recurrent
    matrix.
    Default: no records."""
    gradient_loss: Literal["last", "total"] = "last"
    """Loss of the recorded gradients: at the last time step, or the total over all steps."""
    sequences: int = field(default=10, metadata={"option": "record_sequences"})
    """Number of validation sequences for the recorded gradients; always the same ones."""
    test: bool = field(default=False, metadata={"option": "record_test"})
    """Also record the test metrics at every validation, for papers that report the best test epoch; they select
    nothing.
    """

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("gradients", "spectrum"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)
        if self.gradient_loss != "last" and self.gradients is None:
            raise ArgumentError(
                f"Expected gradient_loss only if gradients are recorded, but got {self.gradient_loss!r} with "
                f"gradients=None. Leave it out, or record some with record_gradients, --record-gradients."
            )
        check_integer("sequences", self.sequences, 1)


@dataclass(frozen=True)
class RunConfig:
    """The configuration of a run."""

    task: Task = field(default_factory=Copying)
    """Data, loss and metric."""
    model: Model = field(default_factory=model_named)
    """The network with its readout. Default: the default of the command line."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Optimizers and learning rates."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """Schedule of the learning rates."""
    penalties: PenaltyConfig = field(default_factory=PenaltyConfig)
    """Terms added to the loss."""
    record: RecordConfig = field(default_factory=RecordConfig)
    """Quantities recorded in addition to the loss."""
    steps: int = 1000
    """Number of updates. Default: 1000 (600 for your own data), or one epoch if that is more."""
    batch_size: int = 50
    """Sequences per update. Default: set by the task, usually 50."""
    seed: int = 0
    """Seed of the initial values and of the training data."""
    validate_every: int = 200
    """Updates between two validations; the last update is always followed by one. Default: one epoch, but at least 50
    updates or a twentieth of --steps, whichever is less; 200 if the task has no epochs.
    """
    log_every: int = 20
    """Updates that one training record averages."""
    evaluation_batch: int = 250
    """Sequences per batch in validation and test; affects only memory usage."""
    max_seconds: float | None = field(default=None, metadata={"option": "seconds"})
    """Seconds of training after which a run stops, including earlier parts of a resumed run. Default: no limit."""
    accumulate: int = 1
    """Parts in which a batch is processed, to save memory; the update is the same."""
    autocast: Literal["bfloat16"] | None = None
    """Precision of the forward pass; the recurrent matrix stays in float32. Default: float32."""
    device: str = "cpu"
    """Device: cpu, cuda, or cuda:N. Data are created on the CPU; results on another device may differ in their last
    bits.
    """
    patience: int | None = None
    """Stop after this many validations without improvement. Default: train to the end."""
    checkpoint_every: int | None = None
    """Updates between two checkpoints, in addition to --checkpoint-seconds, every best validation, the end and an
    interruption. Default: none.
    """
    checkpoint_seconds: float | None = 60.0
    """Seconds between two checkpoints; None for only those of --checkpoint-every."""
    keep_checkpoints: int = 2
    """Number of latest checkpoints to store, besides the best one."""
    orthogonality_bound: float = 1e-4
    """Threshold on ||W'W - I|| of a recurrent matrix that should be orthogonal; a validation above it causes a warning.
    """

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("steps", "batch_size", "validate_every", "log_every", "evaluation_batch", "keep_checkpoints"):
            check_integer(name, getattr(self, name), 1, _LARGEST)
        check_integer("accumulate", self.accumulate, 1, self.batch_size, "A part has at least one sequence.")
        for name in ("patience", "checkpoint_every"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)
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

        if getattr(self.task, "irregular", False) and self.model.name != "blocks":
            raise ArgumentError(
                f"Expected model='blocks', --model blocks, with irregular, whose rotations are exact between steps, but got "
                f"{self.model.name}. Leave irregular out, or choose blocks."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the content of config.json; `read` is the inverse."""
        plain = dataclasses.asdict(self)
        own = {name: value.name if isinstance(value, Frame) else value for name, value in plain["task"].items()}
        plain["task"] = {"name": self.task.name, **own}
        plain["model"] = {"name": self.model.name, **plain["model"], **dict.fromkeys(self._foreign_options())}
        return plain

    def _foreign_options(self) -> list[str]:
        """Return the options of other models: config.json has the same entries for every model, with null for options
        that the model lacks.
        """
        return [option for option in MODEL_OPTIONS if option not in self.model.options()]

    def flat(self) -> dict[str, Any]:
        """Return the config with one level of dotted names: "model.hidden_size"."""
        return flat(self.to_dict())

    @classmethod
    def read(cls, plain: object) -> RunConfig:
        """Return the config in a parsed JSON value. Raise a ConfigError that lists everything wrong with it."""
        return read_dataclass(cls, plain, {**MODEL_FAMILY, Task: TASKS})


def check_device(device: str) -> None:
    """Raise ArgumentError if this is not a device that a run can be trained on."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ArgumentError(f"Expected device to be 'cpu', 'cuda' or 'cuda:N', but got {device!r}.")


def flat(plain: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested dictionaries flattened, with dotted names."""
    made: dict[str, Any] = {}
    for key, value in plain.items():
        made |= flat(value, f"{above}{key}.") if isinstance(value, dict) else {above + key: value}
    return made


def read_config(path: str | Path) -> RunConfig:
    """Return the config in a JSON file. Raise ConfigError if it is missing, is not JSON, or contains an error."""
    plain = read_plain(path)
    with naming(path):
        return RunConfig.read(plain)
