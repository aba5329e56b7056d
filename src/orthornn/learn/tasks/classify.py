"""Classification of the user's own sequences: one class per sequence, or one per step; see class_objective.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ..._checks import check_float32
from ...errors import ArgumentError, DataError
from ..files.cells import listed, shown
from ..files.columns import Table
from ..files.data_frames import located
from ..files.label_types import type_of_labels
from .class_objective import ClassObjective
from .decision_threshold import read_threshold
from .plain_baselines import classifiers
from .sequences import Ragged
from .table_data import IGNORED, ReadTable, TargetCells, Targets
from .table_options import entries_in, names_in
from .table_sequences import Sequences
from .table_source import takes_words_for_missing
from .table_splits import Split
from .table_task import TableTask
from .table_values import strict_targets
from .task import judged


@dataclass(frozen=True)
class Classify(TableTask):
    """Name the class of your own sequences, or of each of their steps."""

    name: ClassVar[str] = "classify"
    metric: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True

    every_step: bool = False
    """Predict a class at every step, instead of one after the last."""
    class_weights: str | None = None
    """balanced: each class counts the same in the loss; or label=weight, separated by commas (others weigh 1). Default:
    no weights."""
    threshold: str | None = None
    """With two classes: the probability from which the second one, in the order of their names, is predicted; or
    accuracy, balanced_accuracy or f1, by which validation chooses it. Default: the likelier class."""
    ignore: str | None = None
    """Label without a meaning, which enters neither loss nor accuracy. Default: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is not None:
            read_threshold(self.threshold)

    @property
    def output(self) -> Literal["all", "last"]:  # type: ignore[override]
        """Either "all", with every_step, or "last"."""
        return "all" if self.every_step else "last"

    def _objective(self, read: ReadTable) -> ClassObjective:
        targets, classes = read.data.parts["train"].targets, read.classes
        counts = torch.bincount(targets[targets != IGNORED], minlength=len(classes)).double()
        return ClassObjective(counts, _weights(self, classes, counts), **judged(self))

    def _outputs(self, read: ReadTable) -> dict[str, Any]:
        """Return the classes' names, and the type of their column if it is not text."""
        classes = [*read.classes]
        kind = type_of_labels(located(self.data), read.source.table, names_in(self.target)[0], classes)
        typed = {} if kind is None else {"label_type": kind}
        return {"output_size": len(classes), "says": "classes", "labels": classes, **typed}

    def _plain_methods(self) -> Iterator[tuple[str, str, Any]]:
        return classifiers()

    def _plain_metrics(self, method: Any, features: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        found = np.full((len(targets), len(self.table().classes)), np.finfo(np.float32).tiny)
        probabilities = method.predict_proba(features)
        found[:, method.classes_] = probabilities.clip(np.finfo(np.float32).tiny)
        errors = self.objective().errors(found, targets)
        if np.isin(probabilities, (0, 1)).all():  # it names a class alone
            del errors["loss"]
        return errors

    def _strata(self, cells: TargetCells, sequences: Sequences) -> np.ndarray | None:
        if not self.stratified or self.every_step:
            return None
        assert cells.labels is not None
        return cells.labels[sequences.order][sequences.rows.starts + sequences.rows.lengths - 1]

    def _summary_of_targets(self) -> list[str]:
        counts = self.objective().counts.long().tolist()
        most = [f"{label} {count}" for label, count in zip(self.table().classes, counts)]
        return [f"classes: {listed(most)} in training"]

    def _target_cells(self, table: Table) -> TargetCells:
        return read_classes(self, table)

    def _targets(self, cells: TargetCells, sequences: Sequences, split: Split) -> Targets:
        return _class_targets(self, cells.values[sequences.order], sequences.rows)


def read_classes(options: Classify, table: Table) -> TargetCells:
    """Return the class of every row. DataError for labels that nobody spoke of, or that are too few or too many."""
    labels, column = _labels(options, table), names_in(options.target)[0]
    classes = _in_order({label for label in labels if label is not None and label != options.ignore})
    if strict_targets(options).any() and None in labels:
        row = list(labels).index(None)
        words = "; or if it is the name of a class, such as None or NA: default_na='empty', --default-na empty"
        raise DataError(
            f"Expected a label for every step in {table.path}, column {column!r}, but got none in "
            f"{table.row(row)}. Fill it in, or leave such steps out of the loss: missing='hold', --missing hold"
            f"{words * takes_words_for_missing(options)}."
        )
    if len(classes) < 2:
        raise DataError(
            f"Expected at least 2 classes, but {table.path}, column {column!r}, has "
            f"{f'only {shown(classes[0])}' if classes else 'no label'}. Add sequences of another class, or name "
            f"another column with target, --target."
        )
    if options.threshold is not None and len(classes) > 2:
        raise DataError(
            f"Expected 2 classes for threshold={options.threshold!r}, but {table.path}, column {column!r}, has "
            f"{len(classes)}. Leave the threshold out; class_weights shifts the balance of several classes."
        )
    number = {label: code for code, label in enumerate(classes)}
    return TargetCells(np.array([number.get(label, IGNORED) for label in labels]), labels, classes)


def raw_labels(options: Classify, table: Table) -> np.ndarray:
    """Return the label of every row as the file has it, (R,); None where there is none."""
    labels = table.labels(names_in(options.target)[0], "target")
    return np.array([None if label == options.ignore else label for label in labels], object)


def _labels(options: Classify, table: Table) -> np.ndarray:
    """Return the labels in the order of the table."""
    if len(names_in(options.target)) != 1:
        raise DataError(f"Expected one target to classify, but got {options.target!r}.")
    column = names_in(options.target)[0]
    labels = table.labels(column, "target")
    if options.ignore is not None and options.ignore not in set(labels):
        known = ", ".join(map(str, sorted({str(label) for label in labels})[:20]))
        raise DataError(
            f"Expected ignore to be a label of {column!r}, but got {options.ignore!r}. Name one of {known}."
        )
    return labels


def _in_order(classes: set[str]) -> list[str]:
    """Return the classes by number if all are numbers, else by name."""
    by_name = sorted(classes)
    try:
        return sorted(by_name, key=float)  # 7 and 007 by name
    except ValueError:
        return by_name


def _class_targets(options: Classify, targets: np.ndarray, rows: Ragged) -> Targets:
    """Return the classes (R,) in the order of the sequences. DataError if one changes where each sequence has one."""
    if options.output == "last":
        last = np.repeat(targets[rows.starts + rows.lengths - 1], rows.lengths)
        same = last == targets
        if not same.all():
            gone = options.ignore is None and bool((same | (targets == IGNORED) | (last == IGNORED)).all())
            raise DataError(
                f"Expected one label in all rows of a sequence, but {options.data}, column {names_in(options.target)[0]!r}, "
                f"{'is missing in some of its rows. Repeat it in all of them' if gone else 'changes within one'}. For a "
                f"class at every step: every_step=True, --every-step."
            )
    return Targets(targets, targets != IGNORED)


def _weights(options: Classify, classes: Sequence[str], counts: Tensor) -> Tensor | None:
    """Return the weights of the classes, float32 (K,), if there are some. counts: Of their training targets, (K,)."""
    if options.class_weights is None:
        return None
    if options.class_weights == "balanced":
        if not bool(counts.all()):
            absent = [label for label, count in zip(classes, counts) if not count]
            raise DataError(
                f"Expected training targets of every class for class_weights='balanced', but {options.data} has none of "
                f"{', '.join(absent)}. Choose another split_seed, or name weights."
            )
        return (counts.sum() / (len(classes) * counts)).float()
    weights, given = dict.fromkeys(classes, 1.0), set()
    for entry in entries_in(options.class_weights):
        label, _, weight = entry.rpartition("=")
        label = label.strip()
        try:
            value = float(weight)
        except ValueError:
            value = float("nan")
        if label not in weights or not value >= 0:
            raise ArgumentError(
                f"Expected class_weights to be 'balanced' or label=weight, separated by commas, with the labels "
                f"{', '.join(classes[:20])}, but got {options.class_weights!r}."
            )
        if label in given:
            raise ArgumentError(f"Expected one class weight for {label!r}, but got several. Give one.")
        given.add(label)
        advice = "To leave a class out, use ignore."
        weights[label] = check_float32(f"the class weight of {label!r}", value, advice, zero=False)
    return torch.tensor(list(weights.values()))
