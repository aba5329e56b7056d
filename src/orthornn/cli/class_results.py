"""The test results of a classifier by class: F1, balanced accuracy, ROC-AUC and the confusion matrix."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ..learn.report.table import Column, Table
from ..learn.systems import SequenceModel
from ..learn.tasks.classification_metrics import classification_scores
from ..learn.tasks.classify import IGNORED, Classify
from ..learn.tasks.decision_threshold import read_threshold
from ..learn.training.directory import write_json

FILE = "class_scores.json"
_MOST = 12  # classes of a matrix that is printed


@torch.no_grad()
def class_tables(task: Classify, model: SequenceModel, folder: Path, threshold: float | None) -> list[Table]:
    """Write class_scores.json into the run directory, and return a table of the confusion matrix with the metrics below."""
    probabilities, classes = [], []
    for inputs, targets in task.test(250):
        rows, wanted = task.rows(model(inputs), targets)
        probabilities.append(rows.double().softmax(-1)[wanted != IGNORED].numpy())
        classes.append(wanted[wanted != IGNORED].numpy())
    found = classification_scores(np.concatenate(probabilities), np.concatenate(classes), threshold)
    write_json(folder / FILE, {"classes": task.classes, **found}, summed=True)
    columns = [Column("class", left=True), *(Column(f"as {name}") for name in task.classes), Column("found")]
    if len(task.classes) > _MOST:
        columns = [columns[0], columns[-1]]
    shown = Table("test, by class", columns)
    for name, row, hits in zip(task.classes, found["confusion"], np.diag(found["confusion"]).tolist()):
        share = f"{hits / sum(row):.1%}" if sum(row) else "-"
        shown.rows.append([name, *([] if len(task.classes) > _MOST else map(str, row)), share])
    if threshold is not None:
        by = (
            "as asked"
            if isinstance(read_threshold(str(task.threshold)), float)
            else f"by {task.threshold} on validation"
        )
        shown.notes.append(f"threshold: {task.classes[1]} from a probability of {threshold:.4g} on, {by}")
    area = "" if found["roc_auc"] is None else f", ROC-AUC {found['roc_auc']:.4f}"
    shown.notes.append(f"macro F1 {found['f1']:.4f}, balanced accuracy {found['balanced_accuracy']:.4f}{area}")
    return [shown]
