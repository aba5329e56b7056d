"""Write what `orthornn demo --out FOLDER` left to results/demo: `python benchmarks/demo_results.py FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

WORDS = {
    "ornn-rotations": "16 reflections and a base of rotations",
    "scornn": "scaled Cayley transform",
    "ornn": "16 reflections, no base",
    "lstm": "`torch.nn.LSTM`",
}


def main(folder: Path, out: Path) -> None:
    """Read the runs of a demo, and write demo.json, from which docs/pictures.py draws the README's picture."""
    models = {}
    for name, words in WORDS.items():
        result = json.loads((folder / name / "result.json").read_text(encoding="utf-8"))
        models[name] = {
            "what": words,
            "parameters": result["parameters"],
            "width": result["hidden_size"],
            "updates": result["steps"],
            "test_loss": result["best_test"]["loss"],
            "recall": result["best_test"]["recall"],
        }
    machine = json.loads((folder / "ornn" / "environment.json").read_text(encoding="utf-8"))
    content = {
        "command": "make demo",
        "trivial_loss": result["trivial_loss"],
        "seeds": 1,
        "machine": {key: machine[key] for key in ("processor", "cores", "threads", "torch", "commit")},
        "written": machine["started"],
        "models": models,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "demo.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "results/demo"))
