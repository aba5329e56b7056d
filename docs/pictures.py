"""Draw the pictures of the documentation from the library itself: `python docs/pictures.py` writes docs/images/*.svg.

Their ground is transparent and their text gray, so that one file serves a light and a dark page.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure

import orthornn
from orthornn import (
    Givens,
    Householder,
    LeakyHouseholder,
    MatrixExponential,
    OrthogonalRNN,
    RestrictedUnitary,
    Rotations,
    ScaledCayley,
    SpectralMargin,
    Stiefel,
    Unconstrained,
)
from orthornn.diagnostics import hidden_gradient_norms
from orthornn.parametrizations import Parametrization

IMAGES = Path(__file__).parent / "images"
BLUE, ORANGE, GREEN, PURPLE, GRAY = "#3b82d6", "#e0702b", "#2f9e62", "#9b6bd3", "#808893"
STYLE = {
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "text.color": GRAY,
    "axes.labelcolor": GRAY,
    "axes.edgecolor": GRAY,
    "xtick.color": GRAY,
    "ytick.color": GRAY,
    "legend.frameon": False,
    "legend.labelcolor": GRAY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 10,
    "svg.hashsalt": "orthornn",
    "svg.fonttype": "path",
    "axes.prop_cycle": mpl.cycler(color=[BLUE, ORANGE, GREEN, PURPLE, GRAY]),
}
METHODS: dict[str, list[tuple[str, Parametrization]]] = {
    "householder": [
        ("m = n", Householder()),
        ("m = 8", Householder(reflections=8)),
        ("m = 8,\nbase of rotations", Householder(reflections=8, base="rotations")),
    ],
    "cayley": [
        ("negatives = 0", ScaledCayley()),
        ("negatives = n/2", ScaledCayley(negatives=32)),
        ("complex,\nwith phases", ScaledCayley(field="complex", phases=True)),
    ],
    "exponential": [
        ("henaff", MatrixExponential()),
        ("cayley", MatrixExponential(init="cayley")),
        ("complex", MatrixExponential(field="complex")),
    ],
    "givens": [
        ("2 layers", Givens(layers=2)),
        ("FFT-like", Givens(layers="fft")),
        ("n layers", Givens()),
    ],
    "leaky_householder": [("m = 32", LeakyHouseholder(reflections=32))],
    "restricted_unitary": [("n = 64", RestrictedUnitary())],
    "rotations": [("without decay", Rotations()), ("with decay", Rotations(decay=True))],
    "spectral_margin": [
        ("margin 0.1,\ninitially", SpectralMargin(margin=0.1)),
        ("margin 0.1,\np from N(0, 2)", SpectralMargin(margin=0.1)),
        ("free,\nGlorot", SpectralMargin(margin=None, init="glorot")),
    ],
    "stiefel": [("real", Stiefel()), ("complex", Stiefel(field="complex"))],
    "unconstrained": [
        ("orthogonal", Unconstrained()),
        ("Glorot", Unconstrained(init="glorot")),
        ("uniform,\nas in torch", Unconstrained(init="uniform")),
    ],
}


def matrix(method: Parametrization, n: int, seed: int = 0, spread: float = 0.0) -> torch.Tensor:
    """W at its initial values, in double precision; spread: of the spectrum's parameter."""
    bound = method.bind(n).double()
    generator = torch.Generator().manual_seed(seed)
    free = list(bound.initial(generator))
    if spread:
        free[2] = spread * torch.randn(n, dtype=torch.float64, generator=generator)
    return bound(*free)


def eigenvalues(W: torch.Tensor) -> np.ndarray:
    """Eigenvalues as complex numbers."""
    return torch.linalg.eigvals(W.to(torch.complex128)).numpy()


def circle(axes: mpl.axes.Axes, values: np.ndarray, title: str, color: str) -> None:
    """Draw eigenvalues over the unit circle."""
    angle = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(angle), np.sin(angle), color=GRAY, linewidth=0.7)
    axes.plot(values.real, values.imag, "o", color=color, markersize=4.2, alpha=0.75, markeredgewidth=0)
    axes.set_aspect("equal")
    limit = max(1.15, 1.08 * float(np.abs(values).max()))
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit))
    axes.axis("off")
    axes.set_title(title, fontsize=10, color=GRAY)


def save(figure: Figure, name: str) -> None:
    """Write an SVG without a date, so that the same picture is the same file."""
    IMAGES.mkdir(exist_ok=True)
    figure.savefig(
        IMAGES / f"{name}.svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight", pad_inches=0.05
    )


def draw_methods() -> None:
    """One picture for each method: its eigenvalues at n = 64."""
    for name, cases in METHODS.items():
        figure = Figure(figsize=(2.3 * len(cases), 2.4))
        for axes, (title, method), color in zip(
            figure.subplots(1, len(cases), squeeze=False)[0], cases, (BLUE, ORANGE, GREEN)
        ):
            circle(axes, eigenvalues(matrix(method, 64, spread=2.0 if "N(0, 2)" in title else 0.0)), title, color)
        save(figure, f"spectrum_{name}")


