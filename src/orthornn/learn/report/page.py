"""One HTML page about runs: tables to sort, figures, what their configurations differ in. It needs no network.

Runs on the same data are in one section: the groups of seeds, all runs, curves, confusion and calibration or
predictions next to targets, spectra. Long tables are folded. The page follows the reader's choice of light or dark, and
fits a phone.

Everything, figures included, is in the one file; the script is the thirty lines below.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import html
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..._files import check_new, write_bytes
from ..._printable import printable
from ..._warnings import quiet
from . import pictures
from .predictions import prediction_figures
from .runs import SavedRun, best_of, by_data, chosen, differing, groups, names_of, standings
from .significance import mean_and_spread
from .table import Table

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1b1b1b; --faint: #555; --line: #d8d8d8; --link: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --page: #1f1f1f; --text: #e6e6e6; --faint: #a8a8a8; --line: #444; --link: #7db7f0; }
  figure img { filter: invert(.88) hue-rotate(180deg); }
}
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: var(--text);
  background: var(--page); overflow-wrap: break-word; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; } h3 { margin: 1.5rem 0 .5rem; font-size: 1rem; }
a { color: var(--link); } nav ul { padding-left: 1.2rem; }
table { border-collapse: collapse; } .wide { overflow-x: auto; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right; }
td { white-space: nowrap; } th { vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--page); }
td:first-child { max-width: 22rem; white-space: normal; overflow-wrap: anywhere; min-width: 7rem; }
th button { font: inherit; font-weight: 600; border: 0; background: none; cursor: pointer; padding: 0; color: inherit; }
th[aria-sort=ascending] button::after { content: " \\25B2"; } th[aria-sort=descending] button::after { content: " \\25BC"; }
summary { cursor: pointer; margin: .6rem 0; color: var(--link); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem;
  margin-top: 1rem; }
figure { margin: 0; align-self: start; } figure img { max-width: 100%; height: auto; background: #fff; }
figcaption, .note { color: var(--faint); } .note { font-size: .9rem; }
@media (max-width: 40rem) {
  body { font-size: 15px; margin: 1rem auto; } th, td { padding: .25rem .5rem; } td:first-child { max-width: 40vw; }
}
@media print { details > * { display: block; } figure img { filter: none; } }
"""

_MOST_OPEN = 12  # rows of a table that is shown at once; a longer one opens by a click
_MOST_SENTENCES = 4  # comparisons that are shown at once
_LONGEST_NAME = 150  # characters
_LONGEST_ERROR = 300  # characters

_SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const x = key(a), y = key(b);
        if (x === "" || y === "") return (x === "") - (y === "");
        const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
