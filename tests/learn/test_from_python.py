"""orthornn.train: the command from Python."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import orthornn
from orthornn.errors import ArgumentError, ArgumentTypeError, DataError, NonFiniteError
from orthornn.learn.tasks import Classify

pytest.importorskip("narwhals")
pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")


def waves(count=24, steps=9):
    random = np.random.default_rng(5)
    kinds = np.arange(count) % 2
    return pandas.DataFrame(
        {
            "wave": np.repeat(np.arange(count)[::-1] * 7, steps),
            "x": np.repeat(kinds, steps) + 0.1 * random.standard_normal(count * steps),
            "kind": np.repeat(np.where(kinds, "high", "low"), steps),
        }
    )


def test_train_shows_what_the_command_shows(tmp_path, capsys):
    frame = waves()
    options = {"sequence": "wave", "model": "lstm", "hidden_size": 6, "steps": 40, "lr": 0.03}
    trained = orthornn.train(frame, "kind", out=tmp_path / "run", **options)
    shown = capsys.readouterr().out
    for words in ("so the task is classify", "24 sequences by the column wave", "test accuracy", "run directory"):
        assert words in shown
    assert trained.result.config.model.hidden_size == 6
    assert trained.directory == tmp_path / "run"
    assert trained.tables.evaluate(frame)["accuracy"] > 0.9
    assert "accuracy" in trained._repr_html_()
    assert repr(trained) == f"Loaded(classify, lstm, {str(tmp_path / 'run')!r})"
    assert re.fullmatch(
        r"RunResult\(classify, lstm, 40 updates, test loss \S+, test accuracy \S+\)", repr(trained.result)
    )
    assert "cpu_seconds" not in shown
    frame.to_csv(tmp_path / "waves.csv", index=False)
    again = orthornn.train(tmp_path / "waves.csv", ["kind"], out=tmp_path / "again", **options)
    assert again.result.test == trained.result.test


def test_the_result_is_that_of_the_network_that_is_returned(tmp_path):
    """It was that of the last weights, and the network had those of the best validation. Classes are drawn by lot."""
    frame, held = waves(), waves(10)
    lot = np.random.default_rng(0).permutation(["high", "low"] * 12)
    frame["kind"] = frame["wave"].map(dict(zip(frame["wave"].unique(), lot)))
    options = {"sequence": "wave", "model": "lstm", "hidden_size": 3, "steps": 9, "lr": 0.3, "clip_norm": 1e9}
    trained = orthornn.train(
        frame, "kind", test_data=held, validate_every=1, recipe="none", out=tmp_path / "run", **options
    )
    result, stored = trained.result, json.loads((tmp_path / "run" / "result.json").read_text())
    assert result.best["step"] < 9
    assert result.model is trained.model
    assert trained.tables.evaluate(held)["loss"] == pytest.approx(result.test["loss"], rel=1e-3)
    last = orthornn.load(tmp_path / "run", "last").tables.evaluate(held)
    assert last["loss"] == pytest.approx(result.last_test["loss"], rel=1e-3)
    assert last["loss"] != pytest.approx(result.test["loss"], rel=1e-2)
    assert result.validation == {name: result.best[name] for name in ("loss", "accuracy")}
    assert (stored["test"], stored["best_test"]) == (result.last_test, result.test)  # the file is what it was
    assert result.summary()["test"] == result.last_test


def test_predictions_as_a_frame(tmp_path):
    frame = waves()
    trained = orthornn.train(frame, "kind", sequence="wave", model="lstm", hidden_size=4, steps=2, out=tmp_path / "run")
    found = trained.predict_frame(frame.drop(columns="kind"))
    assert found.columns.tolist() == ["wave", "label", "score high", "score low"]
    assert found["wave"].tolist() == frame["wave"].drop_duplicates().tolist()  # numbers, in the order of the frame
    np.testing.assert_allclose(found[["score high", "score low"]].sum(axis=1), 1, rtol=1e-6)
    by_name = {one.name: said.scores for one, said in trained.tables.predict(frame)}
    np.testing.assert_allclose(by_name["161"][0, 0], found["score high"][0])
    frame.to_csv(tmp_path / "waves.csv", index=False)
    pandas.testing.assert_frame_equal(trained.predict_frame(tmp_path / "waves.csv"), found)
    polars = pytest.importorskip("polars")
    assert isinstance(trained.predict_frame(polars.from_pandas(frame)), polars.DataFrame)


@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        ("frame", {"hiden_size": 4}, ArgumentError, "Did you mean 'hidden_size'"),
        ("frame", {"steps": "many"}, ArgumentError, "--steps"),
        ("frame", {"task": "clasify"}, ArgumentError, "Did you mean 'classify'"),
        ("frame", {"sequence": "wafe"}, DataError, "Did you mean 'wave'"),
        ("copyin", {}, ArgumentError, "the name of a task"),
        ([1, 2], {}, ArgumentError, "Expected a path or a DataFrame"),
        ("there is none.csv", {}, DataError, "does not exist"),
    ],
)
def test_mistakes_are_errors_and_leave_nothing(data, options, error, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        orthornn.train(
            waves() if isinstance(data, str) and data == "frame" else data, "kind", **{"steps": 1, **options}
        )
    assert not list(tmp_path.rglob("config.json"))
    assert capsys.readouterr().err == ""


def test_training_that_diverges_is_blamed_on_options_of_python(tmp_path):
    with pytest.raises(NonFiniteError, match=r"Lower lr and recurrent_lr, or set clip_norm=1 \(--lr"):
        orthornn.train("adding", T=5, model="rnn", hidden_size=6, steps=9, optimizer="sgd", lr=1e30, out=tmp_path)


def messages(path: Path) -> list[str]:
    """The texts in a file of source code but docstrings, with {} for what an f-string formats."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    formats = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in formats for part in node.values} | {
        id(node.value) for node in nodes if isinstance(node, ast.Expr)
    }
    plain = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [
        *("".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values) for node in formats),
        *(node.value for node in plain if id(node) not in parts),
    ]


