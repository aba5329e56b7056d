"""Parse command-line words into option values, and format the help that explains them.

An option is written `--a-b VALUE`, `--a_b VALUE` or `--a-b=VALUE`, a switch `--force` or `--no-force`; words after `--`
are not options. Fields of dataclasses define the options of a command, their types and help (learn/fields.py).
"""

from __future__ import annotations

import dataclasses
import difflib
import shlex
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from .._checks import check_choice
from ..errors import ArgumentError
from ..learn import entry_points
from ..learn.fields import Option, explained, metavar, options_of
from ..learn.files.columns import SUFFIXES, is_data
from ..learn.given_once import OPTION
from ..learn.options import groups, named
from ..learn.own_data import table_options
from ..learn.recipes import defaults_of
from ..learn.systems import MODELS
from ..learn.tasks import TASKS, Classify

HELP = {"-h", "--help"}
_INDENT = 30  # columns of the names of options in a help, if they fit


def read_options(kind: Any, prog: str, description: str, words: Sequence[str]) -> Any:
    """Return an instance of the dataclass `kind` from these words.

    Raises:
        ArgumentError: If an option is unknown, or a value is invalid for its option.
        SystemExit: After printing the help, if requested.
    """
    options = list(options_of(kind))
    if HELP & {*words}:
        _exit_with(help_text(prog, description, {"": options}))
    known = {option.name: option for option in options}
    given = parse(words, known, prog)
    absent = [option for option in options if option.name not in given and option.default is dataclasses.MISSING]
    if absent:
        raise ArgumentError(f"Expected {absent[0].typed}, but got none.{explained(prog)}")
    return kind(**{name: known[name].value(value, prog) for name, value in given.items()})


