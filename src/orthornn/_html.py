"""Small tables as HTML, for notebooks."""

from __future__ import annotations

import html
from collections.abc import Sequence


def table_html(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    notes: Sequence[str] = (),
    left: Sequence[bool] | None = None,
) -> str:
    """Return a table: its title, headings, rows of cells, and lines below.

    left: which columns are words, which begin on the left; the first one unless given.
    """
    left = [place == 0 for place in range(len(headings))] if left is None else left
    sides = [f' style="text-align:{"left" if own else "right"}"' for own in left]
    head = "".join(f"<th{side}>{_text(heading)}</th>" for heading, side in zip(headings, sides))
    body = "".join(
        "<tr>" + "".join(f"<td{side}>{_text(cell)}</td>" for cell, side in zip(row, sides)) + "</tr>" for row in rows
    )
    below = "".join(f"<div>{_text(note)}</div>" for note in notes)
    above = f'<caption style="text-align:left;caption-side:top">{_text(title)}</caption>' if title else ""
    return f"<div><table>{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"


def _text(value: object) -> str:
    """Return a value as text of a page, without what cannot be printed: it may come from a stranger's file."""
    shown = "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in str(value))
    return html.escape(shown)
