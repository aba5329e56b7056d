"""Train the networks of the demo at several learning rates: `python benchmarks/demo_learning_rates.py RUNS [OUT]`.

RUNS: a folder of run directories; what is there already goes on, or is left alone if it is finished. OUT gets
learning_rates.json: by network and rate, the validation and test loss over the trivial one and the recall.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from orthornn.environment import commit
from orthornn.learn.report.runs import read_run
from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Copying
from orthornn.learn.training import OptimizerConfig, RunConfig
from orthornn_evidence.papers.reproduce import go_on

RATES = (1e-3, 3e-3, 1e-2, 3e-2)
MODELS = {"ornn-rotations": {"reflections": 16}, "ornn": {"reflections": 16}, "scornn": {}, "lstm": {}}


def config(model: str, rate: float) -> RunConfig:
    """Return the run of `orthornn demo` with this rate."""
    return RunConfig(
        task=Copying(T=200),
        model=model_named(model, parameters=5000, **MODELS[model]),
        optimizer=OptimizerConfig(lr=rate, clip_norm=1.0),
        steps=1500,
        batch_size=20,
        validate_every=250,
        log_every=20,
        evaluation_batch=250,
    )


def main(runs: Path, out: Path) -> None:
    """Train what is not trained yet, and write learning_rates.json."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    for model in MODELS:
        for rate in RATES:
            place = runs / f"{model}-{rate:g}"
            go_on(place, config(model, rate), lambda run, progress: None)
            result = read_run(place).result
            assert result is not None
            table.setdefault(model, {})[f"{rate:g}"] = {
                "validation": result["validation"]["loss"] / result["trivial_loss"],
                "test": result["test"]["loss"] / result["trivial_loss"],
                "recall": result["test"]["recall"],
            }
    content = {
        "command": "python benchmarks/demo_learning_rates.py RUNS",
        "commit": commit(),
        "updates": 1500,
        "seeds": 1,
    }
    content["models"] = table
    out.mkdir(parents=True, exist_ok=True)
    (out / "learning_rates.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "results/demo"))
