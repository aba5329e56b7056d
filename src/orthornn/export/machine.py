"""An exact machine (orthornn.automata) as C99: integers only, without a heap, the same for ever.

The registers of all layers are bytes. A state of a layer is found by its key, the registers as digits of one number. A rule
is a run of pairs (i, j): i = j erases register i, and other pairs swap.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..automata import Layer, Machine
from ..errors import ArgumentError
from .c.text import check_identifier

_NOTHING = 255  # in the table of writes


def machine_to_c(machine: Machine, name: str = "machine") -> str:
    """Return a C99 header with an exact machine: its state, a step and its output.

    Args:
        machine: Of `orthornn.automata.machine_of`.
        name: Begins the names of all functions and constants. Default: ``"machine"``.

    Returns:
        The text of a header that defines `NAME_start(x)`, `NAME_step(x, token)`, which ignores a token that does not exist,
        and `NAME_output(x)`, for an array x of `NAME_REGISTERS` bytes.

    Raises:
        ArgumentError: If the name is not a C identifier, an output is negative, or a layer has more than 254 registers or
            states whose registers are not the digits of a number below 2^32.

    Example::

        >>> from orthornn.automata import Automaton, machine_of
        >>> text = machine_to_c(machine_of(Automaton([[0, 1], [1, 0]], [0, 1])), "parity")
        >>> "static void parity_step(uint8_t *x, unsigned token)" in text
        True
    """
    check_identifier(name)
    outputs = machine.automaton.outputs
    if int(outputs.min()) < 0:
        raise ArgumentError(f"Expected outputs from 0, but got {int(outputs.min())}. Number the outputs from 0.")
    key = _type(max(int(_keys(layer).max()) for layer in machine.layers))
    tokens = machine.automaton.table.shape[1]
    upper, tables, step, read = name.upper(), [], [], []
    last, single = len(machine.layers) - 1, len(machine.layers) == 1
    at = 0
    for depth, layer in enumerate(machine.layers):
        size = layer.codes.shape[1]
        base = _base(layer)
        tables.append(_array(f"{name}_keys{depth}", _keys(layer), key))
        find = f"{name}_find(x + {at}, {size}, {base}, {name}_keys{depth})"
        rules = [[number for _, i, j in rule.factors for number in (i, j)] for rule in layer.rules]
        ends = np.cumsum([0, *map(len, rules)])
        writes = [_NOTHING if rule.write is None else rule.write for rule in layer.rules]
        tables.append(_array(f"{name}_factors{depth}", [number for rule in rules for number in rule] or [0]))
        tables.append(_array(f"{name}_ends{depth}", ends))
        written = any(write != _NOTHING for write in writes)
        if written:
            tables.append(_array(f"{name}_writes{depth}", writes))
        tables.append(_array(f"{name}_rules{depth}", np.maximum(layer.chosen, 0).ravel()))
        if depth < last:
            step.append(f"    state = {find};")
        step += [
            f"    rule = {name}_rules{depth}[place];",
            f"    for (k = {name}_ends{depth}[rule]; k < {name}_ends{depth}[rule + 1]; k += 2)",
            f"        {name}_factor(x + {at}, {name}_factors{depth}[k], {name}_factors{depth}[k + 1]);",
        ]
        if written:
            step.append(f"    if ({name}_writes{depth}[rule] != {_NOTHING}) x[{at} + {name}_writes{depth}[rule]] += 1;")
        if depth < last:
            step.append(f"    place = place * {len(layer.codes)}u + state;")
        read.append(f"    place = place * {len(layer.codes)}u + {find};" if depth else f"    place = {find};")
        at += size
    tables.append(_array(f"{name}_outputs", outputs[np.maximum(machine.states, 0)].ravel()))
    start = [entry for layer in machine.layers for entry in layer.codes[layer.start].tolist()]
    tables.append(_array(f"{name}_first", start))
    return "\n".join(
        [
            f"/* A machine of {len(outputs)} states and {tokens} tokens in integers, by orthornn. */",
            f"#ifndef {upper}_H",
            f"#define {upper}_H",
            "#include <stdint.h>",
            "",
            f"enum {{ {upper}_TOKENS = {tokens}, {upper}_REGISTERS = {at} }};",
            "",
            *tables,
            "",
            "/* Erase register i, or swap i and j: I - s u u' / u'u with u = e_i and s = 1, or u = e_i - e_j and s = 2. */",
            f"static void {name}_factor(uint8_t *x, unsigned i, unsigned j)",
            "{",
            "    uint8_t kept = x[i];",
            "    x[i] = i == j ? 0 : x[j];",
            "    if (i != j) x[j] = kept;",
            "}",
            "",
            "/* The number of a state, from its registers. */",
            f"static unsigned {name}_find(const uint8_t *x, unsigned size, unsigned base, const {key} *keys)",
            "{",
            "    uint32_t number = 0;",
            "    unsigned i = size;",
            "    while (i--) number = number * base + x[i];",
            "    for (i = 0; keys[i] != number; ++i) {}",
            "    return i;",
            "}",
            "",
            f"static void {name}_start(uint8_t *x)",
            "{",
            "    unsigned k;",
            f"    for (k = 0; k < {upper}_REGISTERS; ++k) x[k] = {name}_first[k];",
            "}",
            "",
            f"static void {name}_step(uint8_t *x, unsigned token)",
            "{",
            f"    unsigned k, rule, place = token{'' if single else ', state'};",
            f"    if (token >= {upper}_TOKENS) return;",
            *step,
            "}",
            "",
            f"static unsigned {name}_output(const uint8_t *x)",
            "{",
            "    unsigned place;",
            *read,
            f"    return {name}_outputs[place];",
            "}",
            "#endif",
            "",
        ]
    )


def _base(layer: Layer) -> int:
    return max(2, int(layer.codes.max()) + 1)


def _keys(layer: Layer) -> np.ndarray:
    """Return the registers of each state as the digits of one number, the first one least."""
    base, size = _base(layer), layer.codes.shape[1]
    if size >= _NOTHING or base**size > 2**32:
        raise ArgumentError(
            f"Expected layers whose registers are the digits of a number below 2^32, but got {size} registers of base "
            f"{base}. Write the table itself as C."
        )
    return layer.codes @ base ** np.arange(size)


def _type(largest: int) -> str:
    return f"uint{8 if largest < 2**8 else 16 if largest < 2**16 else 32}_t"


def _array(name: str, numbers: Iterable[int], kind: str = "") -> str:
    found = [int(number) for number in numbers]
    rows = [", ".join(map(str, found[k : k + 24])) for k in range(0, len(found), 24)]
    return f"static const {kind or _type(max(found))} {name}[{len(found)}] = {{\n    " + ",\n    ".join(rows) + "\n};"
