"""The sources of utterances: a TIMIT folder, archives of WAV files, or any folder of sound files.

TIMIT          folders TRAIN and TEST of dialect regions of speakers, NIST SPHERE or WAV. The dialect sentences SA1 and
               SA2 are left out. Training: the 462 speakers of TRAIN (3696 utterances); validation: the 50 speakers
               of the usual development set (400); test: the 24 of the core test set (192). The other speakers of
               TEST are not used.
archives       train.zip, valid.zip and test.zip, and train_extra.zip if asked for
any folder     divided by split_seed: by its folders (speakers, for example) if there are at least three, else by file

Hidden sounds, and those in folders of a system, are left out, with a warning; see left_out.py.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from orthornn.errors import DataError
from orthornn.learn.files.audio import SUFFIXES, read_audio
from orthornn.learn.files.inflate import check_inflated
from orthornn.learn.files.left_out import is_left_out, warn_of_left_out
from orthornn.learn.tasks.splits import shares


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Halberstadt (1998), as listed in the recipe of Kaldi
DEVELOPMENT_SPEAKERS = _words("""
    faks0 fdac1 fjem0 mgwt0 mjar0 mmdb1 mmdm2 mpdf0 fcmh0 fkms0 mbdg0 mbwm0 mcsh0 fadg0 fdms0 fedw0 mgjf0
    mglb0 mrtk0 mtaa0 mtdt0 mthc0 mwjg0 fnmr0 frew0 fsem0 mbns0 mmjr0 mdls0 mdlf0 mdvc0 mers0 fmah0 fdrw0
    mrcs0 mrjm4 fcal1 mmwh0 fjsj0 majc0 mjsw0 mreb0 fgjd0 fjmg0 mroa0 mteb0 mjfc0 mrjr0 fmml0 mrws1
""")
# the documentation of TIMIT, testset.doc
CORE_TEST_SPEAKERS = _words("""
    mdab0 mwbt0 felc0 mtas1 mwew0 fpas0 mjmp0 mlnt0 fpkt0 mlll0 mtls0 fjlm0 mbpm0 mklt0 fnlp0 mcmj0 mjdh0
    fmgd0 mgrt0 mnjm0 fdhc0 mjln0 mpam0 fmld0
""")
ARCHIVES = {"train": "train.zip", "validation": "valid.zip", "test": "test.zip"}
EXTRA_ARCHIVE = "train_extra.zip"

Utterance = tuple[str, np.ndarray, int]  # name, samples, rate


def kind_of(folder: Path) -> Literal["archives", "timit", "sounds"]:
    """Return the kind of a folder of speech. Raise DataError if it does not exist."""
    if not folder.is_dir():
        raise DataError(
            f"Expected a TIMIT folder (with TRAIN and TEST), one with {', '.join(ARCHIVES.values())}, or any folder of "
            f"WAV, FLAC or OGG files, but there is no folder {folder}. Name it with data, --data FOLDER."
        )
    if any((folder / name).is_file() for name in ARCHIVES.values()):
        return "archives"
    return "timit" if len(_timit_parts(folder)) == 2 else "sounds"


def _timit_parts(folder: Path) -> dict[str, Path]:
    return {path.name.lower(): path for path in folder.iterdir() if path.name.lower() in ("train", "test")}


def utterances(
    folder: Path, part: str, extra: bool, validation_share: float, test_share: float, split_seed: int
) -> Iterator[Utterance]:
    """Yield the utterances of this part ("train", "validation", "test"), in the order of their names.

    Raises DataError if the folder is missing or has no usable file.
    """
    kind = kind_of(folder)
    if kind == "archives":
        yield from _from_archive(folder / ARCHIVES[part])
        if extra and part == "train":
            yield from _from_archive(folder / EXTRA_ARCHIVE)
        return
    files = (
        _timit_files(_timit_parts(folder), part)
        if kind == "timit"
        else _some_files(folder, part, validation_share, test_share, split_seed)
    )
    for path in files:
        yield str(path.relative_to(folder)), *read_audio(path)


def sound_files(folder: Path, extra: bool) -> dict[str, Path]:
    """Return the files that the utterances come from, by their paths in the folder: archives if there are any, else
    sounds.
    """
    names = [*ARCHIVES.values(), *([EXTRA_ARCHIVE] if extra else [])]
    archives = {name: folder / name for name in names if (folder / name).is_file()}
    return archives or {path.relative_to(folder).as_posix(): path for path in sounds_below(folder)[0]}


def sounds_below(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the sounds below a folder, in order, and the paths in it of those that are left out because of their names."""
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    names = {path: path.relative_to(folder).as_posix() for path in found}
    left_out = [name for name in names.values() if is_left_out(name)]
    return [path for path, name in names.items() if not is_left_out(name)], left_out


def _from_archive(path: Path) -> Iterator[Utterance]:
    try:
        if not path.is_file():
            raise FileNotFoundError
        with zipfile.ZipFile(path) as archive:
            becomes = sum(entry.file_size for entry in archive.infolist())
            check_inflated(path, path.stat().st_size, becomes, "Give the sounds as files in a folder.")
            found = sorted(name for name in archive.namelist() if name.lower().endswith(SUFFIXES))
            names = [name for name in found if not is_left_out(name)]
            warn_of_left_out(path, [name for name in found if is_left_out(name)])
            if not names:
                raise DataError(f"Expected sound files ({', '.join(SUFFIXES)}), but {path} holds none.")
            for name in names:
                yield name, *read_audio(archive.read(name), f"{name} in {path}")
    except FileNotFoundError as error:
        raise DataError(
            f"Expected {', '.join(ARCHIVES.values())} in {path.parent}, but it has no {path.name}."
        ) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise DataError(
            f"Expected a zip archive, but {path} is truncated, corrupt or another file: {error}. Fetch it again."
        ) from error


def _timit_files(timit: dict[str, Path], part: str) -> list[Path]:
    """Return the files of a tree such as TRAIN/DR1/FCJF0/SI1027.WAV; case does not matter."""
    speakers = {"validation": DEVELOPMENT_SPEAKERS, "test": CORE_TEST_SPEAKERS}.get(part)
    files = [
        path
        for path in sounds_below(timit["train" if part == "train" else "test"])[0]
        if path.suffix.lower() == ".wav"
        and not path.stem.lower().startswith("sa")
        and (speakers is None or path.parent.name.lower() in speakers)
    ]
    if not files:
        wanted = "speakers" if speakers is None else f"speakers such as {sorted(speakers)[0]}"
        raise DataError(
            f"Expected folders of {wanted} with WAV files next to SA1 and SA2, but {timit['train'].parent} looks like "
            f"TIMIT and has no utterances for {part}."
        )
    return files


def _some_files(folder: Path, part: str, validation_share: float, test_share: float, split_seed: int) -> list[Path]:
    files, left_out = sounds_below(folder)
    warn_of_left_out(folder, left_out)
    groups: dict[Path, list[Path]] = {}
    for path in files:
        groups.setdefault(Path(path.relative_to(folder).parts[0]), []).append(path)
    units = list(groups.values()) if len(groups) >= 3 else [[path] for path in files]
    if len(units) < 3:
        raise DataError(
            f"Expected at least 3 sound files ({', '.join(SUFFIXES)}), one each for training, validation and test, but "
            f"{folder} holds {len(files)}."
        )
    chosen = shares(len(units), validation_share, test_share, split_seed)[part]
    return [path for i in chosen for path in units[i]]
