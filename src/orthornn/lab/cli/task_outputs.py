"""Sounds and figures of the outputs of a trained network, for the tasks that have some."""

from __future__ import annotations

from pathlib import Path

from ..files.audio import write_wav
from ..report.figures import or_a_warning, told, waveforms
from ..systems import SequenceModel
from ..tasks import Amplifier, Music, Speech, Task
from ..tasks.speech import RATE

_SCORED = 16  # test utterances; PESQ and STOI take about a tenth of a second each


def names_of_task_outputs(task: Task) -> list[str]:
    """Return the names of the files that `write_task_outputs` writes."""
    if isinstance(task, Music):
        return ["true.wav", "generated.wav", "waveforms.png"]
    if isinstance(task, Speech):
        return ["true.wav", "model.wav", "previous-frame.wav"]
    if isinstance(task, Amplifier):
        return ["dry.wav", "wet.wav", "learned.wav"]
    return []


def write_task_outputs(task: Task, model: SequenceModel, folder: Path) -> list[str]:
    """Write the task's sounds and figures into `folder`; return lines that describe them, and their scores."""
    model.eval()
    if isinstance(task, Music):
        return _music(task, model, folder)
    if isinstance(task, Speech):
        return _speech(task, model, folder)
    if isinstance(task, Amplifier):
        return _amplifier(task, model, folder)
    return []


def _music(task: Music, model: SequenceModel, folder: Path) -> list[str]:
    waves = {"true": task.samples, "generated": task.generate(model)}
    for name, wave in waves.items():
        write_wav(folder / f"{name}.wav", wave, task.rate)
    figure = folder / "waveforms.png"
    with or_a_warning(figure):
        waveforms(figure, f"excerpt {task.excerpt}, {task.length} samples from a constant input", waves, task.rate)
    return [f"sound: {folder / 'true.wav'}, {folder / 'generated.wav'}{told(figure)}"]


def _amplifier(task: Amplifier, model: SequenceModel, folder: Path) -> list[str]:
    files = {folder / f"{name}.wav": sound for name, sound in {**task.sounds(), "learned": task.effect(model)}.items()}
    for file, sound in files.items():
        write_wav(file, sound, task.rate)
    return [f"sound of the test part: {', '.join(map(str, files))}"]


def _speech(task: Speech, model: SequenceModel, folder: Path) -> list[str]:
    truth, sounds = task.reconstruct(model, 0)
    for name, sound in {"true": truth, **sounds}.items():
        file = folder / f"{name.replace(' ', '-')}.wav"
        write_wav(file, sound, RATE)
    lines = []
    scores = task.scores(model, _SCORED)
    for name, of_name in scores.items():
        shown = ", ".join(
            f"{score} {'not computed' if value is None else f'{value:.3f}'}" for score, value in of_name.items()
        )
        lines.append(f"sound reconstructed from {name}, first {_SCORED} test utterances: {shown}")
    absent = sorted({score for of_name in scores.values() for score, value in of_name.items() if value is None})
    if absent:
        lines.append(f"{', '.join(absent)}: package missing (extras speech and pesq), or no score defined")
    return [*lines, f"sound: {', '.join(sorted(str(path) for path in folder.glob('*.wav')))}"]
