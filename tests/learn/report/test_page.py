"""The report: what it says, and that a browser shows it without a network."""

from __future__ import annotations

import base64
import dataclasses
import html
import json
import math
import re
import shutil
import subprocess
import xml.etree.ElementTree

import numpy as np
import pytest

from orthornn.cli import main
from orthornn.errors import ArgumentError, NonFiniteError, OrthornnWarning
from orthornn.learn.report import pictures
from orthornn.learn.report.figures import canvas
from orthornn.learn.report.page import page, write_report
from orthornn.learn.report.runs import by_data, differing, groups, read_runs
from orthornn.learn.report.significance import mean_and_spread, p_value, verdicts
from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Classify, Forecast
from orthornn.learn.training import Run, RunConfig, ScheduleConfig, train
from orthornn.saved.diverged import write_diverged
from support.run_cases import EPOCHS, config

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two models with two seeds each, another task, and a run that was stopped."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("ornn", "lstm"):
        for seed in (0, 1):
            train(config(name, seed=seed, steps=20, log_every=5), folder / f"{name}-{seed}")
    train(config("gru", task=EPOCHS, steps=12, log_every=3), folder / "other task" / "<gru> & co")
    stopped = Run(config("ornn", seed=2, steps=20, log_every=5), folder / "stopped")
    stopped.advance_to(7)
    stopped.checkpoint()
    stopped.close()
    return folder


def test_runs_are_found_and_grouped(runs):
    found = read_runs([runs])
    assert [run.path.name for run in found] == ["lstm-0", "lstm-1", "ornn-0", "ornn-1", "<gru> & co", "stopped"]
    same_task = [run for run in found if run.config.task.name == "copying"]
    assert {name: len(own) for name, own in groups(same_task).items()} == {"lstm": 2, "ornn": 3}
    assert set(differing(same_task)) == {"model.name", "seed"}
    assert differing(found[:1]) == {}
    with pytest.raises(ArgumentError, match="holds no run"):
        read_runs([runs / "lstm-0" / "checkpoints"])
    with pytest.warns(OrthornnWarning, match=r"checkpoints is left out: it holds no run\.$"):
        assert [run.path.name for run in read_runs([runs / "lstm-0" / "checkpoints", runs / "lstm-1"])] == ["lstm-1"]
    with pytest.raises(ArgumentError, match=r"lstm-11 holds no run"):
        read_runs([runs / "lstm-11", runs / "lstm-1"])


def test_runs_that_were_thrown_away_are_left_out(runs, tmp_path):
    for name, place in (("lstm-0", tmp_path), ("lstm-1", tmp_path / ".Trash-1000" / "files")):
        shutil.copytree(runs / name, place / name)
    with pytest.warns(OrthornnWarning, match=r"a run is left out: .*lstm-1 is hidden.*Name it to read it"):
        assert [run.path.name for run in read_runs([tmp_path])] == ["lstm-0"]
    assert [run.path.name for run in read_runs([tmp_path / ".Trash-1000"])] == ["lstm-1"]


def test_the_page_holds_everything_and_asks_for_nothing(runs, tmp_path):
    written = write_report(read_runs([runs]), tmp_path / "report.html", ["svg", "pdf"])
    text = (tmp_path / "report.html").read_text()
    for words in ("ornn-0", "lstm-1", "5 of 20, not finished", "model.name", html.escape("<gru> & co"), "±"):
        assert words in text
    assert "<gru>" not in text
    assert not re.findall(r"(?:src|href)=[\"'](?!data:|#)", text)
    assert "http" not in re.sub(r"base64,[\w+/=]+", "", text)
    for title in ("training loss", "validation recall", "eigenvalues", "gradient norms"):
        assert f'alt="copying: {title}"' in text
    for suffix, magic in (("svg", b"<?xml"), ("pdf", b"%PDF")):
        files = [path for path in written if path.suffix == f".{suffix}"]
        assert len(files) == text.count("<figure>")
        assert all(path.read_bytes().startswith(magic) for path in files)


def test_a_run_that_diverged_is_not_said_to_be_unfinished(runs, tmp_path):
    shutil.copytree(runs / "stopped", tmp_path / "lost")
    write_diverged(tmp_path / "lost", 3, 1.0, NonFiniteError("too large"))
    (found,) = read_runs([tmp_path])
    for text in (page([found], {}), found._repr_html_()):
        assert "3 of 20, diverged" in text
        assert "not finished" not in text


