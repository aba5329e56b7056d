"""Errors of options, as tyro writes them, in one line in the words of this command."""

from __future__ import annotations

import ast
import re

_FRAME = "│╭╮╰╯ "
_OPTION = r"'?(?P<option>-[^\s':]*|[^\s':]+)'?"
_VALUE = re.compile(rf"Error parsing {_OPTION}: .*(?:from \[(?P<cells>.*?)\]|: (?P<cell>'.*?'))(?:\.|$)")
_CHOICE = re.compile(rf"invalid choice (?P<cell>'.*?') for argument {_OPTION}\. Expected one of (?P<choices>\(.*?\))\.")
_MISSING = re.compile(rf"Missing value for argument {_OPTION}\. Expected (?P<count>\d+) values?\.")
_UNKNOWN = re.compile(r"Unrecognized options: (?P<words>.*)")
_KINDS = {"INT": "a whole number", "FLOAT": "a number", "PATH": "a path", "STR": "text"}


def one_line(complaint: str, prog: str) -> str | None:
    """Return what is wrong with an option, and what to do; None where tyro shows its help instead.

    Args:
        complaint: What tyro wrote.
        prog: The command, as in ``orthornn train copying``.

    Example::

        >>> complaint = "╭─ Value error ───╮\\n│ Error parsing --T: invalid literal for int() with base 10: 'x' │"
        >>> one_line(complaint, "orthornn train")
        'Expected a value that --T can have, but got x. `orthornn train --help` explains the options.'
    """
    parts = _parts(complaint)
    if not parts:
        return None
    said, more = parts[0], " ".join(parts[1:])
    end = f"`{prog} --help` explains the options."
    if found := _CHOICE.search(said):
        choices = [choice for choice in ast.literal_eval(found["choices"]) if choice != "None"]
        choices = ["True", "False"] if {*choices} == {"True", "False"} else choices  # a set, in any order
        named = " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
        return f"Expected {named} as {found['option']}, but got {_cell(found['cell'])}. {end}"
    if found := _VALUE.search(said):
        kind = re.search(rf"Argument helptext: {re.escape(found['option'])} (\S+)", more)
        wanted = f"a value that {found['option']} can have"
        if kind is not None:
            wanted = f"{_KINDS.get(kind[1], kind[1])} as {found['option']}"
        return f"Expected {wanted}, but got {_cell(found['cells'] or found['cell'])}. {end}"
    if found := _MISSING.search(said):
        count = "a value" if found["count"] == "1" else f"{found['count']} values"
        return f"Expected {count} after {found['option']}, but got none. {end}"
    if found := _UNKNOWN.search(said):
        near = re.search(r"Perhaps you meant: (--\S+)", more)
        meant = f"Did you mean {near[1].rstrip(',')}? " if near else ""
        return f"Expected options of `{prog}`, but got {found['words']}. {meant}{end}"
    return f"Expected options of `{prog}`, but got: {said.rstrip('.')}. {end}"


def _parts(complaint: str) -> list[str]:
    """Return the text between the rulers, behind the title, each part on one line; none where it is that of a help."""
    lines = complaint.splitlines()
    if any(line.lstrip().startswith("usage:") for line in lines):
        return []
    boxed = any(line.lstrip().startswith("╭") for line in lines)  # elsewhere the title has a ruler below it
    parts: list[list[str]] = [[]]
    for line in lines:
        text = line.strip(_FRAME)
        if text and not text.strip("─-"):
            parts.append([])
        elif not line.lstrip().startswith("╭"):
            parts[-1].append(text)
    texts = [" ".join(" ".join(part).split()) for part in parts]
    return [text for text in (texts if boxed else texts[1:]) if text]


def _cell(text: str) -> str:
    """Return the words that were typed, from how Python shows them."""
    try:
        found = ast.literal_eval(f"[{text}]")
    except (SyntaxError, ValueError):  # a word that was broken at the end of a line
        return text
    return " ".join(map(str, found))
