"""Templates take their numbers from results, and only from finished ones."""

from __future__ import annotations

import json
import re

import pytest

from orthornn.errors import ArgumentError
from orthornn_evidence.papers.template import fill, typed_numbers

ROW = {
    "what": "oRNN, test loss",
    "published": 0.5,
    "reproduced": 0.123456,
    "spread": None,
    "seeds": 3,
    "selection": "last",
    "test_selected": None,
    "minutes": 12.3456,
    "share": 1.0,
    "form": "{:.3f}",
    "note": "",
}


@pytest.fixture
def results(tmp_path):
    def write(*rows, budget="laptop", complete=True, missing=()):
        folder = tmp_path / "paper2017" / "table1"
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "paper": "paper2017",
            "place": "Table 1",
            "name": "table1",
            "summary": "Copying.",
            "budget": budget,
            "command": "orthornn reproduce paper2017",
            "complete": complete,
            "missing": list(missing),
            "differences": [],
            "rows": list(rows),
        }
        (folder / f"{budget}.json").write_text(json.dumps(content), encoding="utf-8")
        return tmp_path

    return write


def filled(text, folder):
    return fill(text, folder, folder / "docs" / "page.md")


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("{{paper2017/table1 | oRNN, test loss}}", "0.123"),
        ("{{paper2017/table1 | oRNN, test loss | published}}", "0.500"),
        ("{{paper2017/table1 | oRNN, test loss | seeds}}", "3"),
        ("{{paper2017/table1 | oRNN, test loss | minutes}}", "12"),
        ("{{paper2017/table1 | oRNN, test loss | .1g}}", "0.1"),
        ("{{paper2017/table1 | oRNN, test loss | % of 1}}", "12 %"),
        ("{{line paper2017/table1 | oRNN, test loss | ours}}", "| ours | 0.500 | 0.123 | 3 |"),
        ("{{command paper2017/table1}}", "`orthornn reproduce paper2017`"),
    ],
)
def test_a_place_is_filled(results, place, text):
    assert filled(f"before {place} after", results(ROW)) == f"before {text} after"


def test_a_row_over_another(results):
    folder = results(ROW, {**ROW, "what": "LSTM, test loss", "reproduced": 0.02}, {**ROW, "what": "rest", "share": 0.5})
    assert filled("{{ratio paper2017/table1 | oRNN, test loss | LSTM, test loss | .1f}}", folder) == "6.2"
    with pytest.raises(ArgumentError, match="Expected finished rows"):
        filled("{{ratio paper2017/table1 | oRNN, test loss | rest | .1f}}", folder)
    with pytest.raises(ArgumentError, match=r"Expected ROW \| OTHER \| FORM"):
        filled("{{ratio paper2017/table1 | oRNN, test loss}}", folder)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "1 of 1"),
        ({"complete": False}, "0 of 1"),
        ({"differences": ["100 updates"]}, "0 of 1"),
        ({"place": "Fig. 2"}, "1 of 1"),
        ({"place": "ours"}, "0 of 0"),
    ],
)
def test_tables_and_figures_with_all_of_their_training_are_counted(results, changes, text):
    file = results(ROW) / "paper2017" / "table1" / "laptop.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    assert filled("{{finished}}", file.parents[2]) == text


def test_a_spread_is_shown(results):
    folder = results({**ROW, "spread": 0.01})
    assert filled("{{paper2017/table1 | oRNN, test loss}}", folder) == "0.123 ± 0.010"


@pytest.mark.parametrize(
    ("changes", "complete"),
    [({"share": 0.9}, True), ({"note": "unfinished: held-out data"}, True), ({}, False)],
)
def test_an_unfinished_row_is_refused_and_in_the_appendix(results, changes, complete):
    folder = results({**ROW, **changes}, complete=complete)
    for place in ("{{paper2017/table1 | oRNN, test loss}}", "{{table paper2017/table1}}"):
        with pytest.raises(ArgumentError, match="Expected finished rows"):
            filled(place, folder)
    assert "| oRNN, test loss | 0.500 | 0.123 |" in filled("{{unfinished}}", folder)


def test_the_appendix_shows_the_numbers_of_a_short_run_only_if_asked(results):
    folder = results({**ROW, "share": 0.02}, complete=False)
    short, whole = (filled(place, folder) for place in ("{{unfinished}}", "{{unfinished | table1}}"))
    assert "0.123" not in short
    assert "| 2 % |" in short
    assert "| oRNN, test loss | 0.500 | 0.123 |" in whole