def test_warnings_and_unfinished_runs_are_said(runs):
    found = read_runs([runs / "stopped"])
    warned = {"kind": "warning", "step": 5, "text": "after update 5, something"}
    found[0].records.append(warned)
    text = page(found, {})
    assert "stopped, after update 5, something" in text
    assert "Differences" not in text  # there is one run
    again = page([*found, *found], {})
    assert "The runs have the same configuration." in again


def test_what_is_wide_scrolls_by_itself_and_figures_shrink(runs):
    """Tables are in a box that scrolls; a figure is as wide as its place. test_a_phone_and_dark_mode measures both."""
    text = page(read_runs([runs]), {"copying: training loss": "<svg/>"})
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    assert text.count("<table") == text.count('<div class="wide"><table') > 3
    assert ".wide { overflow-x: auto; }" in style
    of_images = "".join(re.findall(r"figure img \{([^}]*)\}", style))
    assert "max-width: 100%; height: auto;" in of_images
    assert "min-width" not in of_images
    assert "overflow" not in re.search(r"^figure \{([^}]*)\}", style, re.MULTILINE)[1]


def test_the_test_is_next_to_the_validation_that_chose_it(runs):
    text = page(read_runs([runs / "lstm-0", runs / "ornn-1"]), {})
    heads = re.findall(r'<th scope="col">(.*?)</th>', re.search(r'<table class="sortable">.*?</thead>', text)[0])
    assert heads[3:6] == ["best validation", "test recall", "test loss"]


def test_headings_name_what_differs_among_runs_of_a_model_and_nothing_that_others_lack(runs):
    found = read_runs([runs / "lstm-0", runs / "ornn-0", runs / "ornn-1"])
    own = dataclasses.replace(found[0].config.model, forget_bias=1.0)
    found[0] = dataclasses.replace(found[0], config=dataclasses.replace(found[0].config, model=own))
    assert list(groups(found)) == ["lstm", "ornn"]
    assert set(differing(found)) > {"model.name", "model.forget_bias"}
    other = dataclasses.replace(found[2].config, patience=3, schedule=ScheduleConfig("step"))
    found[2] = dataclasses.replace(found[2], config=other)
    assert list(groups(found)) == [
        "lstm schedule=constant no patience",
        "ornn schedule=constant no patience",
        "ornn schedule=step patience=3",
    ]
    assert "=None" not in page(found, {})


@pytest.fixture(scope="module")
def of_a_table(tmp_path_factory):
    """Two runs on a file with a column that no network sees."""
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("table")
    rows = [f"{k // 5},{k % 7},{'ab'[k // 5 % 2]},note" for k in range(200)]
    (folder / "a.csv").write_text("\n".join(["id,x,y,text", *rows]))
    for seed in (0, 1):
        task = Classify(data=str(folder / "a.csv"), target="y", sequence="id")
        own = RunConfig(task=task, model=model_named("gru", hidden_size=3), steps=1, batch_size=4, seed=seed)
        with pytest.warns(OrthornnWarning, match="does not see text"):
            train(own, folder / "runs" / str(seed))
    return folder


def test_plain_baselines_and_the_verdict_are_on_the_page(of_a_table, tmp_path, capsys):
    """Nothing is warned of that training said before."""
    words = ["report", str(of_a_table / "runs"), "--out", str(tmp_path / "report.html")]
    assert main(words) == 0
    assert capsys.readouterr() == (f"{tmp_path / 'report.html'}\n", "")
    text = (tmp_path / "report.html").read_text()
    verdict = re.search(r"<p><strong>(.*?)</strong></p>", text)[1]
    assert re.match("A plain baseline is better: |Undecided: |[01] is at least as good as the best plain", verdict)
    assert text.index(verdict) < text.index('<table class="sortable">')
    table = text[text.index("<h3>plain baselines, on the same parts</h3>") :]
    for words in (
        "validation accuracy",
        "logistic regression on summary features",
        "gradient boosting on summary features",
    ):
        assert words in table


def test_a_report_says_why_there_are_no_baselines(of_a_table, tmp_path, capsys):
    runs = tmp_path / "runs"
    shutil.copytree(of_a_table / "runs", runs)
    content = (of_a_table / "a.csv").read_text()
    (of_a_table / "a.csv").write_text(content + "\n99,1,a,note")
    try:
        assert main(["report", str(runs), "--out", str(tmp_path / "report.html")]) == 0
    finally:
        (of_a_table / "a.csv").write_text(content)
    text = (tmp_path / "report.html").read_text()
    assert "classify: plain baselines are left out: " in text
    assert "<strong>" not in text


