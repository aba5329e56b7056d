from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import shutil

import numpy as np
import pytest
import torch

import orthornn
from orthornn.cli import main
from orthornn.errors import ArgumentError, CheckpointError, DataError, OrthornnWarning, ShapeError
from orthornn.learn.predict_tables import read_table
from orthornn.learn.systems import build, model_named
from orthornn.learn.tasks import TASKS, Adding, Characters, Classify, Copying, Forecast, Regress, table_source
from orthornn.learn.training import OptimizerConfig, train
from orthornn.saved.checkpoint import Checkpoints
from support.labeled import Labeled
from support.run_cases import COPYING, config


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A run on sequences that it reads scaled and in another order."""
    folder, task = tmp_path_factory.mktemp("images"), Labeled()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS.own, task.name, Labeled)
        result = train(config("ornn", task=task, batch_size=4), folder / "run")
        pixels, labels = task.raw["test"]
        yield folder, result, pixels.astype(np.float32), labels


def test_scaling_and_order_travel_with_the_weights(images):
    folder, result, pixels, labels = images
    found = orthornn.load(folder / "run").evaluate(pixels, labels)
    assert found == pytest.approx(result.test, rel=1e-5)
    prediction = orthornn.load(folder / "run").predict(pixels, batch_size=5)
    assert prediction.scores.shape == (12, 4)
    assert prediction.scores.sum(1) == pytest.approx(np.ones(12), rel=1e-6)
    assert np.mean(prediction.labels == labels.astype(str)) == pytest.approx(result.test["accuracy"])


def test_a_network_that_reads_steps_in_another_order_does_not_stream(images):
    """It read them as they came, and its scores were those of other images."""
    folder, _, pixels, _ = images
    with pytest.raises(ArgumentError, match=r"reads steps in order to stream, .* Pass whole sequences to predict"):
        next(orthornn.load(folder / "run").stream(pixels[0]))


@pytest.mark.parametrize("suffix", ["npy", "npz", "csv"])
def test_the_commands(images, suffix, tmp_path, capsys):
    folder, result, pixels, labels = images
    data = tmp_path / f"data.{suffix}"
    if suffix == "npy":
        np.save(data, pixels)
    elif suffix == "npz":
        np.savez(data, x=pixels, y=labels)
    else:
        np.savetxt(data, pixels, delimiter=",")
    out = tmp_path / "scores.csv"
    assert main(["predict", str(folder / "run"), str(data), "--out", str(out)]) == 0
    lines = out.read_text().splitlines()
    assert lines[0] == "sequence,label,score 0,score 1,score 2,score 3"
    scores = np.array([line.split(",")[2:] for line in lines[1:]], float)
    assert scores == pytest.approx(orthornn.load(folder / "run").predict(pixels).scores, rel=1e-5)
    status = main(["evaluate", str(folder / "run"), str(data)])
    if suffix == "npz":
        assert status == 0
        assert f"accuracy {result.test['accuracy']:.6g}" in capsys.readouterr().out
    else:
        assert status == 2
        assert "has no targets" in capsys.readouterr().err


def test_tokens_and_values(tmp_path):
    result = train(config(task=COPYING, steps=3), tmp_path / "copying")
    loaded = orthornn.load(tmp_path / "copying")
    inputs = torch.cat([batch.inputs for batch in COPYING.problem().test(20)], 1)
    targets = torch.cat([batch.targets for batch in COPYING.problem().test(20)], 1)
    prediction = loaded.predict(inputs.T.tolist())
    assert prediction.scores.shape == (20, *targets.T.shape[1:], COPYING.problem().schema["output_size"])
    found = loaded.evaluate(inputs.T.numpy(), targets.T.numpy())
    assert found["loss"] == pytest.approx(result.test["loss"], rel=1e-5)
    task = Adding(T=6, validation_size=5, test_size=7)
    result = train(config("lstm", task=task, steps=3), tmp_path / "adding")
    (batch,) = task.problem().test(7)
    loaded = orthornn.load(tmp_path / "adding", "best")
    assert loaded.predict(batch.inputs.transpose(0, 1)).labels is None
    flat = batch.inputs.transpose(0, 1).reshape(7, -1)
    found = orthornn.load(tmp_path / "adding").evaluate(flat, batch.targets[:, 0])
    assert found["loss"] == pytest.approx(result.test["loss"], rel=1e-5)


def test_your_own_columns(tmp_path):
    """Features and targets in their own units, far from standard ones."""
    random = np.random.default_rng(3)
    x = 1000 + 50 * random.standard_normal((40, 6))
    target = 7e4 + 1e3 * x.mean(1)
    rows = [
        f"{s},{float(x[s, t])!r},{float(target[s])!r},{'low' if x[s].mean() < 1000 else 'high'}"
        for s in range(40)
        for t in range(6)
    ]
    data = tmp_path / "data.csv"
    data.write_text("sequence,x,y,kind\n" + "\n".join(rows) + "\n")
    own = {"data": str(data), "inputs": "x", "sequence": "sequence"}
    train(config(task=Regress(target="y", **own), steps=60, batch_size=4), tmp_path / "regress")
    loaded = orthornn.load(tmp_path / "regress")
    assert loaded.labels == ["y"]
    scores = loaded.predict(x).scores[:, 0]
    assert abs(scores.mean() - target.mean()) < 2 * target.std()
    standard = ((scores - target) / np.array(loaded.description["target_scale"])) ** 2
    assert loaded.evaluate(x, target)["loss"] == pytest.approx(standard.mean(), rel=1e-3)
    train(config(task=Classify(target="kind", **own), steps=3, batch_size=4), tmp_path / "classify")
    assert set(orthornn.load(tmp_path / "classify").predict(x).labels) <= {"low", "high"}


OWN = {
    "classify": lambda **own: Classify(target="kind", **own),
    "at every step": lambda **own: Classify(target="mood", every_step=True, ignore="odd", **own),
    "regress": lambda **own: Regress(target="y,z", every_step=True, **own),
    "forecast": lambda **own: Forecast(target="x", ahead=2, skipped=1, inputs="x,z", **own),
}


@pytest.fixture
def table(tmp_path):
    """Sequences of 6 to 9 steps in their own units, with missing values and labels without a meaning."""
    random = np.random.default_rng(3)
    lines = ["id,x,z,kind,mood,y"]
    for s in range(40):
        for _ in range(6 + s % 4):
            x = "" if random.random() < 0.1 else f"{1e6 + 50 * random.standard_normal():.9g}"
            kind, mood = ["low", "high"][s % 2], ["good", "bad", "odd"][random.integers(3)]
            lines.append(f"s{s:02},{x},{random.standard_normal():.9g},{kind},{mood},{random.standard_normal():.9g}")
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "data.csv"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", OWN)
def test_a_table_like_the_one_it_learned_from(name, table, tmp_path, capsys):
    task = OWN[name](data=str(table), sequence="id", missing="hold")
    result = train(config(task=task, steps=3, batch_size=4), tmp_path / "run")
    lines, chosen = table.read_text().splitlines(), task.table().split.pieces["test"]
    rows = [1 + row for at, steps in chosen for row in range(at, at + steps)]
    held_out = tmp_path / "held out.csv"
    held_out.write_text("\n".join([lines[0], *(lines[row] for row in rows)]) + "\n")
    table.unlink()
    loaded = orthornn.load(tmp_path / "run")
    found, expected = loaded.tables.evaluate(held_out), result.best_test
    assert {metric: found[metric] for metric in expected if metric != "mase"} == pytest.approx(
        {metric: value for metric, value in expected.items() if metric != "mase"}, rel=1e-5
    )
    assert main(["evaluate", str(tmp_path / "run"), str(held_out)]) == 0
    assert f"loss {expected['loss']:.4f}"[:9] in capsys.readouterr().out
    # nothing but what the network sees is needed to predict
    columns = [lines[0].split(",").index(c) for c in ["id", *loaded.description["columns"]]]
    bare = tmp_path / "bare.csv"
    bare.write_text(
        "\n".join(",".join(line.split(",")[c] for c in columns) for line in held_out.read_text().splitlines())
    )
    more = ["--every-step"] if name == "forecast" else []
    assert main(["predict", str(tmp_path / "run"), str(bare), "--out", str(tmp_path / "scores.csv"), *more]) == 0
    written = [line.split(",") for line in (tmp_path / "scores.csv").read_text().splitlines()]
    assert written[0][0] == "sequence"
    names = [lines[1 + at].split(",")[0] for at, _ in chosen]
    assert {row[0] for row in written[1:]} == set(names)
    if task.output == "last":
        assert len(written) - 1 == len(chosen)
    else:
        observed = [row for row in rows if lines[row].split(",")[1] or "x" not in loaded.description["columns"]]
        assert len(written) - 1 == len(observed)


def test_a_table_that_is_written_otherwise(table, tmp_path, capsys):
    """`1,234` alone may be two numbers: the message names options, and here they are."""
    train(config(task=OWN["forecast"](data=str(table), sequence="id", missing="hold"), steps=1), tmp_path / "run")
    rows = [(name, x, z) for name in "ab" for x, z in zip(("1.234", "2.345", "-3.456"), ("1.5", "", "-2.5"))] * 4
    plain, german = tmp_path / "plain.csv", tmp_path / "german.csv"
    plain.write_text("id,x,z\n" + "".join(f"{','.join(row)}\n" for row in rows))
    lines = (";".join(cell.replace(".", ",") or "fehlt" for cell in row) for row in rows)
    german.write_text("id;x;z\n" + "".join(f"{line}\n" for line in lines))
    loaded = orthornn.load(tmp_path / "run")
    with pytest.raises(DataError):
        loaded.tables.predict(german)
    expected, found = loaded.tables.predict(plain), loaded.reading(decimal=",", na="fehlt").tables.predict(german)
    for (one, said), (other, too) in zip(expected, found, strict=True):
        assert one.name == other.name
        np.testing.assert_array_equal(said.scores, too.scores)
    assert loaded.reading() is loaded
    assert loaded.config.task.decimal is None
    words = [str(tmp_path / "run"), str(german), "--decimal", ",", "--na", "fehlt"]
    assert main(["predict", *words, "--out", str(tmp_path / "scores.csv")]) == 0
    with pytest.raises(ArgumentError, match="different marks"):
        loaded.reading(decimal=",", thousands=",")
    assert main(["evaluate", str(tmp_path / "run"), "--decimal", ","]) == 2
    assert "only for a text file, but got no file. Name one" in capsys.readouterr().err


def words_table(count=24):
    """Sequences of three steps, whose classes and series are called as missing values are; and a category that is."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    steps, number = 3, np.arange(count)
    return pandas.DataFrame(
        {
            "id": np.repeat([f"s{n}" for n in number], steps),
            "place": np.repeat(np.array(["NA", "DE", "null"])[number % 3], steps),
            "x": np.random.default_rng(2).standard_normal(count * steps),
            "kind": np.repeat(np.array(["None", "gesture", "nan"])[number % 3], steps),
        }
    )


