"""A small table: by rich on a terminal, plain text elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO


@dataclass(frozen=True)
class Column:
    """A heading, and whether its cells stand on the left (words) or on the right (numbers)."""

    heading: str
    left: bool = False


@dataclass
class Table:
    """title, columns, rows of ready-made cells, and lines below."""

    title: str
    columns: Sequence[Column]
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def plain(self) -> str:
        """The table as text, without colours."""
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

    def show(self, file: TextIO | None = None) -> None:
        """Print it: with rich if that is installed and the file is a terminal."""
        file = sys.stdout if file is None else file
        if file.isatty():
            try:
                self._show_rich(file)
                return
            except ModuleNotFoundError as error:
                if error.name is None or not error.name.startswith("rich"):
                    raise
        print(self.plain(), file=file)

    def _show_rich(self, file: TextIO) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable

        table = RichTable(title=self.title, box=box.SIMPLE_HEAD, title_justify="left")
        for column in self.columns:
            table.add_column(column.heading, justify="left" if column.left else "right")
        for row in self.rows:
            table.add_row(*row)
        console = Console(file=file)
        console.print(table)
        for note in self.notes:
            console.print(note, markup=False, highlight=False)