def test_what_a_page_shows_is_not_in_the_appendix(results):
    folder, shown = results(ROW), set()
    fill("{{table paper2017/table1}}", folder, folder / "page.md", shown)
    assert shown == {"paper2017/table1"}
    assert fill("{{unfinished}}", folder, folder / "page.md", shown) == ""
    assert "oRNN" in filled("{{unfinished}}", folder)


def test_the_largest_complete_budget_counts(results):
    results({**ROW, "reproduced": 0.2, "share": 0.9}, budget="full", complete=False)
    folder = results(ROW)
    assert filled("{{paper2017/table1 | oRNN, test loss}}", folder) == "0.123"
    results({**ROW, "reproduced": 0.2}, budget="full")
    assert filled("{{paper2017/table1 | oRNN, test loss}}", folder) == "0.200"


def test_a_row_that_is_trained_in_a_larger_budget_is_taken_from_there(results):
    other = {**ROW, "what": "LSTM, test loss"}
    results({**ROW, "reproduced": 0.2}, {**other, "reproduced": 0.3, "share": 0.9}, budget="full", complete=False)
    folder = results(ROW, other)
    assert filled("{{paper2017/table1 | oRNN, test loss}}", folder) == "0.200"
    assert filled("{{paper2017/table1 | LSTM, test loss}}", folder) == "0.123"
    lines = filled("{{table paper2017/table1}}", folder).splitlines()
    assert [line.endswith("full budget |") for line in lines[2:]] == [True, False]


def test_a_row_that_is_trained_in_full_is_shown_although_no_budget_is_complete(results):
    results({**ROW, "share": 0.1, "reproduced": 0.9}, complete=False)
    folder = results(ROW, {**ROW, "what": "other", "share": 0.5}, budget="full", complete=False)
    assert fill("{{paper2017/table1 | oRNN, test loss}}", folder, folder / "page.md") == "0.123"
    with pytest.raises(ArgumentError, match="finished"):
        fill("{{paper2017/table1 | other}}", folder, folder / "page.md")


