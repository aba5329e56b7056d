"""Notebooks: whether this process is one's kernel, and what is shown there."""

from __future__ import annotations

import sys
from typing import Any


def in_notebook() -> bool:
    """Return whether the code runs in the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class Html(str):
    """HTML that a notebook shows, with plain text for those that show none."""

    plain: str

    def __new__(cls, text: str, plain: str) -> Html:
        """Return it."""
        made = super().__new__(cls, text)
        made.plain = plain
        return made

    def __repr__(self) -> str:
        return self.plain

    def _repr_html_(self) -> str:
        return str(self)


class Place:
    """A place in the output of a cell whose content changes."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, content: Html) -> None:
        """Replace the previous output by this."""
        from IPython.display import display

        if self._handle is None:
            self._handle = display(content, display_id=True)
        else:
            self._handle.update(content)


def show(content: Any) -> None:
    """Show an object with _repr_html_ below the cell."""
    from IPython.display import display

    display(content)
