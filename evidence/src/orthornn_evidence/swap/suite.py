"""Train every layer in every script, and store the scores.

    orthornn swap --data FOLDER --digits FOLDER [--budget quick] [--scripts copying-200 ...] [--layers nn.RNN ...]

Every script trains each layer with two learning rates and three seeds (quick: one seed), and reads its score twice: after the
script's number of updates, and after the number that takes the processor time of nn.LSTM. The seconds of an update are
measured in turns beforehand, so the runs themselves do not depend on a clock. Scores are stored one by one in
results/swap/SCRIPT.json; the same command skips stored ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from orthornn._files import write_bytes
from orthornn.environment import commit
from orthornn.errors import OrthornnError
from orthornn.saved.json_files import read_json

from ..once_parser import OnceParser
from .layers import LAYERS, MEASURE
from .script import Places, Script, seconds_per_update, train
from .scripts import SCRIPTS

RATES = (1e-3, 3e-3)
SEEDS = {"quick": 1, "full": 3}


def read(file: Path) -> dict[str, Any]:
    """Return the stored results of a script; its cells have a layer, rate, seed, updates and scores."""
    return read_json(file, "Objects") if file.exists() else {"seconds": {}, "cells": []}


def cells(seeds: int, layers: Sequence[str]) -> Iterator[tuple[str, float, int]]:
    """Yield every (layer, rate, seed), starting with the first seed of all layers."""
    return ((layer, rate, seed) for seed in range(seeds) for layer in layers for rate in RATES)


def run(file: Path, name: str, script: Script, layers: Sequence[str], seeds: int) -> None:
    """Train the cells that the file lacks."""
    stored = read(file)
    stored |= {"script": name, "metric": script.metric, "higher_is_better": script.higher_is_better}
    stored |= {"chance": script.chance}
    missing = [layer for layer in layers if layer not in stored["seconds"]]
    if missing:
        measured = seconds_per_update(script, {layer: LAYERS[layer] for layer in (*missing, MEASURE)})
        scale = stored["seconds"].get(MEASURE, measured[MEASURE]) / measured[MEASURE]  # of another load of the machine
        stored["seconds"] |= {layer: round(scale * seconds, 5) for layer, seconds in measured.items()}
        _store(file, stored)
    there = {(cell["layer"], cell["rate"], cell["seed"]) for cell in stored["cells"]}
    for layer, rate, seed in cells(seeds, layers):
        if (layer, rate, seed) in there:
            continue
        longer = max(1, round(script.updates * stored["seconds"][MEASURE] / stored["seconds"][layer]))
        scores = train(script, LAYERS[layer], rate, seed, [script.updates, longer])
        cell = {"layer": layer, "rate": rate, "seed": seed, "updates": [script.updates, longer]}
        cell |= {"scores": [score if math.isfinite(score) else None for score in scores], "commit": commit()}
        stored["cells"].append(cell)
        _store(file, stored)
        print(f"{name:<18} {layer:<18} {rate:<6g} seed {seed}  {cell['updates']}  {cell['scores']}", flush=True)


def _store(file: Path, content: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, (json.dumps(content, indent=1) + "\n").encode())


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = OnceParser(prog="orthornn swap", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with ptb, mnist and speech")
    parser.add_argument("--digits", type=Path, help="folder of DIGIT_SPEAKER_NUMBER.wav")
    parser.add_argument("--budget", choices=list(SEEDS), default="full", help="quick: one seed of three")
    parser.add_argument("--scripts", nargs="*", default=list(SCRIPTS), choices=list(SCRIPTS))
    parser.add_argument("--layers", nargs="*", default=list(LAYERS), choices=list(LAYERS))
    parser.add_argument("--out", type=Path, default=Path("results/swap"))
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    try:
        for name in given.scripts:
            script = SCRIPTS[name](Places(given.data, given.digits))
            run(given.out / f"{name}.json", name, script, given.layers, SEEDS[given.budget])
    except KeyboardInterrupt:
        print("orthornn: stopped; the same command continues")
        return 130
    except OrthornnError as error:
        print(f"orthornn: {error}")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
