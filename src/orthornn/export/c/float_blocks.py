"""The C of blocks, pools and lags, in float32: what a step does next to the recurrences."""

from __future__ import annotations

from .blocks import FoldedBlock
from .body import Lines
from .reading import PARTS, Reading


def before(block: FoldedBlock, index: int, width: int) -> str:
    """Return the C that normalizes what block number `index` reads, of this width; "" if it is read as it is."""
    if block.norm == "none":
        return ""
    centered = int(block.norm == "layer")
    return f"    normalize(state->v, state->u, {width}, {centered}, b{index}_eps[0]);\n"


def after(block: FoldedBlock, index: int, states: int, inputs: int, reads: str, tokens: bool) -> str:
    """Return the C that makes the outputs of a block from its states.

    Args:
        block: The block.
        index: Its number.
        states: N, how many there are.
        inputs: I, how many numbers it reads.
        reads: The expression of what it reads, "state->u" in all blocks but the first.
        tokens: Whether that is a class.
    """
    k, D, out = index, block.size, Lines()
    matrix = block.residual and block.S is not None
    out.add(f"{{   /* block {k}: {block.mixing}, {D} features */")
    out.depth += 1
    out.add(f"const float *const h = state->h{k};", f"const float *a = b{k}_A;")
    if block.mixing == "glu":
        out.add(f"const float *gate = b{k}_A + (size_t){D} * {states};")
    if block.C is not None:
        out.add(f"const float *c = b{k}_C;")
    if matrix and tokens:
        out.add(f"const int known = token < {inputs};")
        out.add(f"const float *const s = b{k}_S + (known ? (size_t)token * {D} : 0);")
    elif matrix:
        out.add(f"const float *s = b{k}_S;")
    out.add("int i;")
    value = f"dot(a, h, {states})" + ("" if block.a is None else f" + b{k}_a[i]")
    moves = [f"a += {states};"]
    if block.C is not None:
        width = len(block.A)
        out.add(f"for (i = 0; i < {width}; i++) {{", f"    state->hidden[i] = gelu({value});", f"    {moves[0]}", "}")
        value = f"dot(c, state->hidden, {width})" + ("" if block.c is None else f" + b{k}_c[i]")
        moves = [f"c += {width};"]
    elif block.mixing == "gelu":
        value = f"gelu({value})"
    else:
        gate = f"dot(gate, h, {states})" + ("" if block.a is None else f" + b{k}_a[i + {D}]")
        value = f"({value}) * sigmoid({gate})"
        moves.append(f"gate += {states};")
    if matrix and tokens:
        value = f"(known ? s[i] : 0.0f) + {value}"
    elif matrix:
        value = f"dot(s, {reads}, {inputs}) + {value}"
        moves.append(f"s += {inputs};")
    elif block.residual:
        value = f"state->u[i] + {value}"
    out.add(f"for (i = 0; i < {D}; i++) {{", f"    state->u[i] = {value};", *(f"    {move}" for move in moves), "}")
    out.depth -= 1
    out.add("}")
    return "\n".join(out.lines) + "\n"


def seen(reading: Reading, vector: str, inputs: str, width: int) -> str:
    """Return the C that updates what is known of all steps.

    Args:
        reading: What the readout reads.
        vector: The expression of the output of this step.
        inputs: That of its inputs as the network reads them.
        width: How many inputs there are.
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
        out.add(f"for (i = 0; i < {reading.size}; i++) {{   /* Kahan's sum: what rounding lost is in lost */")
        out.add(f"    const float more = {vector}[i] - state->lost[i], sum = state->sum[i] + more;")
        out.add("    state->lost[i] = (sum - state->sum[i]) - more;", "    state->sum[i] = sum;", "}")
    if reading.has_maximum:
        out.add(f"for (i = 0; i < {reading.size}; i++)")
        out.add(f"    state->largest[i] = first ? {vector}[i] : larger(state->largest[i], {vector}[i]);")
    if reading.A is not None:
        own, total = reading.own, reading.A.shape[1]
        if looks_back:
            out.add(f"for (i = {total - 1}; i >= {width}; i--)   /* the newest first */")
            older = f"state->recent[i - {own}]"
            if own < width:  # of the newest step, the inputs that are known ahead lie between
                older = f"state->recent[i - (i < {width + own} ? {width} : {own})]"
            out.add(f"    state->recent[i] = first ? {inputs}[(i - {width}) % {own}] : {older};")
        out.add(f"for (i = 0; i < {width}; i++)", f"    state->recent[i] = {inputs}[i];")
    out.add("state->count += state->count < 0xFFFFFFFFu;")
    out.depth -= 1
    out.add("}")
    return "\n".join(out.lines) + "\n"


def pooled(reading: Reading, vector: str) -> tuple[str, str]:
    """Return the declarations and the statements of what a readout reads of all steps, in an array `pooled`."""
    F = reading.size
    declared = (
        f"    float pooled[{F * PARTS[reading.pool]}];\n"
        "    const float steps = state->count > 0 ? (float)state->count : 1.0f;\n"
    )
    body, place = f"    for (i = 0; i < {F}; i++) {{\n", 0
    parts = {"last": f"{vector}[i]", "mean": "state->sum[i] / steps", "largest": "state->largest[i]"}
    names = {"mean": ("mean",), "both": ("last", "mean"), "summary": ("last", "mean", "largest")}[reading.pool]
    for name in names:
        body += f"        pooled[i{f' + {place}' if place else ''}] = {parts[name]};\n"
        place += F
    return declared, body + "    }\n"
