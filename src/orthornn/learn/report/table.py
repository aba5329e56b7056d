"""A small table: by rich on a terminal, HTML in a notebook, plain text elsewhere.

On a terminal that is too narrow headings are broken between words, and then the columns are shown in several blocks,
each with the first column; no cell is ever cut.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TextIO

from ..._html import table_html
from ..._printable import printable
from . import notebook

_GAP = 2  # characters between two columns


@dataclass(frozen=True)
class Column:
    """A heading, and whether its cells are aligned left (words) or right (numbers)."""

    heading: str
    left: bool = False


@dataclass(repr=False)
class Table:
    """title, columns, rows of ready-made cells, and lines below."""

    title: str
    columns: Sequence[Column]
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def plain(self) -> str:
        """Return the table as text, without colors, and with what a terminal would obey escaped."""
        return self._printable()._plain()

    def _printable(self) -> Table:
        """Return the table as it is shown: a cell may be a name from a stranger's file."""
        columns = [replace(column, heading=printable(column.heading, keep="")) for column in self.columns]
        rows: list[Sequence[str]] = [[printable(cell, keep="") for cell in row] for row in self.rows]
        return Table(printable(self.title), columns, rows, [printable(note) for note in self.notes])

    def _plain(self) -> str:
        cells = [[column.heading for column in self.columns], *self.rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]

        def line(row: Sequence[str]) -> str:
            parts = [
                cell.ljust(width) if column.left else cell.rjust(width)
                for cell, width, column in zip(row, widths, self.columns)
            ]
            return "  ".join(parts).rstrip()

        rule = "  ".join("-" * width for width in widths)
        return "\n".join([self.title, "", line(cells[0]), rule, *map(line, cells[1:]), *self.notes])

    def __repr__(self) -> str:
        return self.plain()

    def _repr_html_(self) -> str:
        headings = [column.heading for column in self.columns]
        return table_html(self.title, headings, self.rows, self.notes, [column.left for column in self.columns])

    def show(self, file: TextIO | None = None) -> None:
        """Print it: with rich if that is installed and the file is a terminal; in a notebook show it below the cell."""
        if file is None and notebook.in_notebook():
            notebook.show(self)
            return
        file = sys.stdout if file is None else file
        if file.isatty():
            try:
                self._printable()._show_rich(file)
                return
            except ModuleNotFoundError as error:
                if error.name is None or not error.name.startswith("rich"):
                    raise
        print(self.plain(), file=file)

    def _show_rich(self, file: TextIO) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        width, height = shutil.get_terminal_size()  # rich gives a dumb terminal 80 columns unless it is told both
        console = Console(file=file, width=width, height=height)
        headings, widths = self._fitted(width)
        console.print(Text(self.title), highlight=False)
        console.print()
        for block in self._blocks(widths, width):
            table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, _GAP - 1, 0, 0))
            for place in block:
                justify = "left" if self.columns[place].left else "right"
                table.add_column(Text(headings[place]), justify=justify, no_wrap=True, min_width=widths[place])  # type: ignore[arg-type]
            for row in self.rows:
                table.add_row(*(Text(row[place]) for place in block))
            # wider than a very narrow terminal, which breaks the lines: rich would leave columns out
            Console(file=file, width=max(width, self._width(block, widths)), height=height).print(table)
            console.print()
        for note in self.notes:
            console.print(note, markup=False, highlight=False)

    def _fitted(self, most: int) -> tuple[list[str], list[int]]:
        """Return the headings, broken between words if the table is wider than `most`, and the widths of the
        columns.
        """
        cells = [max([len(row[place]) for row in self.rows], default=0) for place in range(len(self.columns))]
        headings = [column.heading for column in self.columns]
        everything = range(len(headings))
        if self._width(everything, [max(map(len, pair)) for pair in zip(headings, ["x" * n for n in cells])]) > most:
            headings = [
                "\n".join(textwrap.wrap(heading, max(width, *map(len, heading.split())), break_long_words=False))
                for heading, width in zip(headings, cells)
            ]
        return headings, [max(width, *map(len, heading.split("\n"))) for heading, width in zip(headings, cells)]

    def _blocks(self, widths: Sequence[int], most: int) -> list[list[int]]:
        """Return the blocks of columns that fit the width, with the first column in every block."""
        blocks = [[0]]
        for place in range(1, len(widths)):
            if len(blocks[-1]) > 1 and self._width([*blocks[-1], place], widths) > most:
                blocks.append([0])
            blocks[-1].append(place)
        return blocks

    @staticmethod
    def _width(block: Sequence[int], widths: Sequence[int]) -> int:
        return sum(widths[place] + _GAP for place in block)
