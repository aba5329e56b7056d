"""The tasks by name: those of this package, and those that other installed packages add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .. import entry_points
from .task import Task


class Tasks(Mapping[str, type[Task]]):
    """The tasks by name.

    The ones that other packages add are imported when they are asked for. Those of the evidence count as members even
    where it is not installed: asking for one is then the error that says how to install it, on every path that reads the
    name of a task. Iteration is over those that can be imported.

    Attributes:
        own: The tasks of this package.
    """

    def __init__(self, *own: type[Task]) -> None:
        self.own = {task.name: task for task in own}

    def __getitem__(self, name: str) -> type[Task]:
        return self.own[name] if name in self.own else entry_points.load(entry_points.TASKS, name)

    def __contains__(self, name: object) -> bool:
        return name in self.own or (isinstance(name, str) and entry_points.is_known(entry_points.TASKS, name))

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from (name for name in entry_points.loaded(entry_points.TASKS) if name not in self.own)

    def __len__(self) -> int:
        return sum(1 for _ in self)