def test_messages_that_name_an_option_of_the_command_name_it_as_python_does():
    """Training and tasks are called from both: "missing='hold', --missing hold"."""
    learn, count = Path(orthornn.__file__).parent / "learn", 0
    modules = [
        *(learn / "training").glob("*.py"),
        *(learn / "tasks").glob("*.py"),
        learn / "auto.py",
        learn / "predict.py",
    ]
    for path in modules:
        for text in messages(path):
            own = re.sub(r"orthornn train .*", "", text)  # a command to copy
            for option in re.findall(r"(?<![\w`-])--(?:no-)?([a-z][a-z-]*[a-z])", own):
                count += 1
                name = option.replace("-", "_")
                assert re.search(rf"(?<![-\w]){name}\b", own), f"{path.name}: {name}, --{option}: {text}"
    assert count > 30


def test_importing_orthornn_does_not_import_the_command_line():
    code = "import sys, orthornn; assert not [name for name in sys.modules if name.startswith('orthornn.learn')]"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["--out", "-h", "--steps=1"])
def test_a_column_whose_name_is_like_an_option(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = waves().rename(columns={"kind": name})
    trained = orthornn.train(frame, name, sequence="wave", model="lstm", hidden_size=3, steps=2, out=tmp_path / "run")
    assert trained.labels == ["high", "low"]
    assert trained.result.steps == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_is_known_ahead_comes_with_the_rows_of_the_future(tmp_path, capsys):
    price = np.random.default_rng(3).choice([1.0, 2.0, 3.0], 165)
    frame = pandas.DataFrame({"demand": 10 + 3 * price, "price": price, "t": np.arange(165)})
    options = {"time": "t", "horizons": 2, "steps": 2, "hidden_size": 4, "out": tmp_path / "run"}
    trained = orthornn.train(frame[:160], "demand", known=["price"], inputs="demand", **options)
    shown = capsys.readouterr().out
    assert "so the task is forecast" in shown
    assert "known 1 to 2 steps ahead: price" in shown
    new = frame[140:].copy()
    new.loc[160:, "demand"] = np.nan
    found = trained.predict_frame(new)
    assert found.columns.tolist() == ["sequence", "step", "t", "score demand+1", "score demand+2"]
    assert found["t"].tolist() == list(range(140, 160))
    np.testing.assert_allclose(found["score demand+2"], frame["demand"][142:162], atol=0.3)
    with pytest.raises(DataError, match="Expected a column 'prise' for known"):
        orthornn.train(frame, "demand", known="prise", out=tmp_path / "wrong")


def series_in_zones(names=("a", "b")):
    times = pandas.date_range("2024-03-30 22:00", periods=60, freq="h", tz="Europe/Berlin").tolist()
    values = np.sin(np.arange(60 * len(names)) / 3)
    return pandas.DataFrame({"when": times * len(names), "series": np.repeat(names, 60), "value": values})


def test_times_of_predictions_are_those_of_the_frame(tmp_path):
    polars = pytest.importorskip("polars")
    options = {"sequence": "series", "time": "when", "ahead": 1, "skipped": 4, "window": 12, "split_by": "time"}
    frame = series_in_zones()
    trained = orthornn.train(frame, "value", **options, steps=2, hidden_size=4, out=tmp_path / "run")
    shuffled = frame.sample(frac=1, random_state=0)
    found = trained.predict_frame(shuffled)
    assert isinstance(found["when"].dtype, pandas.DatetimeTZDtype)
    assert str(found["when"].dt.tz) == "Europe/Berlin"
    both = found.merge(frame, on=["series", "when"])
    assert len(both) == len(found) == 120
    assert found.groupby("series")["when"].is_monotonic_increasing.all()
    other = trained.predict_frame(polars.from_pandas(shuffled))
    assert other["when"].dtype.time_zone == "Europe/Berlin"
    assert other.columns == found.columns.tolist()
    frame["when"] = frame["when"].dt.tz_localize(None)
    frame.to_parquet(tmp_path / "new.parquet")
    assert (
        trained.predict_frame(tmp_path / "new.parquet")["when"].tolist() == found["when"].dt.tz_localize(None).tolist()
    )
    frame.to_csv(tmp_path / "new.csv", index=False)
    assert trained.predict_frame(tmp_path / "new.csv")["when"].iloc[0] == "2024-03-30 22:00:00"
    indexed = series_in_zones().set_index("when")
    assert trained.predict_frame(indexed)["when"].tolist() == found["when"].tolist()


def test_messages_call_a_frame_by_no_number(tmp_path, capsys, recwarn):
    orthornn.train(series_in_zones(), "value", sequence="series", ahead=1, steps=1, hidden_size=3, out=tmp_path / "run")
    said = capsys.readouterr().out
    assert "DataFrame: 120 rows, 2 sequences" in said
    assert "windows: " in said  # two series are divided by time
    assert said.startswith("DataFrame: --ahead was given")
    assert "DataFrame-" not in said
    warned = {str(warning.message) for warning in recwarn}
    assert len([message for message in warned if "does not see when" in message]) == 1
    assert not any("DataFrame-" in message for message in warned)
    with pytest.raises(DataError, match="Expected a column 'valeu' for target in DataFrame, but got"):
        orthornn.train(series_in_zones(), "valeu", ahead=1, out=tmp_path / "wrong")


def test_a_column_of_times_may_be_called_step(tmp_path):
    """The table had two columns of that name."""
    frame = waves().assign(step=np.tile(np.arange(9) * 10, 24)).sample(frac=1, random_state=0)
    options = {"every_step": True, "sequence": "wave", "time": "step", "model": "lstm", "hidden_size": 4, "steps": 2}
    found = orthornn.train(frame, "kind", **options, out=tmp_path / "run").predict_frame(frame)
    assert found.columns.tolist() == ["wave", "step", "label", "score high", "score low"]
    assert found["step"].tolist() == [*range(0, 90, 10)] * 24


def test_new_data_with_whole_numbers_among_categories_with_fractions(tmp_path):
    frame = waves().assign(dose=np.repeat(np.resize([0.5, 1.0, 2.0], 24), 9))
    options = {"sequence": "wave", "categories": "dose", "model": "lstm", "hidden_size": 4, "steps": 2}
    trained = orthornn.train(frame, "kind", **options, out=tmp_path / "run")
    found = trained.predict_frame(frame)
    some = trained.predict_frame(frame[frame["dose"] == 1])
    wanted = found[found["wave"].isin(some["wave"])].reset_index(drop=True)
    pandas.testing.assert_frame_equal(some, wanted)


@pytest.mark.parametrize("file", ["", "a.csv", "a.parquet", "a.feather"])
def test_names_with_spaces_around_them_are_those_without(file, tmp_path):
    """No option could name a column as pandas reads it from a file with a space behind every comma."""
    frame = waves().rename(columns={"wave": " wave", "kind": " kind "})
    data = frame if not file else tmp_path / file
    unindexed = {"index": False} if file == "a.csv" else {}
    if file:
        getattr(frame, f"to_{file[2:]}")(data, **unindexed)
    task = Classify(data=data, target="kind", sequence="wave")
    assert task.table().roles.inputs == ["x"]
    assert task.table().classes == ["high", "low"]
    assert Classify(data=data, target=" kind ", sequence=" wave").summary_lines() == task.summary_lines()
    two = frame.assign(kind=frame["x"])
    if file:
        getattr(two, f"to_{file[2:]}")(data, **unindexed)
    with pytest.raises(DataError, match="all different"):
        Classify(data=data if file else two, target="kind", sequence="wave").summary_lines()


def test_an_option_may_be_a_dict_or_a_truth_value_of_numpy(tmp_path):
    frame = waves()
    frame.loc[3, "x"] = np.nan
    options = {"sequence": "wave", "model": "lstm", "hidden_size": 4, "steps": 1}
    trained = orthornn.train(
        frame.assign(kind=np.where(frame["kind"] == "low", "low, slow", "high")),
        "kind",
        missing={"x": "hold"},
        class_weights={"low, slow": 3, "high": 0.5},
        every_step=np.True_,
        out=tmp_path / "run",
        **options,
    )
    task = trained.config.task
    assert task.missing == "x=hold"
    assert task.every_step is True
    assert task.objective().weights.tolist() == [0.5, 3]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_sequences_are_named_as_the_frame_names_them(library, tmp_path):
    """Names that are instants of a time zone became those of UTC without one."""
    frame = waves()
    days = pandas.Series(pandas.date_range("2024-03-25", periods=24, freq="D", tz="Europe/Berlin")[::-1])
    frame["wave"] = days.repeat(9).array
    trained = orthornn.train(frame, "kind", sequence="wave", model="lstm", hidden_size=4, steps=2, out=tmp_path / "run")
    new = frame.iloc[::-1]
    if library == "polars":
        new = pytest.importorskip("polars").from_pandas(new.reset_index(drop=True))
    elif library == "pyarrow":
        new = pytest.importorskip("pyarrow").Table.from_pandas(new)
    found = trained.predict_frame(new)
    if library != "pandas":
        found = found.to_pandas()
    assert found["wave"].tolist() == days[::-1].tolist()
    assert found["label"].tolist() == trained.predict_frame(frame)["label"].tolist()[::-1]


def test_a_frame_that_is_passed_as_an_array_is_refused(tmp_path):
    """Each of its rows was a sequence."""
    frame = waves()
    trained = orthornn.train(frame, "kind", sequence="wave", model="lstm", hidden_size=4, steps=1, out=tmp_path / "run")
    for call in (trained.predict, lambda given: trained.evaluate(given, frame["kind"])):
        with pytest.raises(ArgumentTypeError, match="array of sequences, but got a DataFrame"):
            call(frame[["x"]])
    assert trained.predict(frame[["x"]].to_numpy()[None]).scores.shape == (1, 2)


def test_classes_that_are_numbers_are_named_alike_in_a_table_and_in_a_dict(tmp_path):
    frame = waves().assign(kind=lambda table: np.where(table["kind"] == "low", 0.0, 1.0))
    options = {"sequence": "wave", "model": "lstm", "hidden_size": 4, "steps": 1, "out": tmp_path / "run"}
    task = orthornn.train(frame, "kind", class_weights={1.0: 5, np.float32(0): 0.5}, **options).config.task
    assert task.table().classes == ["0", "1"]
    assert task.objective().weights.tolist() == [0.5, 5]


def test_switches_of_models_are_true_or_false(tmp_path, capsys):
    """They are None unless given, so that the command has a value behind them."""
    options = {"sequence": "wave", "hidden_size": 4, "steps": 2}
    found = orthornn.train(waves(), "kind", out=tmp_path / "one", bidirectional=np.True_, decay=False, **options)
    assert found.result.config.model.bidirectional is True
    assert not found.result.config.model.decay
    found = orthornn.train(waves(), "kind", out=tmp_path / "two", decay=True, stratified=False, **options)
    assert found.result.config.model.decay is True
    assert found.result.config.task.stratified is False
    with pytest.raises(ArgumentError, match=r"^Expected True or False as --bidirectional, but got yes\. `orthornn"):
        orthornn.train(waves(), "kind", out=tmp_path / "three", bidirectional="yes", **options)
    with pytest.raises(ArgumentError, match=r"^Expected a whole number as --steps, but got 2\.5\. "):
        orthornn.train(waves(), "kind", out=tmp_path / "three", sequence="wave", steps=2.5)
    with pytest.raises(ArgumentError, match=r"a file that ends in \.csv, .* but got 'sheet\.xlsx'"):
        orthornn.train("sheet.xlsx", "kind", out=tmp_path / "three")
    assert not (tmp_path / "three").exists()


def test_runs_that_start_in_one_second_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = [orthornn.train("copying", T=3, hidden_size=4, steps=1).directory for _ in range(3)]
    assert len(set(folders)) == 3
