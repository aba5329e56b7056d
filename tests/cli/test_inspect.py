from __future__ import annotations

import numpy as np
import pytest

from orthornn.cli import main


@pytest.fixture
def path(tmp_path):
    lines = ["id;when;temp;color;label"]
    for sequence in range(8):
        for step in range(4):
            value = "" if (sequence, step) == (1, 2) else f"{step + sequence / 2:.1f}".replace(".", ",")
            lines.append(f"s{sequence};2024-01-0{step + 1};{value};{'red' if step else 'blue'};{'ab'[sequence % 2]}")
    (tmp_path / "d.csv").write_text("\ufeff" + "\n".join(lines) + "\n", encoding="utf-8")
    return str(tmp_path / "d.csv")


def test_the_columns_of_a_file(path, capsys):
    assert main(["inspect", path]) == 0
    text = capsys.readouterr().out
    for part in ("32 rows, 5 columns", "0 to 6.5, mean", "8 different", "red 24, blue 8", "2024-01-01 to 2024-01-04"):
        assert part in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("temp")]
    assert row[1:3] == ["numbers", "1"]


@pytest.mark.parametrize(
    "words", [["extra"], ["--bogus", "1"], ["--separator", ";", "--time", "when"], ["--decimal=,", "x"]]
)
def test_words_without_an_effect_are_refused(path, words, capsys):
    assert main(["inspect", path, *words]) == 2
    said = capsys.readouterr()
    left = next(word for word in words if word not in ("--separator", ";", "--decimal=,"))
    known = "--time" in words
    assert (f"--target COLUMN with the options of a task, but got {left!r}" in said.err) == known
    assert known or f"Expected options of `orthornn inspect`, but got {left}" in said.err
    assert not said.out
    assert main(["inspect", path, "--separator", ";", "--decimal=,", "--na", "x"]) == 0


def test_what_a_run_would_make_of_it(path, capsys):
    options = [
        "--target",
        "label",
        "--sequence",
        "id",
        "--time",
        "when",
        "--categories",
        "color",
        "--missing",
        "indicator",
    ]
    assert main(["inspect", path, *options]) == 0
    text = capsys.readouterr().out
    for part in ("8 sequences by the column id", "temp", "color=blue, color=red", "every 1 d, without gaps"):
        assert part in text
    for part in ("missing: 1 in temp (indicator)", "classes: a ", "sequences: 6 for train", "scaling: by mean"):
        assert part in text


def test_a_file_of_another_kind_is_refused(tmp_path, capsys):
    assert main(["inspect", str(tmp_path / "a.xlsx")]) == 2
    assert "Expected a file (.csv" in capsys.readouterr().err


def test_ts_files_need_no_target(tmp_path, capsys):
    head = "@classLabel true a b\n@data\n"
    random = np.random.default_rng(0)
    for name in ("a.ts", "b.ts"):
        rows = [",".join(f"{value:.3f}" for value in random.standard_normal(5)) + f":{'ab'[n % 2]}" for n in range(12)]
        (tmp_path / name).write_text(head + "\n".join(rows) + "\n")
    words = ["train", str(tmp_path / "a.ts"), "--test-data", str(tmp_path / "b.ts"), "--steps", "2"]
    assert main([*words, "--hidden-size", "4", "--out", str(tmp_path / "run")]) == 0
    text = capsys.readouterr().out
    assert "sequences: 10 for train, 2 for validation, 12 for test" in text
