"""Every function of the float32 dialect alone, against the modules' activations and against matrices in float64."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest
import torch

from orthornn.activations import get
from orthornn.export.c.float_numbers import _HELPERS, bits_of, packed
from orthornn.export.c.folded import Base, FoldedLayer, Transform
from support.compiled_c import COMPILERS, STRICT, command
from support.tolerances import tolerance

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs a C compiler")
NUMBERS = [0.0, -0.0, 1e-30, 0.3, -0.3, 1.0, -1.0, 2.5, -2.5, 1e30, -1e30, *(float(x) for x in ("inf", "-inf", "nan"))]
PARAMETERS = [0.0, -0.0, 0.5, -0.5, 3.0, -3.0]
SINGLE = {"relu": "relu", "leaky": "prelu", "scaled_tanh": "scaled_tanh", "modrelu": "modrelu"}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    file = tmp_path_factory.mktemp("helpers") / "helpers.c"
    file.write_text("#include <math.h>\n#include <stdint.h>\n" + "".join(_HELPERS.values()).replace("static ", ""))
    command(COMPILERS[0], *STRICT, "-O2", "-shared", "-fPIC", file, "-o", file.with_suffix(".so"), "-lm")
    found = ctypes.CDLL(str(file.with_suffix(".so")))
    for name in (*SINGLE, "gelu"):
        getattr(found, name).restype = ctypes.c_float
    return found


def wide(*values):
    """What float32 makes of numbers, in float64."""
    return torch.tensor(values, dtype=torch.float32).double()


def same(found, expected, where, atol=0.0):
    near = {"rtol": tolerance(torch.float32), "atol": atol, "equal_nan": True}
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), expected, **near, msg=where)


@pytest.mark.parametrize("name", SINGLE)
def test_functions_of_one_unit(name, library):
    """Also with parameters that are zero or negative, and of numbers that are none."""
    phi = get(SINGLE[name])
    for z, p in itertools.product(NUMBERS, PARAMETERS):
        given = (z,) if name == "relu" else (z, p)
        found = getattr(library, name)(*map(ctypes.c_float, given))
        same([found], phi(wide(z), wide(p)), f"{name}{given} is {found}")


@pytest.mark.parametrize("name", ["complex_modrelu", "oplu"])
def test_functions_of_a_pair(name, library):
    for first, second, p in itertools.product(NUMBERS, NUMBERS, PARAMETERS):
        pair = ctypes.c_float(first), ctypes.c_float(second)
        given = (*map(ctypes.byref, pair), *((ctypes.c_float(p),) if name == "complex_modrelu" else ()))
        getattr(library, name)(*given)
        found = [value.value for value in pair]
        same(found, get(name)(wide(first, second), wide(p)), f"{name}({first}, {second}, {p}) is {found}")


def test_gelu(library):
    for z in NUMBERS:
        if z != -float("inf"):  # 0 times infinity; and below 0, 1 + erf cancels
            found = library.gelu(ctypes.c_float(z))
            same([found], torch.nn.functional.gelu(wide(z)), f"gelu({z}) is {found}", tolerance(torch.float32))


def pointer(values):
    return np.ascontiguousarray(values, np.float32).ctypes.data_as(ctypes.c_void_p)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9])
def test_transitions_are_their_matrices(n, library):
    """A middle unit, reflectors that begin with zeros, and one that reflects nothing."""
    random = np.random.default_rng(n)
    h, c, s = random.standard_normal((3, n)).astype(np.float32)
    state = h.copy()
    library.rotate(pointer(state), pointer(c), pointer(s), n)
    W = np.diag(c.astype(np.float64))
    for i in range(n):
        W[i, i if n % 2 and i == n // 2 else (i + n - n // 2) % n if i < n // 2 else i - (n - n // 2)] += s[i]
    assert np.abs(state - W @ h).max() < tolerance(torch.float32, n) * 10
    for trapezoid in (False, True):
        for m in {1, (n + 1) // 2, n}:
            U = random.standard_normal((n, m))
            U = np.tril(U) if trapezoid else U
            U = (U * np.sqrt(2) / np.linalg.norm(U, axis=0)).astype(np.float32)
            U[:, m // 2] = 0
            state, W, columns = h.copy(), np.eye(n), np.ascontiguousarray(packed(U, trapezoid), np.float32)
            library.reflect(pointer(state), pointer(columns), n, m, int(trapezoid))
            for u in U.T.astype(np.float64):
                W = W @ (np.eye(n) - np.outer(u, u))
            assert np.abs(state - W @ h).max() < tolerance(torch.float32, n * m) * 10
            layer = FoldedLayer(
                "reflections",
                np.zeros((n, 1)),
                None,
                np.zeros(n),
                get("relu"),
                None,
                False,
                U=U.astype(np.float64),
                trapezoid=trapezoid,
                base=Base(np.ones(n), np.zeros(n)),
            )
            assert np.abs(layer.matrix() - W).max() < tolerance(torch.float64, n * m) * 10
            multiplications = sum(2 * (n - j * trapezoid) for j in range(m)) + 2 * n
            assert layer.multiply_adds == multiplications


@pytest.mark.parametrize(("n", "block"), [(1, 1), (8, 8), (24, 8), (64, 16), (15, 1)])
def test_a_transform_adds_the_same_numbers(library, n, block):
    """Sums of whole numbers, exact in float32; the signs are packed eight to a byte."""
    generator = np.random.default_rng(n)
    h = generator.integers(-999, 1000, n).astype(np.float32)
    signs = np.where(generator.random(n) < 0.5, -1.0, 1.0)
    found, bits = np.full(n, np.nan, np.float32), bits_of(signs)
    assert len(bits) == -(-n // 8)
    places = [array.ctypes.data_as(ctypes.c_void_p) for array in (found, h, bits)]
    library.hadamard(*places, n, block)
    assert np.array_equal(found, Transform(signs, block, 1.0).sums(h))
