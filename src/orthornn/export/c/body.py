"""The C functions of a network, as far as they are common to the number formats.

A dialect provides the helpers and a few expressions of a number format; see float_numbers.py and fixed_numbers.py. The
step of a layer is one loop over its units (or pairs of units) that writes the new state in place. Only a dense W and a
transform need extra memory, since every unit of the new state reads all of the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """A constant array of the generated source: its C type, its name, and its numbers."""

    kind: str
    name: str
    values: object


@dataclass(frozen=True)
class LayerShape:
    """The sizes and options that determine the text of a layer."""

    index: int
    size: int
    inputs: int
    form: str
    turns: bool
    reflections: int
    trapezoid: bool
    phi: str
    linear: bool
    has_bias: bool
    block: int = 0


HADAMARD = """/* x = P (I x H) D h with Hadamard matrices H of `block` units: entry i of block a becomes number
   i * blocks + a, so that all blocks are transformed together; bit j of signs is set if D turns the sign of unit j */
static void hadamard({wide} *x, const {number} *h, const uint8_t *signs, int count, int block)
{{
    const int blocks = count / block;
    int i, j, stride;
    for (j = 0; j < count; j++)
        x[j % block * blocks + j / block] = signs[j >> 3] >> (j & 7) & 1 ? -h[j] : h[j];
    for (stride = blocks; stride < count; stride *= 2)
        for (i = 0; i < count; i += 2 * stride)
            for (j = i; j < i + stride; j++) {{
                const {wide} a = x[j], b = x[j + stride];
                x[j] = a + b;
                x[j + stride] = a - b;
            }}
}}
"""


class Dialect:
    """A number format in C.

    Attributes:
        number: C type of states and inputs.
        wide: C type of sums and outputs.
        matrix: C type of weights.
        feature: C type of the outputs of blocks.
        tables: All constants.
    """

    number: str
    wide: str
    matrix: str
    feature: str
    tables: Sequence[Table]

    def state(self, layer: LayerShape) -> str:
        """Return the C type of the state of a layer."""
        raise NotImplementedError

    def product(self, name: str, row: str, vector: str, count: int, i: str, rows: int = 0) -> str:
        """Return the expression of the product of row i of a matrix, at a pointer, with a vector, in the unit of sums.

        rows: Number of rows of a loop that processes all of them in order; `room` is declared before it.
        """
        raise NotImplementedError

    def room(self, row: str) -> list[str]:
        """Return the declaration that a product with `rows` needs, for the rows at the pointer `row`."""
        raise NotImplementedError

    def entry(self, name: str, weight: str, factor: str | None, i: str) -> str:
        """Return the expression of one weight of row i, times a factor unless it is None, in the unit of sums."""
        raise NotImplementedError

    def held(self, layer: LayerShape, place: str) -> str:
        """Return the expression of one number of the state in the unit of sums."""
        raise NotImplementedError

    def rotate(self, layer: LayerShape) -> str:
        """Return the statement that applies a layer's base to its state."""
        raise NotImplementedError

    def reflect(self, layer: LayerShape) -> str:
        """Return the statement that applies a layer's reflections to its state."""
        raise NotImplementedError

    def transform(self, layer: LayerShape, i: str) -> str:
        """Return the expression of unit i of W h in the unit of sums, after `hadamard` has written to `sums`."""
        raise NotImplementedError

    def phi(self, layer: LayerShape, i: str) -> str:
        """Return the expression of phi(z) of unit i, for a phi of single units."""
        raise NotImplementedError

    def narrow(self, layer: LayerShape, value: str) -> str:
        """Return the expression that converts a sum to a state."""
        raise NotImplementedError

    def read_state(self, layer: LayerShape) -> list[str]:
        """Return the declaration and computation of `h`, the state of a layer as matrices read it."""
        raise NotImplementedError

    def normalize(self, index: int, width: int, norm: str) -> str:
        """Return the statement that normalizes the features for the recurrence of block `index`; "" if there is none."""
        raise NotImplementedError

    def gated(self, value: str, gate: str) -> str:
        """Return the expression of a value times the sigmoid of a gate."""
        raise NotImplementedError

    def gelu(self, place: str, value: str, hidden: bool) -> str:
        """Return the expression of gelu for hidden units or features, in a block (f"b{index}") or in the readout ("read")."""
        raise NotImplementedError

    def feature_of(self, value: str) -> str:
        """Return the expression that converts a sum to a feature."""
        raise NotImplementedError

    def add_to_mean(self, size: int, vector: str) -> list[str]:
        """Return the statements that add an output of `size` numbers to the sum of all steps."""
        raise NotImplementedError

    def last(self, value: str) -> str:
        """Return the expression of a number of an output as a readout reads it."""
        raise NotImplementedError

    def largest(self, value: str) -> tuple[str, str]:
        """Return the expressions of the running maximum, at the first step and at a later one."""
        raise NotImplementedError

    def mean(self) -> tuple[str, str]:
        """Return the declaration that the mean of all steps needs, and the expression of its i-th number."""
        raise NotImplementedError

    def includes(self, text: str) -> str:
        """Return the headers that the functions of a text need."""
        raise NotImplementedError

    def helpers(self, body: str) -> str:
        """Return the static functions that a text calls, directly or indirectly."""
        raise NotImplementedError


PAIRED = ("complex_modrelu", "oplu")


@dataclass
class Lines:
    """Text with indentation."""

    depth: int = 1
    lines: list[str] = field(default_factory=list)

    def add(self, *lines: str) -> None:
        """Add lines."""
        self.lines += [("    " * self.depth + line) if line else "" for line in lines]


