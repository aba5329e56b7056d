"""Every line of docs/methods/index.md: the set W ranges over, its determinant and dimension, the parameters, the cost.

Of docs/reference/command_line.md, the parameters of the models.
"""

from __future__ import annotations

import cmath
import math
import re
from pathlib import Path

import pytest
import torch

import orthornn
from orthornn.learn.systems import MODELS, build, count_parameters
from orthornn.parametrizations import Parametrization
from orthornn.parametrizations.givens import BoundGivens
from orthornn.parametrizations.matrices import haar

PAGE = Path(__file__).parents[2] / "docs" / "methods" / "index.md"
COMMAND_LINE = PAGE.parents[1] / "reference" / "command_line.md"
METHODS = {name: getattr(orthornn, name) for name in orthornn.__all__}
METHODS = {name: value for name, value in METHODS.items() if isinstance(value, type)}
METHODS = {name: value for name, value in METHODS.items() if issubclass(value, Parametrization)}


def rows(first_heading: str, page: Path = PAGE) -> list[dict[str, str]]:
    lines = page.read_text(encoding="utf-8").splitlines()
    lines = [line.replace("²", "^2") for line in lines if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    found, heading = [], None
    for row in cells:
        if row[0] in ("method", "model", "name"):
            heading = row
        elif heading is not None and heading[0] == first_heading and not row[0].startswith("---"):
            found.append(dict(zip(heading, row)))
    return found


LINES = rows("method")
EVERY = pytest.mark.parametrize("line", LINES, ids=lambda line: line["method"])


def value(formula: str, **letters: int) -> float:
    """A formula as it is written on paper: 2nm+m^2/2, n(n-1)/2."""
    text = re.sub(r"(?<=[\dnmLkIO)])\s*(?=[nmLkIO](?![a-z])|\()", "*", formula).replace("^", "**")
    text = text.replace("log2*(", "log2(").replace("min*(", "min(")
    return eval(text, {"min": min, "log2": math.log2, "__builtins__": {}}, letters)


def method_of(line):
    return eval(line["method"].strip("`"), dict(METHODS))


def letters_of(method, bound) -> dict[str, int]:
    n = bound.n
    return {
        "n": n,
        "m": getattr(method, "reflections", None) or n,
        "L": getattr(bound, "layers", 0),
        "k": len(bound.tables(torch.device("cpu")).first) if hasattr(bound, "tables") else 0,
    }


def random_free(bound, seed: int):
    generator = torch.Generator().manual_seed(seed)
    free = bound.initial(generator)
    return tuple(
        f if name in bound.manifolds else f + 0.3 * torch.randn(f.shape, dtype=f.dtype, generator=generator)
        for name, f in zip(bound.names, free)
    )


def test_every_method_has_a_line():
    assert {type(method_of(line)) for line in LINES} == set(METHODS.values())


def rank(bound, free) -> int:
    """Of the Jacobian of the free numbers; a Stiefel manifold's tangents are W A with A skew."""

    def flat(*tensors):
        W = bound(*tensors)
        return (torch.view_as_real(W) if W.is_complex() else W).flatten()

    blocks = []
    for name, tensor, block in zip(bound.names, free, torch.autograd.functional.jacobian(flat, free)):
        block = block.flatten(1)
        if name in bound.manifolds:
            square = torch.view_as_complex(tensor) if bound.field == "complex" else tensor
            tangents = []
            for unit in (1.0, 1.0j) if square.is_complex() else (1.0,):
                for i in range(bound.n):
                    for j in range(bound.n):
                        A = torch.zeros_like(square)
                        A[i, j] = unit
                        T = square @ (A - A.mH)
                        tangents.append((torch.view_as_real(T) if T.is_complex() else T).flatten())
            block = block @ torch.stack(tangents, dim=1)
        blocks.append(block)
    singular = torch.linalg.svdvals(torch.cat(blocks, dim=1))
    return int((singular > 1e-9 * singular.max()).sum())


@pytest.mark.sampled(3)
@EVERY
@pytest.mark.parametrize("n", [5, 8])
def test_dimension_and_parameters(line, n):
    method = method_of(line)
    bound = method.bind(n).double()
    letters = letters_of(method, bound)
    assert bound.count() == value(line["parameters"], **letters)
    for seed in (0, 1):
        assert rank(bound, random_free(bound, seed)) == value(line["dimension"], **letters)


@EVERY
def test_group_and_determinant(line):
    n = 7
    method = method_of(line)
    bound = method.bind(n).double()
    assert bound.group == line["spans"]
    determinants = [torch.linalg.det(bound(*random_free(bound, seed))) for seed in range(24)]
    signs = {int(torch.sgn(d).real) for d in determinants if not d.is_complex()}
    expected = {
        "1": {1},
        "positive": {1},
        "-1": {-1},
        "(-1)^m": {(-1) ** letters_of(method, bound)["m"]},
        "both": {-1, 1},
        "any": {-1, 1},
        "phase": set(),
    }[line["det"]]
    assert signs == expected
    if line["det"] == "phase":
        angles = torch.stack(determinants).angle()
        assert float(torch.stack(determinants).abs().sub(1).abs().max()) < 1e-9
        assert float(angles.max() - angles.min()) > 1
    # all of the group: random members of it are represented exactly
    if line["spans"] in ("O", "SO", "det=-1", "U"):
        for seed in range(4):
            W = haar(n, bound.field == "complex", torch.Generator().manual_seed(seed))
            sign = {"SO": 1, "det=-1": -1}.get(line["spans"])
            if sign is not None and torch.linalg.det(W).sign() != sign:
                W[:, 0] *= -1
            assert float(torch.linalg.matrix_norm(bound(*bound.right_inverse(W)) - W)) < 1e-11
    elif line["spans"] == "subset":
        full = n * n if bound.field == "complex" else n * (n - 1) // 2
        assert value(line["dimension"], **letters_of(method, bound)) < full


def counted(bound) -> int:
    """The multiply-adds of one state through a structured form: each entry of the layers of Givens rotations, once."""
    if not isinstance(bound, BoundGivens):
        return bound.operator_cost[0]
    entries = sum(operand.numel() for operand in bound.operands(*random_free(bound, 0)))
    return entries * (4 if bound.field == "complex" else 1)


@EVERY
def test_the_forms_that_the_cost_names(line):
    n = 16
    method = method_of(line)
    bound = method.bind(n)
    letters = {**letters_of(method, bound), "l": 4}
    dense, _, structured = line["cost"].partition(" or ")
    if structured:
        formula = re.sub(r"l", "*4", structured)
        assert counted(bound) == value(formula, **letters)
    else:
        # n layers of rotations could be applied one by one too, but never pay
        assert bound.operator_cost is None or bound.layers == n
    if dense == "2n":
        assert bound.num_reflections == 0
    elif dense.startswith("2nm+m^2/2"):
        from orthornn.kernels.cost_model import cheaper_form

        assert cheaper_form(n, bound.num_reflections) == "compact_wy"
        assert dense.endswith("+2n") == (getattr(method, "base", "rotations") == "rotations")
    else:
        assert value(dense, **letters) == n * n * (4 if bound.field == "complex" else 1)


def test_the_table_of_systems_counts_what_is_trained():
    named = set()
    n, inputs, outputs = 12, 3, 5
    for row in rows("model", COMMAND_LINE):
        of_w, rest = row[list(row)[2]].split(";")
        for name in re.findall(r"`([\w-]+)`", row["model"]):
            named.add(name)
            model = build(name, inputs, outputs, hidden_size=n)
            letters = {"n": n, "m": getattr(model.core, "reflections", n), "I": inputs, "O": outputs}
            core = count_parameters(model)
            if of_w.strip().startswith("see "):
                W = next(model.core.transitions())[1].method.count()
            else:
                W = value(of_w.strip().replace(" ", ""), **letters)
            assert core == W + value(rest.strip().replace(" ", ""), **letters), name
    assert named == set(MODELS)


def test_the_table_of_models_says_what_the_command_says():
    lines = COMMAND_LINE.read_text(encoding="utf-8").splitlines()
    start = lines.index("| name | network |") + 2
    assert lines[start : start + len(MODELS)] == [f"| `{name}` | {made.summary} |" for name, made in MODELS.items()]


@pytest.mark.parametrize(("page", "field"), [("rotations", "real"), ("givens", "real"), ("givens", "complex")])
def test_the_rotation_on_a_page_is_that_of_w(page, field):
    """The first unit of a pair is h_p, the second h_q; theta or a is the angle, phi a phase (0 if real)."""
    text = (PAGE.parent / f"{page}.md").read_text(encoding="utf-8")
    letters = {"a": 0.7, "theta": 0.7, "phi": 0.4 if field == "complex" else 0.0}
    (printed,) = (m for m in re.findall(r"\\begin\{pmatrix\} (.*?) \\end\{pmatrix\}", text) if "&" in m)
    for latex, python in (
        (r"e^{i\varphi}", "exp(1j * phi) * "),
        (r"\cos\theta", "cos(theta)"),
        (r"\sin\theta", "sin(theta)"),
        (r"\cos a", "cos(a)"),
        (r"\sin a", "sin(a)"),
    ):
        printed = printed.replace(latex, python)
    functions = {"exp": cmath.exp, "cos": math.cos, "sin": math.sin, "__builtins__": {}}
    block = [[complex(eval(entry, functions, letters)) for entry in row.split("&")] for row in printed.split("\\\\")]
    angle = torch.tensor([0.7], dtype=torch.float64)
    phases = (torch.full((1,), letters["phi"], dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
    if page == "rotations":
        W = orthornn.Rotations().bind(2)(angle)
    else:
        W = orthornn.Givens(layers=1, field=field).bind(2)(angle, *(phases if field == "complex" else ()))
    torch.testing.assert_close(W.to(torch.complex128), torch.tensor(block, dtype=torch.complex128), atol=1e-15, rtol=0)


def test_seven_directions_of_the_restricted_unitary_matrix_leave_it_as_it_is():
    """The seventh turns v_2 and F^-1 D_2 P v_1 in their plane; the page of RestrictedUnitary names the others."""
    bound = orthornn.RestrictedUnitary().bind(9)
    phases, reflectors = bound.initial(torch.Generator().manual_seed(0))
    W = bound(phases, reflectors)
    first, second = torch.view_as_complex(reflectors.clone())
    spectrum = torch.polar(torch.ones_like(phases[1]), phases[1])
    carried = torch.fft.ifft(spectrum * first[bound.permutation], norm="ortho")
    carried, second = carried / torch.linalg.vector_norm(carried), second / torch.linalg.vector_norm(second)
    second = second * torch.sgn(second.conj() @ carried)
    across = second - (carried.conj() @ second) * carried
    across = across / torch.linalg.vector_norm(across)
    between = torch.arccos((carried.conj() @ second).real)
    turned = math.cos(0.6) * carried + math.sin(0.6) * across
    moved = torch.cos(between + 0.6) * carried + torch.sin(between + 0.6) * across
    back = torch.empty_like(first)
    back[bound.permutation] = spectrum.conj() * torch.fft.fft(turned, norm="ortho")
    shifted = phases + torch.tensor([0.3, 0.5, -0.8], dtype=torch.float64).unsqueeze(1)
    scaled = torch.stack([2j * back, -3.0 * moved])
    assert float((W - bound(shifted, torch.view_as_real(scaled))).abs().max()) < 1e-14