def test_a_row_of_a_larger_budget_alone_is_shown_beside_the_others(results):
    results(ROW, {**ROW, "what": "GRU, test loss", "reproduced": 0.3}, budget="full", complete=False)
    assert filled("{{paper2017/table1 | GRU, test loss}}", results(ROW)) == "0.300"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("{{paper2017/table2 | oRNN}}", "an experiment with results"),
        ("{{paper2017/table1 | LSTM}}", "a row of paper2017/table1"),
        ("{{paper2017/table1}}", "PAPER/NAME | ROW | FIELD"),
        ("{{figure paper2017/table1}}", "an experiment with a figure"),
    ],
)
def test_a_place_that_cannot_be_filled_is_an_error(results, place, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        filled(place, results(ROW))


@pytest.mark.parametrize(
    ("losses", "text"),
    [([3, 2, 1, 2, 1], "30 50"), ([3, 1, 1, 1, 1], "20 20"), ([1, 1, 1, 1, 1], "10 10"), ([1, 1, 2, 1, 0.5], "10 40")],
)
def test_the_update_at_which_a_curve_is_below_a_level(results, losses, text):
    folder = _with_runs(results(ROW), {"curves": {"validation": {"step": [10, 20, 30, 40, 50], "loss": losses}}})
    place = "{{below paper2017/table1 | ours | 3/2}} {{below paper2017/table1 | ours | 1.5 | for good}}"
    assert fill(place, folder, folder / "page.md") == text


@pytest.mark.parametrize(
    ("words", "changes", "message"),
    [
        ("3/2", {"curves": {"validation": {"step": [1, 2], "loss": [3, 2]}}}, "falls below 3/2"),
        ("3/2 | for good", {"curves": {"validation": {"step": [1, 2], "loss": [1, 2]}}}, "falls below 3/2"),
        ("3/2 | ever", {}, "SYSTEM [|] LEVEL [|] for good"),
        ("3/2", {"finished": False}, "one finished run"),
        ("3/2", {"system": "theirs"}, "one finished run"),
    ],
)
def test_a_curve_that_is_not_below_a_level_is_an_error(results, words, changes, message):
    folder = _with_runs(results(ROW), {"curves": {"validation": {"step": [1], "loss": [1]}}, **changes})
    with pytest.raises(ArgumentError, match=message):
        fill(f"{{{{below paper2017/table1 | ours | {words}}}}}", folder, folder / "page.md")


def test_the_update_at_which_a_metric_is_above_a_level(results):
    curves = {"validation": {"step": [10, 20, 30], "loss": [3, 2, 1], "recall": [0.5, 0.99, 0.995]}}
    folder = _with_runs(results(ROW), {"curves": curves})
    assert filled("{{above paper2017/table1 | ours | recall | 0.99}}", folder) == "30"
    with pytest.raises(ArgumentError, match=r"recall of ours in paper2017/table1 that rises above 0\.999"):
        filled("{{above paper2017/table1 | ours | recall | 0.999}}", folder)


@pytest.mark.parametrize("missing", [[], ["not begun, 1 of 2 runs: lstm-0"], ["ornn, seed 0: 3 of 5 updates"]])
def test_a_figure_of_a_budget_has_finished_trainings_alone(results, missing):
    results(ROW)
    folder = results(ROW, budget="full", complete=not missing, missing=missing)
    (folder / "paper2017" / "table1" / "full.png").write_bytes(b"")
    if any("updates" in words for words in missing):
        with pytest.raises(ArgumentError, match=r"without unfinished runs, but got \['ornn, seed 0"):
            filled("{{figure paper2017/table1 | full}}", folder)
    else:
        shown = filled("{{figure paper2017/table1 | full}}", folder)
        assert shown == "![Table 1: Copying](../paper2017/table1/full.png)"


def test_a_row_that_is_computed_is_shown_of_an_experiment_that_is_not_complete(results):
    row = {**ROW, "what": "trivial loss", "selection": "computed", "share": None, "reproduced": 0.25}
    folder = results(row, budget="full", complete=False, missing=["not begun, 1 of 1 runs: ornn-0"])
    assert filled("{{paper2017/table1 | trivial loss}}", folder) == "0.250"


def test_the_hours_of_an_experiment(results):
    file = results(ROW) / "paper2017" / "table1" / "laptop.json"
    file.write_text(
        json.dumps({**json.loads(file.read_text(encoding="utf-8")), "cpu_seconds": 5400.0}), encoding="utf-8"
    )
    assert fill("{{hours paper2017/table1}}", file.parents[2], file) == "1.5"


def _with_runs(folder, changes):
    file = folder / "paper2017" / "table1" / "laptop.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["runs"] = [{"system": "ours", "seed": 0, "finished": True, **changes}]
    file.write_text(json.dumps(content), encoding="utf-8")
    return folder


def test_bars_do_not_break_a_table(results):
    table = filled("{{table paper2017/table1}}", results({**ROW, "what": "||W||"}))
    assert "&#124;&#124;W&#124;&#124;" in table


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a loss of .14 and 97 %", [".14", "97 %"]),
        ("0.5 of it", ["0.5"]),
        ("below it from update 3900 on, of 20000 updates", ["update 3900"]),
        ("T = 200, n = 128, rate `0.01`, {{x | y | .2g}}, [a](b1.2.md), Table 4.2", []),
        ("## Protocol\n\nrate 0.5\n\n## Next\n\n0.7", ["0.7"]),
        ("torch 2.6 and Python 3.10; CC BY-SA 3.0", []),
    ],
)
def test_typed_numbers_are_found(text, found):
    assert typed_numbers(text) == found


def test_the_speed_table_has_two_digits_and_no_exponent(tmp_path):
    seconds = {"ours": 0.3127, "rnn": 1.5822, "lstm": 34.56, "lstm-parameters": 0.1462}
    networks = {name: {"seconds": value} for name, value in seconds.items()}
    case = {"network": "scaled Cayley, n = 512", "batch": 50, "networks": networks}
    content = {
        "cases": {"cayley-512-b50": case},
        "machine": {"processor": "a CPU", "torch": "2.13.0"},
        "command": "run",
    }
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "one-thread.json").write_text(json.dumps(content), encoding="utf-8")
    assert filled("{{speed cayley-512-b50 | lstm}}", tmp_path) == "110"
    for place in ("{{speed cayley-512-b50 | gru}}", "{{speed cayley-512-b50}}", "{{speed wy | lstm}}"):
        with pytest.raises(ArgumentError, match=r"Expected CASE \| PEER"):
            filled(place, tmp_path)
    line = filled("{{speed}}", tmp_path).splitlines()[2]
    assert line == "| scaled Cayley, n = 512 | 50 | 310 | 5.1 x | 110 x | 0.47 x |"
    content["machine"]["instruction_set"] = "avx512"
    (tmp_path / "bench" / "one-thread.json").write_text(json.dumps(content), encoding="utf-8")
    content["machine"]["instruction_set"] = "avx2"
    networks["ours"]["seconds"] = 0.5
    (tmp_path / "bench" / "one-thread-avx2.json").write_text(json.dumps(content), encoding="utf-8")
    *_, line, _, said = filled("{{speed}}", tmp_path).splitlines()
    assert line == "| scaled Cayley, n = 512 | 50 | 310 / 500 | 5.1 x / 3.2 x | 110 x / 69 x | 0.47 x / 0.29 x |"
    assert said == "Before the slashes with AVX-512, behind them with AVX2: a CPU, one thread, torch 2.13.0; `run`."


