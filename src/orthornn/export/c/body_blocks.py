"""The C code of blocks, pools and lags, independent of the number format: the parts of a step next to the recurrences."""

from __future__ import annotations

from .blocks import FoldedBlock
from .body import Dialect, LayerShape, Lines
from .reading import PARTS, Reading


def after(block: FoldedBlock, layer: LayerShape, dialect: Dialect, reads: str, tokens: bool) -> str:
    """Return the C code that computes the outputs of a block from its states.

    Args:
        block: The block.
        layer: Its recurrence.
        dialect: The number format.
        reads: C expression of the block's input.
        tokens: Whether that input is a class.
    """
    k, D, states, inputs, out = layer.index, block.size, layer.size, layer.inputs, Lines()
    matrix = block.residual and block.S is not None
    glu, kind = block.mixing == "glu", f"const {dialect.matrix} *"
    out.add(f"{{   /* block {k}: {block.mixing}, {D} features */")
    out.depth += 1
    declared, *narrowed = dialect.read_state(layer)
    out.add(declared, f"{kind}a = b{k}_A;", *dialect.room("a"))
    if glu:
        out.add(f"{kind}gate = b{k}_G;", *dialect.room("gate"))
    if block.C is not None:
        out.add(f"{kind}c = b{k}_C;", *dialect.room("c"))
    if matrix and tokens:
        out.add(f"const int known = token < {inputs};")
        out.add(f"{kind}const s = b{k}_S + (known ? (size_t)token * {D} : 0);")
    elif matrix:
        out.add(f"{kind}s = b{k}_S;", *dialect.room("s"))
    out.add("int i;", *narrowed)

    def product(name: str, row: str, vector: str, count: int, bias: str, there: object, rows: int) -> str:
        found = dialect.product(f"b{k}_{name}", row, vector, count, "i", rows)
        return found if there is None else f"{found} + b{k}_{bias}[i]"

    width = D if block.C is None else len(block.A)
    value = product("A", "a", "h", states, "a", block.a, width)
    moves = [f"a += {states};"]
    if block.C is not None:
        out.add(f"for (i = 0; i < {width}; i++) {{", f"    state->hidden[i] = {dialect.gelu(f'b{k}', value, True)};")
        out.add(f"    {moves[0]}", "}")
        value = product("C", "c", "state->hidden", width, "c", block.c, D)
        moves = [f"c += {width};"]
    elif not glu:
        value = dialect.gelu(f"b{k}", value, False)
    else:
        value = dialect.gated(value, product("G", "gate", "h", states, "g", block.a, D))
        moves.append(f"gate += {states};")
    if matrix and tokens:
        value = f"{dialect.entry(f'b{k}_S', '(known ? s[i] : 0)', None, 'i')} + {value}"
    elif matrix:
        value = f"{dialect.product(f'b{k}_S', 's', reads, inputs, 'i', D)} + {value}"
        moves.append(f"s += {inputs};")
    elif block.residual:
        value = f"state->u[i] + {value}"
    out.add(f"for (i = 0; i < {D}; i++) {{", f"    state->u[i] = {dialect.feature_of(value)};")
    out.add(*(f"    {move}" for move in moves), "}")
    out.depth -= 1
    out.add("}")
    return "\n".join(out.lines) + "\n"


def seen(reading: Reading, dialect: Dialect, vector: str, inputs: str, width: int) -> str:
    """Return the C code that updates the pool and the lags after a step.

    Args:
        reading: The pool and the lags.
        dialect: The number format.
        vector: C expression of the output of this step.
        inputs: C expression of its inputs as the network reads them.
        width: Number of inputs.
    """
    if not reading.counts:
        return ""
    out = Lines()
    out.add("{")
    out.depth += 1
    looks_back = reading.A is not None and reading.lags > 1 and reading.own > 0
    if reading.has_maximum or looks_back:
        out.add("const int first = state->count == 0;")
    out.add("int i;")
    if reading.has_mean:
        out.add(*dialect.add_to_mean(reading.size, vector))
    if reading.has_maximum:
        begun, later = dialect.largest(f"{vector}[i]")
        out.add(f"for (i = 0; i < {reading.size}; i++)", f"    state->largest[i] = first ? {begun} : {later};")
    if reading.A is not None:
        own, total = reading.own, reading.A.shape[1]
        if looks_back:
            out.add(f"for (i = {total - 1}; i >= {width}; i--)   /* the newest first */")
            older = f"state->recent[i - {own}]"
            if own < width:  # between them are the newest step's inputs that are known ahead
                older = f"state->recent[i - (i < {width + own} ? {width} : {own})]"
            out.add(f"    state->recent[i] = first ? {inputs}[(i - {width}) % {own}] : {older};")
        out.add(f"for (i = 0; i < {width}; i++)", f"    state->recent[i] = {inputs}[i];")
    out.add("state->count += state->count < 0xFFFFFFFFu;")
    out.depth -= 1
    out.add("}")
    return "\n".join(out.lines) + "\n"


def pooled(reading: Reading, dialect: Dialect, vector: str) -> tuple[str, str]:
    """Return the declarations and the statements that fill an array `pooled` with the pool of all steps."""
    F = reading.size
    declared, mean = dialect.mean() if reading.has_mean else ("", "")
    declared = f"    {dialect.number} pooled[{F * PARTS[reading.pool]}];\n" + (f"    {declared}\n" if declared else "")
    body, place = f"    for (i = 0; i < {F}; i++) {{\n", 0
    parts = {"last": dialect.last(f"{vector}[i]"), "mean": mean, "largest": "state->largest[i]"}
    names = {"mean": ("mean",), "both": ("last", "mean"), "summary": ("last", "mean", "largest")}
    for name in names.get(reading.pool, ("last",)):
        body += f"        pooled[i{f' + {place}' if place else ''}] = {parts[name]};\n"
        place += F
    return declared, body + "    }\n"
