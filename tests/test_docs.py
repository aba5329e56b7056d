"""The documentation: its examples run and learn, its links lead somewhere, and every public name is in the reference."""

from __future__ import annotations

import doctest
import functools
import importlib.util
import inspect
import math
import re
import runpy
import shlex
import sys
import types
from pathlib import Path

import pytest
import torch

import orthornn
from orthornn import cli
from orthornn.learn.entry_points import COMMANDS as OF_COMMANDS
from orthornn.learn.entry_points import EVIDENCE
from orthornn.learn.entry_points import TASKS as OF_TASKS
from orthornn.learn.predict import _FORMER as FORMER
from orthornn.learn.tasks import TASKS
from orthornn.learn.tasks.abilities import baselines

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts and not page.name.endswith(".in.md"))
INCLUDED = sorted(Path(orthornn.__file__).parent.rglob("*.md"))  # shown by {include}
HOW_TO = DOCS / "how_to"
REFERENCE = DOCS / "reference"
FORECASTS, CLASSIFY_CSV = ((HOW_TO / name).read_text(encoding="utf-8") for name in ("forecasts.md", "classify_csv.md"))
PREDICTIONS = (HOW_TO / "predictions.md").read_text(encoding="utf-8")


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def named(page: Path) -> str:
    return str(page.relative_to(DOCS))


EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=named)


def run(code):
    names = {}
    exec(code, names)
    return names


def short(command):
    """The command with three updates."""
    return re.sub(r"--steps \d+", "--steps 3", command)


def test_a_forecast_from_csv(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,), (command,) = blocks(FORECASTS, "python"), blocks(FORECASTS, "sh")
    (new_data,) = blocks(PREDICTIONS, "sh")
    network = run(code)["network"]
    losses = baselines(network.config.task)
    assert network.result.test["loss"] < 0.5 * losses["persistence"]
    assert cli.main([*shlex.split(short(command))[1:], "--out", "run"]) == 0
    out = capsys.readouterr().out
    for line in new_data.splitlines():
        words = line.replace("runs/NAME", "run").replace("new.csv", "sine.csv")
        assert cli.main(shlex.split(words)[1:]) == 0
    assert "so the task is forecast" in out
    period = int(re.search(r"value has a period of (\d+) steps, so --skipped", out)[1])
    assert period == pytest.approx(14 * math.pi, abs=2)
    assert set(losses) == {
        "mean of the training targets",
        "persistence",
        f"linear autoregression of order {period + 1}",
    }
    assert all(f"test loss of {name}" in out for name in losses)


def test_a_csv_is_classified(tmp_path, monkeypatch, capsys):
    """The blocks of the page in their order, then its commands, on a file without classes."""
    monkeypatch.chdir(tmp_path)
    write, train, predict = blocks(CLASSIFY_CSV, "python")
    install, command, scores = blocks(CLASSIFY_CSV, "sh")
    names = run(write + train)
    network = names["network"]
    assert network.result.test["accuracy"] > 0.8 > 0.6 > network.config.task.objective().trivial_metric
    rows = Path("gestures.csv").read_text(encoding="utf-8").splitlines()
    assert "```\n" + "\n".join(rows[:4]) + "\n```" in CLASSIFY_CSV
    capsys.readouterr()
    exec(predict, names)
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["0", "circle"],
        ["1", "shake"],
        ["2", "circle"],
    ]
    assert cli.main([*shlex.split(short(command).replace("--out gestures", "--out again"))[1:]]) == 0
    assert "gesture holds names, so the task is classify" in capsys.readouterr().out
    Path("new.csv").write_text("\n".join(row.rpartition(",")[0] for row in rows), encoding="utf-8")
    assert cli.main(shlex.split(scores)[1:]) == 0
    assert Path("predictions.csv").read_text(encoding="utf-8").splitlines()[1].startswith("0,circle,")
    assert "tables" in install


OTHERS = [
    (named(page), code)
    for page in PAGES
    # above; of a run that is not there; two files, which test_testing.py writes
    if page.name not in ("forecasts.md", "classify_csv.md", "runs.md", "your_parametrization.md")
    if not page.read_text(encoding="utf-8").startswith("---\nfile_format: mystnb")  # a notebook, which `make docs` runs
    for code in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("page", "code"), OTHERS, ids=[page for page, _ in OTHERS])
