"""Parse command-line words into option values, and format the help that explains them.

Fields of dataclasses define the options of a command, their types and help (learn/fields.py).
"""

from __future__ import annotations

import dataclasses
import difflib
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from .._command_words import split_words
from ..errors import ArgumentError
from ..learn.fields import Option, explained, metavar, options_of

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
        exit_with(help_text(prog, description, {"": options}))
    known = {option.name: option for option in options}
    given = parse(words, known, prog)
    absent = [option for option in options if option.name not in given and option.default is dataclasses.MISSING]
    if absent:
        raise ArgumentError(f"Expected {absent[0].typed}, but got none.{explained(prog)}")
    return kind(**{name: known[name].value(value, prog) for name, value in given.items()})


def parse(words: Sequence[str], known: Mapping[str, Option], prog: str) -> dict[str, Any]:
    """Return the given values by name: text, True or False for a switch, lists for several values.

    Raises:
        ArgumentError: If an option is unknown, lacks its value or is given twice, or if there is an extra word.
    """

    def count(typed: str) -> int:
        option, _ = _option(typed, known)
        return 1 if option is None else 0 if option.is_switch else option.count

    found: dict[str, Any] = {}
    given, rest = split_words(words, count)
    for typed, values, joined in given:
        option, on = _option(typed, known)
        if option is None or (option.is_switch and joined):
            raise ArgumentError(_unknown([typed, *values], known.values(), prog))
        if option.is_switch:
            found[option.name] = on
            continue
        values = values or [option.alone] * bool(option.alone)
        if len(values) < option.count:
            wanted = "a value" if option.count == 1 else f"{option.count} values"
            raise ArgumentError(
                f"Expected {wanted} after {option.typed}, but got {len(values) or 'none'}.{explained(prog)}"
            )
        found[option.name] = values[0] if option.count == 1 else values
    for option in known.values():
        if option.positional and rest:
            found[option.name], rest = (rest, []) if option.several else (rest[0], rest[1:])
    if rest:
        raise ArgumentError(_unknown(rest, known.values(), prog))
    return found


def _option(typed: str, known: Mapping[str, Option]) -> tuple[Option | None, bool]:
    """Return the option that is typed so, None if there is none, and whether a switch is turned on by it."""
    name = typed[2:].replace("-", "_")
    for option, on in ((known.get(name), True), (known.get(name.removeprefix("no_")), False)):
        if option is not None and not option.positional and (on or option.is_switch):
            return option, on
    return None, True


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


def exit_with(text: str) -> NoReturn:
    """Print a help, and end the command."""
    print(text, end="")
    raise SystemExit(0)