def test_an_entry_of_a_file_that_no_experiment_made(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"int8": {"accuracy": 0.9672, "ram": 384}}), encoding="utf-8")
    assert filled("{{fact a.json | int8/accuracy | .1%}}, {{fact a.json | int8/ram | d}}", tmp_path) == "96.7 %, 384"
    for keys in ("int16/ram", "int8/ram/x"):
        with pytest.raises(ArgumentError, match=r"Expected entries of a\.json"):
            filled(f"{{{{fact a.json | {keys} | d}}}}", tmp_path)


def test_the_usual_calls_are_two_tables(tmp_path):
    content = {
        "last_state": {"title": "WY n=4", "ways": {"h_n": 0.0123, "out[-1]": 0.02}},
        "updates": {"dense n=3, B=2": {"update": 0.5, "inside": 0.3, "outside": 0.1999}},
        "machine": {"processor": "a CPU", "torch": "2.13.0"},
        "command": "run",
    }
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "usual-calls.json").write_text(json.dumps(content), encoding="utf-8")
    lines = filled("{{usual_calls}}", tmp_path).splitlines()
    assert lines[2:4] == ["| the last state as `h_n` | 12 |", "| the last state as `out[-1]` | 20 |"]
    assert lines[-3] == "| dense n=3, B=2 | 500 | 300 | 200 |"


@pytest.fixture
def board(tmp_path):
    one = {"task": "pixel-mnist", "system": "blocks", "metric": "accuracy", "higher_is_better": True, "parameters": 7}
    one |= {"head": "mlp", "validation": 0.5, "best_test": None, "orthogonality_error": 1e-7, "epochs": 5.0}
    one |= {"updates": 3, "cpu_seconds": 2.0, "last_test": None}
    folder = tmp_path / "leaderboard"
    folder.mkdir()
    entries = [
        {**one, "command": "train --recipe a", "seed": seed, "test": test} for seed, test in ((0, 0.7), (1, 0.8))
    ]
    entries.append({**one, "command": "train --recipe b", "seed": 0, "test": 0.6})
    (folder / "pixel-mnist.json").write_text(json.dumps(entries), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("{{board pixel-mnist | recipe a$ | test}}", "75.00 ± 7.07 %"),
        ("{{board pixel-mnist | recipe a$ | seeds}}", "2"),
        ("{{board pixel-mnist | recipe b$ | epochs}}", "5"),
        ("{{board pixel-mnist | ^blocks --recipe b$ | test}}", "60.00 %"),
    ],
)
def test_a_number_of_the_leaderboard(board, place, text):
    assert filled(place, board) == text


def test_the_table_of_the_leaderboard(board):
    lines = filled("{{board pixel-mnist}}", board).splitlines()
    assert [line.split("`")[1] for line in lines[2:]] == ["--recipe a", "--recipe b"]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("{{board copying}}", "Expected a task of the leaderboard, but got 'copying'"),
        ("{{board pixel-mnist | recipe | test}}", "but got 2 rows and 'test'"),
        ("{{board pixel-mnist | recipe a | loss}}", "but got 1 rows and 'loss'"),
        ("{{board pixel-mnist | recipe c | test}}", "but got 0 rows"),
        ("{{board pixel-mnist | recipe a}}", "Expected TASK or TASK | REGEX | FIELD"),
    ],
)
def test_a_place_of_the_leaderboard_that_cannot_be_filled(board, place, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        filled(place, board)


def test_the_table_of_layers_has_every_contender_once_and_milliseconds(tmp_path):
    (tmp_path / "linear-layers").mkdir()
    times = [
        {"T": 9, "batch": 2, "place": place, "name": name, "seconds": seconds}
        for place, name, seconds in (("all", "blocks", 0.0123456), ("all", "lstm", 12.3456), ("last", "blocks", 0.001))
    ]
    machine = {"processor": "P", "torch_instruction_set": "AVX2", "torch": "2", "command": ["orthornn", "bench"]}
    content = json.dumps({"times": times, "environment": machine})
    (tmp_path / "linear-layers" / "bench.json").write_text(content, encoding="utf-8")
    lines = filled("{{layers}}", tmp_path).splitlines()
    assert lines[0] == "| T | B | read | blocks | lstm |"
    assert lines[2:4] == ["| 9 | 2 | all | 12.3 | 12346 |", "| 9 | 2 | last | 1 |  |"]
    assert lines[-1] == "P, AVX2, torch 2; `orthornn bench`."
