"""Tables as Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


def markdown_table(headings: Sequence[str], rows: Iterable[Iterable[object]], right: Collection[int] = ()) -> list[str]:
    """Return the lines of a table. right: The columns that are aligned right."""
    rule = "".join("---:|" if place in right else "---|" for place in range(len(headings)))
    lines = (f"| {' | '.join(map(str, row))} |" for row in (headings, *rows))
    return [next(lines), f"|{rule}", *lines]
