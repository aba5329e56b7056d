"""Progress of one or several runs: a line now and then, or bars in a notebook."""

from __future__ import annotations

import html
import time
from collections.abc import Mapping
from types import TracebackType

from ..training import Progress
from .notebook import Html, Place, in_notebook

_LINE_SECONDS = 5.0
_DRAWING_SECONDS = 0.5  # at least, between two drawings in a notebook
_LINE_METRICS = 2  # of a validation, in a line of text


class ProgressLines:
    """A display of the progress of every run by name, to be used as a context manager.

    trivial_loss: what each loss is compared with. limit: seconds that all runs have together, or None.
    """

    def __init__(self, trivial_loss: float, limit: float | None = None) -> None:
        self.trivial_loss = trivial_loss
        self.limit = limit
        self._last_line = time.monotonic()
        self._place: Place | None = None
        self._last_drawn = -_DRAWING_SECONDS
        self._bars_html: Html | None = None

    def __enter__(self) -> ProgressLines:
        if in_notebook():
            self._place = Place()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, where: TracebackType | None) -> None:
        if self._place is not None and self._bars_html is not None:
            self._place.show(self._bars_html)

    def __call__(self, runs: Mapping[str, Progress]) -> None:
        """Show the progress of the runs."""
        left = self._time_left(runs)
        now = time.monotonic()
        if self._place is not None:
            self._bars_html = self._html(runs, left)
            if now - self._last_drawn >= _DRAWING_SECONDS:
                self._last_drawn = now
                self._place.show(self._bars_html)
            return
        if now - self._last_line >= _LINE_SECONDS:
            self._last_line = now
            for name, run in runs.items():
                validation = ", ".join(
                    f"{key} {value:.4g}" for key, value in list((run.validation or {}).items())[:_LINE_METRICS]
                )
                print(
                    f"{name:<16} {run.step:>6}/{run.steps}  {self._line(run)}  {left}"
                    + (f"  validation {validation}" if validation else ""),
                    flush=True,
                )

    def _html(self, runs: Mapping[str, Progress], left: str) -> Html:
        """The bars of a notebook, and the same as text."""
        rows, lines = [], []
        for name, run in runs.items():
            validation = ", ".join(f"{key} {value:.4g}" for key, value in (run.validation or {}).items())
            text = f"{self._line(run)}  {left}" + (f"  validation {validation}" if validation else "")
            lines.append(f"{name} {run.step}/{run.steps}  {text}")
            rows.append(
                f'<div>{html.escape(name)} <progress value="{run.step}" max="{run.steps}"></progress> '
                f"{run.step}/{run.steps} &nbsp;{html.escape(text)}</div>"
            )
        return Html("".join(rows), "\n".join(lines))

    def _line(self, run: Progress) -> str:
        speed = run.step / run.update_seconds if run.step else 0.0
        return f"{speed:.3g} steps/s  loss {run.loss:.3g} = {run.loss / self.trivial_loss:.3f} x baseline"

    def _time_left(self, runs: Mapping[str, Progress]) -> str:
        spent = sum(run.seconds for run in runs.values())
        rest = sum(run.seconds / run.step * (run.steps - run.step) for run in runs.values() if run.step)
        if self.limit is not None:
            rest = min(rest, max(0.0, self.limit - spent))
        return f"{rest / 60:.0f} min left" if rest >= 120 else f"{rest:.0f} s left"
