"""What `--tensorboard` writes is what the run recorded."""

from __future__ import annotations

import sys

import pytest

from orthornn.errors import CheckpointError, MissingPackageError
from orthornn.learn.runs.tensorboard import TensorBoard
from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Copying
from orthornn.learn.training import RecordConfig, Run, RunConfig, run_to_end

CONFIG = RunConfig(
    task=Copying(T=3, symbols=3, items=2, validation_size=20, test_size=20),
    model=model_named("spectral", hidden_size=6),
    record=RecordConfig(gradients=4, spectrum=5, sequences=3),
    steps=10,
    batch_size=4,
    validate_every=5,
    log_every=5,
)


def test_scalars_spectra_and_gradient_norms(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = run_to_end(Run(CONFIG, tmp_path / "run", observers=[TensorBoard(tmp_path / "events")]))
    events = EventAccumulator(str(tmp_path / "events"), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()

    def written(tag):
        return [(event.step, event.value) for event in events.Scalars(tag)]

    for kind, name in (("train", "loss"), ("validation", "loss"), ("test", "recall"), ("spectrum", "max")):
        recorded = [(r["step"], r[name]) for r in result.records if r["kind"] == kind]
        assert recorded
        assert written(f"{kind}/{name}") == [(step, pytest.approx(value, rel=1e-6)) for step, value in recorded]
    tags = events.Tags()["histograms"]
    norms = [r for r in result.records if r["kind"] == "gradients"]
    (tag,) = [tag for tag in tags if tag.startswith("gradients/norms")]
    assert [event.step for event in events.Histograms(tag)] == [r["step"] for r in norms]
    assert written(f"{tag}/largest")[0][1] == pytest.approx(max(map(max, norms[0]["norms"])), rel=1e-6)


def test_a_run_that_is_refused_leaves_no_folder(tmp_path):
    pytest.importorskip("tensorboard")
    Run(CONFIG, tmp_path / "run").close()
    (tmp_path / "run" / "description.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"description.json to be JSON"):
        Run.resume(tmp_path / "run", observers=[TensorBoard(tmp_path / "run" / "tensorboard")])
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path):
    pytest.importorskip("tensorboard")
    board = TensorBoard(tmp_path / "events")
    (tmp_path / "home").mkdir()
    (tmp_path / "events").symlink_to(tmp_path / "home")
    with pytest.raises(CheckpointError, match="to be a folder of the run itself, but got a symbolic link"):
        TensorBoard(tmp_path / "events")
    with pytest.raises(CheckpointError, match="symbolic link"):
        board({"kind": "train", "step": 1, "loss": 0.5})
    assert not list((tmp_path / "home").iterdir())


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingPackageError, match=r"package tensorboard for .*Install the extra tensorboard"):
        TensorBoard(tmp_path)