def test_examples_run_as_they_stand(page, code, tmp_path, monkeypatch):
    for package in (
        "sklearn",
        "skorch",
        "pytorch_lightning",
        "pandas",
        "narwhals",
        "pyarrow",
        "sb3_contrib",
        "torchrl",
    ):
        if re.search(rf"^(import|from) {package}\b", code, re.MULTILINE):
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    run(code)


def test_every_task_has_its_command():
    commands = re.findall(r"`orthornn train ([\w.-]+) ", (HOW_TO / "tasks.md").read_text(encoding="utf-8"))
    own = {"classify", "regress", "forecast"}  # by the name of a file
    assert set(commands) - {"TASK"} == {*TASKS.own, *EVIDENCE[OF_TASKS], "data.csv"} - own


def test_every_command_is_in_the_reference():
    text = (REFERENCE / "command_line.md").read_text(encoding="utf-8")
    own, added = (
        dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", part, re.MULTILINE))
        for part in text.split("## Examples")[0].split("adds:")
    )
    assert {name: summary.replace("`", "") for name, summary in own.items()} == cli.COMMANDS
    assert tuple(added) == EVIDENCE[OF_COMMANDS]  # the evidence's own tests compare what is said of them
    for command, task in re.findall(r"^orthornn (train|compare|sweep) (\w[\w-]*)(?=\s)", text, re.MULTILINE):
        assert command in cli.COMMANDS
        assert task in TASKS


@EVERY_PAGE
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#\s]+)", text):
        assert link.startswith("http") or (page.parent / link).exists(), link


@EVERY_PAGE
def test_included_and_shown_files_exist(page):
    for kind, file in re.findall(r"```\{(include|image|figure)\} (\S+)", page.read_text(encoding="utf-8")):
        assert (page.parent / file).exists(), (kind, file)


def test_the_files_that_the_style_of_the_site_names_exist():
    style = (DOCS / "_static" / "orthornn.css").read_text(encoding="utf-8")
    names = re.findall(r'url\("([^"]+)"\)', style)
    assert names
    assert all((DOCS / "_static" / name).exists() for name in names)