def draw_circle() -> None:
    """Draw the pictures of the first page: two, so that a phone shows them one below the other."""
    halves = {
        "circle_orthogonal": [
            ("reflections", Householder(reflections=8), BLUE),
            ("reflections and rotations", Householder(reflections=8, base="rotations"), ORANGE),
        ],
        "circle_others": [
            ("scaled Cayley", ScaledCayley(negatives=32), GREEN),
            ("torch.nn.RNN", Unconstrained(init="uniform"), PURPLE),
        ],
    }
    for name, cases in halves.items():
        figure = Figure(figsize=(4.4, 2.3))
        for axes, (title, method, color) in zip(figure.subplots(1, 2), cases):
            circle(axes, eigenvalues(matrix(method, 64)), title, color)
        save(figure, name)


def draw_gradients(T: int = 500, n: int = 64) -> None:
    """||dL/dh_t|| of untrained networks."""
    torch.manual_seed(0)
    method = Householder(reflections=32, base="rotations")
    networks = {
        "orthogonal, linear": OrthogonalRNN(1, n, nonlinearity="identity"),
        "default": OrthogonalRNN(1, n),
        "orthogonal, modReLU": OrthogonalRNN(1, n, parametrization=method, nonlinearity="modrelu"),
        "orthogonal, tanh": OrthogonalRNN(1, n, parametrization=method, nonlinearity="tanh"),
        "torch.nn.LSTM": torch.nn.LSTM(1, n),
        "torch.nn.RNN": torch.nn.RNN(1, n),
    }
    x = torch.randn(T, 8, 1)
    figure = Figure(figsize=(5.6, 3.0))
    axes = figure.subplots()
    for (name, network), style in zip(networks.items(), ("-", "-", "--", "-", "-", ":")):
        norms = hidden_gradient_norms(network.double(), x.double())[0]
        norms = (norms / norms[-1]).clamp_min(1e-30)
        axes.semilogy(norms, style, label=name, linewidth=1.8)
    axes.set(xlabel="time step t", ylabel="‖∂L/∂h$_t$‖, relative", ylim=(1e-12, 1e2), xlim=(0, T))
    axes.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0.45, 0))
    save(figure, "gradients")


def draw_cost() -> None:
    """Multiply-adds of a step against n, as the cost model of the library counts them."""
    n = np.array([2**k for k in range(5, 13)], dtype=float)
    curves = {
        "a matrix: n²": (n**2, "-"),
        "32 reflections: 2nm + m²/2": (2 * n * 32 + 512, "-"),
        "8 reflections": (2 * n * 8 + 32, "-"),
        "FFT form: 5n log₂ n + 28n": (5 * n * np.log2(n) + 28 * n, "-"),
        "linear, as rotations: 2n": (2 * n, "--"),
    }
    figure = Figure(figsize=(5.6, 3.2))
    axes = figure.subplots()
    for name, (cost, style) in curves.items():
        axes.loglog(n, cost, style, label=name, linewidth=1.8)
    axes.set_xscale("log", base=2)
    axes.set(xlabel="hidden units n", ylabel="multiply-adds per step", xlim=(32, 4096))
    axes.legend(fontsize=9)
    save(figure, "cost")


def draw_house() -> None:
    """The floors of the source, each of which imports only from those below it."""
    floors = [
        ("errors · checks", BLUE),
        ("activations · compact_wy · layout", BLUE),
        ("parametrizations  |  kernels", BLUE),
        ("modules", BLUE),
        ("optim  |  penalties  |  diagnostics", BLUE),
        ("environment · testing", BLUE),
        ("export  |  doctor", BLUE),
        ("learn: systems, tasks, training,\nreport, cli", ORANGE),
    ]
    figure = Figure(figsize=(6.0, 5.15))
    axes = figure.subplots()
    for level, (name, color) in enumerate(floors):
        width = 8.6 if level < 7 else 6.4
        axes.add_patch(
            mpl.patches.FancyBboxPatch(
                (-width / 2, level), width, 0.78, boxstyle="round,pad=0.04", facecolor=color, alpha=0.2, edgecolor=color
            )
        )
        axes.text(0, level + 0.39, name, ha="center", va="center", fontsize=10)
    axes.plot([-4.7, 0, 4.7], [8.05, 9.1, 8.05], color=GRAY, linewidth=1.5)
    axes.text(0, 8.4, "sklearn", ha="center", va="center", fontsize=10)
    axes.annotate(
        "imports",
        (-5.4, 0.2),
        (-5.4, 6.6),
        ha="center",
        fontsize=9,
        color=GRAY,
        arrowprops={"arrowstyle": "->", "color": GRAY},
    )
    axes.set(xlim=(-6, 5.2), ylim=(-0.2, 9.3))
    axes.axis("off")
    save(figure, "house")


def main() -> None:
    """Draw all of them."""
    torch.set_num_threads(1)
    with mpl.rc_context(STYLE):
        draw_methods()
        draw_circle()
        draw_gradients()
        draw_cost()
        draw_house()
    print(f"orthornn {orthornn.__version__}: {len(list(IMAGES.glob('*.svg')))} pictures in {IMAGES}")


if __name__ == "__main__":
    main()
