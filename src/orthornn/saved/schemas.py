"""Types of the JSON files of a run; json_files.py reads by them. Names that are not here are let through.

Numbers may be NaN or infinite only if a run writes such numbers: the loss of a run before its first record.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from .._checks import is_finite
from .label_dtypes import MOST_CATEGORIES, PANDAS_DTYPES

LARGEST_SIZE = 1 << 24  # of an input or an output
LARGEST_STEP = 1 << 62

Step = Annotated[int, Meta(ge=0, le=LARGEST_STEP)]
Size = Annotated[int, Meta(ge=1, le=LARGEST_SIZE)]
Number = Annotated[int, Meta(ge=-LARGEST_STEP, le=LARGEST_STEP)] | float  # an integer that is beyond has no float
Numbers = Number | list[Number]
ChannelKind = Literal["number", "last", "interpolated", "missing", "category", "series", "elapsed"]
Metrics = dict[str, Number]
Finite = Annotated[float, Meta(ge=-1e300, le=1e300)]  # what is averaged and sorted


class LabelType(Struct):
    """The type of the column of the classes; see label_types.py."""

    type: Annotated[str, Meta(max_length=99)]
    dtype: Annotated[str, Meta(pattern=f"^({PANDAS_DTYPES.pattern})$")] | None = None
    categories: Annotated[list[str], Meta(max_length=MOST_CATEGORIES)] | None = None
    ordered: bool = False


class Sound(Struct):
    """How sounds became steps; see sound_folder.py and spectrogram.py."""

    features: Literal["log-mel", "frames", "log-magnitude"]
    hop: Size
    window: Size | None = None
    mels: Size | None = None


class Description(Struct):
    """description.json; see description.py."""

    input_size: Size
    output_size: Size
    input: Literal["tokens", "real"]
    output: Literal["all", "last"]
    says: Literal["classes", "values", "probabilities"]
    scale: Numbers = 1
    offset: Numbers = 0
    target_scale: Numbers = 1
    target_offset: Numbers = 0
    target_transform: Literal["log", "log1p"] | None = None
    transformed_inputs: list[Step] | None = None
    quantiles: Annotated[list[Annotated[float, Meta(gt=0, lt=1)]], Meta(min_length=1)] | None = None
    order: list[Step] | None = None
    columns: list[str] | None = None
    channels: list[tuple[str, ChannelKind, str | Number | None]] | None = None
    leads: list[Step] | None = None
    commas: list[str] | None = None
    holds: list[str] | None = None
    series: list[str] | None = None
    embedding: Annotated[int, Meta(ge=1, le=4096)] | None = None
    time_unit: Annotated[float, Meta(gt=0, le=1e300)] | None = None
    labels: list[str] | None = None
    label_type: LabelType | None = None
    vocabulary: list[str] | str | None = None
    sample_rate: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    sound: Sound | None = None

    def contradiction(self) -> str | None:
        """Return the inconsistency, or None."""
        widths = {"scale": self.input_size, "offset": self.input_size}
        widths |= {"target_scale": self.output_size, "target_offset": self.output_size}
        for name, width in widths.items():
            value = getattr(self, name)
            values = value if isinstance(value, list) else [value]
            if isinstance(value, list) and len(value) not in (1, width):
                return f"{name} has {len(value)} numbers, but there are {width}"
            if not all(is_finite(number) for number in values):
                return f"{name} has a number that is not finite"
            if name == "target_scale" and 0 in values:
                return "target_scale has a 0, by which nothing can be divided"
        if self.order is not None and sorted(self.order) != list(range(len(self.order))):
            return f"order is not a permutation of 0..{len(self.order) - 1}"
        if self.columns is not None and len(self.columns) != self.input_size:
            return f"columns has {len(self.columns)} names, but input_size is {self.input_size}"
        if self.channels is not None and len(self.channels) != self.input_size:
            return f"channels has {len(self.channels)} entries, but input_size is {self.input_size}"
        if self.leads is not None and len(self.leads) != self.input_size:
            return f"leads has {len(self.leads)} entries, but input_size is {self.input_size}"
        kinds = [kind for _, kind, _ in self.channels or ()]
        if len({bool(self.series), self.embedding is not None, kinds[-1:] == ["series"]}) > 1 or "series" in kinds[:-1]:
            return "series, embedding and a last channel of the kind series are not all there, or not all absent"
        if (self.time_unit is not None) != (kinds[-1:] == ["elapsed"]) or "elapsed" in kinds[:-1]:
            return "time_unit and a last channel of the kind elapsed are not both there, or not both absent"
        for column, kind, value in self.channels or ():
            if isinstance(value, str) != (kind == "category") or (
                kind in ("last", "interpolated") and not (isinstance(value, (int, float)) and is_finite(value))
            ):
                return f"channels has no fitting value for the kind {kind} of {column[:40]!r}"
        if self.quantiles is not None and self.output_size % len(self.quantiles):
            return f"quantiles has {len(self.quantiles)} numbers, which does not divide output_size {self.output_size}"
        if any(place >= self.input_size for place in self.transformed_inputs or ()):
            return f"transformed_inputs has a place beyond the {self.input_size} inputs"
        if self.transformed_inputs and (self.target_transform is None or self.columns is None):
            return "transformed_inputs are there, but no target_transform or no columns"
        if self.vocabulary is not None and len(self.vocabulary) > self.input_size:
            return f"vocabulary has {len(self.vocabulary)} symbols, but input_size is {self.input_size}"
        return None


class Environment(Struct):
    """environment.json."""

    started: str
    command: list[str]
    python: str
    orthornn: str | None
    torch: str
    numpy: str
    commit: str | None
    platform: str
    processor: str
    cores: Step | None
    threads: Annotated[int, Meta(ge=1, le=1 << 20)]
    instruction_set: str | None
    torch_instruction_set: str
    gpu: str | None = None


class Result(Struct):
    """result.json; see RunResult."""

    steps: Step
    seconds: Number
    update_seconds: Number
    parameters: Step
    hidden_size: Step
    trivial_loss: Number
    validation: Metrics
    test: Metrics
    best: Metrics
    finished: bool
    best_test: Metrics
    orthogonality_error: Number | None
    weights_sha256: str
    threshold: Annotated[float, Meta(gt=0, lt=1)] | None
    whole_test: Metrics = {}


class DataFile(Struct):
    """One file in data.json; see fingerprint.py."""

    name: str
    bytes: Step
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Data(Struct):
    """data.json."""

    files: list[DataFile]


class Line(Struct):
    """The entries of every line of metrics.jsonl."""

    kind: str
    step: Step


class Record(Line):
    """A line of metrics.jsonl of a kind without a schema."""

    seconds: Number
    cpu_seconds: Number


class Training(Record):  # noqa: D101
    loss: Number


class Spectrum(Record):  # noqa: D101
    mean: Number
    min: Number
    max: Number
    layer: str | None = None


class Gradients(Record):  # noqa: D101
    norms: list[list[Number]]


class Warned(Record):  # noqa: D101
    text: str


class Resumed(Line):  # noqa: D101
    keep: Step


KINDS: dict[str, type[Line]] = {
    "train": Training,
    "validation": Training,
    "test": Training,
    "spectrum": Spectrum,
    "gradients": Gradients,
    "warning": Warned,
    "resume": Resumed,
}


class TrainerState(Struct):
    """The trainer's part of a checkpoint: see Trainer.state_dict."""

    step: Step
    optimizer: dict[str, Any]
    scheduler: dict[str, Any] | None
    random: dict[str, Any]
    carried: Any = None


