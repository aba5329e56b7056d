"""The integer dialect: int8 or int16 weights, int16 states, int32 sums; see fixed.py for the arithmetic."""

from __future__ import annotations

import numpy as np

from .body import HADAMARD, Dialect, LayerShape, Table
from .fixed import FixedNetwork
from .fixed_arithmetic import (
    LARGEST,
    RATIO_BITS,
    TANH_END,
    TANH_PLACES,
    TANH_STEPS,
    TANH_TABLE,
    FixedMatrix,
    Multiplier,
)
from .fixed_blocks import (
    FEATURES,
    GELU_PLACES,
    HELD,
    HELD_PLACES,
    QUOTIENT_BITS,
    SIGMOID_BITS,
    SIGMOID_ONE,
    TAIL_BITS,
    TAIL_TABLE,
)
from .float_numbers import bits_of, packed, select_helpers

TOGETHER = 4
"""Rows of a matrix whose products are made together, so that each number of the vector is read once for all."""
_DSP = """/* processors that add two products of 16 bits in one instruction, in compilers that have the functions for it */
#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__) && !defined(__ARM_BIG_ENDIAN) && !defined(ORTHORNN_PORTABLE)
#define ORTHORNN_DSP
#include <arm_acle.h>
#endif
"""
_TWO = """#ifdef ORTHORNN_DSP
/* what four bytes hold, at any address */
static inline int32_t two(const void *place)
{{
    int32_t word;
    __builtin_memcpy(&word, place, 4);
    return word;
}}
#endif
"""
_ODD = """#ifdef ORTHORNN_DSP
/* the bytes 1 and 3 of a word as two numbers of 16 bits; __sxtb16 takes 0 and 2 */
static inline int32_t odd_bytes(int32_t word)
{{
    int32_t found;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(found) : "r"(word));
    return found;
}}
#endif
"""
_INT8 = {
    "inner": """/* sum of a[j] x[j] */
static int32_t inner(const int8_t *a, const int16_t *x, int count)
{{
    int32_t sum = 0;
#ifdef ORTHORNN_DSP
    for (; count >= 4; count -= 4, a += 4, x += 4) {{
        const uint32_t low = (uint32_t)two(x), high = (uint32_t)two(x + 2);
        const int32_t word = two(a), even = (int32_t)((low & 0xFFFFu) | high << 16);
        const int32_t odd = (int32_t)((high & 0xFFFF0000u) | low >> 16);
        sum = __smlad(odd_bytes(word), odd, __smlad(__sxtb16(word), even, sum));
    }}
#endif
    for (; count > 0; count--)
        sum += (int32_t)*a++ * *x++;
    return sum;
}}
""",
    "dot": """/* a row times x; in the tables, the two middle weights of every four are exchanged, for sxtb16 */
static int32_t dot(const int8_t *a, const int16_t *x, int count)
{{
    int32_t sum = 0;
    for (; count >= 4; count -= 4, a += 4, x += 4) {{
#ifdef ORTHORNN_DSP
        const int32_t word = two(a);
        sum = __smlad(odd_bytes(word), two(x + 2), __smlad(__sxtb16(word), two(x), sum));
#else
        sum += (int32_t)a[0] * x[0] + (int32_t)a[2] * x[1] + (int32_t)a[1] * x[2] + (int32_t)a[3] * x[3];
#endif
    }}
    for (; count > 0; count--)
        sum += (int32_t)*a++ * *x++;
    return sum;
}}
""",
}
_INT16 = {
    "inner": """/* sum of a[j] x[j] */
static int32_t inner(const int16_t *a, const int16_t *x, int count)
{{
    int32_t sum = 0;
#ifdef ORTHORNN_DSP
    for (; count >= 2; count -= 2, a += 2, x += 2)
        sum = __smlad(two(a), two(x), sum);
#endif
    for (; count > 0; count--)
        sum += (int32_t)*a++ * *x++;
    return sum;
}}
""",
    "dot": """static int32_t dot(const int16_t *a, const int16_t *x, int count)
{{
    return inner(a, x, count);
}}
""",
}
_DOTS = """/* the same for {together} rows, or fewer if fewer are left */
static void dots(int32_t *sums, const {matrix} *a, const int16_t *x, int count, int rows)
{{
    int r;
#ifdef ORTHORNN_DSP
    if (rows >= {together}) {{
        const int twice = 2 * count, thrice = 3 * count;
        int32_t first = 0, second = 0, third = 0, fourth = 0;
#pragma GCC unroll 2
        for (r = count >> 2; r > 0; r--) {{
{products}
            a += 4, x += 4;
        }}
        for (r = count & 3; r > 0; r--, a++, x++) {{
            first += a[0] * *x;
            second += a[count] * *x;
            third += a[twice] * *x;
            fourth += a[thrice] * *x;
        }}
        sums[0] = first, sums[1] = second, sums[2] = third, sums[3] = fourth;
        return;
    }}
#endif
    for (r = 0; r < {together} && r < rows; r++)
        sums[r] = dot(a + (size_t)r * (size_t)count, x, count);
}}
"""
_PRODUCTS = {  # of four columns with four rows, by the bits of a weight
    8: """\
            const int32_t low = two(x), high = two(x + 2);
            int32_t word = two(a);
            first = __smlad(__sxtb16(word), low, first);
            first = __smlad(odd_bytes(word), high, first);
            word = two(a + count);
            second = __smlad(__sxtb16(word), low, second);
            second = __smlad(odd_bytes(word), high, second);
            word = two(a + twice);
            third = __smlad(__sxtb16(word), low, third);
            third = __smlad(odd_bytes(word), high, third);
            word = two(a + thrice);
            fourth = __smlad(__sxtb16(word), low, fourth);
            fourth = __smlad(odd_bytes(word), high, fourth);""",
    16: """\
            const int32_t low = two(x), high = two(x + 2);
            first = __smlad(two(a + 2), high, __smlad(two(a), low, first));
            second = __smlad(two(a + count + 2), high, __smlad(two(a + count), low, second));
            third = __smlad(two(a + twice + 2), high, __smlad(two(a + twice), low, third));
            fourth = __smlad(two(a + thrice + 2), high, __smlad(two(a + thrice), low, fourth));""",
}
_NEXT_DOT = """/* row i of so many times x; every {together}th call makes the sums of the next ones, too */
static int32_t next_dot(int32_t *sums, const {matrix} *a, const int16_t *x, int count, int i, int rows)
{{
    if ((i & {others}) == 0)
        dots(sums, a, x, count, rows - i);
    return sums[i & {others}];
}}
"""
_HELPERS = {
    "two": _TWO,
    "odd_bytes": _ODD,
    "inner": "",
    "dot": "",
    "dots": _DOTS,
    "next_dot": _NEXT_DOT,
    "between": """/* value, clipped to +-limit; masks, not branches, so that every value takes the same time */
static inline int32_t between(int32_t value, int32_t limit)
{{
    const int32_t high = -(int32_t)(value > limit), low = -(int32_t)(value < -limit);
    return (value & ~(high | low)) | (limit & high) | (-limit & low);
}}
""",
    "scaled": """/* value * m / 2^shift, rounded */
static int32_t scaled(int32_t value, int32_t m, int shift)
{{
    return (int32_t)(((int64_t)value * m + ((int64_t)1 << (shift - 1))) >> shift);
}}
""",
    "cut": """/* value, cut to 16 bits without -32768 */
static int32_t cut(int32_t value)
{{
#ifdef ORTHORNN_DSP
    int32_t found;
    __asm__("ssat %0, #16, %1" : "=r"(found) : "r"(value));
    return found + (int32_t)((uint32_t)(found + 32767) >> 31);
#else
    return between(value, 32767);
#endif
}}
""",
    "narrow": """/* a sum as a state */
static int16_t narrow(int32_t value)
{{
#ifdef ORTHORNN_DSP
    int32_t found;
    __asm__("ssat %0, #16, %1, asr #8" : "=r"(found) : "r"(value + 128));
    return (int16_t)(found + (int32_t)((uint32_t)(found + 32767) >> 31));
#else
    return (int16_t)between((value + 128) >> 8, 32767);
#endif
}}
""",
    "rotate": """/* h = c * h + s * swap(h): swap exchanges the halves; a middle unit stays in place */
static void rotate(int16_t *h, const int16_t *c, const int16_t *s, int count, int places)
{{
    const int half = count / 2, gap = count - half;
    const int32_t rounding = (int32_t)1 << (places - 1);
    int i;
    for (i = 0; i < half; i++) {{
        const int32_t p = h[i], q = h[i + gap];
        h[i] = (int16_t)cut((c[i] * p + s[i] * q + rounding) >> places);
        h[i + gap] = (int16_t)cut((c[i + gap] * q + s[i + gap] * p + rounding) >> places);
    }}
    if (gap != half)
        h[half] = (int16_t)cut(((c[half] + s[half]) * (int32_t)h[half] + rounding) >> places);
}}
""",
    "reflect": """/* h = H_1 ... H_m h, H = I - (2 / |u|^2) u u'. In u the last reflector comes first. With skip,
   H_j leaves the first j - 1 units unchanged. */
static void reflect(int16_t *h, const {matrix} *u, const int32_t *m, int count, int columns, int skip, int shift, int places)
{{
    const int32_t rounding = (int32_t)1 << (places - 1);
    int j, i;
    for (j = columns - 1; j >= 0; j--) {{
        const int start = skip ? j : 0, length = count - start;
        int16_t *const part = h + start;
        const int32_t k = scaled(inner(u, part, length), m[j], shift);
        for (i = 0; i < length; i++)
            part[i] = (int16_t)cut(part[i] - ((u[i] * k + rounding) >> places));
        u += length;
    }}
}}
""",
    "hadamard": HADAMARD,
    "size_of": """static int32_t size_of(int32_t z)
{{
    const int32_t sign = -(int32_t)(z < 0);
    return (z ^ sign) - sign;
}}
""",
    "signed_as": """/* value with the sign of z */
static int32_t signed_as(int32_t value, int32_t z)
{{
    const int32_t sign = -(int32_t)(z < 0);
    return (value ^ sign) - sign;
}}
""",
    "relu": """static int32_t relu(int32_t z)
{{
    return z & ~(z >> 31);
}}
""",
    "leaky": """static int32_t leaky(int32_t z, int32_t slope)
{{
    const int32_t negative = z >> 31;
    return (z & ~negative) | (scaled(z, slope, 16) & negative);
}}
""",
    "modrelu": """static int32_t modrelu(int32_t z, int32_t b)
{{
    return signed_as(relu(size_of(z) + b), z) & -(int32_t)(z != 0);
}}
""",
    "scaled_tanh": """/* tanh(c z) / c, by linear interpolation; m is c, and out 1 / c, both in the units of the table */
static int32_t scaled_tanh(int32_t z, int32_t limit, int32_t m, int shift, int32_t out, int out_shift)
{{
    const int32_t end = {end}, linear = -(int32_t)(m == 0);
    int32_t place = scaled(between(size_of(z), limit), m, shift), value;
    const int16_t *entry;
    place = between(place, end);
    entry = tanh_table + (place >> {places});
    value = entry[0] * (int32_t){between} + (entry[1] - entry[0]) * (place & {mask});
    value = signed_as(scaled(value, out, out_shift), z);
    return (z & linear) | (value & ~linear);
}}
""",
    "narrow_all": """static void narrow_all(int16_t *v, const int32_t *u, int count)
{{
    int i;
    for (i = 0; i < count; i++)
        v[i] = narrow(u[i]);
}}
""",
    "turn": """/* the same as rotate for a state of 32 bits, rounded once */
static void turn(int32_t *h, const int32_t *c, const int32_t *s, int count, int places)
{{
    const int half = count / 2, gap = count - half;
    const int64_t rounding = (int64_t)1 << (places - 1);
    int i;
    for (i = 0; i < half; i++) {{
        const int64_t p = h[i], q = h[i + gap];
        h[i] = (int32_t)((c[i] * p + s[i] * q + rounding) >> places);
        h[i + gap] = (int32_t)((c[i + gap] * q + s[i + gap] * p + rounding) >> places);
    }}
    if (gap != half)
        h[half] = (int32_t)((((int64_t)c[half] + s[half]) * h[half] + rounding) >> places);
}}
""",
    "root": """/* the square root, bit by bit */
static uint32_t root(uint64_t square)
{{
    uint64_t found = 0, bit = (uint64_t)1 << 62;
    int i;
    for (i = 0; i < 32; i++) {{
        const uint64_t tried = found + bit, fits = 0 - (uint64_t)(square >= tried);
        square -= tried & fits;
        found = (found >> 1) + (bit & fits);
        bit >>= 2;
    }}
    return (uint32_t)found;
}}
""",
    "ratio": """/* part / whole for part <= whole, with {ratio} binary places; 0 / 0 = 0 */
static int32_t ratio(uint32_t part, uint32_t whole)
{{
    const uint32_t there = 0u - (uint32_t)(whole != 0);
    uint32_t found = 0u - (uint32_t)(part >= whole);
    int i;
    part -= whole & found;
    found &= 1u;
    for (i = 0; i < {ratio}; i++) {{
        uint32_t fits;
        part <<= 1;
        fits = 0u - (uint32_t)(part >= whole);
        part -= whole & fits;
        found = (found << 1) | (fits & 1u);
    }}
    return (int32_t)(found & there);
}}
""",
    "normalize_size": """/* v = {largest} u / sqrt(sum u^2 + eps) */
static void normalize_size(int16_t *v, const int32_t *u, int count, int64_t eps)
{{
    uint64_t square = (uint64_t)eps, places = 1;
    int i;
    int64_t m;
    for (i = 0; i < count; i++)
        square += (uint64_t)((int64_t)u[i] * u[i]);
    for (i = 16; i > 0; i /= 2) {{
        const uint64_t fits = 0 - (uint64_t)(square < (uint64_t)1 << (62 - 2 * i));
        square = ((square << (2 * i)) & fits) | (square & ~fits);
        places = ((places << i) & fits) | (places & ~fits);
    }}
    m = (((int64_t)ratio((uint32_t)1 << 30, root(square)) * {largest}) >> 9) * (int64_t)places;
    for (i = 0; i < count; i++)
        v[i] = (int16_t)cut((int32_t)((u[i] * m + ((int64_t)1 << 44)) >> 45));
}}
""",
    "normalize": """/* the same for u - mean(u); u is unchanged */
static void normalize(int16_t *v, int32_t *u, int count, int64_t eps, int32_t m, int shift, int down)
{{
    int64_t sum = 0;
    int32_t mean;
    int i;
    for (i = 0; i < count; i++)
        sum += u[i];
    mean = scaled((int32_t)(sum >> down), m, shift);
    for (i = 0; i < count; i++)
        u[i] -= mean;
    normalize_size(v, u, count, eps);
    for (i = 0; i < count; i++)
        u[i] += mean;
}}
""",
    "entry": """/* value of a table at the position |z|, which has {places} binary places more than its entries */
static int32_t entry(const int16_t *table, int32_t z)
{{
    const int32_t place = between(size_of(z), {end});
    const int16_t *const found = table + (place >> {places});
    return found[0] * (int32_t){between} + (found[1] - found[0]) * (place & {mask});
}}
""",
    "sigmoid": """/* (1 + tanh(z / 2)) / 2 */
static int32_t sigmoid(int32_t z)
{{
    return {half} + signed_as(entry(tanh_table, z), z);
}}
""",
    "gelu": """/* max(z, 0) - |z| Phi(-|z|), the latter from a table */
static int32_t gelu(int32_t z)
{{
    return relu(z) - scaled(entry(tail_table, z), 1, {tail});
}}
""",
    "larger": """static int16_t larger(int16_t a, int16_t b)
{{
    const int take = -(int)(b > a);
    return (int16_t)((a & ~take) | (b & take));
}}
""",
    "quotient": """/* sum / count, rounded, bit by bit; it has at most {quotient} bits */
static int32_t quotient(int64_t sum, uint32_t count)
{{
    const int64_t sign = -(int64_t)(sum < 0);
    uint64_t left = (uint64_t)((sum ^ sign) - sign) + count / 2;
    uint32_t found = 0;
    int i;
    for (i = {quotient} - 1; i >= 0; i--) {{
        const uint64_t fits = 0 - (uint64_t)(left >= (uint64_t)count << i);
        left -= ((uint64_t)count << i) & fits;
        found |= (uint32_t)1 << i & (uint32_t)fits;
    }}
    return ((int32_t)found ^ (int32_t)sign) - (int32_t)sign;
}}
""",
    "complex_modrelu": """static void complex_modrelu(int32_t *re, int32_t *im, int32_t b)
{{
    const int64_t x = *re, y = *im;
    const uint32_t r = root((uint64_t)(x * x) + (uint64_t)(y * y));
    const int32_t size = relu((int32_t)r + b);
    *re = signed_as(scaled(size, ratio((uint32_t)size_of(*re), r), {ratio}), *re);
    *im = signed_as(scaled(size, ratio((uint32_t)size_of(*im), r), {ratio}), *im);
}}
""",
    "oplu": """static void oplu(int32_t *first, int32_t *second)
{{
    const int32_t a = *first, b = *second, other = (a ^ b) & -(int32_t)(a < b);
    *first = a ^ other;
    *second = b ^ other;
}}
""",
}


