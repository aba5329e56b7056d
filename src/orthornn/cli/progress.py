"""Show progress on a terminal with live bars, and elsewhere as `orthornn.train` does."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from ..learn.report.notebook import in_notebook
from ..learn.report.progress import ProgressLines
from ..learn.training import Progress

_ROOM = 3  # columns


class _Narrow:
    """A drawing in fewer columns than the terminal has."""

    def __init__(self, drawn: Any) -> None:
        self.drawn = drawn

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        yield from console.render(self.drawn, options.update_width(max(1, options.max_width - _ROOM)))


class Display(ProgressLines):
    """A display of the progress of every run by name; use it as a context manager.

    trivial_loss: Loss to compare each loss with. limit: Total seconds of all runs, or None.
    """

    def __init__(self, trivial_loss: float, limit: float | None = None) -> None:
        super().__init__(trivial_loss, limit)
        self._bars: Any = None
        self._bar_of: dict[str, Any] = {}

    def __enter__(self) -> Display:
        super().__enter__()
        if not in_notebook() and sys.stdout.isatty():
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bars

            class NarrowBars(Bars):
                """Bars that leave room for the ^C that a terminal writes: a broken line would be drawn twice."""

                def get_renderable(self) -> Any:
                    return _Narrow(super().get_renderable())

            self._bars = NarrowBars(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.completed}/{task.total}", justify="right"),
                TextColumn("{task.fields[text]}"),
                expand=True,
            )
            self._bars.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, where: TracebackType | None) -> None:
        if self._bars is not None:
            self._bars.stop()
        super().__exit__(kind, error, where)

    def __call__(self, runs: Mapping[str, Progress]) -> None:
        """Show the progress of the runs."""
        if self._bars is None:
            super().__call__(runs)
            return
        left = self._time_left(runs)
        for name, run in runs.items():
            if name not in self._bar_of:
                self._bar_of[name] = self._bars.add_task(name, total=run.steps, text="")
            self._bars.update(self._bar_of[name], completed=run.step, text=f"{self._line(run)}  {left}")
