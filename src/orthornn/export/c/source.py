"""The text of the generated header, source and self-test."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import text
from .body import Dialect, LayerShape, layer_step
from .body_blocks import after, pooled, seen
from .folded import FoldedNetwork
from .reading import PARTS

MARK = "Written by orthornn export"
_BYTES = {"float": 4, "int8_t": 1, "int16_t": 2, "int32_t": 4, "int64_t": 8, "uint16_t": 2, "uint32_t": 4}


@dataclass(frozen=True)
class Sizes:
    """The cost of a network on the device.

    Attributes:
        weights: Bytes of constants in flash, without code.
        ram: Bytes of one state.
        multiply_adds: Multiply-adds per step, including the readout.
        calls: Calls of math.h functions per step, in the blocks and the readout.
    """

    weights: int
    ram: int
    multiply_adds: int
    calls: Mapping[str, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return the table as lines of text."""
        return [
            f"flash, weights     {self.weights:>10} bytes",
            f"RAM, one state     {self.ram:>10} bytes",
            f"work, one step     {self.multiply_adds:>10} multiply-adds",
            *(f"{f'calls of {name}':<19}{count:>10}" for name, count in self.calls.items()),
        ]


@dataclass(frozen=True)
class Vectors:
    """Inputs and outputs of the self-test.

    x: (T, I), or tokens (T,). y: (T, O). tolerance: 0 for integers.
    """

    x: np.ndarray
    y: np.ndarray
    tolerance: float = 0.0