def test_a_class_that_is_called_none_is_one_in_every_format(tmp_path, capsys):
    """Learned from a DataFrame; its rows were no targets in the CSV file of the same table, without a word."""
    frame, options = (
        words_table(),
        {"sequence": "id", "categories": "place", "model": "gru", "hidden_size": 3, "steps": 2},
    )
    loaded = orthornn.train(frame, "kind", **options, out=tmp_path / "run")
    assert loaded.labels == ["None", "gesture", "nan"]
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "a.tsv.gz", index=False, sep="\t")
    frame.to_parquet(tmp_path / "a.parquet")
    expected = loaded.tables.evaluate(frame)
    for name in ("a.csv", "a.tsv.gz", "a.parquet"):
        assert loaded.tables.evaluate(tmp_path / name) == expected
        for (one, said), (other, too) in zip(
            loaded.tables.predict(frame), loaded.tables.predict(tmp_path / name), strict=True
        ):
            assert (one.name, said.labels.tolist()) == (other.name, too.labels.tolist())
            np.testing.assert_array_equal(said.scores, too.scores)
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), str(tmp_path / "a.csv")]) == 0
    assert f"accuracy {expected['accuracy']:.6g}" in capsys.readouterr().out
    for place, cell in ((2, ""), (3, ""), (3, "NULL")):  # which the network does not know
        lines = [line.split(",") for line in (tmp_path / "a.csv").read_text().splitlines()]
        for line in lines[1:4]:
            line[place] = cell
        (tmp_path / "b.csv").write_text("\n".join(map(",".join, lines)) + "\n")
        if place == 2:
            with pytest.raises(DataError, match="Expected finite numbers"):
                loaded.tables.evaluate(tmp_path / "b.csv")
        else:
            with pytest.warns(OrthornnWarning, match=r"b\.csv: 1 of 24 targets are missing, and are not evaluated"):
                assert loaded.tables.evaluate(tmp_path / "b.csv")["loss"] != expected["loss"]
    with pytest.raises(DataError, match="Expected classes that the network knows"):
        loaded.reading(default_na="empty").tables.evaluate(tmp_path / "b.csv")  # NULL is a word then
    assert main(["evaluate", str(tmp_path / "run"), str(tmp_path / "b.csv"), "--default-na", "empty"]) == 2
    assert "'NULL'" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "run"), "--default-na", "empty"]) == 2
    assert "only for a text file, but got no file. Name one" in capsys.readouterr().err


