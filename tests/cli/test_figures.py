from __future__ import annotations

import pytest

from orthornn import cli
from orthornn.cli.figures import KINDS

TINY = "--T 3 --items 2 --validation-size 10 --test-size 10 --steps 8 --batch-size 4 --hidden-size 5".split()  # noqa: SIM905
RECORD = ["--record-gradients", "4", "--record-spectrum", "4"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def train(*words):
    assert cli.main(["train", "copying", *TINY, *words]) == 0


def test_margins_and_the_four_figures(tmp_path, capsys):
    for margin in ("0", "0.1", "none"):
        options = ["--margin", margin, "--nonlinearity", "identity", "--spectrum-lr", "0.01", "--out", f"all/{margin}"]
        train("--model", "spectral", *RECORD, *options)
    for kind in KINDS:
        assert cli.main(["figures", kind, "all"]) == 0
        assert (tmp_path / "all" / f"{kind}.png").read_bytes().startswith(b"\x89PNG")
        assert cli.main(["figures", kind, "all/none", f"--out=figures/{kind}.svg"]) == 0
        assert (tmp_path / "figures" / f"{kind}.svg").read_text().startswith("<?xml")
    assert cli.main(["figures", kind, "all/0.1"]) == 0
    assert (tmp_path / "all" / "0.1" / f"{kind}.png").exists()
    assert "figure: all/spectrum.png" in capsys.readouterr().out


def test_networks_without_a_recurrent_matrix_of_ours_have_gradients_alone(tmp_path, capsys):
    train("--model", "lstm", *RECORD, "--out", "lstm")
    assert cli.main(["figures", "gradients", "lstm"]) == 0
    capsys.readouterr()
    assert cli.main(["figures", "spectrum", "lstm"]) == 2
    assert 'lstm: Expected "spectrum" records, but got none' in capsys.readouterr().err


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gradient-mop", "run"], "Did you mean 'gradient-map'?"),
        (["spectrum"], "got no run"),
        (["spectrum", "nowhere"], "nowhere has no metrics.jsonl"),
        (["spectrum", "run", "--out"], "Expected a value after --out, but got none"),
        (["spectrum", "run", "--out="], "Expected a file or a folder as out, but got an empty name"),
        (["spectrum", "run", "--ou", "x"], "got --ou"),
        (["gradients", "run"], "Train with --record-gradients"),
        (["orthogonality", "run", "--out", "x.gif"], "format"),
    ],
)
def test_an_error_is_one_line(words, message, tmp_path, capsys):
    train("--model", "spectral", "--record-spectrum", "4", "--out", "run")
    capsys.readouterr()
    assert cli.main(["figures", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_the_manual(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["figures", "--help"])
    assert stop.value.code == 0
    assert all(kind in capsys.readouterr().out for kind in ["gradient-map"])


@pytest.mark.parametrize("margin", ["wide", "-1", "nan"])
def test_wrong_margins(margin, capsys):
    assert cli.main(["train", "copying", *TINY, "--model", "spectral", f"--margin={margin}"]) == 2
    assert "margin to be" in capsys.readouterr().err
