"""Fill numbers from results/ into pages; none is typed by hand.

A template is Markdown with places in double braces:

    {{PAPER/NAME | ROW}}              the reproduced value of a row, with its spread over seeds
    {{PAPER/NAME | ROW | published}}  the published one; seeds, best test and minutes likewise
    {{PAPER/NAME | ROW | .2g}}        the value in another form, for fewer digits; {{... | % of 1}} as a percentage
    {{table PAPER/NAME}}              all rows of an experiment; {{table PAPER/NAME | REGEX}} those whose names match;
                                      {{table PAPER/NAME | REGEX | HEADING}} with HEADING instead of "reproduced"
    {{below PAPER/NAME | SYSTEM | 1/60}}  the first update whose validation loss is below a level, in the curve of a finished
                                      run; {{below ... | 1/60 | for good}} the first after which none is above it again
    {{above PAPER/NAME | SYSTEM | METRIC | LEVEL}}  the first update whose validation metric is above a level
    {{line PAPER/NAME | ROW | WORDS}} a line of the table of the README
    {{ratio PAPER/NAME | ROW | OTHER | .1f}}  the reproduced value of a row divided by another row's
    {{finished}}                      how many tables and figures have all of their training: "8 of 24"
    {{board TASK}}                    the leaderboard of a task; {{board TASK | REGEX | FIELD}} a field (test, validation,
                                      seeds, ...) of the one row whose system and options match
    {{layers}}                        processor time of linear layers
    {{hours PAPER/NAME}}      processor hours of all runs of an experiment
    {{figure PAPER/NAME | full}}      the figure of a budget in which every training that was begun is finished
    {{command PAPER/NAME}}  {{figure PAPER/NAME}}  {{speed}}  {{demo}}  {{demo MODEL | KEY | FORM}}
    {{speed CASE | PEER}}             how many times faster than a peer the network of a case of the speed table is
    {{fact FILE | KEY/KEY | FORM}}    an entry of a JSON file below results/, which no experiment made
    {{words trained}}  {{words exact}}  {{words failures}}  {{delta}}
    {{machines trained}}  {{machines machines}}  {{machines failures}}  {{reflections}}  {{resets}}  {{long}}  {{drift}}
    {{unfinished}}                    results that no other page shows; {{unfinished | NAME}} with all rows of an experiment
    {{popgym}}                        scores on POPGym; unfinished environments are named
    {{popgym ENVIRONMENT | MEMORY}}   one score: of a memory, or the published one of the GRU or the best model
    {{irregular PROBLEM}}             errors on sequences with dropped samples
    {{irregular PROBLEM | SHARE}}     our error over the smallest of the others; {{... | SHARE | NETWORK}} over one network's
    {{certificates pixels}}  {{certificates tanks}}
    {{certificates pixels | NETWORK | certified | EPS}}  one share, in percent
    {{agents}}                        recurrent policies compared with sb3-contrib
    {{swap time}}  {{swap width}}  {{swap front}}  {{swap verdicts}}  {{swap costs}}  {{swap short}}
    {{amplifier long}}  {{amplifier brief}}  {{amplifier comparisons}}  {{amplifier rates}}  {{amplifier costs}}
    {{integers mnist}}  {{integers lstm}}  {{integers sensor}}  {{integers tables}}
    {{gpu layers}}  {{gpu epochs}}  {{gpu kernels}}  {{gpu backends}}  {{gpu recurrences}}
    {{gpu CASE | NETWORK | OTHER}}    the time of a network on a GPU over the time of OTHER

Only finished rows may be shown: a row with less than the full training, or of an incomplete experiment, is an error outside
of {{unfinished}}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from orthornn._checks import check_choice
from orthornn.errors import ArgumentError

from ..certificates.table import certificates
from ..irregular_time.table import irregular
from ..leaderboard import markdown, stored, table
from ..markdown import markdown_table, percent
from ..swap.table import swap
from .devices import amplifier, microcontroller
from .measured import (
    agents,
    delta_rule,
    drift,
    exact_machines,
    gpu,
    gpu_ratio,
    group_words,
    long_step,
    popgym,
    popgym_score,
    popgym_wins,
    reflections,
    resets,
)
from .results import best_test, reproduced, share

_PLACE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_ENOUGH = 0.995
_TELLING = 0.1  # fraction of the full training below which the appendix shows no numbers
_BUDGETS = ("full", "laptop", "smoke")
_FIELDS = {"published": "published", "seeds": "seeds", "best test": "test_selected", "minutes": "minutes"}


class Evidence:
    """The results below a folder, by "PAPER/NAME": the largest complete budget, else the largest.

    Rows that are fully trained in a larger budget are taken from there, even if others are not.
    """

    def __init__(self, results: Path) -> None:
        self.results = results
        self.shown: set[str] = set()
        folders = sorted({path.parent for path in results.glob("*/*/*.json")})
        chosen = {f"{folder.parent.name}/{folder.name}": self._choose(folder) for folder in folders}
        self._files = {name: file for name, file in chosen.items() if file is not None}
        self._contents: dict[str, dict[str, Any]] = {}

    @staticmethod
    def _choose(folder: Path) -> Path | None:
        there = [folder / f"{budget}.json" for budget in _BUDGETS if (folder / f"{budget}.json").exists()]
        return next((file for file in there if json.loads(file.read_text(encoding="utf-8"))["complete"]), None) or (
            there[0] if there else None
        )

    @property
    def names(self) -> list[str]:
        """Return every experiment that has results."""
        return list(self._files)

    def content(self, name: str) -> dict[str, Any]:
        """Return the JSON of an experiment."""
        if name not in self._files:
            raise ArgumentError(f"Expected an experiment with results, but got {name!r}. Run `orthornn reproduce`.")
        if name not in self._contents:
            self._contents[name] = self._with_larger_budgets(self._files[name])
        return self._contents[name]

    @staticmethod
    def _with_larger_budgets(chosen: Path) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(chosen.read_text(encoding="utf-8"))
        larger: dict[str, dict[str, Any]] = {}
        if chosen.stem == "full" and not content["complete"]:  # single rows may be fully trained
            larger = {row["what"]: {**row, "budget": chosen.stem} for row in content["rows"] if _is_trained(row)}
        for budget in reversed(_BUDGETS[: _BUDGETS.index(chosen.stem)]):
            file = chosen.with_name(f"{budget}.json")
            rows = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
            larger |= {row["what"]: {**row, "budget": budget} for row in rows if _is_trained(row)}
        content["rows"] = [larger.pop(row["what"], row) for row in content["rows"]]
        content["rows"] += larger.values()
        return content

    def figure(self, name: str, budget: str = "") -> Path | None:
        """Return the figure of an experiment, if it has one; budget: the chosen one unless given."""
        file = self._files[name].with_name(f"{budget or self._files[name].stem}.png")
        return file if file.exists() else None

    def rows(self, name: str, pattern: str = "") -> list[dict[str, Any]]:
        """Return the finished rows whose names match; ArgumentError if there are none."""
        content = self.content(name)
        found = [row for row in content["rows"] if re.search(pattern, row["what"]) and "selection" in row]
        unfinished = [row["what"] for row in found if not is_finished(content, row)]
        if unfinished:
            raise ArgumentError(f"Expected finished rows of {name}, but {unfinished} are unfinished. Leave them out.")
        if not found:
            raise ArgumentError(f"Expected a row of {name} that matches {pattern!r}, but there is none.")
        return found

    def curve(self, name: str, system: str, metric: str = "loss") -> tuple[list[int], list[float]]:
        """Return (updates, values on validation) of a system's one finished run, of the largest budget that has one."""
        for file in (self.results / name / f"{budget}.json" for budget in _BUDGETS):
            runs = json.loads(file.read_text(encoding="utf-8"))["runs"] if file.exists() else []
            found = [run for run in runs if run["system"] == system and run["finished"]]
            if len(found) == 1:
                curves = found[0]["curves"]["validation"]
                check_choice("metric", metric, list(curves))
                return curves["step"], curves[metric]
        raise ArgumentError(f"Expected a system of {name} with one finished run, but got {system!r}.")

    def row(self, name: str, what: str) -> dict[str, Any]:
        """Return one finished row by its whole name."""
        return self.rows(name, f"^{re.escape(what)}$")[0]


