"""Tables as Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


def percent(share: float) -> str:
    """Return a share in percent without decimals, unless they are needed to distinguish it from 0 or 100 %."""
    digits = 0
    while 0 < share < 1 and float(f"{100 * share:.{digits}f}") in (0, 100):
        digits += 1
    return f"{100 * share:.{digits}f} %"


def markdown_table(headings: Sequence[str], rows: Iterable[Iterable[object]], right: Collection[int] = ()) -> list[str]:
    """Return the lines of a table. right: The columns that are aligned right."""
    rule = "".join("---:|" if place in right else "---|" for place in range(len(headings)))
    lines = (f"| {' | '.join(map(str, row))} |" for row in (headings, *rows))
    return [next(lines), f"|{rule}", *lines]
