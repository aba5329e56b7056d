"""The float32 dialect: weights, states and sums are floats; it calls tanhf, hypotf, erff, expf, sqrtf and fabsf of libm."""

from __future__ import annotations

import re

import numpy as np

from ..units import centered
from . import text
from .body import HADAMARD, Dialect, LayerShape, Table
from .folded import FoldedNetwork

_HELPERS = {
    "dot": """static float dot(const float *a, const float *x, int count)
{
    float sum = 0.0f;
    int j;
    for (j = 0; j < count; j++)
        sum += a[j] * x[j];
    return sum;
}
""",
    "rotate": """/* h = c * h + s * swap(h): swap exchanges the halves; a middle unit stays in place */
static void rotate(float *h, const float *c, const float *s, int count)
{
    const int half = count / 2, gap = count - half;
    int i;
    for (i = 0; i < half; i++) {
        const float p = h[i], q = h[i + gap];
        h[i] = c[i] * p + s[i] * q;
        h[i + gap] = c[i + gap] * q + s[i + gap] * p;
    }
    if (gap != half)
        h[half] = (c[half] + s[half]) * h[half];
}
""",
    "reflect": """/* h = H_1 ... H_m h, H = I - u u', |u|^2 = 2. In u the last reflector comes first. With skip,
   H_j leaves the first j - 1 units unchanged. */
static void reflect(float *h, const float *u, int count, int m, int skip)
{
    int j, i;
    for (j = m - 1; j >= 0; j--) {
        const int start = skip ? j : 0, length = count - start;
        float *const part = h + start;
        const float k = dot(u, part, length);
        for (i = 0; i < length; i++)
            part[i] -= u[i] * k;
        u += length;
    }
}
""",
    "hadamard": HADAMARD.format(wide="float", number="float"),
    "relu": """static float relu(float z)
{
    return z < 0.0f ? 0.0f : z;
}
""",
    "leaky": """static float leaky(float z, float slope)
{
    return z > 0.0f ? z : slope * z;
}
""",
    "gelu": """static float gelu(float z)
{
    return 0.5f * z * (1.0f + erff(z * 0.70710678f));
}
""",
    "sigmoid": """static float sigmoid(float z)
{
    return 1.0f / (1.0f + expf(-z));
}
""",
    "normalize": """/* n = u / sqrt(mean(u^2) + eps); if centered, the mean of u is subtracted first */
static void normalize(float *n, const float *u, int count, int centered, float eps)
{
    float mean = 0.0f, scale;
    int i;
    for (i = 0; centered && i < count; i++)
        mean += u[i];
    mean /= (float)count;
    for (i = 0; i < count; i++)
        n[i] = u[i] - mean;
    scale = 1.0f / sqrtf(dot(n, n, count) / (float)count + eps);
    for (i = 0; i < count; i++)
        n[i] *= scale;
}
""",
    "larger": """static float larger(float a, float b) /* NaN if a or b is NaN */
{
    return a > b ? a : a <= b ? b : a + b;
}
""",
    "scaled_tanh": """static float scaled_tanh(float z, float c)
{
    return c > 0.0f || c < 0.0f ? tanhf(c * z) / c : z;
}
""",
    "modrelu": """static float modrelu(float z, float b)
{
    const float above = fabsf(z) + b;
    const float size = above < 0.0f ? 0.0f : above;
    return z > 0.0f ? size : z < 0.0f ? -size : z;
}
""",
    "complex_modrelu": """static void complex_modrelu(float *re, float *im, float b)
{
    const float r = hypotf(*re, *im), above = r + b;
    const float scale = r > 0.0f && above <= 0.0f ? 0.0f : r > 0.0f ? above / r : r;
    *re *= scale;
    *im *= scale;
}
""",
    "oplu": """static void oplu(float *first, float *second)
{
    const float a = *first, b = *second;
    const int keep = a >= b;
    *first = keep ? a : b;
    *second = keep ? b : a;
}
""",
}


