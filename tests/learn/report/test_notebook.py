"""Progress, tables and results in a notebook."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree

import pytest

from orthornn.learn.report import Column, Table, notebook
from orthornn.learn.report.notebook import Html
from orthornn.learn.report.progress import ProgressLines
from orthornn.learn.training import Progress, train
from support.run_cases import config


class _Handle:
    def __init__(self, shown):
        self.shown = shown

    def update(self, content):
        self.shown.append(content)


@pytest.fixture
def cell(monkeypatch):
    """The output of a cell of a notebook: the contents that it showed, in order."""
    display = pytest.importorskip("IPython.display")
    shown = []

    def show(content, display_id=False):
        shown.append(content)
        return _Handle(shown)

    monkeypatch.setattr(display, "display", show)
    monkeypatch.setattr("IPython.get_ipython", lambda: type("Shell", (), {"kernel": object()})())
    return shown


def progress(step):
    return Progress(step=step, steps=10, loss=0.5, seconds=2.0, update_seconds=1.0, validation={"loss": 0.25})


def test_progress_is_one_bar_that_ends_where_the_run_ends(cell, capsys):
    assert notebook.in_notebook()
    with ProgressLines(trivial_loss=2.0) as display:
        for step in range(1, 11):
            display({"<lstm>": progress(step)})
    assert len(cell) == 2  # the first, and the last: what comes sooner than half a second is not drawn
    last = cell[-1]
    assert isinstance(last, Html)
    bars = xml.etree.ElementTree.fromstring(last._repr_html_().replace("&nbsp;", " "))
    assert bars.find("progress").attrib == {"value": "10", "max": "10"}
    assert "&lt;lstm&gt;" in last
    assert "0.250 x baseline" in repr(last)
    assert "validation loss 0.25" in repr(last)
    assert capsys.readouterr().out == ""


def test_tables_are_shown_as_html(cell, capsys):
    table = Table("<title>", [Column("name", left=True), Column("loss")], [["<a>", "0.5"]], ["note & so on"])
    table.show()
    assert cell == [table]
    assert capsys.readouterr().out == ""
    tree = xml.etree.ElementTree.fromstring(table._repr_html_())
    assert [cell.text for cell in tree.iter("td")] == ["<a>", "0.5"]
    assert tree.find("table/caption").text == "<title>"
    assert repr(table) == table.plain()
    file = io.StringIO()
    table.show(file)
    assert file.getvalue() == table.plain() + "\n"


def test_outside_a_notebook_nothing_changes(capsys):
    assert not notebook.in_notebook()
    Table("title", [Column("a")], [["1"]]).show()
    assert "title" in capsys.readouterr().out


def test_results_and_runs(tmp_path):
    from orthornn.learn.report.runs import read_run

    result = train(config("ornn", steps=3), tmp_path / "run")
    for shown in (result._repr_html_(), read_run(tmp_path / "run")._repr_html_()):
        cells = [re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<td.*?</td>", shown)]
        assert f"{result.test['loss']:.4g}" in cells
        xml.etree.ElementTree.fromstring(shown)


@pytest.mark.slow
def test_a_notebook_shows_progress_and_tables(tmp_path):
    """In a kernel of its own, as Jupyter runs it."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    code = (
        "import numpy as np, pandas, orthornn\n"
        "frame = pandas.DataFrame({'who': np.repeat(np.arange(20), 5), 'x': np.arange(100) % 7.5,\n"
        "                          'kind': np.repeat(['a', 'b'] * 10, 5)})\n"
        "orthornn.train(frame, 'kind', sequence='who', model='lstm', hidden_size=4, steps=20, out='run')"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    client = nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}}, timeout=600)
    (cell,) = client.execute().cells
    pages = [output["data"]["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]
    assert any('<progress value="20" max="20">' in page for page in pages)
    assert any("test accuracy" in page for page in pages)
    assert "PeepholeLSTM" in pages[-1] or "LSTM" in pages[-1]
    assert all(output["output_type"] != "error" for output in cell.outputs)