class FixedDialect(Dialect):
    """Integers."""

    number, wide, feature = "int16_t", "int32_t", "int32_t"

    def __init__(self, fixed: FixedNetwork) -> None:
        self.fixed = fixed
        self.matrix = f"int{fixed.bits}_t"
        self.matrices: dict[str, FixedMatrix] = {}
        self.tables = list(self._tables())

    def state(self, layer: LayerShape) -> str:  # noqa: D102
        return "int16_t" if self.fixed.layers[layer.index].turns is None else "int32_t"

    def _scaled(self, name: str, sums: str, i: str) -> str:
        return self._times(self.matrices[name].multiplier, f"{name}_m[{i}]", sums)

    def _times(self, multiplier: Multiplier, entry: str, sums: str) -> str:
        factor = entry if len(multiplier.m) > 1 else str(int(multiplier.m[0]))
        sums = sums if multiplier.limit is None else f"between({sums}, {multiplier.limit})"
        return f"scaled({sums}, {factor}, {multiplier.shift})"

    def room(self, row: str) -> list[str]:  # noqa: D102
        return [f"int32_t {row}_sums[{TOGETHER}];"]

    def product(self, name: str, row: str, vector: str, count: int, i: str, rows: int = 0) -> str:  # noqa: D102
        if not rows:
            return self._scaled(name, f"dot({row}, {vector}, {count})", i)
        return self._scaled(name, f"next_dot({row}_sums, {row}, {vector}, {count}, {i}, {rows})", i)

    def entry(self, name: str, weight: str, factor: str | None, i: str) -> str:  # noqa: D102
        return self._scaled(name, weight if factor is None else f"(int32_t){weight} * {factor}", i)

    def held(self, layer: LayerShape, place: str) -> str:  # noqa: D102
        return f"{place} * (int32_t)256" if self.state(layer) == "int16_t" else place

    def rotate(self, layer: LayerShape) -> str:  # noqa: D102
        k, base, turns = layer.index, self.fixed.layers[layer.index].base, self.fixed.layers[layer.index].turns
        if turns is not None:
            return f"turn(h, l{k}_c, l{k}_s, {layer.size}, {turns.places});"
        assert base is not None
        return f"rotate(h, l{k}_c, l{k}_s, {layer.size}, {base.places});"

    def reflect(self, layer: LayerShape) -> str:  # noqa: D102
        k, U = layer.index, self.fixed.layers[layer.index].U
        assert U is not None
        sizes = f"{layer.size}, {layer.reflections}, {int(layer.trapezoid)}, {U.shift}, {U.places}"
        return f"reflect(h, l{k}_U, l{k}_U_m, {sizes});"

    def transform(self, layer: LayerShape, i: str) -> str:  # noqa: D102
        multiplier = self.fixed.layers[layer.index].transform
        assert multiplier is not None
        return self._times(multiplier, "", f"sums[{i}]")

    def phi(self, layer: LayerShape, i: str) -> str:  # noqa: D102
        k, tanh = layer.index, self.fixed.layers[layer.index].tanh
        if tanh is not None:
            into, out = (
                f"l{k}_{name}[{i}]" if len(of.m) > 1 else str(int(of.m[0]))
                for name, of in (("tanh_in", tanh.into), ("tanh_out", tanh.out))
            )
            return f"scaled_tanh(z, {tanh.into.limit}, {into}, {tanh.into.shift}, {out}, {tanh.out.shift})"
        return {
            "identity": "z",
            "relu": "relu(z)",
            "leaky_relu": f"leaky(z, l{k}_p[0])",
            "prelu": f"leaky(z, l{k}_p[{i}])",
            "modrelu": f"modrelu(z, l{k}_p[{i}])",
        }[layer.phi]

    def narrow(self, layer: LayerShape, value: str) -> str:  # noqa: D102
        return f"narrow({value})" if self.state(layer) == "int16_t" else f"between({value}, {HELD})"

    def read_state(self, layer: LayerShape) -> list[str]:  # noqa: D102
        if self.state(layer) == "int16_t":
            return [f"const int16_t *const h = state->h{layer.index};"]
        rounded = f"cut((state->h{layer.index}[i] + {1 << (HELD_PLACES - 1)}) >> {HELD_PLACES})"
        return [
            "int16_t *const h = state->narrowed;",
            f"for (i = 0; i < {layer.size}; i++)",
            f"    h[i] = (int16_t){rounded};",
        ]

    def normalize(self, index: int, width: int, norm: str) -> str:  # noqa: D102
        found = self.fixed.blocks[index].norm
        if found is None:
            return f"narrow_all(state->v, state->u, {width});"
        name = "normalize" if found.centered else "normalize_size"
        mean = f", {found.m}, {found.shift}, {found.down}" if found.centered else ""
        return f"{name}(state->v, state->u, {width}, {found.eps}{mean});"

    def gated(self, value: str, gate: str) -> str:  # noqa: D102
        return f"scaled({value}, sigmoid({gate}), {SIGMOID_BITS})"

    def gelu(self, place: str, value: str, hidden: bool) -> str:  # noqa: D102
        found = self.fixed.gelu if place == "read" else self.fixed.blocks[int(place[1:])].gelu
        assert found is not None
        argument = f"gelu({value})" if found.limit is None else f"between(gelu({value}), {found.limit})"
        value = f"scaled({argument}, {int(found.m[0])}, {found.shift})"
        return f"(int16_t)cut({value})" if hidden else value

    def feature_of(self, value: str) -> str:  # noqa: D102
        return f"between({value}, {FEATURES})"

    def add_to_mean(self, size: int, vector: str) -> list[str]:  # noqa: D102
        value = f"{vector}[i]" if self.fixed.blocks else f"{vector}[i] * (int32_t)256"
        return [f"for (i = 0; i < {size}; i++)", f"    state->sum[i] += {value};"]

    def last(self, value: str) -> str:  # noqa: D102
        return f"narrow({value})" if self.fixed.blocks else value

    def largest(self, value: str) -> tuple[str, str]:  # noqa: D102
        return self.last(value), f"larger(state->largest[i], {self.last(value)})"

    def mean(self) -> tuple[str, str]:  # noqa: D102
        return "const uint32_t steps = state->count > 0 ? state->count : 1;", "narrow(quotient(state->sum[i], steps))"

    def includes(self, text: str) -> str:  # noqa: D102
        return f"\n{_DSP}" if "ORTHORNN_DSP" in text else ""

    def helpers(self, body: str) -> str:  # noqa: D102
        values = {
            "matrix": self.matrix,
            "number": self.number,
            "wide": self.wide,
            "end": (TANH_STEPS * TANH_END << TANH_PLACES) - 1,
            "places": TANH_PLACES,
            "between": 1 << TANH_PLACES,
            "mask": (1 << TANH_PLACES) - 1,
            "ratio": RATIO_BITS,
            "half": SIGMOID_ONE // 2,
            "tail": TAIL_BITS + TANH_PLACES - GELU_PLACES,
            "quotient": QUOTIENT_BITS,
            "largest": LARGEST,
            "together": TOGETHER,
            "products": _PRODUCTS[self.fixed.bits],
            "others": TOGETHER - 1,
        }
        texts = _HELPERS | (_INT8 if self.fixed.bits == 8 else _INT16)
        return select_helpers({name: text.format(**values) for name, text in texts.items()}, body)

    def _tables(self) -> list[Table]:
        fixed, found = self.fixed, []

        def add(kind: str, name: str, values: object) -> None:
            if values is not None:
                found.append(Table(kind, name, values))

        def add_matrix(name: str, matrix: FixedMatrix | None, transposed: bool = False) -> None:
            if matrix is not None:
                self.matrices[name] = matrix
                add(self.matrix, name, matrix.q.T if transposed else _in_words(matrix.q, self.fixed.bits))
                add("int32_t", f"{name}_m", _rows(matrix.multiplier))

        for k, layer in enumerate(fixed.layers):
            add_matrix(f"l{k}_W", layer.W)
            if layer.U is not None:
                add(self.matrix, f"l{k}_U", packed(layer.U.q, layer.layer.trapezoid))
                add("int32_t", f"l{k}_U_m", layer.U.m)
            if layer.layer.transform is not None:
                add("uint8_t", f"l{k}_signs", bits_of(layer.layer.transform.signs))
            kind = "int16_t" if layer.turns is None else "int32_t"
            turns = layer.base if layer.turns is None else layer.turns
            if turns is not None:
                add(kind, f"l{k}_c", turns.c)
                add(kind, f"l{k}_s", turns.s)
            add_matrix(f"l{k}_V", layer.V, fixed.network.tokens and not k)
            add("int32_t", f"l{k}_b", layer.b)
            add("int32_t", f"l{k}_p", layer.parameter)
            if layer.tanh is not None:
                add("int32_t", f"l{k}_tanh_in", _rows(layer.tanh.into))
                add("int32_t", f"l{k}_tanh_out", _rows(layer.tanh.out))
            add(kind, f"l{k}_h0", layer.h0 if layer.layer.h0.any() else None)
        for k, block in enumerate(fixed.blocks):
            for letter in "AGC":
                add_matrix(f"b{k}_{letter}", getattr(block, letter))
            add_matrix(f"b{k}_S", block.S, fixed.network.tokens)
            for letter in "agc":
                add("int32_t", f"b{k}_{letter}", getattr(block, letter))
        if any(layer.tanh is not None for layer in fixed.layers) or any(block.G is not None for block in fixed.blocks):
            add("int16_t", "tanh_table", TANH_TABLE)
        if fixed.gelu is not None or any(block.gelu is not None for block in fixed.blocks):
            add("int16_t", "tail_table", TAIL_TABLE)
        add("int16_t", "series_E", fixed.vectors)
        add_matrix("lags_A", fixed.reading.A)
        add_matrix("read_H", fixed.H)
        add("int32_t", "read_e", fixed.e)
        add_matrix("read_Y", fixed.Y)
        add("int32_t", "read_d", fixed.d)
        return found


def _in_words(q: np.ndarray, bits: int) -> np.ndarray:
    """Return the rows of a matrix in the order in which `dot` takes numbers of so many bits apart."""
    whole = 0 if bits == 16 else q.shape[1] // 4 * 4
    order = np.arange(q.shape[1])
    order[:whole] = order[:whole].reshape(-1, 2, 2).transpose(0, 2, 1).ravel()
    return q[:, order]


def _rows(multiplier: Multiplier) -> np.ndarray | None:
    """Return the multipliers if there is one for each row."""
    return multiplier.m if len(multiplier.m) > 1 else None
