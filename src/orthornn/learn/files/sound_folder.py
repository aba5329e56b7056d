"""Folders of sounds as tables: a sound is a sequence, a frame of it a row.

FOLDER/yes/a.wav       the label is the subfolder: the column y
FOLDER/train/yes/...   if there are subfolders named train and validation (valid, dev, ...) or test: the column split, too;
                       sounds in other subfolders are left out, with a warning
FOLDER/labels.csv      a manifest: a column of file names, found by its cells; its other columns (labels, speakers, numbers,
                       the part) are columns of the table. Sounds that it does not name are left out, with a warning

Hidden and system files and folders (left_out.py) are left out, with a warning if they are sounds.

The inputs x0, x1, ... are log-mel energies or the samples of a frame, at one sampling rate for all sounds; the column
sequence is the sound's path in the folder. A single sound is read like a folder with it alone.

Log-mel: power spectra of Hann windows, K triangular filters that are equally wide in mel = 2595 log10(1 + f / 700) from
0 Hz to half the rate, and ln(1e-8 + energy).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from ..._checks import check_choice, check_integer, check_number
from ..._warnings import warn
from ...errors import ArgumentError, DataError
from .audio import SUFFIXES, read_audio, resample, warn_of_ends
from .cells import listed, shown
from .csv_files import read_csv
from .csv_format import CsvFormat
from .left_out import is_left_out, warn_of_left_out
from .part_names import PART_NAMES

_FLOOR = 1e-8
_MOST_OTHERS, _OTHERS_PER_SOUND = 100_000, 10  # files and folders that are no sounds
_MANIFESTS = (".csv", ".tsv")
_TEXT = CsvFormat()


class SoundFormat(NamedTuple):
    """The form in which sounds are read.

    rate: Samples per second; other sounds are resampled. features: "log-mel", or "frames" for the samples themselves.
    window, hop: Milliseconds of a window and between two; frames do not overlap, and are one hop long. mels: K.
    """

    rate: int = 16000
    features: Literal["log-mel", "frames"] = "log-mel"
    window: float = 25.0
    hop: float = 10.0
    mels: int = 40

    def check(self) -> None:
        """Raise ArgumentError for what no sound can become."""
        check_integer("sample_rate", self.rate, 100, 1_000_000)
        check_choice("sound", self.features, ("log-mel", "frames"))
        check_number("window_ms", self.window, 0)
        check_number("hop_ms", self.hop, 0)
        check_integer("mels", self.mels, 1, 1024)
        if min(self.window_samples, self.hop_samples) < 2:
            raise ArgumentError(
                f"Expected windows and hops of at least two samples, but got {self.window} and {self.hop} ms at {self.rate} "
                f"Hz. Give longer ones, window_ms and hop_ms."
            )

    def check_read(self) -> None:
        """Raise ArgumentError for what is not read, as the samples of frames have no windows and no energies."""
        usual = SoundFormat()
        for name, value, default in (("window_ms", self.window, usual.window), ("mels", self.mels, usual.mels)):
            if self.features == "frames" and value != default:
                option = f"--{name.replace('_', '-')}"
                raise ArgumentError(
                    f"Expected {name}, {option}, only for log-mel energies, but got {value} with sound='frames', whose "
                    f"inputs are the samples of a hop. Leave it out; hop_ms, --hop-ms, is the length of a frame."
                )

    def described(self) -> dict[str, str | int]:
        """Return its entry in description.json, with the window and the hop in samples."""
        if self.features == "frames":
            return {"features": "frames", "hop": self.hop_samples}
        return {"features": "log-mel", "window": self.window_samples, "hop": self.hop_samples, "mels": self.mels}

    def step_in_words(self) -> str:
        """Return a description of a step."""
        if self.features == "frames":
            return f"a step is a frame of {self.hop:g} ms, {self.hop_samples} samples"
        return f"a step is {self.mels} log-mel energies of a window of {self.window:g} ms, one every {self.hop:g} ms"

    @property
    def window_samples(self) -> int:
        """Samples of a window."""
        return round(self.window * self.rate / 1000)

    @property
    def hop_samples(self) -> int:
        """Samples between two windows."""
        return round(self.hop * self.rate / 1000)


def is_sound(path: Path) -> bool:
    """Return whether a path is a sound, or a folder that read_sounds would read.

    Raises DataError for a large folder of other things, and for one whose sounds are all left out.
    """
    if path.suffix.lower() in SUFFIXES:
        return True
    return path.is_dir() and _has_sounds(path)


def has_manifest(path: Path) -> bool:
    """Return whether a path is a folder of sounds with a CSV file that lists them."""
    return _manifest(path) is not None


def sounds_of(path: Path, text: CsvFormat = _TEXT) -> dict[str, Path]:
    """Return the sounds of a folder, and its manifest, by their paths in it. text: How the manifest is written."""
    if path.suffix.lower() in SUFFIXES and not path.is_dir():
        return {path.name: path}
    manifest = _manifest(path)
    files = [*_sounds(path), *([manifest] if manifest else [])]
    if manifest is not None:  # it may name files of linked folders, which are not searched
        files += [path / name for name in _named(path, manifest, text)[0]]
    return {file.relative_to(path).as_posix(): file for file in files}


def labels_of(path: Path, text: CsvFormat | None = None) -> dict[str, np.ndarray]:
    """Return the facts known about each sound of a folder without reading it: columns with one cell per sound."""
    names, others = _listed_sounds(path, text or _TEXT)
    return {**others, "sequence": np.array(names, object)}


def read_sounds(path: Path, form: SoundFormat, text: CsvFormat = _TEXT) -> tuple[dict[str, np.ndarray], int, str]:
    """Return the columns of a folder of sounds, how many of them are features, and what there is to say about the
    sounds.

    text: How the manifest is written.

    Raises DataError if there are none, or if one is missing or damaged.
    """
    form.check()
    names, others = _listed_sounds(path, text)
    if not names:
        raise DataError(f"Expected sounds ({', '.join(SUFFIXES)}) in {path}, but got none. Name a folder with some.")
    pieces, seconds, rates = [], [], []
    ends: list[str] = []
    root = path if path.is_dir() else path.parent
    for name in names:
        samples, rate = read_audio(root / name, ends=ends)
        seconds.append(len(samples) / rate)
        rates.append(rate)
        pieces.append(features_of(resample(samples, rate, form.rate), form))
    warn_of_ends(ends)
    lengths = np.array([len(piece) for piece in pieces])
    rows = np.concatenate(pieces)
    columns = {f"x{place}": rows[:, place] for place in range(rows.shape[1])}
    for name, cells in {**others, "sequence": np.array(names, object)}.items():
        columns[name] = np.repeat(cells, lengths)
    return columns, rows.shape[1], f"{_summary(seconds, rates, form.rate)}; {form.step_in_words()}"


def _summary(seconds: list[float], rates: list[int], rate: int) -> str:
    """Return how many sounds there are, how long, and at which rate they are read."""
    least, most = f"{min(seconds):.3g}", f"{max(seconds):.3g}"
    length = f"{len(seconds)} sounds of {least if least == most else f'{least} to {most}'} s"
    if len(seconds) == 1:
        length = f"a sound of {most} s"
    others = {other: rates.count(other) for other in sorted(set(rates)) if other != rate}
    resampled = ", ".join(f"{count} of {other} Hz" for other, count in others.items())
    return f"{length} at {rate} Hz" + (f" (resampled: {resampled})" if others else "")


def features_of(samples: np.ndarray, form: SoundFormat) -> np.ndarray:
    """Return the features (frames, K) float64 of samples (n,); a sound shorter than one frame is filled up with
    zeros.
    """
    window = form.hop_samples if form.features == "frames" else form.window_samples
    samples = np.pad(samples.astype(np.float64), (0, max(0, window - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(samples, window)[:: form.hop_samples]
    if form.features == "frames":
        return frames.copy()
    power = np.abs(np.fft.rfft(frames * np.hanning(window + 1)[:-1])) ** 2
    return np.log(_FLOOR + power @ _filters(form.rate, window, form.mels).T)


@lru_cache(maxsize=4)
def _filters(rate: int, window: int, count: int) -> np.ndarray:
    """Triangles (count, bins) of area proportional to their width."""
    top = 2595 * np.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, count + 2) / 2595) - 1)
    hertz = np.fft.rfftfreq(window, 1 / rate)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    return np.minimum((hertz - low) / (middle - low), (high - hertz) / (high - middle)).clip(0)


def _listed_sounds(path: Path, text: CsvFormat) -> tuple[list[str], dict[str, np.ndarray]]:
    """The paths of the sounds in the folder, and what is known of each."""
    if not path.is_dir():
        return [path.name], {}
    manifest = _manifest(path)
    if manifest is not None:
        return _of_manifest(path, manifest, text)
    left_out: list[str] = []
    names = sorted(file.relative_to(path).as_posix() for file in _sounds(path, left_out))
    warn_of_left_out(path, left_out)
    parts = [name.split("/")[:-1] for name in names]
    first = {folders[0] for folders in parts if folders}
    of_parts = {name: PART_NAMES[name.lower()] for name in first if name.lower() in PART_NAMES}
    others: dict[str, np.ndarray] = {}
    if first and all(parts) and (first == of_parts.keys() or {"train"} < {*of_parts.values()}):
        next_to = [name for name in names if name.split("/")[0] not in of_parts]
        warn_of_left_out(path, next_to, f"as they are in none of the folders {listed(sorted(of_parts))}")
        names = [name for name in names if name.split("/")[0] in of_parts]
        others["split"] = np.array([name.split("/")[0] for name in names], object)
        parts = [name.split("/")[1:-1] for name in names]
    if names and all(parts):
        others["y"] = np.array([folders[0] for folders in parts], object)
    elif any(parts):
        loose = names[[bool(folders) for folders in parts].index(False)]
        raise DataError(
            f"Expected every sound of {path} in a folder named for its label, or none, but got {loose!r} outside. Move it, "
            f"or list files and labels in a manifest, a CSV file in {path}."
        )
    return names, others


def _named(path: Path, manifest: Path, text: CsvFormat) -> tuple[list[str], dict[str, np.ndarray]]:
    """The paths of the sounds that a manifest names, and its other columns."""
    columns = read_csv(manifest, text).columns
    named = [name for name, column in columns.items() if len(column) and _names_sounds(column)]
    if len(named) != 1:
        raise DataError(
            f"Expected one column of file names ({', '.join(SUFFIXES)}) in {manifest}, but got "
            f"{listed(named) if named else 'none'}. Its columns are {listed(columns)}."
        )
    names = [str(cell).replace("\\", "/") for cell in columns.pop(named[0])]
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise DataError(f"Expected files in {path}, but {manifest} names {shown(name)}. Move it into the folder.")
        if not (path / name).is_file():
            raise DataError(
                f"Expected the file {shown(name)} of {manifest} in {path}, but it does not exist. Correct the line."
            )
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"Expected every sound once in {manifest}, but got {shown(twice)} twice. Remove a line.")
    return names, columns


def _of_manifest(path: Path, manifest: Path, text: CsvFormat) -> tuple[list[str], dict[str, np.ndarray]]:
    names, columns = _named(path, manifest, text)
    listed_ones = {(path / name).resolve() for name in names}
    left_out: list[str] = []
    found = [file.relative_to(path).as_posix() for file in _sounds(path, left_out)]
    more = [name for name in (*found, *left_out) if (path / name).resolve() not in listed_ones]
    if more:
        warn(
            f"{manifest} leaves out {len(more)} of the sounds in {path}, such as {sorted(more)[0]!r}. To silence this, "
            f"remove them."
        )
    return names, columns


def _names_sounds(column: np.ndarray) -> bool:
    return column.dtype == object and all(str(cell).lower().endswith(SUFFIXES) for cell in column)


def _manifest(path: Path) -> Path | None:
    """The CSV file of a folder, if there is one next to sounds or above them."""
    if not path.is_dir():
        return None
    files = (file for file in path.iterdir() if file.suffix.lower() in _MANIFESTS)
    found = sorted(file for file in files if not is_left_out(file.name))
    if not found or not _has_sounds(path):
        return None
    if len(found) > 1:
        raise DataError(
            f"Expected one manifest in {path}, but got {listed(file.name for file in found)}. Leave one, with the parts in a "
            f"column."
        )
    return found[0]


def _has_sounds(path: Path) -> bool:
    """Return whether there are sounds below a folder. DataError if there are, and all have names that are left out."""
    left_out: list[str] = []
    if next(_sounds(path, left_out), None) is not None:
        return True
    if left_out:
        raise DataError(
            f"Expected sounds in {path}, but got only ones that are left out because of their names, such as "
            f"{left_out[0]!r}. Rename them, or name the folder in which they are."
        )
    return False


def _sounds(path: Path, left_out: list[str] | None = None) -> Iterator[Path]:
    """Yield the sounds below a folder. Raise DataError if nearly all files are something else, as in a home folder,
    which is not searched completely.

    left_out: To which the paths in the folder are appended of sounds that are left out because of their names.
    """
    sounds = others = 0
    for file in path.rglob("*"):
        if file.suffix.lower() in SUFFIXES and file.is_file():
            name = file.relative_to(path)
            if not is_left_out(name):
                sounds += 1
                yield file
                continue
            if left_out is not None:
                left_out.append(name.as_posix())
        others += 1
        if others > max(_MOST_OTHERS, _OTHERS_PER_SOUND * sounds):
            raise DataError(
                f"Expected a folder of sounds ({', '.join(SUFFIXES)}), but got {path}, which has {sounds} among its first "
                f"{sounds + others} files and folders. Name the folder in which the sounds are."
            )