def test_a_series_that_is_called_na_has_its_vector_in_a_text_file(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    x = np.random.default_rng(0).standard_normal(120)
    frame = pandas.DataFrame({"country": np.repeat(["NA", "DE", "none"], 40), "x": x})
    options = {"sequence": "country", "embedding": 2, "ahead": 1, "split_by": "time", "skipped": 2}
    loaded = orthornn.train(frame, "x", **options, model="gru", hidden_size=3, steps=1, out=tmp_path / "run")
    frame.to_csv(tmp_path / "a.csv", index=False)
    for (one, said), (other, too) in zip(
        loaded.tables.predict(frame), loaded.tables.predict(tmp_path / "a.csv"), strict=True
    ):
        assert one.name == other.name
        np.testing.assert_array_equal(said.scores, too.scores)


def test_a_class_that_is_called_none_is_learned_from_a_text_file(tmp_path, capsys):
    frame = words_table()
    frame.to_csv(tmp_path / "a.csv", index=False)
    words = [str(tmp_path / "a.csv"), "--target", "kind", "--sequence", "id", "--inputs", "x", "--model", "gru"]
    words += ["--hidden-size", "3", "--steps", "2", "--out", str(tmp_path / "run")]
    assert main(["train", *words]) == 2
    assert "such as None or NA: default_na='empty', --default-na empty" in " ".join(capsys.readouterr().err.split())
    assert main(["train", *words, "--default-na", "empty"]) == 0
    assert orthornn.load(tmp_path / "run").labels == ["None", "gesture", "nan"]
    assert orthornn.load(tmp_path / "run").tables.evaluate(tmp_path / "a.csv")["accuracy"] >= 0
    assert main(["inspect", str(tmp_path / "a.csv"), "--default-na", "empty"]) == 0
    assert "text           0  3 different: None 24" in capsys.readouterr().out
    more = {"sequence": "id", "inputs": "x", "model": "gru", "hidden_size": 3, "steps": 2}
    with pytest.raises(ArgumentError, match="Expected default_na to be"):
        Classify(data=tmp_path / "a.csv", target="kind", default_na="never")
    with pytest.raises(ArgumentError, match=r"Expected usual or empty .*got never"):
        orthornn.train(tmp_path / "a.csv", "kind", **more, default_na="never")
    with pytest.raises(ArgumentError, match="Expected default_na only for text files, but got 'empty'"):
        orthornn.train(frame, "kind", **more, default_na="empty")
    test = words_table(9)
    test.to_csv(tmp_path / "test.csv", index=False)  # words that training knows are words in the other file
    found = orthornn.train(frame, "kind", **more, test_data=tmp_path / "test.csv", missing="hold", out=tmp_path / "two")
    assert sum(len(batch.targets) for batch in found.config.task.problem().test(99)) == 9


def series_of_days(known=False):
    """Two series of unequal length, by day, not in order; with `known`, the price of the two days after each end."""
    pandas = pytest.importorskip("pandas")
    random, parts = np.random.default_rng(0), []
    for name, first, steps in (("a", "2023-12-01", 60), ("b", "2024-01-10", 47)):
        days = pandas.date_range(first, periods=steps + 2 * known)
        part = pandas.DataFrame({"shop": name, "day": days.strftime("%Y-%m-%d"), "price": random.random(len(days))})
        part["sold"] = [*random.standard_normal(steps), *[None] * (2 * known)]
        parts.append(part)
    return pandas.concat(parts).sample(frac=1, random_state=0, ignore_index=True)


@pytest.mark.parametrize("known", [False, True])
def test_the_steps_after_the_end_are_forecast_with_their_dates(known, tmp_path):
    frame = series_of_days()
    more = {"sequence": "shop", "time": "day", "horizons": 2, "quantiles": "0.1,0.9", "skipped": 3, "lags": 0}
    more |= {"inputs": "sold", "known": "price"} if known else {"inputs": "sold,price"}
    loaded = orthornn.train(frame, "sold", **more, model="gru", hidden_size=3, steps=1, out=tmp_path / "run")
    asked = series_of_days(known)
    found = loaded.forecast_frame(asked)
    assert list(found.columns) == ["sequence", "step", "time", "forecast sold q0.1", "forecast sold q0.9"]
    ends = {"a": ["2024-01-30", "2024-01-31"], "b": ["2024-02-26", "2024-02-27"]}
    for name, own in found.groupby("sequence"):
        assert own["time"].tolist() == ends[name]
        assert own["step"].tolist() == ([60, 61] if name == "a" else [47, 48])
    for one, said in loaded.tables.predict(asked):
        values = found[found["sequence"] == one.name].iloc[:, 3:].to_numpy()
        assert np.allclose(values.ravel(), said.scores[-1])
    asked.to_csv(tmp_path / "asked.csv", index=False)
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "asked.csv"), "--out", str(tmp_path / "f.csv")]) == 0
    written = (tmp_path / "f.csv").read_text().splitlines()
    assert written[0] == "sequence,step,time,forecast sold q0.1,forecast sold q0.9"
    assert sorted(line.split(",")[:3] for line in written[1:]) == [
        [name, str(step), day] for name, at in (("a", 60), ("b", 47)) for step, day in enumerate(ends[name], at)
    ]


def test_forecasts_without_a_grid_of_times_have_the_numbers_of_their_steps(table, tmp_path):
    train(config(task=OWN["forecast"](data=str(table), sequence="id", missing="hold"), steps=1), tmp_path / "run")
    found = orthornn.load(tmp_path / "run").tables.forecasts(table)
    assert len(found) == 40
    assert all(one.times is None and one.values.shape == (1, 1) for one in found)
    by_name = {one.name: one for one, _ in orthornn.load(tmp_path / "run").tables.predict(table)}
    assert all(one.steps.tolist() == [by_name[one.name].steps[-1] + 2] for one in found)


def test_only_a_network_that_forecasts_does(table, tmp_path, capsys):
    train(config(task=OWN["classify"](data=str(table), sequence="id", missing="hold"), steps=1), tmp_path / "run")
    with pytest.raises(ArgumentError, match="Expected a network that forecasts, but got a network trained on classify"):
        orthornn.load(tmp_path / "run").forecast_frame(table)
    words = ["predict", str(tmp_path / "run"), str(table), "--out", str(tmp_path / "s.csv"), "--every-step"]
    assert main(words) == 2
    assert "Expected a network that forecasts" in capsys.readouterr().err
    assert not (tmp_path / "s.csv").exists()


def test_what_a_step_of_a_stream_has_is_told(table, tmp_path):
    task = OWN["forecast"](data=str(table), sequence="id", missing="indicator")
    train(config(task=task, steps=1), tmp_path / "run")
    loaded = orthornn.load(tmp_path / "run")
    assert loaded.description["columns"] == ["x", "x is missing", "z"]
    with pytest.raises(ShapeError, match="A step has x, x is missing, z"):
        next(loaded.stream([[1e6, 0.5]]))
    assert np.isfinite(next(loaded.stream([[1e6, 1, 0.5]]))).all()