@dataclass(frozen=True)
class Generated:
    """A network and everything else that determines its text.

    Attributes:
        notes: Lines about the number format for the head of the files.
        integers: Whether inputs and outputs are integers: x = input_scale * raw + input_offset, y * output_scale.
    """

    network: FoldedNetwork
    dialect: Dialect
    name: str
    notes: tuple[str, ...] = ()
    integers: bool = False
    input_scale: np.ndarray | None = None
    input_offset: np.ndarray | None = None
    output_scale: float = 1.0

    @property
    def shapes(self) -> list[LayerShape]:
        """Return the shapes that determine the text of each layer."""
        made = []
        for k, layer in enumerate(self.network.layers):
            made.append(
                LayerShape(
                    index=k,
                    size=layer.size,
                    inputs=layer.V.shape[1],
                    form=layer.form,
                    turns=layer.base is not None,
                    reflections=0 if layer.U is None else layer.U.shape[1],
                    trapezoid=layer.trapezoid,
                    phi=layer.phi.name,
                    linear=layer.linear,
                    has_bias=layer.b is not None,
                )
            )
        return made

    @property
    def prepares(self) -> bool:
        """Return whether a step scales its input (with integers, the caller does) or reads a vector of a series."""
        return self.network.vectors is not None or (not self.integers and self.network.input_scale is not None)

    @property
    def output(self) -> str:
        """Return the expression of the output of the last layer, or block."""
        return "state->u" if self.network.blocks else f"state->h{len(self.network.layers) - 1}"

    def fields(self) -> list[tuple[str, str, int]]:
        """Return C type, name and length (0 for a scalar) of the members of the state, the widest types first."""
        number, feature = self.dialect.number, self.dialect.feature
        found = [(self.dialect.state(shape), f"h{shape.index}", shape.size) for shape in self.shapes]
        dense = [shape.size for shape in self.shapes if shape.form == "dense"]
        found += [(number, "scratch", max(dense))] if dense else []
        vectors = self.network.vectors
        wide = self.network.input_size + (0 if vectors is None else vectors.shape[1] - 1)
        found += [(number, "prepared", wide)] if self.prepares else []
        blocks, reading = self.network.blocks, self.network.reading
        if blocks:
            found += [(feature, "u", blocks[0].size)]
            read = [k for k, block in enumerate(blocks) if k and self.dialect.normalize(k, 0, block.norm)]
            found += [(number, "v", blocks[0].size)] if read else []
            narrowed = [shape.size for shape in self.shapes if self.dialect.read_state(shape)[1:]]
            found += [(number, "narrowed", max(narrowed))] if narrowed else []
            hidden = max(0 if block.C is None else len(block.A) for block in blocks)
            found += [(number, "hidden", hidden)] if hidden else []
        if reading.has_mean:
            found += [("int64_t", "sum", reading.size)] if self.integers else [(number, "sum", reading.size)]
            found += [] if self.integers else [(number, "lost", reading.size)]
        found += [(number, "largest", reading.size)] if reading.has_maximum else []
        found += [(number, "recent", reading.A.shape[1])] if reading.A is not None else []
        found += [("uint32_t", "count", 0)] if reading.counts else []
        return sorted(found, key=lambda entry: -_BYTES[entry[0]])

    def sizes(self) -> Sizes:
        """Return the cost of the network."""
        weights = sum(_BYTES[table.kind] * np.asarray(table.values).size for table in self.dialect.tables)
        if self.network.order is not None:
            weights += _BYTES["uint32_t"] * len(self.network.order)
        if self.integers and not self.network.tokens:
            weights += 2 * _BYTES["float"] * self.network.input_size  # of NAME_input
        fields = self.fields()
        ram, largest = sum(_BYTES[kind] * max(1, length) for kind, _, length in fields), _BYTES[fields[0][0]]
        ram = -(-ram // largest) * largest  # the widest types come first, so padding is only at the end
        return Sizes(weights, ram, self.network.multiply_adds, {} if self.integers else self.network.function_calls)

    @property
    def input_type(self) -> str:
        """Return the C declaration of a step's input."""
        return "uint16_t token" if self.network.tokens else f"const {self.dialect.number} *x"


def header(made: Generated) -> str:
    """Return NAME.h."""
    name, upper, network, dialect = made.name, made.name.upper(), made.network, made.dialect
    guard = f"{upper}_H_ORTHORNN"
    one = "token" if network.tokens else "x"
    fields = "\n".join(f"    {kind} {field}{f'[{length}]' if length else ''};" for kind, field, length in made.fields())
    steps = "uint16_t" if network.tokens else dialect.number
    all_or_last = (
        f"{upper}_OUTPUTS numbers, after the last step" if network.last else f"steps * {upper}_OUTPUTS numbers"
    )
    parts = [
        _head(made, f"{name}.h"),
        f"#ifndef {guard}\n#define {guard}\n",
        "#include <stddef.h>\n#include <stdint.h>\n",
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        f"#define {upper}_INPUTS {network.input_size}\n#define {upper}_OUTPUTS {network.output_size}",
        f"#define {upper}_OUTPUT_SCALE {text.number(made.output_scale)} /* value of one unit of an output */"
        if made.integers
        else "",
        ""
        if network.sample_rate is None
        else f"#define {upper}_SAMPLE_RATE {network.sample_rate} /* Hz, of the training sounds */",
        f"\n/* One stream; any number of streams may run in parallel. */\n"
        f"typedef struct {name}_state {{\n{fields}\n}} {name}_state;\n",
        f"/* Set a state to its value before the first step; reset is the same function, for later. */\n"
        f"void {name}_init({name}_state *state);\nvoid {name}_reset({name}_state *state);\n",
        f"/* One step: {one} is {_input_described(made)}; y is {upper}_OUTPUTS numbers, or NULL to skip the readout. */\n"
        f"void {name}_step({name}_state *state, {made.input_type}, {dialect.wide} *y);\n",
        f"/* The readout of a state. */\nvoid {name}_read(const {name}_state *state, {dialect.wide} *y);\n",
        f"/* Many steps, one after the other in memory; y is {all_or_last}. */\n"
        f"void {name}_run({name}_state *state, const {steps} *x, size_t steps, {dialect.wide} *y);\n",
    ]
    if made.integers and not network.tokens:
        parts.append(
            f"/* Input number `index` as the network reads it, from its value in the units of the training data. */\n"
            f"int16_t {name}_input(int index, float value);\n"
        )
    if network.output_kind == "classes":
        which = "the index of the largest of y"
        if network.threshold is not None:
            which = f"1 if its probability is at least {network.threshold:.6g}, else 0"
        parts.append(f"/* The class: {which}. */\nint {name}_best(const {dialect.wide} *y);\n")
    if network.labels is not None:
        parts.append(
            f'/* The name of a class, "" if the index is out of range. */\nconst char *{name}_label(int index);\n'
        )
    if network.order is not None:
        parts.append(
            f"/* The steps of a sequence are read in this order: step t is element {name}_order[t] of the sequence. */\n"
            f"#define {upper}_STEPS {len(network.order)}\nextern const uint32_t {name}_order[{upper}_STEPS];\n"
        )
    parts.append(
        f"/* In {name}_selftest.c: 0 if the compiled code returns the expected outputs,\n"
        f"   else the number of the first step that differs, counted from 1. */\n"
        f"int {name}_selftest(void);\n"
    )
    parts.append(f"#ifdef __cplusplus\n}}\n#endif\n#endif /* {guard} */\n")
    return "\n".join(part for part in parts if part)


def source(made: Generated) -> str:
    """Return NAME.c."""
    name, dialect = made.name, made.dialect
    body = _functions(made)
    includes = f'#include "{name}.h"\n'
    helpers = dialect.helpers(body)
    if made.integers:
        includes += "\n/* The arithmetic needs a right shift that preserves the sign, as in all common compilers. */\n"
        includes += f"typedef char {name}_needs_arithmetic_shift[(-1 >> 1) == -1 ? 1 : -1];\n"
    includes += dialect.includes(helpers + body)
    tables = "\n".join(text.array(table.kind, table.name, np.asarray(table.values)) for table in dialect.tables)
    return "\n".join(part for part in (_head(made, f"{name}.c"), includes, tables, helpers, body) if part)


def selftest(made: Generated, vectors: Vectors) -> str:
    """Return NAME_selftest.c: the vectors, the function, and a main() if ORTHORNN_MAIN is defined."""
    name, upper, network, dialect = made.name, made.name.upper(), made.network, made.dialect
    steps = len(vectors.y)
    kind = "uint16_t" if network.tokens else dialect.number
    one = "inputs[t]" if network.tokens else f"inputs + t * {upper}_INPUTS"
    if made.integers:
        differs = "y[i] != expected[i]"
    else:
        # negated, so that NaN counts as a difference
        allowed = text.number(vectors.tolerance)
        differs = f"!(y[i] - expected[i] <= {allowed} && expected[i] - y[i] <= {allowed})"
    return (
        _head(made, f"{name}_selftest.c")
        + f'\n#include "{name}.h"\n\n#ifdef ORTHORNN_MAIN\n#include <stdio.h>\n#endif\n\n'
        + text.array(kind, "inputs", vectors.x)
        + "\n"
        + text.array(dialect.wide, "outputs", vectors.y)
        + f"""
int {name}_selftest(void)
{{
    static {name}_state state;
    {dialect.wide} y[{upper}_OUTPUTS];
    int t, i;
    {name}_init(&state);
    for (t = 0; t < {steps}; t++) {{
        const {dialect.wide} *const expected = outputs + t * {upper}_OUTPUTS;
        {name}_step(&state, {one}, y);
        for (i = 0; i < {upper}_OUTPUTS; i++)
            if ({differs})
                return t + 1;
    }}
    return 0;
}}

#ifdef ORTHORNN_MAIN
int main(void)
{{
    const int step = {name}_selftest();
    if (step != 0)
        fprintf(stderr, "{name}_selftest: step %d of {steps} has other outputs than the exported network\\n", step);
    else
        printf("{name}_selftest: passed, {_steps(steps)} the outputs of the exported network\\n");
    return step != 0;
}}
#endif
"""
    )


def _steps(count: int) -> str:
    return "1 step has" if count == 1 else f"{count} steps have"


def _head(made: Generated, file: str) -> str:
    """Return the comment at the head of a file."""
    network = made.network
    lines = [f"{file}. {MARK}; do not edit: export the network again instead.", ""]
    lines += [f"Layer {shape.index}: {shape.size} units, {shape.form}, {shape.phi}." for shape in made.shapes]
    if network.blocks:
        lines.append("Each layer is the recurrence of a block; outputs of a block have the features that follow.")
    lines += [f"Block {k}: {block.mixing}, {block.size} features." for k, block in enumerate(network.blocks)]
    lines += list(made.notes)
    lines += _readout_described(network)
    if network.sample_rate is not None:
        lines.append(f"A step is {_step_of_sound(network.sound)}, at {network.sample_rate} Hz.")
    if network.columns is not None:
        lines += [
            "Inputs, in this order:",
            *(f"  {k}: {text.comment(column)}" for k, column in enumerate(network.columns)),
        ]
    if network.vectors is not None:
        lines.append(f"The last input is the number of a series; {len(network.vectors) - 1} for an unknown one.")
        lines += [f"  {k}: {text.comment(name)}" for k, name in enumerate(network.series or ())]
    if network.output_kind == "classes":
        won = "the largest wins"
        if network.threshold is not None:
            won = f"the second wins if its probability is at least {network.threshold:.6g}"
        lines.append(f"Outputs are scores of classes: {won}. Their softmax gives probabilities.")
    elif network.output_kind == "probabilities":
        lines.append("Outputs are log odds: 1 / (1 + exp(-y)) are probabilities.")
    if network.outputs is not None:
        lines += ["Outputs, in this order:"]
        lines += [f"  {k}: {text.comment(output)}" for k, output in enumerate(network.outputs)]
    lines += ["", *made.sizes().lines()]
    return "/* " + "\n * ".join(lines).replace(" * \n", " *\n") + "\n */\n"


def _readout_described(network: FoldedNetwork) -> list[str]:
    """Return the lines that describe the readout's input besides the last output."""
    found = {
        "last": [],
        "mean": ["The readout reads the mean of all outputs since the reset."],
        "both": ["The readout reads the last output, and the mean of all outputs since the reset."],
        "summary": ["The readout reads the last output, and the mean and maximum of all outputs since the reset."],
    }[network.reading.pool]
    if network.reading.A is not None:
        found += [f"The product of a matrix with the inputs of the last {network.reading.lags} steps is added to it."]
    return found


def _step_of_sound(sound: Mapping[str, Any] | None) -> str:
    """Return the description of a step of a network for sounds."""
    if sound is None:
        return "a sample of a sound"
    window, hop = (f"{sound.get(name)} samples" for name in ("window", "hop"))
    if sound["features"] == "frames":
        return f"a frame of {hop} of a sound"
    count = "the log magnitudes" if sound["features"] == "log-magnitude" else f"{sound.get('mels')} log-mel energies"
    return f"{count} of a window of {window} of a sound, one every {hop}"


def _input_described(made: Generated) -> str:
    network, upper = made.network, made.name.upper()
    if network.tokens:
        return f"a class below {upper}_INPUTS; a larger one counts as no input"
    if made.integers:
        return f"{upper}_INPUTS integers, as returned by {made.name}_input()"
    return f"{upper}_INPUTS numbers" + (
        ", in the units of the training data" if network.input_scale is not None else ""
    )


def _functions(made: Generated) -> str:
    name, upper, network, dialect = made.name, made.name.upper(), made.network, made.dialect
    out: list[str] = []
    if network.order is not None:
        order = text.array("uint32_t", f"{name}_order", np.asarray(network.order)).replace("static const", "const")
        out.append(order)
    resets, zero = [], "0.0f" if dialect.number == "float" else "0"
    for k, layer in enumerate(network.layers):
        first = f"l{k}_h0[i]" if layer.h0.any() else zero
        resets.append(f"    for (i = 0; i < {layer.size}; i++)\n        state->h{k}[i] = {first};\n")
    for _, member, length in made.fields():
        if member in ("u", "sum", "lost", "largest", "recent"):
            resets.append(f"    for (i = 0; i < {length}; i++)\n        state->{member}[i] = {zero};\n")
    resets += ["    state->count = 0;\n"] if network.reading.counts else []
    out.append(f"void {name}_reset({name}_state *state)\n{{\n    int i;\n{''.join(resets)}}}\n")
    out.append(f"void {name}_init({name}_state *state)\n{{\n    {name}_reset(state);\n}}\n")
    out.append(_step(made))
    out.append(_read(made))
    one, advance, kind = ("*x", "x++", "uint16_t") if network.tokens else ("x", f"x += {upper}_INPUTS", dialect.number)
    if network.last:
        loop = f"        {name}_step(state, {one}, NULL);\n        {advance};\n    }}\n    {name}_read(state, y);\n"
    else:
        loop = f"        {name}_step(state, {one}, y);\n        {advance};\n        y += {upper}_OUTPUTS;\n    }}\n"
    out.append(
        f"void {name}_run({name}_state *state, const {kind} *x, size_t steps, {dialect.wide} *y)\n{{\n"
        f"    while (steps-- > 0) {{\n{loop}}}\n"
    )
    if made.integers and not network.tokens:
        out.append(_input_function(made))
    if network.threshold is not None:
        least = text.number(network.log_odds)
        of_y = "y[1] - y[0]"
        if made.integers:
            least, of_y = str(math.ceil(network.log_odds / made.output_scale)), "(int64_t)y[1] - y[0]"
        out.append(f"int {name}_best(const {dialect.wide} *y)\n{{\n    return {of_y} >= {least};\n}}\n")
    elif network.output_kind == "classes":
        out.append(
            f"int {name}_best(const {dialect.wide} *y)\n{{\n    int i, best = 0;\n"
            f"    for (i = 1; i < {upper}_OUTPUTS; i++)\n        best = y[i] > y[best] ? i : best;\n    return best;\n}}\n"
        )
    if network.labels is not None:
        names = ",\n".join(f"        {text.string(label)}" for label in network.labels)
        out.append(
            f"const char *{name}_label(int index)\n{{\n"
            f"    static const char *const labels[{upper}_OUTPUTS] = {{\n{names}\n    }};\n"
            f'    return index >= 0 && index < {upper}_OUTPUTS ? labels[index] : "";\n}}\n'
        )
    return "\n".join(out)


def _read(made: Generated) -> str:
    """Return the C function that reads out a state."""
    name, upper, network, dialect = made.name, made.name.upper(), made.network, made.dialect
    vector, size = made.output, network.width
    declared, body = "    int i;\n", ""
    if network.reading.has_mean or (made.integers and network.blocks and network.Y is not None):
        added, body = pooled(network.reading, dialect, vector)
        declared, vector, size = added + declared, "pooled", size * PARTS[network.reading.pool]
    if network.H is not None:
        hidden = len(network.H)
        value = dialect.product("read_H", "first", vector, size, "i", hidden)
        value += "" if network.e is None else " + read_e[i]"
        declared = f"    {dialect.number} hidden[{hidden}];\n{_rows(dialect, 'first', 'read_H')}{declared}"
        body += (
            f"    for (i = 0; i < {hidden}; i++) {{\n        hidden[i] = {dialect.gelu('read', value, True)};\n"
            f"        first += {size};\n    }}\n"
        )
        vector, size = "hidden", hidden
    if network.Y is None:
        body = f"    for (i = 0; i < {size}; i++)\n        y[i] = {vector}[i];\n"
    else:
        plus = " + read_d[i]" if network.d is not None else ""
        declared = f"{_rows(dialect, 'row', 'read_Y')}{declared}"
        more = ""
        if network.reading.A is not None:
            count = network.reading.A.shape[1]
            declared = f"{_rows(dialect, 'lags', 'lags_A')}{declared}"
            product = dialect.product("lags_A", "lags", "state->recent", count, "i", len(network.Y))
            plus, more = f"{plus} + {product}", f"        lags += {count};\n"
        product = dialect.product("read_Y", "row", vector, size, "i", len(network.Y))
        body += f"    for (i = 0; i < {upper}_OUTPUTS; i++) {{\n        y[i] = {product}{plus};\n"
        body += f"        row += {size};\n{more}    }}\n"
    return f"void {name}_read(const {name}_state *state, {dialect.wide} *y)\n{{\n{declared}{body}}}\n"


def _rows(dialect: Dialect, row: str, table: str) -> str:
    """Return the declarations of a pointer to the rows of a matrix."""
    lines = [f"const {dialect.matrix} *{row} = {table};", *dialect.room(row)]
    return "".join(f"    {line}\n" for line in lines)


def _step(made: Generated) -> str:
    name, network, dialect = made.name, made.network, made.dialect
    lines = [f"void {name}_step({name}_state *state, {made.input_type}, {dialect.wide} *y)\n{{\n"]
    reads = "x"
    shapes = made.shapes
    if made.prepares:
        reads = "state->prepared"
        lines.append(_prepared(network, made.integers))
    given = reads
    for shape in shapes:
        tokens = network.tokens and shape.index == 0
        if network.blocks:
            block = network.blocks[shape.index]
            normalize = dialect.normalize(shape.index, shape.inputs, block.norm) if shape.index else ""
            lines.append(f"    {normalize}\n" if normalize else "")
            lines.append(layer_step(shape, dialect, "state->v" if normalize else reads, tokens))
            lines.append(after(block, shape, dialect, reads, tokens))
            reads = "state->u"
        else:
            lines.append(layer_step(shape, dialect, reads, tokens))
            reads = f"state->h{shape.index}"
    lines.append(seen(network.reading, dialect, made.output, given, network.input_size - (network.vectors is not None)))
    lines.append(f"    if (y != NULL)\n        {name}_read(state, y);\n}}\n")
    return "".join(lines)


def _prepared(network: FoldedNetwork, integers: bool) -> str:
    """Return the statements that prepare an input: scale it, and replace the number of a series by its vector."""
    count, vectors = network.input_size - (network.vectors is not None), network.vectors
    value = "x[i]"
    if network.input_scale is not None and not integers:
        value = "(x[i] - input_center[i]) * input_scale[i] + input_offset[i]"
    declared, more = "        int i;\n", ""
    if vectors is not None:
        series, wide = len(vectors) - 1, vectors.shape[1]
        places, kind = ("", "int16_t") if integers else (".0f", "float")
        declared = (
            f"        const int known = x[{count}] >= 0{places} && x[{count}] < {series}{places};\n"
            f"        const int series = known ? (int)x[{count}] : {series};\n"
            f"        const {kind} *const vector = series_E + (size_t)series * {wide};\n{declared}"
        )
        more = f"        for (i = 0; i < {wide}; i++)\n            state->prepared[i + {count}] = vector[i];\n"
    scaled = f"        for (i = 0; i < {count}; i++)\n            state->prepared[i] = {value};\n" if count else ""
    return f"    {{\n{declared}{scaled}{more}    }}\n"


def _input_function(made: Generated) -> str:
    """Return the function that converts raw inputs to integers; NaN becomes the lowest."""
    scale, offset = np.asarray(made.input_scale), np.asarray(made.input_offset)
    return (
        text.array("float", "input_scale", scale)
        + text.array("float", "input_offset", offset)
        + f"""
int16_t {made.name}_input(int index, float value)
{{
    const volatile float product = value * input_scale[index]; /* volatile: rounded separately, even with an FMA */
    const float found = product + input_offset[index];
    if (!(found > -32767.0f))
        return -32767;
    if (found > 32767.0f)
        return 32767;
    return (int16_t)(found < 0.0f ? found - 0.5f : found + 0.5f);
}}
"""
    )