@EVERY_PAGE
def test_code_fits_on_a_page(page):
    """A desktop shows 100 characters without scrolling; pictures, directives and the output of programs are exempt."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:python|py|sh|c|cpp|pycon)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert not [line for block in blocks for line in block.splitlines() if len(line) > 100]


@pytest.mark.sampled(50)
@pytest.mark.parametrize("page", [*PAGES, *INCLUDED], ids=lambda page: page.stem)
def test_adjoints_and_indices_in_prose_are_no_emphasis(page):
    """Unescaped, the two asterisks of "x*q = q*x" disappear, and so do the underscores of "h'_t = h'_s"."""
    markdown = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    text = re.sub(r"\$\$.*?\$\$|\$[^$\n]+\$", "formula", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    html = re.sub(r"<code>.*?</code>", "", markdown.render(text), flags=re.DOTALL)
    assert not re.findall(r"[\w)'‖⁻]<em>.*?</em>|<em>[^<]*</em>[\w(‖{]", html, re.DOTALL)


def test_the_transpose_does_not_become_a_quotation_mark(monkeypatch):
    """Sphinx curls the straight quotes of prose, unless told otherwise."""
    monkeypatch.setattr(sys, "path", sys.path.copy())  # conf.py extends it, and sets these
    for name in ("MATPLOTLIBRC", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    assert runpy.run_path(str(DOCS / "conf.py")).get("smartquotes", True) is False


@EVERY_PAGE
def test_headings_begin_their_line(page):
    prose = re.sub(r"(?ms)^ *(`{3,}).*?^ *\1|`[^`\n]*`", "", page.read_text(encoding="utf-8"))
    assert not re.findall(r"^.*\S +#{2,} \w.*$", prose, re.MULTILINE)


@functools.cache
def sources() -> frozenset[str]:
    folders = (DOCS.parent / name for name in ("src", "evidence", "tests", "docs", "examples", "benchmarks", "csrc"))
    return frozenset(
        f"/{file.relative_to(DOCS.parent).as_posix()}" for folder in folders for file in folder.rglob("*.?*")
    )


@EVERY_PAGE
def test_sources_that_a_page_names_exist(page):
    """A file is named by its path, of which the first folders may be left out."""
    named = re.findall(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|cu|hpp|cpp))`", page.read_text(encoding="utf-8"))
    assert [path for path in named if not any(source.endswith(f"/{path}") for source in sources())] == []


@EVERY_PAGE
def test_comments_begin_and_end(page):
    """A mark without its partner is shown as text."""
    lines = page.read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("<!--") and "-->" not in line for line in lines) == lines.count("-->")


@EVERY_PAGE
def test_no_page_uses_a_former_name(page):
    """Former names of a loaded network still work, with a warning."""
    text = page.read_text(encoding="utf-8")
    assert not re.findall(rf"(?<!tables)\.(?:{'|'.join(FORMER)})\(|`(?:read|predict|evaluate)_table\b", text)


def test_every_cited_work_is_in_the_references():
    """Pages of results and the changelog aside; a work is found by its first author and its year."""
    entries = set()
    text = (DOCS / "references.md").read_text(encoding="utf-8")
    for entry in re.findall(r"^- (.*?)\*", text, re.DOTALL | re.MULTILINE):
        entries.add((re.split(r"[, ]", entry)[0], entry.strip().rstrip(".")[-4:]))
    assert len(entries) >= 30
    cited = re.compile(r"([A-Z][\w-]+)(?: et al\.,?|,? [\w&, -]*[A-Z][\w-]+,|,)\]? \(?((?:19|20)\d\d)\b")
    pages = [page for page in [*PAGES, *INCLUDED] if "results" not in page.parts and page.name != "changelog.md"]
    found = {match.groups() for page in pages for match in cited.finditer(page.read_text(encoding="utf-8"))}
    firsts = {(name, year) for name, year in found if name != "The"}
    assert len(firsts) > 20
    assert not firsts - entries
    assert f"version = {{{orthornn.__version__}}}" in text


def test_every_page_is_in_a_table_of_contents():
    listed = {DOCS / "index.md"}
    for page in PAGES:
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            entries = [line for line in tree.splitlines() if line and not line.startswith(":")]
            listed |= {(page.parent / f"{entry}.md").resolve() for entry in entries}
    assert {page.resolve() for page in PAGES} == {page.resolve() for page in listed}


def test_no_two_pages_lead_the_search_for_one_word():
    words = [
        word.strip()
        for page in PAGES
        for entry in re.findall(r"```\{index\} (.*)", page.read_text(encoding="utf-8"))
        for word in entry.split(",")
    ]
    assert {"! csv", "! reset"} <= set(words)
    assert all(word.startswith("! ") for word in words)  # a main entry, which the search puts first
    assert sorted(words) == sorted(set(words))


def test_what_contributing_tells_to_copy_and_to_extend_is_there():
    root = DOCS.parent
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders = "evidence|tests|docs|learn|kernels|parametrizations|orthornn_evidence"
    paths = re.findall(rf"(?<![\w/])(?:{folders})/[\w/]*\w\.(?:py|md)\b", text)
    assert len(paths) > 15
    homes = (root, root / "src/orthornn", root / "evidence/src")
    assert not [path for path in paths if not any((home / path).exists() for home in homes)]
    lines = re.findall(r"^\| (?!what)\w+ \| `(.*?)` \| (?:a class of )?`(.*?)`", text, re.MULTILINE)
    assert len(lines) == 4
    assert all((root / "src/orthornn" / folder / file).exists() for folder, file in lines)
    picture = re.search(r"```\n(.*?)```", text, re.DOTALL)[1]
    assert len(picture.splitlines()) <= 40
    pyproject = (root / "pyproject.toml").read_text(encoding="utf-8")
    layers = re.findall(r'containers = \["orthornn(?:\.learn|_evidence)?"\].*?layers = \[(.*?)\]', pyproject, re.DOTALL)
    modules = set(re.findall(r"\w+", " ".join(layers)))
    assert len(modules) > 20
    missing = {name for name in modules if name not in picture} - {"__main__", "_folder", "_safetensors", "lab"}
    assert not missing, f"Expected the picture to show every floor, but got none of {missing}."


# --- the reference

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL

MODULES = ("orthornn", *(f"orthornn.{name}" for name in ("modules", "parametrizations", "kernels", "activations", "optim",
           "optim.recipes", "penalties", "certify", "automata", "diagnostics", "export", "testing", "errors")))  # fmt: skip


def public_names() -> dict[str, object]:
    """By their full name; of a name that two modules export, the first."""
    found: dict[str, object] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        exported = getattr(module, "__all__", None) or [
            key
            for key, value in vars(module).items()
            if not key.startswith("_") and getattr(value, "__module__", None) == name and key != "joined"
        ]
        for key in exported:
            value = getattr(module, key)
            if not isinstance(value, types.ModuleType) and not any(value is other for other in found.values()):
                found[f"{name}.{key}"] = value
    return found


def reference() -> tuple[set[str], str]:
    """The names that the directives of the reference document, and the text of all doctests."""
    documented, examples = set(), []
    for page in REFERENCE.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        examples += re.findall(r"```pycon\n(.*?)```", text, re.DOTALL)
        for block in re.findall(r"```\{eval-rst\}\n(.*?)```", text, re.DOTALL):
            for kind, name, options in re.findall(r"^\.\. auto(\w+):: (\S+)\n((?:   :.*\n)*)", block, re.MULTILINE):
                if kind != "module":
                    documented.add(name)
                    continue
                listed = re.search(r":members:(.*)", options)
                module = importlib.import_module(name)
                members = [word.strip() for word in listed.group(1).split(",") if word.strip()] if listed else []
                documented |= {f"{name}.{member}" for member in members or getattr(module, "__all__", vars(module))}
    return documented, "\n".join(examples)


@pytest.mark.parametrize("name", sorted(public_names()))
def test_every_public_name_is_in_the_reference_with_an_example(name):
    documented, examples = reference()
    assert name in documented
    in_docstring = ">>>" in (inspect.getdoc(public_names()[name]) or "")
    assert in_docstring or re.search(rf"\b{name.rsplit('.', 1)[1]}\b", examples), "no example"


_ENTRY = re.compile(r"^ *((?:[`*]*\w+[`*]*, )*[`*]*\w+[`*]*)(?: \([^)]*\))?:", re.MULTILINE)


def undocumented(value: object) -> list[str]:
    """The parameters of a function, or of a class's constructor, that have no entry `name: meaning` in its docstring."""
    text = inspect.getdoc(value) or ""
    entries = {name.strip("`* ") for found in _ENTRY.findall(text) for name in found.split(",")}
    if "other arguments" in text and ":func:" in text:  # those of another function
        return []
    return [name for name in inspect.signature(value).parameters if name not in entries]