"""


class PlainResults(NamedTuple):
    """Results of plain methods on the data of runs: a sentence on which is better, a table, or why there is none, and a
    table of the backtest that is asked for.
    """

    verdict: str = ""
    table: Table | None = None
    note: str = ""
    backtest: Table | None = None


def write_report(
    runs: Sequence[SavedRun],
    path: Path,
    figures: Sequence[str] = (),
    replace: bool = True,
    plain: Mapping[str, PlainResults] | None = None,
) -> list[Path]:
    """Write the page to `path`, and each of its figures next to it in these formats ("svg", "pdf", "png").

    plain: The results of plain methods, by the name of the data.

    Each file is written atomically: on a full disk the earlier one stays. Returns the files written.

    Raises:
        ArgumentError: If a file is there already and `replace` is False; then nothing is written.
    """
    with quiet():
        drawn, notes = draw(runs)
    names = _file_names(drawn)
    files = {path.with_name(f"{path.stem}-{names[title]}.{suffix}"): title for suffix in figures for title in drawn}
    if not replace:
        check_new([path, *files], "Name another page with --out, or replace it and its figures with --force.")
    svg = _drawn({title: functools.partial(pictures.as_svg, figure) for title, figure in drawn.items()}, notes)
    text = page(runs, svg, notes, plain)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, text.encode())
    files = {file: title for file, title in files.items() if title in svg}
    for file, title in files.items():
        pictures.save(drawn[title], file)
    return [path, *files]


def _file_names(titles: Iterable[str]) -> dict[str, str]:
    """Return a file name for each figure, different for different titles; numbers distinguish equal shortened
    titles.
    """
    found: dict[str, str] = {}
    for title in titles:
        plain = "".join(letter if letter.isalnum() else "-" for letter in title.lower())[:_LONGEST_NAME]
        own = (plain, *(f"{plain}-{count}" for count in range(2, len(found) + 2)))
        found[title] = next(name for name in own if name not in found.values())
    return found


def draw(runs: Sequence[SavedRun]) -> tuple[dict[str, Any], list[str]]:
    """Return the figures by title, task by task, and lines about those that could not be drawn."""
    drawn: dict[str, Any] = {}
    notes: list[str] = []
    for task, own in by_data(runs).items():
        drawn |= _figures_of(task, own, notes)
    return drawn, notes


def _figures_of(task: str, runs: Sequence[SavedRun], notes: list[str]) -> dict[str, Any]:
    """Return the figures of the runs on one task by title, and append lines about those that there are not to
    `notes`.
    """
    grouped = groups(runs)
    metric = runs[0].config.task.metric
    trivial = next((run.result["trivial_loss"] for run in runs if run.result), None)
    baseline = trivial if metric == "loss" else None
    curves = {
        f"{task}: training loss": lambda: pictures.curves_with_bands(grouped, "train", "loss", trivial),
        f"{task}: validation {metric}": lambda: pictures.curves_with_bands(grouped, "validation", metric, baseline),
    }
    drawn = _drawn(curves, notes)
    predicted, missing = _tried(lambda: prediction_figures(runs), f"{task}: predictions", notes) or ({}, [])
    drawn |= {f"{task}: {title}": figure for title, figure in predicted.items()}
    notes += missing
    models, missing = pictures.trained_models(grouped)
    notes += missing
    tasks = {name: grouped[name][0].config.task for name in models}
    unchanged, missing = pictures.with_unchanged_data(models, grouped)
    notes += missing
    of_networks = {
        f"{task}: eigenvalues": lambda: pictures.eigenvalues(models),
        f"{task}: gradient norms": lambda: pictures.gradient_norms(unchanged, tasks),
        f"{task}: singular values during training": lambda: pictures.recorded_spectra(grouped),
    }
    return drawn | _drawn(of_networks, notes)


def _drawn(makers: Mapping[str, Callable[[], Any]], notes: list[str]) -> dict[str, Any]:
    """Return the figures that there are, by title, and append a line to `notes` for each that could not be drawn."""
    found = {title: _tried(make, title, notes) for title, make in makers.items()}
    return {title: figure for title, figure in found.items() if figure is not None}


def _tried(make: Callable[[], Any], title: str, notes: list[str]) -> Any:
    """Return the result; or None with a line in `notes`, since a figure that fails must not prevent the page."""
    try:
        return make()
    except ModuleNotFoundError:  # of a package that the command names
        raise
    except Exception as error:
        notes.append(f"{title}: not drawn: {type(error).__name__}: {' '.join(str(error).split())[:_LONGEST_ERROR]}")
        return None


def page(
    runs: Sequence[SavedRun],
    figures: Mapping[str, str],
    notes: Sequence[str] = (),
    plain: Mapping[str, PlainResults] | None = None,
) -> str:
    """Return the page as text. figures: SVG by title. plain: See `write_report`."""
    made, plain = by_data(runs), plain or {}
    notes = [*notes, *(own.note for own in plain.values() if own.note)]
    names = dict(zip((id(run) for run in runs), names_of(runs)))
    parts = [f"<h1>{len(runs)} run{'s' if len(runs) != 1 else ''}</h1>"]
    if len(made) > 1:
        items = [
            f'<li><a href="#data-{place}">{_text(task)}</a>: {len(own)} run{"s" if len(own) != 1 else ""}</li>'
            for place, (task, own) in enumerate(made.items())
        ]
        parts.append(f"<nav><ul>{''.join(items)}</ul></nav>")
    for place, (task, own) in enumerate(made.items()):
        before = f"{task}: "
        drawn = [
            _figure(title, title.removeprefix(before), svg)
            for title, svg in figures.items()
            if title.startswith(before)
        ]
        next_to = plain.get(task, PlainResults())
        parts += [f'<h2 id="data-{place}">{_text(task)}</h2>', _about(own, names)]
        parts += [f"<p><strong>{_text(next_to.verdict)}</strong></p>" if next_to.verdict else "", _summary(own)]
        parts += ["<h3>By run</h3>", _folded(_results(own, names), len(own), "All runs"), _sentences(own)]
        parts += [_plain_table(table) for table in (next_to.table, next_to.backtest) if table is not None]
        parts.append(f'<div class="figures">{"".join(drawn)}</div>' if drawn else "")
    if len(runs) > 1:
        parts += ["<h2>Differences</h2>", _folded(_differences(runs, names), len(runs), "All configurations")]
    parts += [
        f"<h2>Machine{'s' if len(runs) > 1 else ''}</h2>",
        _folded(_machines(runs, names), len(runs), "All machines"),
    ]
    warned = [f"{names[id(run)]}, {record['text']}" for run in runs for record in run.of_kind("warning")]
    lines = "".join(f'<p class="note">{_text(line)}</p>' for line in [*warned, *notes])
    parts.append(_folded(lines, len(warned) + len(notes), "Notes"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>orthornn report</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<link rel="icon" href="data:,"><style>{_STYLE}</style></head>\n<body>\n'
        + "\n".join(parts)
        + f"\n<script>{_SCRIPT}</script>\n</body></html>\n"
    )


def _folded(content: str, rows: int, title: str) -> str:
    """The content as it is, or, if it is long, behind a line that opens it."""
    return content if rows <= _MOST_OPEN else f"<details><summary>{title} ({rows})</summary>{content}</details>"


def _about(runs: Sequence[SavedRun], names: Mapping[int, str]) -> str:
    """Lines on the data, and on the run with the best validation."""
    task, best = runs[0].config.task, best_of(runs)
    fields = {entry.name: getattr(task, entry.name) for entry in dataclasses.fields(task)}  # type: ignore[arg-type]
    said = [f"{name} {fields[name]}" for name in ("data", "target", "T") if fields.get(name) not in (None, "")]
    trivial = next((run.result["trivial_loss"] for run in runs if run.result), None)
    said += [] if trivial is None else [f"trivial baseline {trivial:.4g}"]
    lines = [", ".join(said)] if said else []
    if best is not None and best.result is not None:
        validation, test = chosen(best.result)
        numbers = [
            f"{part} {task.metric} {found[task.metric]:.4g}"
            for part, found in (("validation", validation), ("test", test))
            if task.metric in found
        ]
        lines.append(f"Best by {'validation' if validation else 'test'}: {names[id(best)]} ({', '.join(numbers)})")
    return "".join(f'<p class="note">{_text(line)}</p>' for line in lines)


def _summary(runs: Sequence[SavedRun]) -> str:
    """One row per group of seeds, the best by validation first, if there are fewer groups than runs."""
    grouped = {name: [run for run in own if run.result] for name, own in groups(runs).items()}
    grouped = {name: own for name, own in grouped.items() if own}
    if len(grouped) in (0, 1, len(runs)):
        return ""
    metric, found = runs[0].config.task.metric, standings(grouped)
    heads = ["model", f"validation {metric}", f"test {metric}", "seeds", "parameters"]
    shown = []
    for name in found.best_first():
        cells = [mean_and_spread(part[name]) for part in (found.validation(), found.test())]
        ended = grouped[name][0].result or {}
        shown.append([name, *cells, len(grouped[name]), ended["parameters"]])
    first, others = _table(heads, shown[:_MOST_OPEN], ""), _table(heads, shown[_MOST_OPEN:], "")
    rest = f"<details><summary>{len(shown) - _MOST_OPEN} more</summary>{others}</details>" if shown[_MOST_OPEN:] else ""
    return f"<h3>By model, mean ± standard deviation</h3>{first}{rest}"


def _plain_table(table: Table) -> str:
    notes = "".join(f'<p class="note">{_text(note)}</p>' for note in table.notes)
    return (
        f"<h3>{_text(table.title)}</h3>" + _table([column.heading for column in table.columns], table.rows, "") + notes
    )


def _results(runs: Sequence[SavedRun], names: Mapping[int, str]) -> str:
    metric = runs[0].config.task.metric
    heads = ["run", "model", "seed", "best validation", *([] if metric == "loss" else [f"test {metric}"]), "test loss"]
    heads += ["over baseline", "parameters", "updates", "updates/s", "||W'W - I||"]
    rows = []
    for run in runs:
        row: list[Any] = [names[id(run)], run.config.model.name, run.config.seed]
        if run.result is None:
            row += [*[""] * (len(heads) - 6), run.end, "", ""]
        else:
            result = run.result
            speed = result["steps"] / max(result["update_seconds"], 1e-9)
            validation, test = chosen(result)
            loss = test.get("loss", math.nan)
            over = loss / result["trivial_loss"] if result["trivial_loss"] else math.nan
            row += [validation.get(metric, ""), *([] if metric == "loss" else [test.get(metric, "")]), loss, over]
            error = result["orthogonality_error"]
            row += [result["parameters"], result["steps"], speed]
            row.append("" if error is None else "with decay" if run.config.model.forgets else error)
        rows.append(row)
    return _table(heads, rows)


def _sentences(runs: Sequence[SavedRun]) -> str:
    lines = ["Test figures use the weights of each run's best validation.", *standings(groups(runs)).verdicts()]
    parts = [f"<p>{_text(line)}</p>" for line in lines]
    more = len(parts) - _MOST_SENTENCES
    rest = f"<details><summary>{more} more comparisons</summary>{''.join(parts[_MOST_SENTENCES:])}</details>"
    return "".join(parts[:_MOST_SENTENCES]) + (rest if more > 1 else "".join(parts[_MOST_SENTENCES:]))


def _differences(runs: Sequence[SavedRun], names: Mapping[int, str]) -> str:
    found = differing(runs)
    if not found:
        return "<p>The runs have the same configuration.</p>"
    rows = [[names[id(run)], *(_show(values[index]) for values in found.values())] for index, run in enumerate(runs)]
    return _table(["run", *found], rows)


def _machines(runs: Sequence[SavedRun], names: Mapping[int, str]) -> str:
    entries = ["started", "processor", "threads", "torch", "orthornn", "commit"]
    rows = [[names[id(run)], *(_show(run.environment.get(name)) for name in entries)] for run in runs]
    return _table(["run", *entries], rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]], kind: str = ' class="sortable"') -> str:
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in heads)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>\n" for row in rows)
    return f'<div class="wide"><table{kind}><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f'<td data-value="{value!r}">{value:.4g}</td>'
    return f"<td>{_text(value)}</td>"


def _figure(title: str, caption: str, svg: str) -> str:
    data = base64.b64encode(svg.encode()).decode()
    return (
        f'<figure><img alt="{_text(title)}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{_text(caption)}</figcaption></figure>"
    )


def _show(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _text(value: Any) -> str:
    return html.escape(printable(value))
