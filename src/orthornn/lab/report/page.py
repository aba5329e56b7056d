"""One HTML page about runs: a table to sort, figures, what their configurations differ in. It needs no network.

Everything, figures included, is in the one file; the script is the thirty lines below.
"""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..._files import write_atomically
from . import pictures
from .runs import SavedRun, by_data, chosen, differing, groups
from .significance import verdicts

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1b1b1b;
  background: #fff; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; } .wide { overflow-x: auto; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #d8d8d8; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th button { font: inherit; font-weight: 600; border: 0; background: none; cursor: pointer; padding: 0; color: inherit; }
th[aria-sort=ascending] button::after { content: " \\25B2"; } th[aria-sort=descending] button::after { content: " \\25BC"; }
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; background: #fff; }
figcaption, .note { color: #555; }
"""

_LONGEST_NAME = 150  # characters

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


def write_report(runs: Sequence[SavedRun], path: Path, figures: Sequence[str] = ()) -> list[Path]:
    """Write the page to `path`, and each of its figures next to it in these formats ("svg", "pdf", "png").

    Each file is written atomically: on a full disk the earlier one stays. Returns the files written.
    """
    drawn, notes = draw(runs)
    written = [path]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = page(runs, {title: pictures.as_svg(figure) for title, figure in drawn.items()}, notes)
    write_atomically(path, lambda file: file.write(text.encode()))
    for suffix in figures:
        for title, figure in drawn.items():
            name = "".join(letter if letter.isalnum() else "-" for letter in title.lower())[:_LONGEST_NAME]
            file = path.with_name(f"{path.stem}-{name}.{suffix}")
            pictures.save(figure, file)
            written.append(file)
    return written


def draw(runs: Sequence[SavedRun]) -> tuple[dict[str, Any], list[str]]:
    """Return the figures by title, task by task, and lines about those that could not be drawn."""
    drawn: dict[str, Any] = {}
    notes = []
    for task, own in by_data(runs).items():
        grouped = groups(own)
        metric = own[0].config.task.metric
        trivial = next((run.result["trivial_loss"] for run in own if run.result), None)
        drawn[f"{task}: training loss"] = pictures.curves_with_bands(grouped, "train", "loss", trivial)
        drawn[f"{task}: validation {metric}"] = pictures.curves_with_bands(
            grouped, "validation", metric, trivial if metric == "loss" else None
        )
        models, missing = pictures.trained_models(grouped)
        notes += missing
        tasks = {name: grouped[name][0].config.task for name in models}
        for title, figure in {
            f"{task}: eigenvalues": pictures.eigenvalues(models),
            f"{task}: gradient norms": pictures.gradient_norms(models, tasks),
            f"{task}: singular values during training": pictures.recorded_spectra(grouped),
        }.items():
            if figure is not None:
                drawn[title] = figure
    return drawn, notes


def page(runs: Sequence[SavedRun], figures: Mapping[str, str], notes: Sequence[str] = ()) -> str:
    """Return the page as text. figures: SVG by title."""
    parts = [f"<h1>{len(runs)} run{'s' if len(runs) != 1 else ''}</h1>"]
    for task, own in by_data(runs).items():
        parts += [f"<h2>{_text(task)}</h2>", _results(own), _sentences(own)]
        parts += [_figure(title, svg) for title, svg in figures.items() if title.startswith(f"{task}: ")]
    parts += ["<h2>What differs</h2>", _differences(runs), "<h2>What they ran on</h2>", _machines(runs)]
    warned = [f"{run.path.name}, {record['text']}" for run in runs for record in run.of_kind("warning")]
    parts += [f'<p class="note">{_text(line)}</p>' for line in [*warned, *notes]]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>orthornn report</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><style>{_STYLE}</style></head>\n<body>\n'
        + "\n".join(parts)
        + f"\n<script>{_SCRIPT}</script>\n</body></html>\n"
    )


def _results(runs: Sequence[SavedRun]) -> str:
    metric = runs[0].config.task.metric
    heads = ["run", "model", "seed", "parameters", "updates", "updates/s", "best validation", "test loss"]
    heads += ["over trivial", *([] if metric == "loss" else [f"test {metric}"]), "||W'W - I||"]
    rows = []
    for run in runs:
        last = run.records[-1]["step"] if run.records else 0
        row: list[Any] = [run.path.name, run.config.model.name, run.config.seed]
        if run.result is None:
            row += ["", f"{last} of {run.config.steps}, not finished", *[""] * (len(heads) - 5)]
        else:
            result = run.result
            speed = result["steps"] / max(result["update_seconds"], 1e-9)
            validation, test = chosen(result)
            loss = test.get("loss", math.nan)
            row += [result["parameters"], result["steps"], speed, validation.get(metric, ""), loss]
            over = loss / result["trivial_loss"] if result["trivial_loss"] else math.nan
            row += [over, *([] if metric == "loss" else [test.get(metric, "")])]
            row.append("" if result["orthogonality_error"] is None else result["orthogonality_error"])
        rows.append(row)
    return _table(heads, rows)


def _sentences(runs: Sequence[SavedRun]) -> str:
    task = runs[0].config.task
    found = {name: [chosen(run.result) for run in own if run.result] for name, own in groups(runs).items()}
    test = {name: [tested.get(task.metric, math.nan) for _, tested in own] for name, own in found.items()}
    validation = {name: [seen.get(task.metric, math.nan) for seen, _ in own if seen] for name, own in found.items()}
    lines = [
        "Test figures are those of the weights of each run's best validation.",
        *verdicts(test, task.higher_is_better, f"test {task.metric}", validation),
    ]
    return "".join(f"<p>{_text(line)}</p>" for line in lines)


def _differences(runs: Sequence[SavedRun]) -> str:
    found = differing(runs)
    if not found:
        return "<p>Their configurations are the same.</p>"
    rows = [[run.path.name, *(_show(values[index]) for values in found.values())] for index, run in enumerate(runs)]
    return _table(["run", *found], rows)


def _machines(runs: Sequence[SavedRun]) -> str:
    names = ["started", "processor", "threads", "torch", "orthornn", "commit"]
    rows = [[run.path.name, *(_show(run.environment.get(name)) for name in names)] for run in runs]
    return _table(["run", *names], rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in heads)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>\n" for row in rows)
    return (
        f'<div class="wide"><table class="sortable"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'
    )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f'<td data-value="{value!r}">{value:.4g}</td>'
    return f"<td>{_text(value)}</td>"


def _figure(title: str, svg: str) -> str:
    data = base64.b64encode(svg.encode()).decode()
    return (
        f'<figure><img alt="{_text(title)}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{_text(title)}</figcaption></figure>"
    )


def _show(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _text(value: Any) -> str:
    return html.escape(str(value))