def test_a_table_that_does_not_fit(table, tmp_path, capsys, copying_run):
    train(config(task=OWN["forecast"](data=str(table), sequence="id", missing="hold"), steps=1), tmp_path / "run")
    loaded = orthornn.load(tmp_path / "run")
    other = tmp_path / "other.csv"
    for text, message in (
        ("id,x\na,1\n", "Expected a column 'z' for inputs"),
        ("x,z\n1,2\n", "Expected a column 'id' for sequence"),
        ("id,x,z\na,,2\n", "Expected a step in .* that is observed in all of x, z, but got none in sequence a"),
        ("id,x,z\na,inf,2\n", "Expected finite numbers in .*, but got inf in row 1"),
        ("id,x,z\na,1,2\n", "Expected a target that enters the loss"),
        ("id,x,z\n", "has no rows"),
    ):
        other.write_text(text)
        with pytest.raises(DataError, match=message):
            loaded.tables.evaluate(other)
    with pytest.raises(ArgumentError, match="trained on a table, but got a network trained on copying"):
        copying_run.tables.predict(other)
    other.write_text("1,2,3,4\n5,6,7,8\n")  # no names: one sequence a line, two steps of two
    assert main(["predict", str(tmp_path / "run"), str(other), "--out", str(tmp_path / "scores.csv")]) == 0
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 5


def test_characters(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(["ab ba", "abab", "bb aa", "a b a"] * 20))
    task = Characters(data=str(text))
    result = train(config(task=task, steps=3, batch_size=4), tmp_path / "run")
    loaded = orthornn.load(tmp_path / "run")
    assert result.steps == 3
    prediction = loaded.predict(["abba", "b ab"])
    assert set(prediction.labels.flatten()) <= set(loaded.description["vocabulary"])
    with pytest.raises(DataError, match="but got 'z'\\."):
        loaded.predict(["abz"])


def test_evaluate_on_the_tasks_own_test(tmp_path, capsys):
    result = train(config(steps=3), tmp_path)
    assert main(["evaluate", str(tmp_path)]) == 0
    assert f"loss {result.test['loss']:.6g}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ornn", "ornn-rotations", "scornn"])
@pytest.mark.parametrize("task", [COPYING, Adding(T=6, validation_size=5, test_size=5)], ids=["tokens", "values"])
def test_a_stream_is_the_whole_sequence(name, task, tmp_path):
    train(config(name, task=task, steps=3), tmp_path)
    loaded = orthornn.load(tmp_path)
    inputs = next(task.problem().test(1)).inputs
    raw = inputs[:, 0].tolist()
    streamed = torch.from_numpy(np.stack(list(loaded.stream(raw))))
    loaded.model.output = "all"
    with torch.no_grad():
        whole = loaded.model(inputs)[:, 0]
    whole = whole.softmax(-1) if task is COPYING else whole
    # one matrix product a step against the kernel's order of sums
    assert (streamed - whole).abs().max() <= 64 * len(raw) * torch.finfo(torch.float32).eps


def test_a_new_table_is_read_once(tmp_path, monkeypatch, capsys):
    lines = (f"2024-01-{1 + hour // 24:02d} {hour % 24:02d}:00:00,{np.sin(hour / 3):.4f}" for hour in range(200))
    data = tmp_path / "all.csv"
    data.write_text("\n".join(["when,x", *lines]) + "\n")
    task = Forecast(data=str(data), target="x", time="when", skipped=5, window=20)
    train(config(task=task, steps=2, batch_size=4), tmp_path / "run")
    loaded, read = orthornn.load(tmp_path / "run"), []
    plain = table_source.read_columns
    monkeypatch.setattr(table_source, "read_columns", lambda path, *more: read.append(path) or plain(path, *more))
    for words in (["predict", "--out", str(tmp_path / "scores.csv")], ["evaluate"]):
        assert main([words[0], str(tmp_path / "run"), str(data), *words[1:]]) == 0
        assert "when: every 1 h, without gaps" in capsys.readouterr().out
        assert read.pop() == data
        assert not read
    frame = loaded.predict_frame(data)
    assert read.pop() == data
    assert not read
    table = loaded.read_table(data)
    assert read.pop() == data
    ((_, said),) = loaded.tables.predict(table)
    np.testing.assert_array_equal(said.scores[:, 0], frame["score x"])
    assert loaded.read_table(table) is table
    assert loaded.tables.evaluate(table) == loaded.tables.evaluate(data)
    assert len(loaded.tables.anomalies(table)) == 1
    assert read == [data]


def test_gaps_and_short_sequences_of_a_new_file_are_told(tmp_path, capsys):
    def write(name, hours):
        lines = (f"2024-01-{1 + hour // 24:02d} {hour % 24:02d}:00:00,{np.sin(hour / 3):.4f}" for hour in hours)
        (tmp_path / name).write_text("\n".join(["when,x", *lines]) + "\n")
        return tmp_path / name

    task = Forecast(data=str(write("all.csv", range(200))), target="x", time="when", skipped=5, window=20)
    train(config(task=task, steps=2, batch_size=4), tmp_path / "run")
    loaded = orthornn.load(tmp_path / "run")
    assert loaded.told_times(task.data) == "when: every 1 h, without gaps"
    gap = write("gap.csv", [*range(20), *range(30, 60)])
    out = ["--out", str(tmp_path / "scores.csv"), "--force"]
    for words in (["predict", str(tmp_path / "run"), str(gap), *out], ["evaluate", str(tmp_path / "run"), str(gap)]):
        capsys.readouterr()
        assert main(words) == 0
        assert "gap.csv: when: every 1 h, with 1 gap(s), where steps are missing: 10 after" in capsys.readouterr().out
    with pytest.warns(
        OrthornnWarning, match="Expected sequences of more than 5 steps, .* but got 1 of 1 that are shorter"
    ):
        loaded.tables.predict(write("short.csv", range(5)))
    assert len(loaded.tables.predict(write("long.csv", range(6)))) == 1


def test_a_stream_is_in_the_targets_own_units(tmp_path):
    values = 1000 + 30 * np.sin(np.arange(200) / 5)
    np.save(tmp_path / "data.npy", values)
    task = Forecast(data=str(tmp_path / "data.npy"), target="x0", window=40)
    train(config(task=task, steps=3, batch_size=4), tmp_path / "run")
    loaded = orthornn.load(tmp_path / "run")
    whole = loaded.predict(values[None, :60]).scores[0]
    assert abs(whole.mean() - 1000) < 300
    assert np.stack(list(loaded.stream(values[:60]))) == pytest.approx(whole, rel=1e-5)