@pytest.mark.parametrize(
    "name",
    sorted(name for name, value in public_names().items() if inspect.isclass(value) or inspect.isfunction(value)),
)
def test_every_parameter_of_a_public_name_is_documented(name):
    value = public_names()[name]
    if inspect.isclass(value) and (issubclass(value, Exception) or getattr(value, "_is_protocol", False)):
        return
    assert not undocumented(value)


def public_methods() -> dict[str, object]:
    """Of the public classes but protocols, by their full name where they are written; a method of torch's is torch's."""
    found = {}
    for value in public_names().values():
        if not inspect.isclass(value) or getattr(value, "_is_protocol", False):
            continue
        for name in dir(value):
            method = getattr(value, name)
            if name.startswith("_") or not (inspect.isfunction(method) or inspect.ismethod(method)):
                continue
            if method.__module__.startswith("orthornn"):
                found[f"{method.__module__}.{method.__qualname__}"] = method
    return found


def documented_elsewhere(method: object) -> list[object]:
    """The methods whose arguments a docstring refers to, "the same as for :meth:`NAME`"."""
    names = re.findall(r"(?:those of|same as for)\s+:meth:`([\w.]+)`", inspect.getdoc(method) or "")
    return [functools.reduce(getattr, name.split("."), orthornn) for name in names]