def layer_step(layer: LayerShape, dialect: Dialect, reads: str, tokens: bool) -> str:
    """Return the C code of one layer's step. reads: C expression of its input."""
    k, n = layer.index, layer.size
    out = Lines()
    has_matrix = layer.form == "dense"
    out.add(f"{{   /* layer {k}: {n} units, {_described(layer)} */")
    out.depth += 1
    out.add(f"{dialect.state(layer)} *const h = state->h{k};")
    if has_matrix:
        out.add(f"{dialect.number} *const next = state->scratch;", f"const {dialect.matrix} *w = l{k}_W;")
        out.add(*([] if layer.phi in PAIRED else dialect.room("w")))
    if layer.form == "hadamard":
        out.add(f"{dialect.wide} *const sums = state->sums;")
    single = layer.inputs == 1 and not tokens
    if tokens:
        out.add(f"const int known = token < {layer.inputs};")
        out.add(f"const {dialect.matrix} *const v = l{k}_V + (known ? (size_t)token * {n} : 0);")
    elif not single:
        out.add(f"const {dialect.number} *const in = {reads};", f"const {dialect.matrix} *v = l{k}_V;")
        out.add(*([] if layer.phi in PAIRED else dialect.room("v")))
    out.add("int i;")
    if layer.turns:
        out.add(dialect.rotate(layer))
    if layer.reflections:
        out.add(dialect.reflect(layer))
    if layer.form == "hadamard":
        out.add(f"hadamard(sums, h, l{k}_signs, {n}, {layer.block});")
    paired = layer.phi in PAIRED
    half = n // 2
    gap = n - half
    to = "next" if has_matrix else "h"
    if not paired:
        out.add(f"for (i = 0; i < {n}; i++) {{")
        out.depth += 1
        _unit(out, layer, dialect, "i", "z", "carried", reads, tokens, single)
        value = dialect.phi(layer, "i")
        out.add(f"{to}[i] = {dialect.narrow(layer, f'carried + {value}' if layer.linear else value)};")
        if has_matrix:
            out.add(f"w += {n};")
        if not tokens and not single:
            out.add(f"v += {layer.inputs};")
        out.depth -= 1
        out.add("}")
    else:
        out.add(f"for (i = 0; i < {half}; i++) {{")
        out.depth += 1
        out.add(f"const int j = i + {gap};")
        _unit(out, layer, dialect, "i", "z", "carried", reads, tokens, single)
        if has_matrix:
            out.add(f"w += (size_t){gap} * {n};")
        if not tokens and not single:
            out.add(f"v += (size_t){gap} * {layer.inputs};")
        _unit(out, layer, dialect, "j", "z2", "carried2", reads, tokens, single)
        extra = f", l{k}_p[i]" if layer.phi == "complex_modrelu" else ""
        out.add(f"{layer.phi}(&z, &z2{extra});")
        first, second = ("carried + z", "carried2 + z2") if layer.linear else ("z", "z2")
        out.add(f"{to}[i] = {dialect.narrow(layer, first)};", f"{to}[j] = {dialect.narrow(layer, second)};")
        if has_matrix:
            out.add(f"w -= (size_t){gap - 1} * {n};")
        if not tokens and not single:
            out.add(f"v -= (size_t){gap - 1} * {layer.inputs};")
        out.depth -= 1
        out.add("}")
        if n % 2:
            out.add("{   /* the middle unit, which has no partner */")
            out.depth += 1
            _unit(out, layer, dialect, "i", "z", "carried", reads, tokens, single)
            out.add(f"{to}[i] = {dialect.narrow(layer, 'carried + z' if layer.linear else 'z')};")
            out.depth -= 1
            out.add("}")
    if has_matrix:
        out.add(f"for (i = 0; i < {n}; i++) {{", "    h[i] = next[i];", "}")
    out.depth -= 1
    out.add("}")
    return "\n".join(out.lines) + "\n"


def _unit(
    out: Lines,
    layer: LayerShape,
    dialect: Dialect,
    i: str,
    z: str,
    carried: str,
    reads: str,
    tokens: bool,
    single: bool,
) -> None:
    """Declare the pre-activation of unit i, and the transition's part separately if it is outside of phi."""
    k, n = layer.index, layer.size
    rows = 0 if layer.phi in PAIRED else n
    if layer.form == "dense":
        transition = dialect.product(f"l{k}_W", "w", "h", n, i, rows)
    elif layer.form == "hadamard":
        transition = dialect.transform(layer, i)
    else:
        transition = dialect.held(layer, f"h[{i}]")
    if tokens:
        taken = dialect.entry(f"l{k}_V", f"(known ? v[{i}] : 0)", None, i)
    elif single:
        taken = dialect.entry(f"l{k}_V", f"l{k}_V[{i}]", f"{reads}[0]", i)
    else:
        taken = dialect.product(f"l{k}_V", "v", "in", layer.inputs, i, rows)
    bias = f" + l{k}_b[{i}]" if layer.has_bias else ""
    wide = dialect.wide
    if layer.linear:
        out.add(f"const {wide} {carried} = {transition};")
        out.add(f"{wide} {z} = {taken}{bias};")
    else:
        out.add(f"{wide} {z} = {transition} + {taken}{bias};")


def _described(layer: LayerShape) -> str:
    form = {
        "dense": "a dense transition",
        "reflections": f"{layer.reflections} reflections",
        "rotations": "rotations",
        "hadamard": f"Hadamard matrices of {layer.block}",
    }[layer.form]
    after = f"W h + {layer.phi}(V x + b)" if layer.linear else f"{layer.phi}(W h + V x + b)"
    return f"{form}, {after}"