def data_and_options(command: str, summary: str, kind: type, words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the task or the data of `orthornn COMMAND TASK ...`, and the given options by name.

    kind: Dataclass with the options of the command, in addition to those of tasks, models and runs.
    """
    if not words or words[0] in HELP:
        _exit_with(task_manual(command, summary))
    data = words[0]
    if data.startswith("-"):
        raise ArgumentError(
            f"Expected the task first, but got {data}. Write: orthornn {command} TASK {shlex.join(words)}. TASK is one "
            f"of {', '.join(TASKS)}."
        )
    if not data:
        raise ArgumentError(
            "Expected a task or your own data, but got an empty name. Name one; . is the folder in which the command runs."
        )
    own = data not in TASKS and is_data(Path(data).expanduser())
    if not own:
        _check_task(command, data)
    task = Classify if own else TASKS[data]
    prog = f"orthornn {command} {task.name}"
    if HELP & {*words}:
        first = (task.__doc__ or "").strip().splitlines()[0]
        chosen = defaults_of(task) if "recipe" in named(task, kind) else {}
        _exit_with(help_text(prog, f"{first} {summary}", groups(task, kind), chosen))
    return data, parse(words[1:], table_options(kind) if own else named(task, kind), prog)


def _check_task(command: str, data: str) -> None:
    """Raise ArgumentError for a word that is neither a task nor data."""
    path, wanted = Path(data), f"Expected a task, a file that ends in {', '.join(SUFFIXES)}, or a folder of sounds"
    if data not in TASKS and path.expanduser().exists():
        raise ArgumentError(
            f"{wanted}, but got {data!r}, which is none of them. `orthornn {command} --help` lists the tasks."
        )
    if data not in TASKS and (path.suffix or len(path.parts) > 1):
        raise ArgumentError(
            f"{wanted}, but {data!r} does not exist. Correct its name; `orthornn {command} --help` lists the tasks."
        )
    check_choice("task", data, TASKS)


def parse(words: Sequence[str], known: Mapping[str, Option], prog: str) -> dict[str, Any]:
    """Return the given values by name: text, True or False for a switch, lists for several values.

    Raises:
        ArgumentError: If an option is unknown or lacks its value, or if there is an extra word.
    """
    found: dict[str, Any] = {}
    left, rest = list(words), []
    while left:
        word = left.pop(0)
        typed, equals, text = word.partition("=")
        if word == "--":
            rest += left
            break
        if not OPTION.fullmatch(typed):
            rest.append(word)
            continue
        name = typed[2:].replace("-", "_")
        switched = known.get(name.removeprefix("no_")) if name.startswith("no_") and name not in known else None
        option = switched or known.get(name)
        wrong = (
            option is None or option.positional or (option.is_switch if equals else switched and not option.is_switch)
        )
        if option is None or wrong:
            raise ArgumentError(_unknown([typed, *([text] if equals else _values(left, 1))], known.values(), prog))
        if option.is_switch:
            found[option.name] = switched is None
            continue
        values = [text] if equals else _values(left, option.count) or [option.alone] * bool(option.alone)
        if len(values) < option.count:
            wanted = "a value" if option.count == 1 else f"{option.count} values"
            raise ArgumentError(
                f"Expected {wanted} after {option.typed}, but got {len(values) or 'none'}.{explained(prog)}"
            )
        found[name] = values[0] if option.count == 1 else values
    for option in known.values():
        if option.positional and rest:
            found[option.name], rest = (rest, []) if option.several else (rest[0], rest[1:])
    if rest:
        raise ArgumentError(_unknown(rest, known.values(), prog))
    return found


def _values(left: list[str], count: int) -> list[str]:
    """Take this many values from the remaining words, or fewer if an option comes first."""
    found: list[str] = []
    while left and len(found) < count and left[0] != "--" and not OPTION.fullmatch(left[0].partition("=")[0]):
        found.append(left.pop(0))
    return found


def _unknown(words: Sequence[str], known: Iterable[Option], prog: str) -> str:
    near = difflib.get_close_matches(words[0], [option.typed for option in known], 1) if words[0][:1] == "-" else []
    meant = f" Did you mean {near[0]}?" if near else ""
    return f"Expected options of `{prog}`, but got {', '.join(words)}.{meant}{explained(prog)}"


def help_text(
    prog: str, description: str, options: Mapping[str, Iterable[Option]], chosen: Mapping[str, Any] | None = None
) -> str:
    """Return the help of a command: usage, description, and its options by group.

    chosen: Values that a recipe chooses for options that are not given.
    """
    width = max(60, shutil.get_terminal_size().columns - 2)
    every = [option for own in options.values() for option in own]
    usage = " ".join([f"usage: {prog}", *(option.positional for option in every if option.positional), "[options]"])
    lines = [usage, "", *textwrap.wrap(" ".join(description.split()), width)]
    for title, own in options.items():
        lines += ["", f"{title} options".strip()]
        for option in own:
            name = option.typed
            if option.is_switch:
                name += f", --no-{name[2:]}"
            elif not option.positional:
                name += f" [{metavar(option.kind)}]" if option.alone else f" {metavar(option.kind)}"
            explanation = _with_default(option, (chosen or {}).get(option.name))
            text = textwrap.wrap(explanation, width - _INDENT, break_on_hyphens=False) or [""]
            beside = f"  {name:<{_INDENT - 3}} "
            lines += [beside + text.pop(0)] if len(beside) == _INDENT else [beside.rstrip()]
            lines += [" " * _INDENT + line for line in text]
    return "\n".join(lines) + "\n"


def _with_default(option: Option, chosen: Any) -> str:
    """Return the description of an option with its default. chosen: The recipe's value; None if there is none."""
    text, default = option.help, option.default
    if default is dataclasses.MISSING:
        return f"{text} (required)"
    hidden = default in (None, "", ()) or "Default:" in text
    if chosen is None:
        return text if hidden else f"{text} (default: {default})"
    if hidden:
        return f"{text.replace('Default:', 'Without a recipe:')} (default: {chosen})"
    return f"{text} (default: {chosen}; without a recipe: {default})"


def _exit_with(text: str) -> NoReturn:
    print(text, end="")
    raise SystemExit(0)


def task_manual(command: str, summary: str) -> str:
    """Return the output of `orthornn COMMAND --help`."""
    tasks = "\n".join(f"  {name:<18}{(task.__doc__ or '').strip().splitlines()[0]}" for name, task in TASKS.items())
    absent = [name for name in entry_points.EVIDENCE[entry_points.TASKS] if name not in set(TASKS)]
    if absent:
        tasks += f"\n\nnot installed: {', '.join(absent)}; each says how to get it"
    models = "\n".join(f"  {name:<18}{kind.summary}" for name, kind in MODELS.items())
    return (
        f"orthornn {command} - {summary}\n\nusage: orthornn {command} TASK [options]\n"
        f"       orthornn {command} FILE --target COLUMN [options]   (your own: {', '.join(SUFFIXES)};\n"
        f"{' ' * len(f'       orthornn {command} FILE --target COLUMN [options]   ')}or a folder of sounds)\n\n"
        f"tasks:\n{tasks}\n\n"
        f"models:\n{models}\n\n`orthornn {command} TASK --help` lists the options, with units and defaults.\n"
    )
