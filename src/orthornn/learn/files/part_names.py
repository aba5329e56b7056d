"""Names that a column or a folder may have for the parts of a data set, in either case."""

from __future__ import annotations

PART_NAMES = {
    **dict.fromkeys(("train", "training", "fit"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "development"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation", "holdout"), "test"),
}
