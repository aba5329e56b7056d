"""The published and reproduced results of a paper in Markdown, for its page in docs/.

`python -m orthornn_evidence.papers.page` (`make pages`), in the root of the source, updates all these pages and the README,
and writes a copy of the README without links for the package index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orthornn.errors import ArgumentError

from . import PAPERS
from .experiment import Experiment
from .results import best_test, reproduced, share
from .template import alternative, fill, not_answered

BEGIN, END = "<!-- from results/: `orthornn reproduce PAPER --page` -->", "<!-- end -->"
_LARGEST_FIRST = ("full", "laptop", "smoke")


def page(results: Path, chosen: Iterable[Experiment], from_docs: str = "../../results") -> str:
    """Return a section for every experiment with results, of the largest budget. from_docs: Relative path of the results."""
    sections = []
    for experiment in chosen:
        folder = results / experiment.paper / experiment.name
        budget = next((budget for budget in _LARGEST_FIRST if (folder / f"{budget}.json").exists()), None)
        if budget is None:
            sections.append(f"### {experiment.place}: {experiment.name}\n\n{experiment.summary}\n\nNot run yet.\n")
            continue
        content = json.loads((folder / f"{budget}.json").read_text(encoding="utf-8"))
        figure = f"{from_docs}/{experiment.paper}/{experiment.name}/{budget}.png"
        sections.append(_section(content, figure if (folder / f"{budget}.png").exists() else None))
    return "\n".join(sections)


def _section(content: Mapping[str, Any], figure: str | None) -> str:
    lines = [f"### {content['place']}: {content['name']}", "", content["summary"], ""]
    rows = [row for row in content["rows"] if "selection" in row]
    if rows:
        lines += ["| | published | reproduced | seeds | best test | minutes | of full | |", f"|{'---|' * 8}"]
        lines += [_line(row) for row in rows]
        lines.append("")
    lines += not_answered(content)
    lines += [f"- {sentence}" for sentence in content["findings"]]
    lines += [f"- {content['budget']}: {difference}" for difference in content["differences"]]
    lines += [f"- unfinished: {words}" for words in content["missing"]]
    lines += ["", f"`{content['command']}`", ""]
    if figure is not None:
        lines += [f"![{alternative(content)}]({figure})", ""]
    return "\n".join(lines)


def _line(row: Mapping[str, Any]) -> str:
    value, form = row.get("published"), row["form"]
    published = " ".join(
        filter(None, [form.format(value) if value is not None else "", row.get("published_words", "")])
    )
    minutes = "" if row["minutes"] is None else f"{row['minutes']:.1f}"
    cells: Sequence[str] = (
        row["what"],
        published,
        reproduced(row),
        str(row["seeds"]),
        best_test(row),
        minutes,
        share(row),
        row["note"],
    )
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def renewed(text: str, section: str) -> str:
    """Return the page `text` with the part between its two marks replaced. Raise ArgumentError if it has no marks."""
    if BEGIN not in text or END not in text.split(BEGIN, 1)[1]:
        raise ArgumentError(
            f"Expected a page with the lines {BEGIN} and {END}, which enclose the results, but they are missing. Add them."
        )
    before, rest = text.split(BEGIN, 1)
    return f"{before}{BEGIN}\n\n{section}\n{END}{rest.split(END, 1)[1]}"


_GUIDES = (
    "agents",
    "from_torch",
    "stacked_layers",
    "streaming",
    "episodes",
    "gpu",
    "input_dependent",
    "long_sequences",
    "microcontroller",
    "optimizers",
)
TEMPLATES = (
    ("docs/readme.in.md", "README.md"),
    ("docs/index.in.md", "docs/index.md"),
    ("docs/which_method.in.md", "docs/which_method.md"),
    ("docs/methods/hadamard.in.md", "docs/methods/hadamard.md"),
    ("docs/benchmarks/index.in.md", "docs/benchmarks/index.md"),
    ("docs/benchmarks/gpu.in.md", "docs/benchmarks/gpu.md"),
    ("docs/results/group_words.in.md", "docs/results/group_words.md"),
    ("docs/results/exact_machines.in.md", "docs/results/exact_machines.md"),
    ("docs/results/certificates.in.md", "docs/results/certificates.md"),
    ("docs/results/amplifier.in.md", "docs/results/amplifier.md"),
    ("docs/results/million_steps.in.md", "docs/results/million_steps.md"),
    ("docs/results/microcontroller.in.md", "docs/results/microcontroller.md"),
    ("docs/results/popgym.in.md", "docs/results/popgym.md"),
    ("docs/results/irregular_time.in.md", "docs/results/irregular_time.md"),
    ("docs/results/stacked_layers.in.md", "docs/results/stacked_layers.md"),
    *((f"docs/how_to/{guide}.in.md", f"docs/how_to/{guide}.md") for guide in _GUIDES),
    *((f"docs/results/{paper}.in.md", f"docs/results/{paper}.md") for paper in PAPERS),
    ("docs/results/unfinished.in.md", "docs/results/unfinished.md"),  # last: it shows what the other pages leave out
)
_PACKAGE_INDEX = "docs/package_index.txt"
_MADE = "<!-- made from {} by `make pages`: change that file, not this one -->\n"


def pages(root: Path) -> dict[Path, str]:
    """Return the current text of every page that has a template below the root of the source."""
    made: dict[Path, str] = {}
    shown: set[str] = set()
    for template, name in TEMPLATES:
        if (root / template).exists():
            text = (root / template).read_text(encoding="utf-8")
            made[root / name] = _MADE.format(template) + fill(text, root / "results", root / name, shown)
    if root / "README.md" in made:
        made[root / _PACKAGE_INDEX] = without_links(made[root / "README.md"])
    return made


def without_links(text: str) -> str:
    """Return the README for a package index, which has no other files: without pictures, with words instead of links."""
    text = re.sub(r"^<!--.*?-->\n", "", text)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)\n+", "", text)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)


if __name__ == "__main__":
    for _path, _text in pages(Path()).items():
        _path.write_text(_text, encoding="utf-8")
