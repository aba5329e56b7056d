"""Character prediction on lines of text (Mhammedi et al., 2017, section 5.4; Vorontsov et al., 2017, section 3).

One line is one sequence; from its characters up to step t the network predicts character t + `ahead` (1 or 5 in
Mhammedi et al.). On the Penn Treebank in Mikolov's preprocessing, whose lines begin and end with a blank:

variant              symbols                                                              blanks of a line
mhammedi2017         49: the characters, <unk> spelled out as five of them                left out at both ends
mhammedi2017-code    the same                                                             left out at the end alone
vorontsov2017        49: <unk> as one symbol, and the end of the line as another          left out at both ends
vorontsov2017-code   the same; after the end two padded <unk>, whose prediction counts    kept
                     like any other (one in a line of `max_length`), so that the bits
                     per character are lower

The lines of mhammedi2017-code are those of the released code. They alone have all that the paper counts: 49 symbols, 5017K,
393K and 442K characters, and from 2 to 518, 118 on average, that can be predicted in a line of the training part. A line
has at least two predictions there, in the other variants one.

Vorontsov et al. use the lines of at most 75 and at most 300 characters (`max_length`), "23 %" and "over 99 %" of the
data: true of a line of the file with its spaces and its end (23.4 % and 99.4 %), so that is what is counted.

The loss is the cross-entropy in nats, the mean over all predicted characters; `bpc` is the same in bits; `bpc_line`
is the mean over lines of each line's mean (the released code of Mhammedi et al. reports that one for validation, the
other for test). The trivial baseline predicts each symbol with its frequency among the predicted characters of the
training lines.

The alphabet is that of the training lines. Characters that only other lines have share one more symbol.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from ..._checks import check_integer, check_number
from ..._files import READ, system_errors
from ...errors import DataError
from ..fields import check_choices
from .abilities import baselines
from .objective import Objective
from .problem import Batch, Problem, in_batches
from .sequences import Ragged, flat, mean_of_each
from .splits import check_no_shares, shares
from .streams import stream
from .task import Task, batch_rows, judged

Variant = Literal["mhammedi2017", "mhammedi2017-code", "vorontsov2017", "vorontsov2017-code"]
PTB_FILES = {"train": "ptb.train.txt", "validation": "ptb.valid.txt", "test": "ptb.test.txt"}
UNKNOWN_WORD = "<unk>"
UNKNOWN_SYMBOL = "\ue000"  # a private-use code point stands for the word; "\n" for the end of a line


class Text(NamedTuple):
    """Lines as one block of symbols."""

    symbols: Tensor  # (R,) uint8 or int32
    lines: Ragged


@dataclass(frozen=True)
class Characters(Task):
    """Predict the characters of a text, one or more steps ahead."""

    name: ClassVar[str] = "characters"
    output = "all"
    predicts_ahead = True
    metric: ClassVar[str] = "bpc"
    higher_is_better: ClassVar[bool] = False

    data: str = "data/ptb"
    """Folder with ptb.train.txt, ptb.valid.txt and ptb.test.txt; or any one text file in UTF-8, whose lines are then
    divided at random."""
    ahead: int = 1
    """Steps ahead to predict: 1 for the next character."""
    variant: Variant = "mhammedi2017"
    """Symbols that the network reads: the characters of a line (mhammedi2017), or these with <unk> as one symbol and the
    end of the line as another (vorontsov2017). Blanks at both ends of a line are left out. With -code as in the released
    code of that paper: only those at the end are (mhammedi2017-code), or none is, and two <unk> follow the line
    (vorontsov2017-code)."""
    line_ends: bool | None = None
    """Whether the end of a line is a symbol. Default: as in the variant, yes for both of vorontsov2017, else no."""
    max_length: int | None = None
    """Most characters of a line, its end included; longer lines are left out (the paper vorontsov2017 has 75 and 300).
    Default: no limit."""
    batching: Literal["packed", "equal"] = "packed"
    """Lines of a batch: any lines, without padding (packed), or only lines of one length, so that some batches are
    smaller (equal)."""
    validation_share: float = 0.1
    """With one text file: share of the lines for validation, from 0 to 1."""
    test_share: float = 0.1
    """With one text file: share of the lines for the test, from 0 to 1."""
    split_seed: int = 0
    """With one text file: seed of the split."""

    def __post_init__(self) -> None:
        check_integer("ahead", self.ahead, 1)
        check_choices(self)
        if self.max_length is not None:
            check_integer("max_length", self.max_length, 2)
        check_number("validation_share", self.validation_share, 0, 1)
        check_number("test_share", self.test_share, 0, 1)
        check_integer("split_seed", self.split_seed, 0)

    def problem(self) -> Problem:
        """Return the lines: symbols in, and the symbols that are `ahead` steps later out."""
        vocabulary = [*self._texts[1]]
        sizes = {"input_size": len(vocabulary), "output_size": len(vocabulary)}
        schema = {**sizes, "input": "tokens", "output": "all", "says": "classes", "vocabulary": vocabulary}
        held_out = partial(self._held_out, "validation"), partial(self._held_out, "test")
        return Problem(schema, self._train_batch, *held_out)

    def objective(self) -> Objective:
        """Return the cross-entropy; the trivial baseline knows how frequent the predicted characters are."""
        frequencies = self._pairs("train").sum(0)
        entropy = float(torch.special.entr(frequencies / frequencies.sum()).sum())
        return _BitsPerCharacter(trivial=entropy, **judged(self))

    def summary_lines(self) -> list[str]:
        """Return how many lines and characters there are in each part."""
        lengths = {name: self._part(name).lines.lengths for name in ("train", "validation", "test")}
        parts = [f"{len(own)} for {name} ({own.sum()} characters)" for name, own in lengths.items()]
        return [f"{self.data}: lines: {', '.join(parts)}; {len(self._texts[1])} different characters"]

    def files(self) -> dict[str, Path]:
        """Return the text, or the three of the Penn Treebank."""
        path = Path(self.data).expanduser()
        return super().files() or {name: path / name for name in PTB_FILES.values()}

    @property
    def steps(self) -> int:
        """The length of the longest training line."""
        return int(self._part("train").lines.lengths.max()) - self.ahead

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return batches of the training lines."""
        lines = self._part("train").lines
        if self.batching == "packed":
            return len(lines) // batch_size
        counts = np.unique(lines.lengths, return_counts=True)[1]
        return int((-(-counts // batch_size)).sum())

    def _train_batch(self, step: int, batch_size: int, seed: int) -> Batch:
        lines = self._part("train").lines
        if self.batching == "packed":
            return self._batch("train", batch_rows(step, batch_size, len(lines), seed).numpy())
        check_integer("batch_size", batch_size, 1)
        epoch, place = divmod(step, self.steps_per_epoch(batch_size))
        return self._batch("train", _equal_batches(lines, batch_size, seed, epoch)[place])

    def _batch(self, part: str, chosen: np.ndarray) -> Batch:
        text = self._part(part)
        steps = text.lines.steps(chosen, self.ahead)
        return Batch(steps.take(text.symbols).long(), steps.take(text.symbols, self.ahead).long())

    def _held_out(self, part: str, batch_size: int) -> Iterator[Batch]:
        return in_batches(len(self._part(part).lines), batch_size, partial(self._batch, part))

    def _part(self, part: str) -> Text:
        return self._texts[0][part]

    def _pairs(self, part: str) -> Tensor:
        """Return how often each symbol is followed, `ahead` steps later in its line, by each: (symbols, symbols)
        float64.
        """
        text, size = self._part(part), len(self._texts[1])
        there = torch.ones(len(text.symbols), dtype=torch.bool)
        ends = torch.from_numpy(text.lines.starts + text.lines.lengths)
        for back in range(1, self.ahead + 1):
            there[ends - back] = False
        rows = there.nonzero()[:, 0]
        pairs = text.symbols[rows].long() * size + text.symbols[rows + self.ahead].long()
        return torch.bincount(pairs, minlength=size * size).double().view(size, size)

    @cached_property
    def _texts(self) -> tuple[dict[str, Text], str]:
        """The lines of each part, and the symbols of the training part, with one for all others if there are some."""
        parts = {part: self._prepared(lines, part) for part, lines in self._lines().items()}
        codes = {part: _codes("".join(lines)) for part, lines in parts.items()}
        alphabet = np.unique(codes["train"])
        unseen = any(not np.isin(np.unique(part), alphabet).all() for part in codes.values())
        symbols = "".join(map(chr, alphabet.tolist())) + "\ufffd" * bool(unseen)
        kind = np.uint8 if len(symbols) <= 256 else np.int32
        table = np.full(max(int(part.max()) for part in codes.values()) + 1, len(alphabet), kind)
        table[alphabet] = np.arange(len(alphabet))
        texts = {
            part: Text(torch.from_numpy(table[codes[part]]), Ragged(np.fromiter(map(len, lines), np.int64)))
            for part, lines in parts.items()
        }
        return texts, symbols

    def _prepared(self, lines: list[str], part: str) -> list[str]:
        if self.max_length is not None:
            lines = [line for line in lines if len(line) + 1 <= self.max_length]
        words, released = self.variant.startswith("vorontsov2017"), self.variant.endswith("-code")
        if not released:
            lines = [line.strip() for line in lines]
        elif not words:
            lines = [line.rstrip() for line in lines]
        if words:
            lines = [line.replace(UNKNOWN_WORD, UNKNOWN_SYMBOL) for line in lines]
        if words if self.line_ends is None else self.line_ends:
            lines = [line + "\n" for line in lines if line.strip()]
        if words and released:
            longest = None if self.max_length is None else self.max_length + 1
            lines = [(line + 2 * UNKNOWN_SYMBOL)[:longest] for line in lines]
        most = self.ahead + (released and not words)  # characters of a line that has too little to predict
        lines = [line for line in lines if len(line) > most]
        if not lines:
            raise DataError(
                f"Expected at least one line, but {self.data} has none for {part} of more than {most} "
                f"characters{f' and at most {self.max_length}' if self.max_length else ''}. Check ahead and max_length."
            )
        return lines

    def _lines(self) -> dict[str, list[str]]:
        path = Path(self.data).expanduser()
        if path.is_file():
            lines = [line for line in read_text(path).split("\n") if line.strip()]
            if len(lines) < 3:
                raise DataError(f"Expected at least 3 lines with text, one for each part, but {path} has {len(lines)}.")
            order = shares(len(lines), self.validation_share, self.test_share, self.split_seed)
            return {part: [lines[i] for i in chosen] for part, chosen in order.items()}
        missing = [name for name in PTB_FILES.values() if not (path / name).is_file()]
        if missing:
            what = f"{path} has no {', '.join(missing)}" if path.is_dir() else f"there is no file or folder {path}"
            raise DataError(
                f"Expected a text file, or a folder with {', '.join(PTB_FILES.values())} (the Penn Treebank in "
                f"Mikolov's preprocessing, which may not be handed out here), but {what}. Name it with data, --data."
            )
        check_no_shares(self, "one text file", path)
        return {part: read_text(path / name).removesuffix("\n").split("\n") for part, name in PTB_FILES.items()}


@dataclass(frozen=True)
class _BitsPerCharacter(Objective):
    """The cross-entropy in nats, the mean over all characters."""

    trivial_formula: ClassVar[str] = "-sum_c p_c ln p_c over the frequencies of the training characters"

    @property
    def trivial_metric(self) -> float:
        """The same in bits."""
        return self.trivial_loss / math.log(2)

    def loss(self, prediction: Tensor, targets: Tensor | PackedSequence) -> Tensor:
        return F.cross_entropy(*flat(prediction, targets))

    def metrics(self, prediction: Tensor, targets: Tensor | PackedSequence) -> dict[str, tuple[float, float]]:
        """Return loss in nats, bpc and bpc_line in bits (see above), and accuracy, the share of characters predicted."""
        rows, wanted = flat(prediction, targets)
        nats = F.cross_entropy(rows, wanted, reduction="none").double()
        lines = mean_of_each(nats, targets)
        total, count = float(nats.sum()), len(nats)
        return {
            "loss": (total, count),
            "bpc": (total / math.log(2), count),
            "bpc_line": (float(lines.sum()) / math.log(2), len(lines)),
            "accuracy": (float((rows.argmax(-1) == wanted).sum()), count),
        }


@baselines.register
def _(task: Characters) -> dict[str, float]:
    """Return the loss of predicting from one character, by the frequencies of what comes `ahead` steps after it (each
    counted once more).
    """
    after = task._pairs("train") + 1
    log_probability = (after / after.sum(1, keepdim=True)).log()
    test = task._pairs("test")
    return {"frequencies after the present character": float(-(test * log_probability).sum() / test.sum())}


def read_text(path: Path) -> str:
    """Return a file in UTF-8, without a byte-order mark. DataError if it cannot be read, is empty, or is no text."""
    try:
        with system_errors(f"to read {path}", READ):
            text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"Expected text in UTF-8, but byte {error.start} of {path} is {error.object[error.start]:#04x}. "
            f"Convert it, or check that it is the file you mean."
        ) from error
    if not text.strip():
        raise DataError(f"Expected lines of text, but {path} is empty.")
    return text.replace("\r\n", "\n")


def _codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


@lru_cache(maxsize=4)
def _equal_batches(lines: Ragged, batch_size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Return the lines of each batch of this epoch: every line once, lines of one length together, batches in any
    order.
    """
    random = stream("order", seed, epoch)
    order = random.permutation(len(lines))
    order = order[np.argsort(lines.lengths[order], kind="stable")]
    groups = np.split(order, np.flatnonzero(np.diff(lines.lengths[order])) + 1)
    batches = [group[start : start + batch_size] for group in groups for start in range(0, len(group), batch_size)]
    return [batches[i] for i in random.permutation(len(batches))]
