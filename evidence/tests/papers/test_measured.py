"""The tables of what is measured outside the papers, from records with known contents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orthornn.errors import ArgumentError
from orthornn_evidence.papers.measured import (
    agents,
    delta_rule,
    exact_machines,
    group_words,
    popgym,
    popgym_score,
    popgym_wins,
    reflections,
    resets,
)


def run(seed: int, at_1024: float, finished: bool) -> dict[str, object]:
    accuracy = {"32": 1.0, "128": 1.0, "512": 1.0, "1024": at_1024, "4096": 0.5}
    exact = {"dimension": 4, "distance": 0.1, "accuracy": dict.fromkeys(accuracy, 1.0)}
    stages = [[4, 10, 0.1], [512 if finished else 16, 20, 0.2]]
    return {
        "seed": seed,
        "parameters": 100,
        "seconds": 10.0 + seed,
        "starts": 1 + seed,
        "finished": finished,
        "stages": stages,
        "accuracy": accuracy,
        "snapped": exact if finished else {"failed": "not seen"},
    }


def test_every_failure_is_listed(tmp_path: Path):
    (tmp_path / "group-words").mkdir()
    runs = [run(0, 1.0, True), run(1, 0.98, True), run(2, 0.02, False)]
    (tmp_path / "group-words" / "s5-elements.json").write_text(json.dumps({"runs": runs}))
    row = group_words(tmp_path, "trained").splitlines()[2]
    assert row == "| S5 | elements | 100 | 3 | 10 to 12 | 1 2 3 | 1 1 1 | 1 0.98 0.02 | 0.5 0.5 0.5 | 1 of 3 |"
    assert group_words(tmp_path, "exact").splitlines()[2] == "| S5 | elements | 4 4 | 0.1 0.1 | 2 of 3 |  |  |"
    first, second = group_words(tmp_path, "failures").splitlines()
    assert first == "- S5, elements, seed 1: `0.98` at 1024 letters, trained to the end, starts: 2."
    assert second == "- S5, elements, seed 2: `0.02` at 1024 letters, out of time at 16 letters, starts: 3."
    with pytest.raises(ArgumentError, match="kind"):
        group_words(tmp_path, "all")


def test_the_table_of_the_delta_rule_has_a_row_for_each_size():
    results = Path(__file__).parents[3] / "results"
    record = json.loads((results / "bench" / "delta_rule.json").read_text())
    rows = delta_rule(results).splitlines()
    assert len([row for row in rows if row.startswith("| ")]) == 1 + len(record["runs"])
    assert all(entry["times_faster"]["cpp"] >= 20 for entry in record["runs"])


MACHINE = {"processor": "a CPU", "threads": 1, "torch": "2.13.0"}


def bench(folder: Path, name: str, content: object) -> Path:
    (folder / "bench").mkdir()
    (folder / "bench" / f"{name}.json").write_text(json.dumps({"environment": MACHINE} | content))
    return folder


def test_the_table_of_reflections_has_milliseconds_and_their_ratio(tmp_path: Path):
    run = {"T": 4096, "B": 1, "N": 64, "M": 2, "loop": 1.3137, "kernel": 0.00251}
    lines = reflections(bench(tmp_path, "reflections", {"runs": [run]})).splitlines()
    assert lines[2:] == ["| 4096 | 1 | 64 | 2 | 1314 | 2.5 | 523 |", "", "a CPU, one thread, torch 2.13.0."]


@pytest.mark.parametrize(
    ("form", "m", "words"),
    [("wy", 16, "16 reflections"), ("cayley", 0, "dense"), ("linear", 0, "linear, as rotations")],
)
def test_the_table_of_resets_has_ratios_of_medians(tmp_path: Path, form: str, m: int, words: str):
    """The median is that of all runs, whatever round they were in."""
    seconds = {"without resets": [[0.1], [0.2, 0.3]], "with resets": [[0.24, 0.24], [9.0]]}
    seconds |= {"step loop in Python": [[1.0]], "nn.LSTM per piece": [[3.0]]}
    timings = {name: {"rounds": rounds} for name, rounds in seconds.items()}
    case = {"form": form, "n": 128, "m": m, "batch": 8}
    folder = bench(tmp_path, "resets", {"resets": [{"case": case, "timings": timings}]})
    assert resets(folder).splitlines()[2] == f"| {words}, n = 128, B = 8 | 1.2 | 5 | 15 |"


def test_the_table_of_agents_has_milliseconds_and_ratios(tmp_path: Path):
    times = {"LSTM of sb3-contrib": 0.4, "OrthogonalRNN": 0.01, "OrthogonalBlocks": 0.02}
    machine = {"processor": "CPU", "threads": 1, "torch": "2"}
    record = {"environment": machine, "versions": {"sb3-contrib": "2.9"}}
    record["recurrent"] = [{"T": 5, "B": 2, "N": 3, "seconds": times}]
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "agents.json").write_text(json.dumps(record))
    lines = agents(tmp_path).splitlines()
    assert lines[2] == "| 5 | 2 | 3 | 400 | 10.0 | 40 | 20.0 | 20 |"
    assert lines[-1] == "CPU, one thread, torch 2. sb3-contrib 2.9."


def test_the_table_of_popgym_names_what_is_unfinished(tmp_path: Path):
    folder = tmp_path / "popgym"
    folder.mkdir()
    known = {"GRU": -0.428, "best model": "LMU", "best": 0.191}
    (folder / "published.json").write_text(json.dumps({"scores": {"RepeatPreviousHard": known}}))
    runs = [
        {"memory": "blocks", "lr": 0.1, "seed": seed, "best": best} for seed, best in ((1000, 0.5), (0, 0.8), (1, 0.9))
    ]
    record = {"recipe": {"steps": 700_000, "discount": 0.9, "minibatches": 8}, "rates": [0.1], "seeds": 2, "runs": runs}
    (folder / "RepeatPreviousHard.json").write_text(json.dumps(record))
    (folder / "CountRecallEasy.json").write_text(json.dumps({**record, "runs": runs[:1]}))
    former = {**record, "recipe": {**record["recipe"], "minibatches": 4}}
    (folder / "CountRecallHard.json").write_text(json.dumps(former))
    lines = popgym(tmp_path).splitlines()
    assert lines.pop(3).startswith("| CountRecallHard |")
    assert lines[6].endswith("without scaling of rewards: `CountRecallHard`.")
    assert lines[2] == (
        "| RepeatPreviousHard | -0.428 | 0.191 (LMU) | 0.850 ± 0.071 | unfinished | unfinished | 700 000 | 0.9 |"
    )
    assert lines[4] == "`OrthogonalBlocks` better than the best published model: `RepeatPreviousHard`."
    assert popgym_wins(tmp_path) == "1 of 1"
    assert "`CountRecallEasy`" in lines[-1]
    assert "RepeatPreviousHard" not in lines[-1]
    assert [popgym_score(tmp_path, "RepeatPreviousHard", whose) for whose in ("blocks", "GRU", "best")] == [
        *("0.85", "-0.43", "0.19")
    ]
    assert [popgym_score(tmp_path, "RepeatPreviousHard", whose) for whose in ("steps", "discount")] == [
        "700 000",
        "0.9",
    ]
    (folder / "published.json").write_text(json.dumps({"scores": {"RepeatPreviousHard": {**known, "best": 0.86}}}))
    assert popgym(tmp_path).splitlines()[5] == (
        "`OrthogonalBlocks` worse than the best published model: `RepeatPreviousHard`."
    )
    with pytest.raises(ArgumentError, match=r"memory of RepeatPreviousHard .* got 'gru'"):
        popgym_score(tmp_path, "RepeatPreviousHard", "gru")


def test_the_tables_of_exact_machines_have_every_seed(tmp_path: Path):
    folder = tmp_path / "exact-machines"
    folder.mkdir()
    runs = [
        {
            "seed": seed,
            "exact": seed == 0,
            "states": states,
            "seconds": 1.0 + seed,
            "longest_words": 8 << seed,
            "accuracy_of_the_network": {"512": 0.5, "4096": 0.25},
        }
        for seed, states in enumerate([4, 3, None])
    ]
    machine = {"states": 4, "tokens": 2, "registers": [2, 3], "factors": 3, "steps_tried": 12}
    facts = {"c_bytes": 600, "c_steps": 1000, "c_wrong": 0}
    for name, found in (("tomita-4", machine | facts), ("s5", machine)):
        (folder / f"{name}.json").write_text(json.dumps({"runs": runs, "machine": found}))
    rows = exact_machines(tmp_path, "trained").splitlines()[2:]
    assert rows == [f"| {name} | 1 of 3 | 2.0 | 3.0 | 8 to 32 | 0.50 | 0.25 |" for name in ("tomita-4", "s5")]
    assert exact_machines(tmp_path, "machines").splitlines()[2:] == [
        "| tomita-4 | 4 | 2 | 2 + 3 | 3 | 12 | 600 | 0 of 1000 |",
        "| s5 | 4 | 2 | 2 + 3 | 3 | 12 |  |  |",
    ]
    assert exact_machines(tmp_path, "failures").splitlines()[:2] == [
        "- tomita-4, seed 1: an automaton of 3 states.",
        "- tomita-4, seed 2: no automaton was found.",
    ]
    with pytest.raises(ArgumentError, match="kind"):
        exact_machines(tmp_path, "all")
    assert exact_machines(tmp_path / "elsewhere", "failures") == "- None."