@pytest.mark.sampled(47)
@pytest.mark.parametrize("name", sorted(public_methods()))
def test_every_parameter_of_a_public_method_is_documented(name):
    method = public_methods()[name]
    missing = set(undocumented(method)) - {"self"}
    for other in documented_elsewhere(method):
        missing -= set(inspect.signature(other).parameters) - set(undocumented(other))
    assert not missing


def test_methods_without_an_entry_are_found():
    """The methods of classes that are read here are those of the library, inherited ones and class methods too."""
    assert len(public_methods()) > 60
    assert {
        "orthornn.modules.transition.Transition.set_weight_",
        "orthornn.modules.network.RecurrentNetwork.initial_states",
        "orthornn.errors.MissingPackageError.named",
        "orthornn.optim.stiefel.StiefelOptimizer.step",
    } <= set(public_methods())
    forward = public_methods()["orthornn.modules.lstm.PeepholeLSTM.forward"]
    assert documented_elsewhere(forward) == [orthornn.OrthogonalRNN.forward]
    assert set(undocumented(orthornn.OrthogonalRNN.forward)) == {"self"}


def test_a_parameter_without_an_entry_is_found():
    def documented(first, second, third):
        """Return nothing; second: not at the beginning of a line.

        first, third: Both.
        """

    assert undocumented(documented) == ["second"]


def test_the_reference_documents_only_what_exists():
    for name in reference()[0]:
        module, attribute = name.rsplit(".", 1)
        assert hasattr(importlib.import_module(module), attribute), name


@pytest.mark.sampled(4)
@pytest.mark.parametrize("page", sorted(REFERENCE.glob("*.md")), ids=lambda page: page.name)
def test_examples_of_the_reference(page):
    if page.name == "sklearn.md":
        pytest.importorskip("sklearn.base")
    blocks = re.findall(r"```pycon\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page.name, str(page), 0)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "name", sorted(name for name, value in public_names().items() if ">>>" in (inspect.getdoc(value) or ""))
)
def test_examples_of_docstrings(name):
    value = public_names()[name]
    module = importlib.import_module(name.rpartition(".")[0])
    exported = {key: getattr(orthornn, key) for key in orthornn.__all__}
    names = {**exported, **vars(module), **vars(importlib.import_module(value.__module__)), "torch": torch}
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    said: list[str] = []
    for test in doctest.DocTestFinder(recurse=True).find(value, name, globs=names):
        runner.run(test, out=said.append)
    assert runner.tries > 0
    assert runner.failures == 0, "".join(said)


@pytest.mark.parametrize(
    ("lines", "rest"),
    [
        (["Return a*b of |a|."], ["", r"Return a\*b of \|a\|."]),
        (["Read `a*b`."], ["", "Read `a*b`."]),
        (["N. Units of it."], ["", r"N\. Units of it."]),
        (["Args:", "    a: I. b: N."], ["", "Args:", r"    a: I\.", r"    b: N\."]),
        (["Parameters", "----------", "a: it_", "    more"], ["", "Args:", r"    a: it\_", "        more"]),
        (
            ["a     b", "long  short     it"],
            ["", ".. code-block:: none", "", "    a     b", "    long  short     it", ""],
        ),
        (  # a formula in three lines: no table of one row
            [
                "Moves by at most",
                "",
                "    sum_s c_s    <=  eps c     every",
                "                 <=  eps d     one",
                "                 <=  eps e     two",
            ],
            [
                "",
                "Moves by at most",
                "",
                ".. code-block:: none",
                "",
                "        sum_s c_s    <=  eps c     every",
                "                     <=  eps d     one",
                "                     <=  eps e     two",
                "",
            ],
        ),
        ([".. math:: h = \\phi(z_t),", "          z"], ["", ".. math:: h = \\phi(z_t),", "          z", ""]),
        (["Shape:", "    - x: (T, B)"], ["", "**Shape**", "", "- x: (T, B)"]),
        (["Example:", "    >>> 2 * 3", "    6"], ["", "Example:", "", "    >>> 2 * 3", "    6"]),
    ],
)
def test_docstrings_in_plain_text_become_markup(lines, rest):
    assert extension("docstrings").converted(lines) == rest