def test_different_data_are_never_in_one_table(runs, tmp_path):
    """Runs of one task with another length, another file under the same name, and another split."""
    found = read_runs([runs / "lstm-0", runs / "lstm-1", runs / "ornn-0"])
    longer = dataclasses.replace(found[0].config, task=dataclasses.replace(found[0].config.task, T=4))
    other = dataclasses.replace(found[0], config=longer, path=tmp_path / "longer")
    assert {name: len(own) for name, own in by_data([*found, other]).items()} == {"copying, T=3": 3, "copying, T=4": 1}
    text = page([*found, other], {})
    assert text.count('<table class="sortable">') == 2 + 2  # results, what differs, what they ran on
    for offset in (0.0, 1.0):
        np.savez(tmp_path / "a.npz", x=np.arange(300.0) % 7 + offset * np.arange(300), label=np.arange(300) % 2)
        task = Forecast(data=str(tmp_path / "a.npz"), target="x", window=20, skipped=2)
        train(config("lstm", task=task, steps=2, batch_size=4), tmp_path / "runs" / f"{offset}")
    assert list(by_data(read_runs([tmp_path / "runs"]))) == ["forecast", "forecast (data set 2)"]
    assert list(by_data(found)) == ["copying"]


def test_figures_of_the_best_validation_are_shown(runs):
    found = read_runs([runs / "lstm-0"])
    result = {**found[0].result, "best": {"recall": 0.123, "loss": 1.0}, "best_test": {"loss": 0.456, "recall": 0.789}}
    text = page([dataclasses.replace(found[0], result=result)], {})
    for number in ("0.123", "0.456", "0.789"):
        assert f'data-value="{number}"' in text
    untested = {**found[0].result, "best_test": {}}  # the weights of the best validation were gone
    loss = untested["test"]["loss"]
    assert f'data-value="{loss!r}"' in page([dataclasses.replace(found[0], result=untested)], {})


def test_dollars_and_control_characters_in_options(runs, tmp_path):
    """Between two dollar signs matplotlib reads mathematics, and stops at what is none."""
    found = read_runs([runs / "lstm-0", runs / "ornn-0"])
    for place, run in enumerate(found):
        task = Classify(data="none.csv", target="y", class_weights=f"$\\frac{{{place}$ \x07<&")
        found[place] = dataclasses.replace(run, config=dataclasses.replace(run.config, task=task), result=None)
    write_report(found, tmp_path / "report.html", ["png"])
    svg = re.findall(r"base64,([\w+/=]+)", (tmp_path / "report.html").read_text())
    texts = [xml.etree.ElementTree.fromstring(base64.b64decode(one)) for one in svg]
    words = {"".join(text.itertext()).strip() for one in texts for text in one.iter("{http://www.w3.org/2000/svg}text")}
    assert any("class_weights=$\\frac{1$" in word for word in words)