def sequences(names, steps=5, seed=0):
    """A table with sequences of these names: numbers x, whose sign at the end is the class."""
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(seed).standard_normal(len(names) * steps)
    label = np.where(x[steps - 1 :: steps] > 0, "up", "down")
    return pandas.DataFrame({"id": np.repeat(names, steps), "x": x, "y": np.repeat(label, steps)})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("suffix", ["frame", "csv", "npz"])
def test_predictions_are_in_the_order_of_the_file(suffix, tmp_path):
    """Not in that of the names, where 10 comes before 2."""
    rows = sequences(np.arange(30)[::-1])
    network = orthornn.train(rows, "y", sequence="id", steps=2, hidden_size=4, out=tmp_path / "run")
    data, names = rows, [str(name) for name in range(30)][::-1]
    if suffix == "csv":
        data = tmp_path / "rows.csv"
        rows.to_csv(data, index=False)
    elif suffix == "npz":
        data, names = tmp_path / "rows.npz", names[::-1]
        np.savez(data, x=rows.x.to_numpy().reshape(30, 5, 1), y=rows.y.to_numpy()[::5].astype(str))
    found = network.tables.predict(data)
    assert [one.name for one, _ in found] == names
    of_each = network.predict(rows.x.to_numpy().reshape(30, 5, 1)).scores
    np.testing.assert_allclose(np.concatenate([said.scores for _, said in found]), of_each, rtol=1e-5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("missing", ["skip", "hold"])
def test_sequences_without_an_observed_step_are_left_out_with_a_warning(missing, tmp_path, capsys):
    rows = sequences(np.arange(30))
    rows.loc[rows.id.isin([3, 7]), "x"] = np.nan
    rows.loc[4 * 5, "x"] = np.nan  # one step
    network = orthornn.train(rows, "y", sequence="id", missing=missing, steps=2, hidden_size=4, out=tmp_path / "run")
    gone = [3, 4, 7] if missing == "skip" else [3, 7]
    assert f"{len(gone)} sequences have no step that is observed, and are left out" in capsys.readouterr().out
    with pytest.warns(OrthornnWarning, match=f"{len(gone)} sequence.*{', '.join(map(str, gone))}. Fill in"):
        found = network.predict_frame(rows)
    assert found.id.tolist() == [name for name in range(30) if name not in gone]
    rows.x = np.nan
    with pytest.raises(DataError, match="but got none in sequence 0, 1, 2"):
        network.predict_frame(rows)


def test_columns_that_are_called_as_predictions_are(tmp_path):
    rows = sequences(np.arange(30)).rename(columns={"id": "label"})
    network = orthornn.train(rows, "y", sequence="label", steps=2, hidden_size=4, out=tmp_path / "a")
    found = network.predict_frame(rows)
    assert list(found) == ["sequence", "label", "score down", "score up"]
    assert found.sequence.tolist() == list(range(30))
    assert set(found.label) <= {"up", "down"}
    rows = sequences(np.arange(30)).rename(columns={"id": "step"})
    rows["score y"] = np.tile(np.arange(5.0), 30)
    rows.y = rows.x
    network = orthornn.train(
        rows,
        "y",
        sequence="step",
        time="score y",
        inputs="x",
        every_step=True,
        steps=2,
        hidden_size=4,
        out=tmp_path / "b",
    )
    found = network.predict_frame(rows)
    assert list(found) == ["sequence", "step", "time", "score y"]
    assert found.sequence.tolist() == rows.step.tolist()
    assert found.step.tolist() == found.time.tolist() == [*range(5)] * 30


def test_spaces_around_text_have_no_meaning_in_any_format(tmp_path):
    rows = sequences(np.arange(30))
    rows.loc[rows.id % 3 == 0, "y"] += " "
    rows["y"] = rows.y.astype("category")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    for number, data in enumerate((rows, tmp_path / "rows.csv")):
        network = orthornn.train(data, "y", sequence="id", steps=2, hidden_size=4, out=tmp_path / f"run{number}")
        assert network.labels == ["down", "up"]
        assert set(network.predict_frame(rows).label) <= {"down", "up"}


def test_a_missing_value_holds_the_state_of_a_stream(tmp_path):
    rows = sequences(np.arange(30))
    rows["y"] = rows.x.shift(-1).fillna(0)
    rows.loc[[7, 22], "x"] = np.nan
    network = orthornn.train(
        rows,
        "y",
        sequence="id",
        inputs="x",
        every_step=True,
        missing="hold",
        steps=2,
        hidden_size=4,
        out=tmp_path / "run",
    )
    steps = [[np.nan], [0.5], [np.nan], [np.nan], [-1.0]]
    found = list(network.stream(steps))
    assert np.isnan(found[0]).all()
    whole = network.predict(np.array([[[0.5], [-1.0]]])).scores[0]
    np.testing.assert_allclose(np.stack(found[1:]), whole[[0, 0, 0, 1]], rtol=1e-5)
    strict = orthornn.train(
        rows.dropna(), "y", sequence="id", inputs="x", steps=2, hidden_size=4, out=tmp_path / "strict"
    )
    with pytest.raises(DataError, match="1 values that are not finite"):
        next(strict.stream([[np.nan]]))


def test_a_network_of_two_directions_does_not_stream(tmp_path):
    both = model_named("lstm", hidden_size=3, bidirectional=True)
    train(dataclasses.replace(config("lstm", steps=1), model=both), tmp_path)
    with pytest.raises(ArgumentError, match="Expected a network of one direction to stream"):
        next(orthornn.load(tmp_path).stream([1, 2]))


def test_what_is_wrong_is_said(images, tmp_path):
    folder, _, pixels, _ = images
    loaded = orthornn.load(folder / "run")
    with pytest.raises(ShapeError, match="to have 9 steps, but got 8"):
        loaded.predict(pixels[:, :8])
    with pytest.raises(ShapeError, match=r"targets to have shape \(12,\), but got \(3,\)"):
        loaded.evaluate(pixels, [1, 2, 3])
    with pytest.raises(DataError, match="1 values that are not finite"):
        loaded.predict(np.where(np.arange(9) + np.arange(12)[:, None] == 0, np.nan, pixels))
    with pytest.raises(ArgumentError, match="batch_size to be"):
        loaded.predict(pixels, batch_size=0)
    with pytest.raises(ArgumentError, match="holds no run"):
        orthornn.load(tmp_path)
    torch.save({}, tmp_path / "network.pt")
    with pytest.raises(
        ArgumentError, match=r"^Expected a run directory, but .*network\.pt is a file\. .*load_state_dict"
    ):
        orthornn.load(tmp_path / "network.pt")
    with pytest.raises(ArgumentError, match="checkpoint to be last, best, chosen or one of the steps"):
        orthornn.load(folder / "run", "17")
    with pytest.raises(DataError, match=r"Expected a file with sequences, but .*x\.txt does not exist"):
        main(["predict", str(folder / "run"), str(tmp_path / "x.txt"), "--traceback"])
    (tmp_path / "x.txt").write_text("0")
    with pytest.raises(DataError, match=r"Expected a file in .* unknown kind"):
        main(["predict", str(folder / "run"), str(tmp_path / "x.txt"), "--traceback"])
    train(config(steps=2), tmp_path / "damaged")
    path = tmp_path / "damaged" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CheckpointError, match="truncated or modified"):
        orthornn.load(tmp_path / "damaged")
    train(config(task=Copying(T=3, validation_size=5, test_size=5), steps=1), tmp_path / "tokens")
    loaded = orthornn.load(tmp_path / "tokens")
    with pytest.raises(DataError, match=r"Expected tokens in 0\.\."):
        loaded.predict([[1, 99]])