def extension(name):
    pytest.importorskip("sphinx", reason="The extra `docs` is not installed.")
    spec = importlib.util.spec_from_file_location(name, DOCS / "_extensions" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("int", "int"),
        ("Tensor | None", "Tensor, optional"),
        ("Tensor | PackedSequence | None", "Tensor or PackedSequence, optional"),
        ("Literal['a, b', 'c'] | None", "str, optional"),
        ("bool | Literal['part']", "bool or str"),
        ("Literal[1, 'a', True]", "int or str or bool"),
        ("Name | ~orthornn.activations.Activation", "str or ~orthornn.activations.Activation"),
        ("~collections.abc.Callable[[~torch.Tensor], ~torch.Tensor] | None", "Callable, optional"),
        ("tuple[Tensor, Tensor | None] | None", "tuple[Tensor, Tensor | None], optional"),
        ("None", ""),
    ],
)
def test_types_of_arguments_are_shown_as_torch_shows_them(annotation, expected):
    assert extension("argument_types").plain_type(annotation, {"Name": "Literal['tanh', 'relu']"}) == expected


def test_names_of_choices_are_found_in_the_modules_of_the_package():
    from orthornn import activations

    found = extension("argument_types").aliases_of("orthornn")
    assert all(repr(name) in found["Name"] for name in activations.ACTIVATIONS)


DRAWN = re.findall(r'^    "(\w+)": draw_', (DOCS / "pictures.py").read_text(encoding="utf-8"), re.MULTILINE)


@functools.cache
def pictures():
    pytest.importorskip("matplotlib", reason="The extra `cli` is not installed.")
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", DRAWN)
def test_the_pictures_of_the_pages_are_drawn(name, tmp_path, monkeypatch):
    """Each function writes the files of its name, which the pages show, from the library and the stored results."""
    monkeypatch.setattr(pictures(), "IMAGES", tmp_path)
    threads = torch.get_num_threads()
    try:
        pictures().main([name])
    finally:
        torch.set_num_threads(threads)
    drawn = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert drawn
    assert all("</svg>" in text and "<path" in text for text in drawn.values())
    assert set(drawn) <= {path.name for path in (DOCS / "images").iterdir()}
    pages = "".join(page.read_text(encoding="utf-8") for page in (*DOCS.rglob("*.md"), DOCS.parent / "README.md"))
    assert all(f"images/{picture}" in pages for picture in drawn)


def test_formulas_of_docstrings_stay_as_they_are():
    converted = extension("docstrings").converted
    formula, found = re.compile(r"^\.\. math::.*?(?=\n\n)", re.DOTALL | re.MULTILINE), []
    for value in public_names().values():
        text = inspect.getdoc(value) or ""
        assert formula.findall("\n".join(converted(text.splitlines()))) == formula.findall(text)
        found += formula.findall(text)
    assert len(found) > 5


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"\cos a", r"cos.*<mspace.*>a<"),
        (r"\log_2 n", r"log.*</msub><mspace.*>n<"),
        (r"\tanh(z)", r"tanh(?!.*mspace).*z"),
        (r"\hat{k}_i", r"<msub><mover.*>k<.*</mover><mi>i</mi></msub>"),
    ],
)
def test_formulas_have_the_spaces_and_indices_of_tex(latex, expected):
    assert re.search(expected, extension("mathml")._mathml(latex, block=False).replace("\n", ""))


def test_orthornn_exports_only_what_the_reference_names():
    modules = {name for name in orthornn.__all__ if isinstance(getattr(orthornn, name), types.ModuleType)}
    assert {f"orthornn.{name}" for name in modules} <= set(MODULES)


def test_environment_variables_are_documented():
    text = (REFERENCE / "environment_variables.md").read_text(encoding="utf-8")
    root = DOCS.parent
    sources = [*root.glob("csrc/*.cpp"), DOCS / "conf.py"]
    sources += [file for folder in ("src", "tests", "evidence") for file in root.glob(f"{folder}/**/*.py")]
    used = set()
    for file in sources:
        used |= set(
            re.findall(r"(?:environ\w*(?:\.get\(|\[)|getenv\()\"(ORTHORNN_\w+)", file.read_text(encoding="utf-8"))
        )
    assert used
    assert used <= set(re.findall(r"`(ORTHORNN_\w+)`", text))