def test_a_report_that_cannot_be_written_leaves_the_earlier_one(runs, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("earlier")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_report(read_runs([runs / "lstm-0"]), path)
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_figures_whose_long_names_begin_alike_are_all_written(runs, tmp_path, monkeypatch):
    titles = [f"{'long' * 60}: {kind}" for kind in ("loss", "accuracy", "spectra")]
    monkeypatch.setattr(
        "orthornn.learn.report.page.draw", lambda runs: ({title: canvas((2, 2)) for title in titles}, [])
    )
    written = write_report(read_runs([runs / "lstm-0"]), tmp_path / "report.html", ["svg"])
    assert len({path.name for path in written}) == 4
    assert all(path.exists() for path in written)


def test_p_values_are_exact():
    assert p_value([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252)
    assert p_value([1, 2, 3], [4, 5, 6]) == pytest.approx(2 / 20)
    assert p_value([1.0, 1.0], [1.0, 1.0]) == 1
    assert p_value([1, 2], [1.5, 9, 3]) == pytest.approx(p_value([1.5, 9, 3], [1, 2]))
    many = p_value([0.1 * k for k in range(30)], [0.1 * k + 9 for k in range(30)])
    assert many == pytest.approx(1 / 20001)


def test_verdicts_say_what_can_be_said():
    clear = {
        "lstm": [1.0, 1.1, 1.2, 1.05, 1.15],
        "ornn": [2.0, 2.1, 2.2, 2.05, 2.15],
        "rnn": [1.0, 1.2, 1.1, 1.16, 1.06],
    }
    better, same = verdicts(clear, False, "test loss")
    assert better.startswith("lstm is better than ornn: test loss 1.1 ± 0.079 against 2.1 ± 0.079, p = 0.016")
    assert same.startswith("lstm and rnn cannot be told apart")
    assert verdicts(clear, True, "recall")[0].startswith("ornn is better than lstm")
    (few,) = verdicts({"a": [1.0, 2.0, 3.0], "b": [7.0, 8.0, 9.0]}, True, "recall")
    assert "3 and 3 seeds are too few to show any difference" in few
    assert "one seed each" in verdicts({"a": [1.0], "b": [2.0]}, True, "recall")[0]
    (fewer,) = verdicts({"a": [1.0], "b": [2.0, 3.0, 4.0, 5.0]}, True, "recall")  # of the others a run diverged
    assert fewer.startswith("b and a: recall 3.5")
    assert fewer.endswith("4 and 1 seeds are too few to show any difference.")
    assert verdicts({"a": [1.0, 2.0]}, True, "recall") == []
    assert mean_and_spread([2.0]) == "2"


def test_verdicts_by_validation():
    test = {"a": [1.0, 1.1, 1.2, 1.05, 1.15], "b": [2.0, 2.1, 2.2, 2.05, 2.15], "c": [1.02, 1.1, 1.2, 1.05, 1.1]}
    validation = {"a": [3.0] * 5, "b": [1.0] * 5, "c": [2.0] * 5}
    for line, other in zip(verdicts(test, False, "test loss", validation), ("a", "c")):
        assert line.startswith(f"b has the better validation, but is worse than {other}: test loss 2.1 ± 0.079 against")
    assert verdicts(test, True, "score", {**validation, "b": [9.0] * 5})[0].startswith("b is better than a")
    # a task without validation data has nothing else to choose by
    assert verdicts(test, True, "score")[0].startswith("b is better than a")
    (one_seed,) = verdicts({"a": [1.0], "b": [2.0]}, False, "loss", {"a": [2.0], "b": [1.0]})
    assert one_seed.startswith("b has the best validation")


PROBE = """
<script>
const said = {errors: [], resources: performance.getEntriesByType("resource").map(r => r.name)};
window.addEventListener("error", e => said.errors.push(String(e.message)));
const table = document.querySelector("table.sortable");
const column = () => [...table.tBodies[0].rows].map(r => r.cells[5].dataset.value ?? r.cells[5].textContent);
said.before = column();
const button = table.tHead.rows[0].cells[5].querySelector("button");
button.click(); said.up = column(); button.click(); said.down = column();
said.sort = table.tHead.rows[0].cells[5].getAttribute("aria-sort");
said.images = [...document.images].map(i => [i.alt, i.complete, i.naturalWidth, i.getBoundingClientRect().width]);
said.width = [document.documentElement.scrollWidth, window.innerWidth];
window.addEventListener("load", () => {
  said.images = [...document.images].map(i => [i.alt, i.complete, i.naturalWidth, i.getBoundingClientRect().width]);
  const pre = document.createElement("pre"); pre.id = "probe"; pre.textContent = JSON.stringify(said);
  document.body.append(pre);
});
</script>
"""

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update",
    "--disable-background-networking", "--disable-sync", "--window-size=1200,2400", "--virtual-time-budget=5000",
    "--proxy-server=127.0.0.1:1", "--allow-file-access-from-files",
]  # fmt: skip


WIDTHS = """
<script>
window.addEventListener("load", () => {
  const image = document.images[0], style = getComputedStyle(document.body);
  const parts = [...document.querySelectorAll("figure, body > *:not(.wide)")];
  const outside = parts.filter(part => part.scrollWidth > part.clientWidth + 1);
  const said = [document.documentElement.scrollWidth, innerWidth, style.backgroundColor, style.color,
                getComputedStyle(image).filter, outside.map(e => e.outerHTML.slice(0, 99)),
                Math.max(...[...document.images].map(i => i.getBoundingClientRect().right))];
  const pre = document.createElement("pre"); pre.id = "probe"; pre.textContent = JSON.stringify(said);
  document.body.append(pre);
});
</script>
"""


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_and_dark_mode(runs, tmp_path, dark):
    """In a frame of 390 px: headless windows are not narrower than 500. Nothing but tables scrolls."""
    assert CHROMIUM, "no chromium on this machine: apt-get install chromium"
    write_report(read_runs([runs]), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text().replace("</body>", f"{WIDTHS}</body>")
    (tmp_path / "probed.html").write_text(text)
    (tmp_path / "phone.html").write_text(
        '<!doctype html><meta name="color-scheme" content="light dark"><body style="margin:0">'
        '<iframe src="probed.html" style="width:390px;height:800px;border:0"></iframe><script>'
        'onload = () => { const said = frames[0].document.getElementById("probe").textContent;'
        'const pre = document.createElement("pre"); pre.id = "said"; pre.textContent = said; document.body.append(pre); }'
        "</script>"
    )
    words = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}"]
    words += ["--blink-settings=preferredColorScheme=0"] if dark else []
    shown = subprocess.run(
        [*words, "--dump-dom", (tmp_path / "phone.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    said = json.loads(html.unescape(re.search(r'<pre id="said">(.*?)</pre>', shown.stdout, re.DOTALL)[1]))
    wide, window, background, color, shade, outside, right = said
    assert window == 390
    assert wide <= 390
    assert outside == []
    assert right <= 390
    luminance = [sum(map(int, re.findall(r"\d+", value)[:3])) for value in (background, color)]
    assert (luminance[0] < luminance[1]) == dark
    assert ("invert" in shade) == dark


TABLES = """
<script>
window.addEventListener("load", () => {
  const said = [...document.querySelectorAll("table.sortable")].map(
    table => [table.tHead.rows[0].cells[0].textContent, table.parentElement.clientWidth, table.parentElement.scrollWidth]);
  const pre = document.createElement("pre"); pre.id = "probe"; pre.textContent = JSON.stringify(said);
  document.body.append(pre);
});
</script>
"""


@pytest.mark.browser
def test_the_results_are_whole_on_a_small_screen(runs, tmp_path):
    """In a window of 1300 px no column of the runs is cut, nor one of the machines."""
    assert CHROMIUM, "no chromium on this machine: apt-get install chromium"
    write_report(read_runs([runs / "lstm-0", runs / "ornn-1"]), tmp_path / "report.html")
    probed = tmp_path / "probed.html"
    probed.write_text((tmp_path / "report.html").read_text().replace("</body>", f"{TABLES}</body>"))
    flags = [flag for flag in FLAGS if not flag.startswith("--window-size")] + ["--window-size=1300,900"]
    words = [CHROMIUM, *flags, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", probed.as_uri()]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=600, check=True)
    tables = json.loads(html.unescape(re.search(r'<pre id="probe">(.*?)</pre>', shown.stdout, re.DOTALL)[1]))
    assert tables[0][0] == "run"
    assert tables[0][1] > 1000
    assert tables[0][2] <= tables[0][1]


@pytest.mark.browser
def test_a_browser_shows_it_without_a_network(runs, tmp_path):
    """The proxy is a closed port: whatever the page asked for would fail."""
    assert CHROMIUM, "no chromium on this machine: apt-get install chromium"
    write_report(read_runs([runs]), tmp_path / "report.html")
    probed = tmp_path / "probed.html"
    probed.write_text((tmp_path / "report.html").read_text().replace("</body>", f"{PROBE}</body>"))
    words = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}"]
    shown = subprocess.run(
        [*words, "--dump-dom", probed.as_uri()], capture_output=True, text=True, timeout=600, check=True
    )
    said = json.loads(html.unescape(re.search(r'<pre id="probe">(.*?)</pre>', shown.stdout, re.DOTALL)[1]))
    assert said["errors"] == []
    assert all(name.startswith("data:") for name in said["resources"])
    numbers = [float(value) for value in said["before"] if value]
    assert len(numbers) == 4
    assert [float(value) for value in said["up"][:4]] == sorted(numbers)
    assert [float(value) for value in said["down"][:4]] == sorted(numbers, reverse=True)
    assert said["up"][4:] == said["down"][4:] == [""]  # the unfinished run stays last
    assert said["sort"] == "descending"
    assert len(said["images"]) >= 7
    assert all(complete and natural > 100 and width > 100 for _, complete, natural, width in said["images"])
    assert said["width"][0] <= said["width"][1]  # nothing sticks out
    picture = tmp_path / "report.png"
    subprocess.run([*words, f"--screenshot={picture}", (tmp_path / "report.html").as_uri()], timeout=600, check=True)
    assert picture.stat().st_size > 50_000
    print(f"{len(said['images'])} images, table sorted both ways, no request; screenshot: {picture}")


def test_dataclasses_stay_frozen(runs):
    with pytest.raises(dataclasses.FrozenInstanceError):
        read_runs([runs])[0].path = None


def test_runs_on_one_frame_are_one_set_of_data_and_differ_only_in_their_seed(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"id": [k // 5 for k in range(60)], "x": [k % 7 for k in range(60)], "y": [k % 2 for k in range(60)]}
    )
    other = frame.assign(x=frame["x"] * 2)
    for seed, data in ((0, frame), (1, frame), (2, other)):
        task = Classify(data=data, target="y", sequence="id", every_step=True)
        own = RunConfig(task=task, model=model_named("gru", hidden_size=3), steps=1, batch_size=4, seed=seed)
        train(own, tmp_path / str(seed))
    found = read_runs([tmp_path])
    assert sorted(map(len, by_data(found).values())) == [1, 2]
    both = [run for run in found if run.config.seed < 2]
    assert list(differing(both)) == ["seed"]
    assert [len(own) for own in groups(both).values()] == [2]


def test_numbers_that_are_not_finite_or_tiny():
    assert p_value([1.0, 2.0, math.nan], [4.0, 5.0, 6.0]) == 1.0
    assert mean_and_spread([1.0, math.inf]).endswith("± nan")
    tiny = [k * 1e-13 for k in (1, 2, 3, 4, 5)], [k * 1e-13 for k in (11, 12, 13, 14, 15)]
    assert p_value(*tiny) == p_value(*([1e13 * value for value in group] for group in tiny)) < 0.05


def test_copies_of_one_seed_are_one_run(tmp_path):
    """Four copies of one run counted as four seeds, and p was 0.03."""
    made = {seed: tmp_path / f"run{seed}" for seed in (0, 1)}
    for seed, folder in made.items():
        train(dataclasses.replace(config("lstm", steps=2), seed=seed), folder)
    shutil.copytree(made[0], tmp_path / "copy")
    with pytest.warns(OrthornnWarning, match=r"1 run\(s\) of a seed that another run has"):
        (own,) = groups(read_runs([tmp_path])).values()
    assert sorted(run.config.seed for run in own) == [0, 1]


def test_what_does_not_change_the_training_makes_no_other_group(tmp_path):
    made = config("lstm", steps=2)
    other = dataclasses.replace(made, seed=1, keep_checkpoints=1, checkpoint_every=1, log_every=1)
    for seed, own in enumerate((made, other)):
        train(own, tmp_path / str(seed))
    assert [len(own) for own in groups(read_runs([tmp_path])).values()] == [2]


def test_a_figure_that_fails_does_not_cost_the_page(runs, tmp_path, monkeypatch):
    def broken(*arguments):
        raise RuntimeError("latex was not able to process <it>")

    monkeypatch.setattr(pictures, "eigenvalues", broken)
    monkeypatch.setattr(pictures, "recorded_spectra", lambda groups: "no figure")
    monkeypatch.setattr("orthornn.learn.report.page.prediction_figures", broken)
    written = write_report(read_runs([runs / "ornn-0"]), tmp_path / "report.html", ["png"])
    text = (tmp_path / "report.html").read_text()
    assert "copying: eigenvalues: not drawn: RuntimeError: latex was not able to process &lt;it&gt;" in text
    assert "copying: predictions: not drawn: RuntimeError" in text
    assert "copying: singular values during training: not drawn: AttributeError" in text
    assert text.count("<figure>") == len(written) - 1 == 3
    assert all(path.exists() for path in written)


def test_headings_tell_tasks_apart_in_words(tmp_path):
    """A heading read `classify, categories=None`."""
    lines = [f"{i // 3},{i % 7},{'rb'[i % 2]},{'uv'[i // 3 % 2]}" for i in range(60)]
    (tmp_path / "t.csv").write_text("id,x,color,label\n" + "\n".join(lines) + "\n")
    for name, options in (("plain", {}), ("words", {"categories": "color"})):
        task = Classify(
            data=str(tmp_path / "t.csv"),
            target="label",
            sequence="id",
            inputs="x,color"[: 1 + 6 * len(options)],
            **options,
        )
        train(RunConfig(task=task, model=model_named("gru", hidden_size=3), steps=1, batch_size=4), tmp_path / name)
    found = by_data(read_runs([tmp_path]))
    assert list(found) == ["classify, inputs=x, no categories", "classify, inputs=x,color, categories=color"]