@pytest.fixture(scope="module")
def copying_run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copying")
    train(config(task=COPYING, steps=1), folder)
    return folder


@pytest.fixture(scope="module")
def copying_run(copying_run_folder):
    return orthornn.load(copying_run_folder)


@pytest.fixture(scope="module")
def adding_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adding")
    train(config(task=Adding(T=3, validation_size=5, test_size=5), steps=1), folder)
    return orthornn.load(folder)


def bad_tokens():
    return {
        "whole numbers in 0": np.full((2, 4), 1.5),
        "several, each with its steps": np.arange(4),
        "Expected whole numbers in 0": np.zeros((2, 4, 2), int),
        "but got 'a'": np.array([["a", "b"]]),
        "a list of strings": "abba",
        "and not empty": np.zeros((2, 0), int),
    }


@pytest.mark.parametrize("message", bad_tokens())
def test_what_is_no_array_of_tokens_is_refused(copying_run, message):
    with pytest.raises((DataError, ShapeError), match=message):
        copying_run.predict(bad_tokens()[message])
    assert copying_run.predict(np.array([[1.0, 2.0]])).scores.shape[:2] == (1, 2)


@pytest.mark.parametrize(
    ("sequences", "message"),
    [
        (np.zeros((3, 7)), r"\(B, T, 2\).*got \(3, 7\)"),
        (np.zeros((0, 6)), r"got \(0, 6\)"),
        ([[1.0, 2.0], [1.0]], "unequal lengths"),
        ([["a", "b"]], "to be real numbers"),
        (np.full((1, 6), 1e39), "6 values that are not finite"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(adding_run, sequences, message):
    with pytest.raises((DataError, ShapeError), match=message):
        adding_run.predict(sequences)


def test_targets_that_are_none_are_refused(copying_run, adding_run):
    """Neither cut off to whole numbers nor counted as nothing: both gave a number before."""
    tokens = np.ones((2, 4), int)
    for targets in (np.full((2, 4), 0.5), np.full((2, 4), -100), np.full((2, 4), 10), np.full((2, 4), "z")):
        with pytest.raises(DataError, match="Expected classes that the network knows"):
            copying_run.evaluate(tokens, targets)
    for targets, message in ((np.full(3, np.nan), "3 values that are not finite"), (["a", "b", "c"], "real numbers")):
        with pytest.raises(DataError, match=message):
            adding_run.evaluate(np.zeros((3, 6)), targets)


@pytest.mark.parametrize("names", [("slow", "fast"), (2, 1)])
def test_targets_are_named_as_predictions_are(names, tmp_path):
    random = np.random.default_rng(0)
    x, y = random.standard_normal((20, 5)), np.array(names)[np.arange(20) % 2]
    np.savez(tmp_path / "data.npz", x=x, y=y)
    train(config(task=Classify(data=str(tmp_path / "data.npz"), target="y"), steps=3, batch_size=4), tmp_path / "run")
    loaded = orthornn.load(tmp_path / "run")
    share = np.mean(loaded.predict(x).labels == y.astype(str))
    assert loaded.evaluate(x, y)["accuracy"] == pytest.approx(share)
    assert main(["evaluate", str(tmp_path / "run"), str(tmp_path / "data.npz")]) == 0
    if isinstance(names[0], str):
        classes = np.searchsorted(sorted(names), y)
        assert loaded.evaluate(x, classes)["accuracy"] == pytest.approx(share)


def test_a_file_that_cannot_be_read_or_written_is_one_line(copying_run_folder, tmp_path, capsys):
    np.savez(tmp_path / "whole.npz", x=np.ones((3, 25), int))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:200])
    assert main(["predict", str(copying_run_folder), str(tmp_path / "cut.npz")]) == 2
    assert "cut.npz is truncated, corrupt or another file" in capsys.readouterr().err
    for out in (tmp_path / "no" / "scores.csv", tmp_path):
        assert main(["predict", str(copying_run_folder), str(tmp_path / "whole.npz"), "--out", str(out)]) == 2
        assert str(out) in capsys.readouterr().err
    assert not list(tmp_path.glob(".*"))


def test_unknown_names_of_the_package():
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        orthornn.lode  # noqa: B018


@pytest.fixture(scope="module")
def unequal(tmp_path_factory):
    """A run on a .npz with lengths and a mask; what is beyond the lengths, or masked, is noise a hundred times as large."""
    folder = tmp_path_factory.mktemp("unequal")
    random = np.random.default_rng(4)
    x, y, lengths = random.standard_normal((60, 9, 2)), np.arange(60) % 3, random.integers(3, 10, 60)
    mask = random.random((60, 9)) < 0.8
    mask[:, 0] = True
    x[..., 0] += y[:, None]
    hidden = ~mask | (np.arange(9) >= lengths[:, None])
    x[hidden] = 100 * random.standard_normal((int(hidden.sum()), 2))
    arrays = {"x": x, "y": y, "lengths": lengths, "mask": mask}
    np.savez(folder / "data.npz", **arrays)
    task = Classify(data=str(folder / "data.npz"), target="y")
    result = train(config(task=task, steps=40, batch_size=8), folder / "run")
    names, starts = task.table().sequences.names, task.table().data.rows.starts.tolist()
    held_out = sorted(int(names[starts.index(at)]) for at, _ in task.table().split.pieces["test"])
    return folder, result, {name: array[held_out] for name, array in arrays.items()}


def as_file(path, arrays):
    """The sequences of `arrays` as a file of this kind."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)
        return
    x, y, lengths, mask = (arrays[name] for name in ("x", "y", "lengths", "mask"))
    rows = [
        (*x[s, t], y[s], int(mask[s, t]), s)
        for s in range(len(x))
        for t in range(lengths[s])
    ]  # fmt: skip
    if path.suffix == ".csv":
        lines = [",".join(map(repr, map(float, row))) for row in rows]
        path.write_text("\n".join(["x0,x1,y,mask,sequence", *lines]) + "\n")
        return
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    names = ("x0", "x1", "y", "mask", "sequence")
    parquet.write_table(pyarrow.table(dict(zip(names, map(list, zip(*rows))))), path)


@pytest.mark.parametrize("suffix", ["npz", "csv", "parquet"])
def test_evaluate_reads_a_file_as_training_does(unequal, suffix, tmp_path, capsys):
    """lengths and mask were ignored, and in a .csv the column sequence."""
    folder, result, arrays = unequal
    as_file(tmp_path / f"held out.{suffix}", arrays)
    assert main(["evaluate", str(folder / "run"), str(tmp_path / f"held out.{suffix}")]) == 0
    found = dict(zip(*[iter(capsys.readouterr().out.split())] * 2))
    assert float(found["loss"]) == pytest.approx(result.best_test["loss"], rel=1e-4)
    assert float(found["accuracy"]) == pytest.approx(result.best_test["accuracy"])
    words = ["predict", str(folder / "run"), str(tmp_path / f"held out.{suffix}"), "--out", str(tmp_path / "s.csv")]
    assert main(words) == 0
    lines = (tmp_path / "s.csv").read_text().splitlines()
    assert len(lines) - 1 == len(arrays["x"])
    right = [line.split(",")[1] == str(label) for line, label in zip(lines[1:], arrays["y"])]
    assert np.mean(right) == pytest.approx(result.best_test["accuracy"])


def test_files_of_another_shape_than_the_training_data_are_refused(unequal, tmp_path):
    folder, _, arrays = unequal
    loaded = orthornn.load(folder / "run")
    path = tmp_path / "a.csv"
    path.write_text("x0,x1,y\n1,2,0\n3,4,0\n")
    with pytest.raises(DataError, match=r"Expected the column 'sequence' in .*, which told the sequences .* apart"):
        loaded.tables.evaluate(path)
    np.save(tmp_path / "one.npy", arrays["x"][0])  # one sequence, by its shape
    assert len(loaded.tables.predict(tmp_path / "one.npy")) == 1
    for shape in ((6, 18), (6, 9, 3), (18,)):
        np.save(tmp_path / "other.npy", np.ones(shape))
        features = shape[-1] if len(shape) > 1 else 1
        with pytest.raises(DataError, match=rf"Expected 2 features at every step of .*, but got {features}\."):
            loaded.tables.predict(tmp_path / "other.npy")


def test_an_array_is_read_by_a_network_that_learned_from_named_columns(tmp_path):
    random = np.random.default_rng(0)
    x, kind = random.standard_normal((12, 5, 2)), np.array(["slow", "fast"])[np.arange(12) % 2]
    lines = [f"{s},{float(x[s, t, 0])!r},{float(x[s, t, 1])!r},{kind[s]}" for s in range(12) for t in range(5)]
    (tmp_path / "a.csv").write_text("\n".join(["sequence,up,down,kind", *lines]) + "\n")
    train(config(task=Classify(data=str(tmp_path / "a.csv"), target="kind"), steps=3, batch_size=4), tmp_path / "run")
    loaded = orthornn.load(tmp_path / "run")
    expected = loaded.tables.evaluate(tmp_path / "a.csv")
    for y in (kind, np.array([loaded.labels.index(name) for name in kind])):
        np.savez(tmp_path / "a.npz", x=x, y=y)
        assert loaded.tables.evaluate(tmp_path / "a.npz") == pytest.approx(expected)
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(12))
    with pytest.raises(DataError, match="Expected classes that the network knows"):
        loaded.tables.evaluate(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["lengths", "mask", "weights"])
def test_arrays_that_a_network_cannot_heed_are_refused(copying_run_folder, name, tmp_path, capsys):
    np.savez(tmp_path / "a.npz", x=np.ones((3, 8), int), **{name: np.full(3, 4)})
    assert main(["predict", str(copying_run_folder), str(tmp_path / "a.npz")]) == 2
    assert f"Expected only x and y in {tmp_path / 'a.npz'}, but got {name} as well" in capsys.readouterr().err


def test_text_is_drawn_from_what_the_network_predicts(tmp_path, capsys):
    (tmp_path / "text.txt").write_text("\n".join(["abab", "abba", "baba"] * 20) + "\n")
    task = Characters(data=str(tmp_path / "text.txt"))
    train(config(task=task, steps=5, batch_size=8), tmp_path / "run")
    loaded = orthornn.load(tmp_path / "run")

    def drawn(count=12, **options):
        return "".join(itertools.islice(loaded.generate("ab", **options), count))

    assert drawn(seed=1) == drawn(seed=1)
    assert set(drawn(200)) <= set("ab\ufffd")
    likeliest = drawn(1, temperature=0)
    assert loaded.labels[int(loaded.predict(["ab"]).scores[0, -1].argmax())] == likeliest
    assert drawn(30, temperature=1e-3, seed=2) == drawn(30, temperature=0)
    assert drawn(30, temperature=1e-310) == drawn(30, temperature=5e-308) == drawn(30, temperature=0)
    with pytest.raises(DataError, match="but got 'z'\\."):
        next(loaded.generate("z"))
    for seed in (-1, 2**63):
        with pytest.raises(ArgumentError, match="seed"):
            next(loaded.generate("a", seed=seed))
    capsys.readouterr()
    assert main(["generate", str(tmp_path / "run"), "--prompt", "az"]) == 2
    assert capsys.readouterr().out == ""  # nothing of a text that nobody continues
    assert main(["generate", str(tmp_path / "run"), "--prompt", "ab", "--length", "3", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == f"ab{drawn(3, temperature=0)}\n"
    train(config(steps=1), tmp_path / "other")
    with pytest.raises(ArgumentError, match="predicts the next symbol of a text, but got a network for copying"):
        next(orthornn.load(tmp_path / "other").generate())
    loaded.model = build(
        "lstm", loaded.model.token_classes, 3, output="all", tokens=True, hidden_size=3, bidirectional=True
    )
    with pytest.raises(
        ArgumentError, match="Expected a network of one direction to generate text, but got a bidirectional"
    ):
        next(loaded.generate("ab"))


def test_the_weights_of_the_best_validation_are_used(tmp_path):
    base = config(task=Adding(T=6, validation_size=50, test_size=5), steps=12)
    result = train(dataclasses.replace(base, validate_every=3, optimizer=OptimizerConfig(lr=0.5)), tmp_path)
    best = int(result.best["step"])
    assert best < 12, "this test needs a run whose best weights are not its last"
    weights = [orthornn.load(tmp_path, which).model.head.weight for which in ("chosen", "best", "last", str(best))]
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[3])
    assert not torch.equal(weights[0], weights[2])
    shutil.rmtree(Checkpoints(tmp_path / "checkpoints").path(best))
    with pytest.warns(OrthornnWarning, match="so the last ones are used"):
        assert torch.equal(orthornn.load(tmp_path).model.head.weight, weights[2])


def _rows(path, header, rows, separator=","):
    path.write_text("\n".join(separator.join(map(str, row)) for row in [header, *rows]) + "\n")
    return path


WORDS = ("--steps", "2", "--threads", "1", "--recipe", "none", "--model", "ornn", "--hidden-size", "4")


def test_points_are_marks_of_thousands_in_new_files_of_a_column_with_decimal_commas(tmp_path, monkeypatch, capsys):
    """A file of 1.500, 900 was read as 1.5 and 900, a thousand times too small, without a word."""
    monkeypatch.chdir(tmp_path)
    prices = [900, 1500, 2500, 12, 1001]
    full = [(s, f"{p + s:,.2f}".translate(str.maketrans(",.", ".,")), p % 2) for s in range(20) for p in prices]
    head = ("sequence", "price", "y")
    _rows(tmp_path / "train.csv", head, full, ";")
    short = [(s, price.removesuffix(",00"), y) for s, price, y in full]
    assert {price for _, price, _ in short} >= {"1.500", "900"}
    _rows(tmp_path / "new.csv", head, short, ";")
    words = ["train", "train.csv", "--target", "y", "--every-step", "--sequence", "sequence", *WORDS]
    assert main([*words, "--out", "run"]) == 0
    loaded = orthornn.load("run")
    same = zip(loaded.tables.predict("train.csv"), loaded.tables.predict("new.csv"))
    for (_, wanted), (_, found) in same:
        np.testing.assert_array_equal(found.scores, wanted.scores)
    _rows(tmp_path / "odd.csv", head, [(s, f"1,{234 + s}", 0) for s in range(3)], ";")
    np.testing.assert_allclose(loaded.read_table("odd.csv").columns["price"], [1.234, 1.235, 1.236])
    _rows(tmp_path / "commas.csv", head, [(s, f'"1.{500 + s}"', 0) for s in range(3)])
    np.testing.assert_array_equal(loaded.read_table("commas.csv").columns["price"], [1500, 1501, 1502])
    capsys.readouterr()
    assert main([*words, "--test-data", "new.csv", "--out", "other"]) == 0
    assert "price" in capsys.readouterr().out
    task = orthornn.load("other").config.task
    np.testing.assert_array_equal(
        np.sort(task.table().source.table.columns["price"])[::2],
        np.sort(read_table(loaded.config.task, loaded.description, "train.csv").columns["price"]),
    )


def test_names_in_another_spelling_are_the_learned_ones(tmp_path, monkeypatch):
    """Without its one text, a column of codes was one of numbers: its 1.0 was 1, which the network had not learned."""
    monkeypatch.chdir(tmp_path)
    codes = ["1.0", "2.0", "other"]
    rows = [(s, round(s * 0.1 + t, 1), codes[s % 3], codes[s % 3]) for s in range(30) for t in range(4)]
    head = ("sequence", "x", "code", "y")
    _rows(tmp_path / "all.csv", head, rows)
    _rows(tmp_path / "some.csv", head, [row for row in rows if row[2] != "other"])
    assert main(["train", "all.csv", "--target", "y", "--categories", "code", *WORDS, "--out", "run"]) == 0
    loaded = orthornn.load("run")
    assert loaded.labels == codes
    every = {one.name: said.scores for one, said in loaded.tables.predict("all.csv")}
    for one, said in loaded.tables.predict("some.csv"):
        np.testing.assert_allclose(said.scores, every[one.name], rtol=1e-6)
    assert loaded.tables.evaluate("some.csv")["accuracy"] >= 0  # its classes are known
    words = ["train", "all.csv", "--target", "y", "--categories", "code", *WORDS, "--test-data", "some.csv"]
    assert main([*words, "--out", "other"]) == 0
    assert orthornn.load("other").labels == codes


def test_missing_targets_are_of_their_own_column_and_what_is_left_out_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [(t, 0.1 * t % 3, "" if t % 10 else t % 7) for t in range(200)]
    _rows(tmp_path / "two.csv", ("x", "a", "b"), rows)
    words = ["train", "two.csv", "--target", "a,b", "--every-step", *WORDS]
    assert main([*words, "--missing", "b=hold", "--out", "run"]) == 0
    assert "180 row(s) have some of the targets only" in capsys.readouterr().out
    assert main([*words, "--missing", "a=hold", "--out", "no"]) == 2
    assert "Expected finite numbers in two.csv, column(s) a,b" in capsys.readouterr().err
    last = [(s, t, s + 0.5 if s % 2 or not t else "") for s in range(40) for t in range(3)]
    _rows(tmp_path / "last.csv", ("sequence", "x", "y"), last)
    assert main(["train", "last.csv", "--target", "y", "--missing", "y=hold", *WORDS, "--out", "ends"]) == 0
    assert "20 have no target in their last row, and are left out" in capsys.readouterr().out


def test_former_names_work_with_a_warning(tmp_path):
    file = tmp_path / "made.csv"
    file.write_text("id,x,y\n" + "".join(f"{s},{s % 2 + t / 9},{'ab'[s % 2]}\n" for s in range(12) for t in range(3)))
    options = {"sequence": "id", "steps": 2, "hidden_size": 4, "out": tmp_path / "run"}
    with contextlib.redirect_stdout(io.StringIO()):
        loaded = orthornn.train(file, "y", **options)
    with pytest.warns(DeprecationWarning, match=r"Loaded\.predict_table is a former name\. Call tables\.predict\."):
        before = loaded.predict_table(file)
    assert [one.name for one, _ in before] == [one.name for one, _ in loaded.tables.predict(file)]
    with pytest.warns(DeprecationWarning, match=r"Call tables\.evaluate\."):
        assert loaded.evaluate_table(file) == loaded.tables.evaluate(file)
    for name in ("forecasts", "anomalies"):
        with pytest.warns(DeprecationWarning, match=rf"Call tables\.{name}"), pytest.raises(ArgumentError):
            getattr(loaded, name)(file)


@pytest.mark.parametrize(
    "option", ["--separator=;", "--decimal=,", "--na=x", "--default-na=empty", "--encoding=latin-1"]
)
def test_marks_of_text_are_refused_for_other_files(option, tmp_path, monkeypatch, capsys):
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    frame = pandas.DataFrame(
        {"id": np.repeat(np.arange(12), 3), "x": np.arange(36.0), "y": np.repeat(["a", "b"] * 6, 3)}
    )
    frame.to_csv("made.csv", index=False)
    frame.to_parquet("made.parquet")
    assert main(["train", "made.csv", "--target", "y", "--sequence", "id", *"--steps 2 --out run".split()]) == 0  # noqa: SIM905
    for command in ("predict", "evaluate"):
        assert main([command, "run", "made.parquet", option]) == 2
        error = capsys.readouterr().err
        assert f"Expected {option.partition('=')[0]} only for a text file, but got made.parquet. Leave it out" in error
    assert main(["predict", "run", "made.csv", "--na=x"]) == 0