def is_finished(content: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Return whether a row is fully trained."""
    if row.get("share") is None and row.get("selection") != "computed":
        return content["complete"] and "unfinished" not in row["note"]
    return (content["complete"] or "budget" in row) and _is_trained(row)


def _is_trained(row: Mapping[str, Any]) -> bool:
    """Return whether the runs of a row are fully trained, or the row has none."""
    if row.get("selection") == "computed":
        return True
    trained = row.get("share")
    return "selection" in row and "unfinished" not in row["note"] and trained is not None and trained >= _ENOUGH


def fill(text: str, results: Path, page: Path, shown: set[str] | None = None) -> str:
    """Return the template with every place filled.

    Args:
        text: The template.
        results: The folder of the evidence.
        page: Path of the page, to which links are relative.
        shown: Receives the experiments whose tables the page shows; {{unfinished}} leaves out their finished rows.
    """
    evidence = Evidence(results)
    evidence.shown = shown if shown is not None else set()

    def filled(match: re.Match[str]) -> str:
        place = match.group(1)
        parts = [part.strip() for part in place.split(" | ")]
        word, _, name = parts[0].partition(" ")
        if word in _BLOCKS:
            if word == "table" or (word == "figure" and parts[1:] == ["full"]):
                evidence.shown.add(name)
            return _BLOCKS[word](evidence, name, parts[1:], page)
        return _value(evidence, parts)

    return _PLACE.sub(filled, text)


def _value(evidence: Evidence, parts: list[str]) -> str:
    if len(parts) not in (2, 3):
        raise ArgumentError(f"Expected PAPER/NAME | ROW | FIELD in a place, but got {' | '.join(parts)!r}.")
    row = evidence.row(parts[0], parts[1])
    field = parts[2] if len(parts) == 3 else ""
    if not field:
        return reproduced(row)
    if field in _FIELDS:
        value = row[_FIELDS[field]]
        if field in ("seeds", "minutes"):
            return f"{value:.0f}"
        return row["form"].format(value)
    return _formatted(row["reproduced"], field)


def _formatted(value: float, form: str) -> str:
    """Format a number by a format specification; "% of 1" is a percentage without decimals, see `percent`."""
    return percent(value) if form in ("% of 1", ".0%") else format(value, form).replace("%", " %")


def _results_table(rows: Iterable[Mapping[str, Any]], with_share: bool = False, heading: str = "reproduced") -> str:
    """Return rows of results as a Markdown table; columns that would be empty are left out."""
    rows = list(rows)
    columns: dict[str, list[str]] = {
        "": [row["what"] for row in rows],
        "published": [_published(row) for row in rows],
        heading: [reproduced(row) for row in rows],
        "best test": [best_test(row) for row in rows],
        "seeds": [str(row["seeds"]) for row in rows],
    }
    if with_share:
        columns["of full"] = [share(row) for row in rows]
    budgets = [f"{row['budget']} budget" if "budget" in row else "" for row in rows]
    columns["note"] = ["; ".join(filter(None, [row["note"], budget])) for row, budget in zip(rows, budgets)]
    chosen = {name: cells for name, cells in columns.items() if any(cells)}
    cells = ((cell.replace("|", "&#124;") for cell in row) for row in zip(*chosen.values()))
    return "\n".join(markdown_table(list(chosen), cells))


def _published(row: Mapping[str, Any]) -> str:
    value = row.get("published")
    return " ".join(
        filter(None, [row["form"].format(value) if value is not None else "", row.get("published_words", "")])
    )


def _table(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    content, rows = evidence.content(name), evidence.rows(name, options[0] if options else "")
    lines = [_results_table(rows, heading=options[1] if len(options) > 1 else "reproduced")]
    if not all("budget" in row for row in rows):
        lines += ["", *(f"- {content['budget']}: {difference}" for difference in content["differences"])]
    return "\n".join(lines).rstrip()


def _line(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    row = evidence.row(name, options[0])
    value = _formatted(row["reproduced"], options[2]) if len(options) > 2 else reproduced(row)
    return f"| {options[1]} | {_published(row)} | {value} | {row['seeds']} |"


def _ratio(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    if len(options) != 3:
        raise ArgumentError(f"Expected ROW | OTHER | FORM in a place, but got {options}.")
    row, other, form = options
    return _formatted(evidence.row(name, row)["reproduced"] / evidence.row(name, other)["reproduced"], form)


def _finished(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    contents = [evidence.content(experiment) for experiment in evidence.names]
    published = [content for content in contents if content["place"].startswith(("Table", "Fig."))]
    finished = [content for content in published if content["complete"] and not content["differences"]]
    return f"{len(finished)} of {len(published)}"


def _popgym(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    if name == "wins":
        return popgym_wins(evidence.results)
    return popgym_score(evidence.results, name, *options) if name else popgym(evidence.results)


def _below(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    system, level, *for_good = options
    if for_good not in ([], ["for good"]):
        raise ArgumentError(f"Expected SYSTEM | LEVEL or SYSTEM | LEVEL | for good in a place, but got {options}.")
    updates, losses = evidence.curve(name, system)
    above = [loss >= float(Fraction(level)) for loss in losses]
    if above[-1] if for_good else all(above):
        raise ArgumentError(f"Expected a loss of {system} in {name} that falls below {level}, but it does not.")
    first = above.index(False)
    if for_good and True in above:
        first = len(above) - above[::-1].index(True)
    return str(updates[first])


def _above(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    if len(options) != 3:
        raise ArgumentError(f"Expected SYSTEM | METRIC | LEVEL in a place, but got {options}.")
    system, metric, level = options
    updates, values = evidence.curve(name, system, metric)
    first = next((update for update, value in zip(updates, values) if value > float(level)), None)
    if first is None:
        raise ArgumentError(f"Expected a {metric} of {system} in {name} that rises above {level}, but it does not.")
    return str(first)


def _command(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    return f"`{evidence.content(name)['command']}`"


def _hours(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    return f"{evidence.content(name)['cpu_seconds'] / 3600:.1f}"


def _figure(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    file = evidence.figure(name, *options)
    if file is None:
        raise ArgumentError(f"Expected an experiment with a figure, but got {name!r}.")
    content = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
    stopped = [words for words in content["missing"] if not words.startswith("not begun")]
    if stopped and options:
        raise ArgumentError(f"Expected a figure of {name} without unfinished runs, but got {stopped}. Leave it out.")
    return f"![{alternative(content)}]({_relative(file, page)})"


def alternative(content: Mapping[str, Any]) -> str:
    """Return the alternative text of the figure of an experiment."""
    place = {"ours": "Our experiment"}.get(content["place"], content["place"])
    return f"{place}: {content['summary'].rstrip('.')}".replace("[", "(").replace("]", ")")


def _relative(file: Path, page: Path) -> str:
    above, own, to = 0, page.resolve().parent, file.resolve()
    while own not in to.parents:
        own, above = own.parent, above + 1
    return "../" * above + to.relative_to(own).as_posix()


def _unfinished(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    """Return a table of the experiments that are unfinished or on no other page, and their rows with enough training.

    options: Experiments of which all rows are shown.
    """
    papers: dict[str, tuple[list[list[str]], list[str]]] = {}
    for experiment in evidence.names:
        content = evidence.content(experiment)
        there = [row for row in content["rows"] if "selection" in row]
        rows = [row for row in there if experiment not in evidence.shown or not is_finished(content, row)]
        absent = _absent(content)
        if not rows and not absent:
            continue
        lines, sections = papers.setdefault(content["paper"], ([], []))
        not_run = "; ".join(dict.fromkeys(what.rpartition(", ")[0] or what for what in absent))
        lines.append([f"{content['place']}: `{content['name']}`", content["summary"], _shares(rows), not_run])
        all_rows = content["name"] in options
        telling = [row for row in rows if all_rows or _tells(content, row)]
        if telling:
            section = [f"### {content['place']}: {content['name']}", "", _results_table(telling, with_share=True), ""]
            if not all("budget" in row for row in telling):
                section += [f"- {content['budget']}: {difference}" for difference in content["differences"]]
            sections.append("\n".join(section).rstrip() + "\n")
    titles = ["experiment", "what it measures", "of full", "published, and not run"]
    return "\n".join(
        "\n".join([f"## {paper}", "", *markdown_table(titles, lines), "", *sections])
        for paper, (lines, sections) in papers.items()
    )


def _tells(content: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Return whether a row had enough training to show a number, or needs none."""
    if row.get("selection") == "computed":
        return is_finished(content, row)
    return (row.get("share") or 0) >= _TELLING


def _shares(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the smallest and the largest fraction of the full training of the rows."""
    there = sorted((row for row in rows if row.get("share") is not None), key=lambda row: row["share"])
    return " to ".join(dict.fromkeys(share(row) for row in there[:: max(1, len(there) - 1)]))


def _absent(content: Mapping[str, Any]) -> list[str]:
    """Return the published cells that were not run."""
    return [row["what"] for row in content["rows"] if "selection" not in row and not row.get("statement")]


def not_answered(content: Mapping[str, Any]) -> list[str]:
    """Return lines about published cells without a row: statements about all rows, and cells that were not run."""
    without = [row for row in content["rows"] if "selection" not in row]
    statements = [f"{row['what']}: {row['published_words']}" for row in without if row.get("statement")]
    absent = _absent(content)
    lines = []
    if statements:
        lines += [f"Published: {'; '.join(statements)}.", ""]
    if absent:
        lines += [f"Published, and not run: {'; '.join(absent)}.", ""]
    return lines


def _fact(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    value = json.loads((evidence.results / name).read_text(encoding="utf-8"))
    for key in options[0].split("/"):
        if not isinstance(value, dict) or key not in value:
            raise ArgumentError(f"Expected entries of {name} in a place, but got {options[0]!r}. It has no {key!r}.")
        value = value[key]
    return _formatted(value, options[1])


_INSTRUCTION_SETS = {"avx512": "AVX-512", "avx2": "AVX2"}


def _speed(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    content = json.loads((evidence.results / "bench" / "one-thread.json").read_text(encoding="utf-8"))
    if name:
        networks = content["cases"].get(name, {"networks": {}})["networks"]
        if len(options) != 1 or options[0] not in networks:
            known = ", ".join(content["cases"])
            raise ArgumentError(f"Expected CASE | PEER in a place, but got {name!r} and {options}. Cases: {known}.")
        return _two_digits(networks[options[0]]["seconds"] / networks["ours"]["seconds"])
    machines, rows = [content], []
    if (other := evidence.results / "bench" / "one-thread-avx2.json").exists():
        machines.append(json.loads(other.read_text(encoding="utf-8")))
    for key, case in content["cases"].items():
        timed = [each["cases"][key]["networks"] for each in machines]
        ours = [networks["ours"]["seconds"] for networks in timed]
        cells = [[_two_digits(1e3 * least) for least in ours]]
        for peer in ("rnn", "lstm", "lstm-parameters"):
            cells.append([f"{_two_digits(each[peer]['seconds'] / least)} x" for each, least in zip(timed, ours)])
        rows.append([case["network"], case["batch"], *map(" / ".join, cells)])
    titles = ["`nn.RNN`, same width", "`nn.LSTM`, same width", "`nn.LSTM`, equal parameters"]
    lines = markdown_table(["transition", "batch", "ms", *titles], rows)
    machine = content["machine"]
    said = f"{machine['processor']}, one thread, torch {machine['torch']}; `{content['command']}`."
    if len(machines) == 2:
        sets = [_INSTRUCTION_SETS[each["machine"]["instruction_set"]] for each in machines]
        said = f"Before the slashes with {sets[0]}, behind them with {sets[1]}: {said}"
    return "\n".join([*lines, "", said])


def _gpu(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    return gpu_ratio(evidence.results, name, *options) if options else gpu(evidence.results, name)


def _usual_calls(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    content = json.loads((evidence.results / "bench" / "usual-calls.json").read_text(encoding="utf-8"))
    ways, title = content["last_state"]["ways"], content["last_state"]["title"]
    lines = [f"| forward and backward, {title} | ms |", "|---|---|"]
    lines += [f"| the last state as `{way}` | {_two_digits(1e3 * seconds)} |" for way, seconds in ways.items()]
    lines += ["", "| update of the training loop | ms | inside the kernels | outside |", "|---|---|---|---|"]
    for title, seconds in content["updates"].items():
        each = [_two_digits(1e3 * seconds[part]) for part in ("update", "inside", "outside")]
        lines.append(f"| {title} | {' | '.join(each)} |")
    machine = content["machine"]
    lines += ["", f"{machine['processor']}, one thread, torch {machine['torch']}; `{content['command']}`."]
    return "\n".join(lines)


def _two_digits(value: float) -> str:
    """Return a number with two significant digits and without an exponent."""
    return f"{float(f'{value:.2g}'):g}"


def _demo(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    content = json.loads((evidence.results / "demo" / "demo.json").read_text(encoding="utf-8"))
    if name:
        return _formatted(content["models"][name][options[0]], options[1])
    rows = []
    for model, row in content["models"].items():
        ratio = row["test_loss"] / content["trivial_loss"]
        rows.append([f"`{model}`: {row['what']}", row["parameters"], f"{ratio:.1g}", percent(row["recall"])])
    return "\n".join(markdown_table(["", "parameters", "loss / trivial baseline", "recalled"], rows))


def _board(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    path = evidence.results / "leaderboard" / f"{name}.json"
    if not path.exists():
        raise ArgumentError(f"Expected a task of the leaderboard, but got {name!r}. Add runs to it.")
    shown = table(stored(path))
    if not options:
        return markdown(shown)
    if len(options) != 2:
        raise ArgumentError(
            f"Expected TASK or TASK | REGEX | FIELD in a place, but got {' | '.join([name, *options])!r}."
        )
    pattern, field = options
    fields = [column.heading for column in shown.columns]
    rows = [row for row in shown.rows if re.search(pattern, f"{row[0]} {row[1]}".replace("`", ""))]
    if len(rows) != 1 or field not in fields:
        raise ArgumentError(
            f"Expected one row of {name} that matches {pattern!r} and a field of it, but got {len(rows)} rows and "
            f"{field!r}. Fields: {', '.join(fields)}."
        )
    return rows[0][fields.index(field)]


def _layers(evidence: Evidence, name: str, options: list[str], page: Path) -> str:
    content = json.loads((evidence.results / "linear-layers" / "bench.json").read_text(encoding="utf-8"))
    names = list(dict.fromkeys(time["name"] for time in content["times"]))
    cases: dict[tuple[int, int, str], dict[str, float]] = {}
    for time in content["times"]:
        cases.setdefault((time["T"], time["batch"], time["place"]), {})[time["name"]] = 1e3 * time["seconds"]
    rows = []
    for (T, batch, place), times in cases.items():
        cells = [f"{times[name]:.3g}" if name in times and times[name] < 1e3 else "" for name in names]
        cells = [cell or (f"{times[name]:.0f}" if name in times else "") for name, cell in zip(names, cells)]
        rows.append([T, batch, place, *cells])
    lines = markdown_table(["T", "B", "read", *names], rows, right=[0, 1, *range(3, 3 + len(names))])
    machine = content["environment"]
    words = " ".join(machine["command"])
    lines += ["", f"{machine['processor']}, {machine['torch_instruction_set']}, torch {machine['torch']}; `{words}`."]
    return "\n".join(lines)


_BLOCKS = {
    "board": _board,
    "layers": _layers,
    "table": _table,
    "line": _line,
    "ratio": _ratio,
    "finished": _finished,
    "below": _below,
    "above": _above,
    "command": _command,
    "hours": _hours,
    "figure": _figure,
    "unfinished": _unfinished,
    "speed": _speed,
    "fact": _fact,
    "gpu": _gpu,
    "usual_calls": _usual_calls,
    "demo": _demo,
    "machines": lambda evidence, name, options, page: exact_machines(evidence.results, name),
    "words": lambda evidence, name, options, page: group_words(evidence.results, name),
    "swap": lambda evidence, name, options, page: swap(evidence.results, name),
    "delta": lambda evidence, name, options, page: delta_rule(evidence.results),
    "reflections": lambda evidence, name, options, page: reflections(evidence.results),
    "long": lambda evidence, name, options, page: long_step(evidence.results),
    "drift": lambda evidence, name, options, page: drift(evidence.results),
    "popgym": _popgym,
    "irregular": lambda evidence, name, options, page: irregular(evidence.results, name, *options),
    "certificates": lambda evidence, name, options, page: certificates(evidence.results, name, *options),
    "agents": lambda evidence, name, options, page: agents(evidence.results),
    "resets": lambda evidence, name, options, page: resets(evidence.results),
    "amplifier": lambda evidence, name, options, page: amplifier(evidence.results, name),
    "integers": lambda evidence, name, options, page: microcontroller(evidence.results, name),
}


def typed_numbers(text: str) -> list[str]:
    """Return the decimals, percentages and numbers of updates ("update 300") of a template that were typed by hand.

    Settings are written as code, and the sections "Protocol" are exempt: they quote the papers and their code.
    """
    text = re.sub(r"^## Protocol\n.*?(?=^## |\Z)", "", text, flags=re.DOTALL | re.MULTILINE)
    for exempt in (r"```.*?```", r"\{\{.*?\}\}", r"`[^`\n]*`", r"\]\([^)]*\)", r"<[^>]*>"):
        text = re.sub(exempt, " ", text, flags=re.DOTALL)
    before = r"Python|torch|NumPy|CC BY(?:-SA)?|Figs?|Table|section|eq|appendix"
    text = re.sub(rf"\b(?:{before})\.? [\d.]+(?: (?:to|or|and) [\d.]+)*", " ", text)
    return re.findall(r"\d*\.\d+|\d+(?:\.\d+)? ?%|\bupdate \d+", text)