class RunState(Struct):
    """The run's part of a checkpoint: see Run.checkpoint."""

    seconds: Number
    evaluation_seconds: Number
    loss: Number
    recent: list[Number]
    validation: Metrics | None
    best: Metrics | None
    stale: Step
    records: Step
    cpu_seconds: Number


class State(Struct):
    """The state in a checkpoint."""

    trainer: TrainerState
    run: RunState
    config: dict[str, Any]


class CheckpointFile(Struct):
    """state.json of a checkpoint."""

    format: Step
    weights: dict[str, Any]
    state: State


class Objects(Struct):
    """Any object: sweep.json or compare.json, which are read once more as configurations."""


class SweepOptions(Struct):
    """options.json of a sweep."""

    early_stopping: bool


class Failure(Struct):
    """failed.json of a trial."""

    error: str


class Divergence(Struct, forbid_unknown_fields=True):
    """diverged.json of a run among others; see diverged.py."""

    step: Step
    seconds: Number
    error: str


_SCHEMAS: dict[str, type[Struct]] = {
    kind.__name__: kind
    for kind in (
        *(Description, Environment, Result, Data, Record, CheckpointFile, Objects, Failure),
        SweepOptions,
        Divergence,
    )
}


def complaint(value: Any, schema: str | type[Struct]) -> str | None:
    """Return the error in a parsed JSON value, or None."""
    kind: Any = _SCHEMAS[schema] if isinstance(schema, str) else schema
    if kind is Record and isinstance(value, dict) and isinstance(value.get("kind"), str):
        kind = KINDS.get(value["kind"], Record)
        if kind is Training:
            words = [name for name, entry in value.items() if name != "kind" and not _fits_float(entry)]
            if words:
                return f"its {words[0][:40]!r} is not a number"
    try:
        found = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error)
    except RecursionError:
        return "it is nested too deeply"
    return found.contradiction() if isinstance(found, Description) else None


def _fits_float(value: object) -> bool:
    """Return whether a value is a number that a float can hold, be it NaN or infinite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return isinstance(value, float) or is_finite(value)
