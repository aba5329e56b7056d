"""Made data in the layout that `orthornn reproduce --data` wants, so small that every smoke run takes a moment."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

from support.made_idx import write_images
from support.made_sounds import archives


def write_data(folder: Path) -> Path:
    write_images(folder / "mnist")
    lines = ["the cat sat on the mat", "a dog ran", "no one came here", "it is all the same to me"]
    (folder / "ptb").mkdir()
    for part, count in (("train", 12), ("valid", 4), ("test", 4)):
        text = "".join(f" {lines[i % len(lines)]} \n" for i in range(count))
        (folder / "ptb" / f"ptb.{part}.txt").write_text(text, encoding="utf-8")
    archives(folder / "speech")
    (folder / "music").mkdir()
    with wave.open(str(folder / "music" / "tone.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(44100)
        time = np.arange(27000)
        file.writeframes((8000 * np.sin(0.05 * time) * np.cos(0.0031 * time)).astype("<i2").tobytes())
    return folder