class FloatDialect(Dialect):
    """float32 throughout."""

    number = wide = matrix = feature = "float"

    def __init__(self, network: FoldedNetwork) -> None:
        self.tables = list(_tables(network))
        self._scales = [0.0 if layer.transform is None else layer.transform.scale for layer in network.layers]

    def room(self, row: str) -> list[str]:  # noqa: D102
        return []

    def product(self, name: str, row: str, vector: str, count: int, i: str, rows: int = 0) -> str:  # noqa: D102
        return f"dot({row}, {vector}, {count})"

    def entry(self, name: str, weight: str, factor: str | None, i: str) -> str:  # noqa: D102
        return weight if factor is None else f"{weight} * {factor}"

    def state(self, layer: LayerShape) -> str:  # noqa: D102
        return "float"

    def held(self, layer: LayerShape, place: str) -> str:  # noqa: D102
        return place

    def rotate(self, layer: LayerShape) -> str:  # noqa: D102
        return f"rotate(h, l{layer.index}_c, l{layer.index}_s, {layer.size});"

    def reflect(self, layer: LayerShape) -> str:  # noqa: D102
        return f"reflect(h, l{layer.index}_U, {layer.size}, {layer.reflections}, {int(layer.trapezoid)});"

    def transform(self, layer: LayerShape, i: str) -> str:  # noqa: D102
        return f"sums[{i}] * {text.number(self._scales[layer.index])}"

    def phi(self, layer: LayerShape, i: str) -> str:  # noqa: D102
        parameter = f"l{layer.index}_p[{i}]"
        return {
            "identity": "z",
            "tanh": "tanhf(z)",
            "scaled_tanh": f"scaled_tanh(z, {parameter})",
            "relu": "relu(z)",
            "leaky_relu": f"leaky(z, l{layer.index}_slope[0])",
            "prelu": f"leaky(z, {parameter})",
            "modrelu": f"modrelu(z, {parameter})",
        }[layer.phi]

    def narrow(self, layer: LayerShape, value: str) -> str:  # noqa: D102
        return value

    def read_state(self, layer: LayerShape) -> list[str]:  # noqa: D102
        return [f"const float *const h = state->h{layer.index};"]

    def normalize(self, index: int, width: int, norm: str) -> str:  # noqa: D102
        if norm == "none":
            return ""
        return f"normalize(state->v, state->u, {width}, {int(norm == 'layer')}, b{index}_eps[0]);"

    def gated(self, value: str, gate: str) -> str:  # noqa: D102
        return f"({value}) * sigmoid({gate})"

    def gelu(self, place: str, value: str, hidden: bool) -> str:  # noqa: D102
        return f"gelu({value})"

    def feature_of(self, value: str) -> str:  # noqa: D102
        return value

    def add_to_mean(self, size: int, vector: str) -> list[str]:  # noqa: D102
        return [
            f"for (i = 0; i < {size}; i++) {{   /* Kahan summation: lost holds the rounding error */",
            f"    const float more = {vector}[i] - state->lost[i], sum = state->sum[i] + more;",
            "    state->lost[i] = (sum - state->sum[i]) - more;",
            "    state->sum[i] = sum;",
            "}",
        ]

    def last(self, value: str) -> str:  # noqa: D102
        return value

    def largest(self, value: str) -> tuple[str, str]:  # noqa: D102
        return value, f"larger(state->largest[i], {value})"

    def mean(self) -> tuple[str, str]:  # noqa: D102
        return "const float steps = state->count > 0 ? (float)state->count : 1.0f;", "state->sum[i] / steps"

    def includes(self, text: str) -> str:  # noqa: D102
        names = ("tanhf(", "hypotf(", "fabsf(", "erff(", "expf(", "sqrtf(")
        return "\n#include <math.h>\n" if any(name in text for name in names) else ""

    def helpers(self, body: str) -> str:  # noqa: D102
        return select_helpers(_HELPERS, body)


def select_helpers(helpers: dict[str, str], body: str) -> str:
    """Return the functions, in their order, that a text calls directly or indirectly."""
    called = {name for name in helpers if re.search(rf"\b{name}\(", body)}
    for name in reversed(helpers):  # a function calls earlier ones only
        if name in called:
            called |= {other for other in helpers if other != name and re.search(rf"\b{other}\(", helpers[name])}
    return "\n".join(text for name, text in helpers.items() if name in called)


def _tables(network: FoldedNetwork) -> list[Table]:
    found: list[tuple[str, object]] = []
    for k, layer in enumerate(network.layers):
        V = layer.V.T if network.tokens and not k else layer.V
        found += [(f"l{k}_W", layer.W), (f"l{k}_U", None if layer.U is None else packed(layer.U, layer.trapezoid))]
        if layer.base is not None:
            found += [(f"l{k}_c", layer.base.c), (f"l{k}_s", layer.base.s)]
        found += [(f"l{k}_V", V), (f"l{k}_b", layer.b), (f"l{k}_p", layer.parameter)]
        found += [(f"l{k}_slope", [layer.phi.slope] if layer.phi.name == "leaky_relu" else None)]
        found += [(f"l{k}_h0", layer.h0 if layer.h0.any() else None)]
    if network.input_scale is not None and network.input_offset is not None:
        center, rest = centered(network.input_scale, network.input_offset)
        found += [("input_center", center), ("input_scale", network.input_scale), ("input_offset", rest)]
    for k, block in enumerate(network.blocks):
        S = block.S.T if block.S is not None and network.tokens else block.S
        parts = 2 if block.mixing == "glu" else 1  # the value and the gate
        a = [None] * parts if block.a is None else np.split(block.a, parts)
        found += [*zip((f"b{k}_A", f"b{k}_G"), np.split(block.A, parts)), *zip((f"b{k}_a", f"b{k}_g"), a)]
        found += [(f"b{k}_C", block.C), (f"b{k}_c", block.c)]
        found += [
            (f"b{k}_S", S if block.residual else None),
            (f"b{k}_eps", None if block.norm == "none" else [block.eps]),
        ]
    found += [
        ("series_E", network.vectors),
        ("lags_A", network.reading.A),
        ("read_H", network.H),
        ("read_e", network.e),
        ("read_Y", network.Y),
        ("read_d", network.d),
    ]
    signs = [(k, layer.transform.signs) for k, layer in enumerate(network.layers) if layer.transform is not None]
    return [
        *(Table("uint8_t", f"l{k}_signs", bits_of(values)) for k, values in signs),
        *(Table("float", name, np.asarray(values, np.float64)) for name, values in found if values is not None),
    ]


def bits_of(signs: np.ndarray) -> np.ndarray:
    """Return signs as bytes: bit j of all is set if sign j is -1."""
    return np.packbits(signs < 0, bitorder="little")


def packed(U: np.ndarray, trapezoid: bool) -> np.ndarray:
    """Return the columns of U (N, M) in reverse order, each without its j leading zeros if U is a trapezoid."""
    columns = [U[j if trapezoid else 0 :, j] for j in range(U.shape[1])]
    return np.concatenate(columns[::-1]) if columns else np.zeros(0)
