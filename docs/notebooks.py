"""The tutorials as notebooks without outputs, in examples/notebooks/.

python docs/notebooks.py    (part of `make pages`)
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TUTORIALS, NOTEBOOKS = ROOT / "docs" / "tutorials", ROOT / "examples" / "notebooks"
CELL = re.compile(r"^(?:<!-- cell [^\n]* -->\n)*```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def notebook(text: str) -> str:
    """Return a tutorial in Markdown as the JSON of a notebook: blocks of Python are its cells of code."""
    body = re.sub(r"\A---\n.*?^---\n", "", text, flags=re.DOTALL | re.MULTILINE)
    body = re.sub(r"^\[Download as a notebook\]\(.*\)\n\n?", "", body, flags=re.MULTILINE)
    cells: list[dict[str, Any]] = []
    for index, part in enumerate(CELL.split(body)):
        kind = "code" if index % 2 else "markdown"
        source = part.strip("\n").splitlines(keepends=True)
        if source:
            code = {"execution_count": None, "outputs": []} if kind == "code" else {}
            cells.append({"cell_type": kind, "id": f"cell-{index}", "metadata": {}, **code, "source": source})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def notebooks() -> dict[Path, str]:
    """Return the text of each notebook by its path."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(TUTORIALS.glob("*.md"))}
    return {NOTEBOOKS / f"{path.stem}.ipynb": notebook(text) for path, text in texts.items() if "mystnb" in text}


if __name__ == "__main__":
    NOTEBOOKS.mkdir(exist_ok=True)
    for path, text in notebooks().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
