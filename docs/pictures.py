"""Draw the pictures of the documentation: `python docs/pictures.py` writes docs/images/*.svg.

They come from the library itself and from the numbers in results/. `python docs/pictures.py NAME ...` draws some of them.

Their ground is transparent and their text gray, so that one file serves a light and a dark page.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure

import orthornn
from orthornn import (
    Givens,
    Hadamard,
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
from orthornn.automata import Rule
from orthornn.certify import bound
from orthornn.diagnostics import hidden_gradient_norms
from orthornn.parametrizations import Parametrization
from orthornn_evidence.own_data.page import class_ranks, rows_of
from orthornn_evidence.own_data.results import read

IMAGES = Path(__file__).parent / "images"
RESULTS = Path(__file__).parents[1] / "results"
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
    "hadamard": [("n = 64", Hadamard()), ("blocks of 8", Hadamard(block=8))],
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
    figure = Figure(figsize=(7.0, 3.4))
    axes = figure.subplots()
    for (name, network), style in zip(networks.items(), ("-", "-", "--", "-", "-", ":")):
        norms = hidden_gradient_norms(network.double(), x.double())[0]
        norms = (norms / norms[-1]).clamp_min(1e-30)
        axes.semilogy(norms, style, label=name, linewidth=1.8)
    axes.set(xlabel="time step t", ylabel="‖∂L/∂h$_t$‖, relative", ylim=(1e-12, 1e2), xlim=(0, T))
    axes.legend(fontsize=10, loc="lower left", bbox_to_anchor=(0.5, 0))
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


def stored(name: str) -> Any:
    """Return a file of results/."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def wide(height: float, *, panels: int = 1) -> tuple[Figure, Any]:
    """Return a figure of a page's width, whose letters a phone still shows, and its axes."""
    mpl.rcParams["font.size"] = 16
    figure = Figure(figsize=(9.0, height), layout="constrained")
    return figure, figure.subplots(1, panels)


def draw_demo() -> None:
    """Draw the task of the demo, and how many of the ten symbols each network recalls."""
    demo = stored("demo/demo.json")
    names = {
        "ornn-rotations": "reflections\nand rotations",
        "scornn": "scaled Cayley",
        "ornn": "reflections",
        "lstm": "LSTM",
    }
    figure, axes = wide(5.0)
    place = np.arange(len(names))[::-1]
    for y, (name, words) in zip(place, names.items()):
        recalled = 10 * demo["models"][name]["recall"]
        color = ORANGE if name == "lstm" else BLUE
        axes.barh(y, recalled, height=0.62, color=color)
        axes.text(recalled + 0.15, y, f"{recalled:.1f}", va="center", color=color, fontsize=20, fontweight="bold")
        axes.text(-0.2, y, words, va="center", ha="right", fontsize=18)
    axes.plot([1.25, 1.25], [-0.5, 3.5], color=GRAY, linestyle=(0, (2, 2)), linewidth=1.5)
    axes.text(1.25, -0.55, "guessing", ha="center", va="top")
    axes.text(10, -0.55, "symbols recalled, of ten", ha="right", va="top")
    for i in range(10):  # ten symbols, a gap, the same ten symbols
        for left in (0.0, 7.0):
            shade = (0.35, 0.9, 0.55, 0.75, 0.2, 1.0, 0.45, 0.65, 0.3, 0.8)[i]
            axes.add_patch(
                mpl.patches.Rectangle((left + 0.3 * i, 4.15), 0.26, 0.42, facecolor=GREEN, alpha=shade, linewidth=0)
            )
    axes.annotate("", (6.9, 4.36), (3.1, 4.36), arrowprops={"arrowstyle": "->", "color": GRAY, "linewidth": 1.8})
    axes.text(5.0, 4.48, "200 steps", ha="center", va="bottom")
    axes.text(-0.2, 4.36, "the task", va="center", ha="right", fontsize=18)
    axes.text(1.5, 4.72, "see ten symbols", ha="center", va="bottom")
    axes.text(8.5, 4.72, "repeat them", ha="center", va="bottom")
    axes.set(xlim=(-3.2, 11.0), ylim=(-1.0, 5.3))
    axes.axis("off")
    save(figure, "demo")


def draw_reflection() -> None:
    """Draw one reflection in the plane: h, the mirror that is orthogonal to u, and Hh."""
    u, h = np.array([-0.5, 1.0]), np.array([0.55, 1.55])
    image = h - 2 * u * (u @ h) / (u @ u)
    mirror = np.array([u[1], -u[0]]) / np.linalg.norm(u)
    figure, axes = wide(5.0)
    angle = np.linspace(0, 2 * np.pi, 200)
    radius = np.linalg.norm(h)
    axes.plot(radius * np.cos(angle), radius * np.sin(angle), color=GRAY, linewidth=1, linestyle=(0, (2, 3)))
    axes.plot(*np.outer([-2.2, 2.2], mirror).T, color=GRAY, linewidth=2)
    axes.plot(*np.array([h, image]).T, color=GRAY, linewidth=1.2, linestyle="--")
    for end, color in ((h, BLUE), (image, ORANGE), (u, GREEN)):
        axes.annotate(
            "",
            end,
            (0, 0),
            arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": 3, "shrinkA": 0, "shrinkB": 0},
        )
    axes.text(h[0] + 0.1, h[1] + 0.05, "h", color=BLUE, fontsize=22, fontweight="bold")
    axes.text(image[0] + 0.12, image[1] - 0.25, "H(u) h", color=ORANGE, fontsize=22, fontweight="bold")
    axes.text(u[0] - 0.1, u[1] + 0.08, "u", color=GREEN, fontsize=22, fontweight="bold", ha="right")
    axes.text(*(2.3 * -mirror - np.array([0, 0.1])), "mirror,\northogonal to u", ha="right", va="center")
    axes.text(1.9, -1.15, "as long as h", ha="left", va="center")
    axes.set(xlim=(-4.2, 3.5), ylim=(-1.8, 1.9))
    axes.set_aspect("equal")
    axes.axis("off")
    save(figure, "reflection")


def draw_block() -> None:
    """Draw one block of OrthogonalBlocks: normalization, linear recurrence, mixing, and the skip around them."""
    figure, axes = wide(3.6)
    boxes = [
        (1.75, 1.7, "norm", GRAY),
        (4.4, 2.5, "linear\nrecurrence", BLUE),
        (7.55, 2.0, "mix:\nglu, gelu\nor mlp", ORANGE),
    ]
    for middle, width, words, color in boxes:
        axes.add_patch(
            mpl.patches.FancyBboxPatch(
                (middle - width / 2, -0.75),
                width,
                1.5,
                boxstyle="round,pad=0.06",
                facecolor=color,
                alpha=0.18,
                edgecolor="none",
            )
        )
        axes.add_patch(
            mpl.patches.FancyBboxPatch(
                (middle - width / 2, -0.75),
                width,
                1.5,
                boxstyle="round,pad=0.06",
                facecolor="none",
                edgecolor=color,
                linewidth=2,
            )
        )
        axes.text(middle, 0, words, ha="center", va="center", fontsize=17)
    arrow = {"arrowstyle": "-|>", "color": GRAY, "linewidth": 2, "shrinkA": 0, "shrinkB": 0}
    for start, end in ((0.0, 0.82), (2.68, 3.05), (5.75, 6.45), (8.65, 9.12), (9.68, 10.4)):
        axes.annotate("", (end, 0), (start, 0), arrowprops=arrow)
    axes.text(6.1, 0.12, "h$_t$", ha="center", va="bottom", color=BLUE)
    axes.text(0.0, 0.15, "u$_t$", ha="center", va="bottom")
    axes.text(10.35, 0.15, "u$_t$", ha="center", va="bottom")
    axes.add_patch(mpl.patches.Circle((9.4, 0), 0.28, facecolor="none", edgecolor=GRAY, linewidth=2))
    axes.text(9.4, -0.02, "+", ha="center", va="center", fontsize=20)
    axes.plot([0.4, 0.4, 9.4], [0, 1.5, 1.5], color=GRAY, linewidth=2)
    axes.annotate("", (9.4, 0.28), (9.4, 1.52), arrowprops=arrow)
    axes.text(4.9, 1.58, "skip", ha="center", va="bottom")
    loop = mpl.patches.FancyArrowPatch(
        (5.2, -0.82),
        (3.6, -0.82),
        connectionstyle="arc3,rad=-0.7",
        arrowstyle="-|>",
        mutation_scale=20,
        color=BLUE,
        linewidth=2,
    )
    axes.add_patch(loop)
    axes.text(5.3, -1.35, "W h$_{t-1}$", ha="left", va="center", color=BLUE)
    axes.set(xlim=(-0.3, 10.7), ylim=(-1.8, 2.1))
    axes.axis("off")
    save(figure, "block")


def draw_speed() -> None:
    """Draw the times of a pass against n, from the stored benchmark of one thread."""
    cases = stored("bench/one-thread.json")["cases"]
    figure, panels = wide(5.0, panels=2)
    curves = {"rnn": ("nn.RNN", PURPLE), "lstm": ("nn.LSTM", ORANGE)}
    for axes, batch in zip(panels, (1, 50)):
        ours: dict[str, list[tuple[int, float]]] = defaultdict(list)
        peers: dict[str, dict[int, float]] = defaultdict(dict)
        for name, case in cases.items():
            kind, width = name.split("-")[:2]
            if case["batch"] == batch:
                ours[kind].append((int(width), 1e3 * case["networks"]["ours"]["seconds"]))
                for peer in curves:
                    peers[peer][int(width)] = 1e3 * case["networks"][peer]["seconds"]
        for peer, (_, color) in curves.items():
            axes.loglog(*zip(*sorted(peers[peer].items())), "o--", color=color, linewidth=2, markersize=8)
        axes.loglog(*zip(*sorted(ours["rotations"])), "o-", color=BLUE, linewidth=3, markersize=10)
        axes.loglog(*zip(*sorted(ours["cayley"])), "s-", color=GREEN, linewidth=3, markersize=9)
        widths = sorted(peers["rnn"])
        axes.set_xticks(widths, [str(n) for n in widths])
        axes.minorticks_off()
        axes.set(xlabel="hidden units n", title=f"batch size {batch}", xlim=(widths[0] / 1.15, widths[-1] * 1.15))
        ticks = (1, 3, 10, 30) if batch == 1 else (30, 100, 300, 1000, 3000)
        axes.set_yticks(ticks, [str(ms) for ms in ticks])
    left, right = panels
    left.set_ylabel("ms per pass of 784 steps")
    left.set_ylim(0.3, 70)
    right.set_ylim(25, 4000)
    left.text(165, 36, "nn.RNN", color=PURPLE, ha="right")
    left.text(190, 11.5, "nn.LSTM", color=ORANGE, ha="left")
    left.text(182, 3.6, "scaled Cayley", color=GREEN, ha="left", va="center")
    left.text(182, 0.64, "16 reflections\nand rotations", color=BLUE, ha="center", va="top")
    right.text(330, 1800, "nn.LSTM", color=ORANGE, ha="right")
    right.text(300, 420, "nn.RNN", color=PURPLE, ha="right")
    right.text(330, 75, "scaled Cayley", color=GREEN, ha="left")
    right.text(275, 34, "16 reflections\nand rotations", color=BLUE, ha="left", va="center")
    save(figure, "speed")


def draw_speed_by_length() -> None:
    """Draw the time per step against the length of the sequences, from the stored benchmark of linear layers."""
    times = [time for time in stored("linear-layers/bench.json")["times"] if time["place"] == "all"]
    curves = {
        "blocks": ("rotations", BLUE, "o-"),
        "lru": ("LRU, S5", GREEN, "s--"),
        "s5": ("", PURPLE, "D--"),
        "lstm": ("nn.LSTM", ORANGE, "o--"),
        "gru": ("nn.GRU", GRAY, "o--"),
    }
    figure, axes = wide(4.8)
    for name, (words, color, style) in curves.items():
        points = sorted(
            (time["T"], 1e6 * time["seconds"] / (time["T"] * time["batch"])) for time in times if time["name"] == name
        )
        axes.loglog(*zip(*points), style, color=color, linewidth=3 if name == "blocks" else 2, markersize=9)
        axes.text(points[-1][0] * 1.15, points[-1][1] * _SHIFTS.get(name, 1.0), words, color=color, va="center")
    lengths = sorted({(time["T"], time["batch"]) for time in times})
    axes.set_xticks([T for T, _ in lengths], [f"{T:,}\n{batch} sequence{'s' * (batch > 1)}" for T, batch in lengths])
    axes.set_yticks([0.3, 1, 3, 10, 30, 100], ["0.3", "1", "3", "10", "30", "100"])
    axes.minorticks_off()
    axes.set(xlabel="steps T", ylabel="µs per step and sequence", xlim=(600, 500000), ylim=(0.25, 300))
    axes.spines["bottom"].set_bounds(600, 90000)
    save(figure, "speed_by_length")


_SHIFTS = {"lru": 1.15, "lstm": 0.8}  # of labels that would touch


def best_of_each_size(rows: list[dict[str, Any]]) -> dict[tuple[str, int], float]:
    """Return the mean test accuracy over seeds, by system and parameters, of the options with the best validation."""
    runs: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        runs[row["system"], row["parameters"]][row["command"]].append(row)
    best = {
        size: max(groups.values(), key=lambda group: mean(row["validation"] for row in group))
        for size, groups in runs.items()
    }
    return {size: mean(row["test"] for row in group) for size, group in best.items()}


def draw_leaderboard() -> None:
    """Draw the test accuracy on permuted pixel MNIST against the number of parameters."""
    points = best_of_each_size(stored("leaderboard/pixel-mnist-permuted.json"))
    named = {
        "blocks": BLUE,
        "ornn-rotations": GREEN,
        "gru": ORANGE,
        "lstm": ORANGE,
        "rnn": ORANGE,
        "static perceptron": PURPLE,
    }
    figure, axes = wide(6.0)
    for (system, parameters), accuracy in points.items():
        color = named.get(system, GRAY)
        axes.plot(
            parameters,
            1 - accuracy,
            "o",
            color=color,
            markersize=11 if system in named else 7,
            markeredgewidth=0,
            alpha=0.9,
        )
    at = {system: max(v for (s, _), v in points.items() if s == system) for system in named}
    for system in ("ornn-rotations", "gru", "lstm", "rnn"):
        axes.text(17600, 1 - at[system], system, color=named[system], va="center", ha="left")
    axes.text(110000, 1 - at["blocks"], "blocks", color=BLUE, va="center", ha="right", fontsize=18)
    axes.text(68000, 0.028, "static perceptron,\nno recurrence", color=PURPLE, va="top", ha="center")
    axes.text(17600, 0.0800, "gray: other recurrent networks", va="center", ha="left")
    axes.set(xscale="log", yscale="log", xlim=(14000, 160000), ylim=(0.6, 0.006))
    axes.minorticks_off()
    shown = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
    axes.set_yticks([1 - accuracy for accuracy in shown], [f"{100 * accuracy:.0f} %" for accuracy in shown])
    axes.set_xticks([16000, 67000, 135000], ["16 000", "67 000", "135 000"])
    axes.set(xlabel="trained parameters", ylabel="test accuracy")
    save(figure, "leaderboard")


def draw_ranks() -> None:
    """Draw mean ranks on the sets of classes; a bar joins what Nemenyi's test does not tell apart."""
    ranks = class_ranks(rows_of(*read(RESULTS / "own-data")))
    assert ranks is not None
    figure, axes = wide(2.4)
    ends = (1, len(ranks.means))
    axes.plot(ends, (0, 0), "-", color=GRAY, linewidth=1.5)
    for tick in range(ends[0], ends[1] + 1):
        axes.plot((tick, tick), (0, 0.12), "-", color=GRAY, linewidth=1.5)
        axes.text(tick, 0.2, str(tick), ha="center", va="bottom", fontsize=14)
    names, count = list(ranks.means), len(ranks.means)
    for place, (name, rank) in enumerate(ranks.means.items()):
        left = place < (count + 1) // 2
        depth = -0.9 - 0.42 * (place if left else count - 1 - place)
        end = ends[0] - 0.3 if left else ends[1] + 0.3
        color = BLUE if name == "default" else GRAY
        axes.plot((rank, rank, end), (0, depth, depth), "-", color=color, linewidth=1.5)
        axes.text(
            end - 0.08 if left else end + 0.08,
            depth,
            f"{name} {rank:.2f}",
            color=color,
            va="center",
            fontsize=14,
            ha="right" if left else "left",
        )
    depth, reached = -0.2, -1
    for place, name in enumerate(names):
        last = max(other for other in range(count) if not ranks.apart(name, names[other]))
        if last > max(place, reached):
            axes.plot(
                (ranks.means[name] - 0.04, ranks.means[names[last]] + 0.04),
                (depth, depth),
                "-",
                color=ORANGE,
                linewidth=5,
            )
            depth, reached = depth - 0.2, last
    axes.plot((1, 1 + ranks.difference), (0.95, 0.95), "-", color=ORANGE, linewidth=2)
    axes.text(
        1 + ranks.difference / 2,
        1.05,
        f"critical difference {ranks.difference:.2f}",
        color=ORANGE,
        ha="center",
        va="bottom",
        fontsize=14,
    )
    axes.set(xlim=(ends[0] - 2.6, ends[1] + 2.6), ylim=(-2.7, 1.5))
    axes.axis("off")
    save(figure, "ranks")


def draw_forecast(seen: int = 72, ahead: int = 24) -> None:
    """Draw a forecast of 24 steps at three quantiles, by a small network that learns them from a noisy wave."""
    random = np.random.default_rng(0)
    steps = np.arange(3000)
    level = np.sin(steps / 7) + 0.3 * np.sin(steps / 29)
    series = torch.tensor(level + 0.3 * random.standard_normal(3000), dtype=torch.float32)
    torch.manual_seed(0)
    network = OrthogonalRNN(1, 32)
    readout = torch.nn.Linear(32, 3 * ahead)
    levels = torch.tensor([0.1, 0.5, 0.9])
    optimizer = torch.optim.Adam([*network.parameters(), *readout.parameters()], lr=0.01)
    pieces = series.unfold(0, seen + ahead, 1)
    training = pieces[: 2700 - seen - ahead]
    for _ in range(300):
        batch = training[torch.randint(len(training), (32,))]
        last = network(batch[:, :seen, None].transpose(0, 1), output="last")[0]
        error = batch[:, seen:, None] - readout(last).view(-1, ahead, 3)
        loss = torch.maximum(levels * error, (levels - 1) * error).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    piece = pieces[-60]
    with torch.no_grad():
        last = network(piece[:seen, None, None], output="last")[0]
        low, middle, high = readout(last).view(ahead, 3).sort(dim=1).values.T.numpy()
    figure, axes = wide(4.4)
    future = np.arange(1, ahead + 1)
    axes.plot(np.arange(1 - seen, 1), piece[:seen], color=GRAY, linewidth=2)
    axes.fill_between(future, low, high, color=BLUE, alpha=0.3, linewidth=0)
    axes.plot(future, middle, color=BLUE, linewidth=3)
    axes.plot(future, piece[seen:], "o", color=ORANGE, markersize=6)
    axes.axvline(0.5, color=GRAY, linewidth=1.2, linestyle="--")
    top = float(piece.max()) + 0.35
    axes.text(-seen / 2, top, "seen by the network", ha="center", va="bottom")
    axes.text(ahead + 1.5, middle[-1], "median", color=BLUE, va="center")
    axes.text(ahead + 1.5, middle[-1] + 0.55, "10 % to 90 %", color=BLUE, va="center")
    axes.text(ahead + 1.5, middle[-1] - 0.55, "what came", color=ORANGE, va="center")
    axes.set(
        xlabel="steps from now", ylabel="value", xlim=(-seen, ahead + 22), ylim=(float(piece.min()) - 0.3, top + 0.4)
    )
    axes.set_xticks([-72, -48, -24, 0, 24])
    axes.spines["bottom"].set_bounds(-seen, ahead)
    save(figure, "forecast")


def draw_certificates(steps: int = 120, n: int = 32) -> None:
    """Draw how far the states of two networks move after one input has moved, and the bounds of both."""
    figure, axes = wide(4.6)
    torch.manual_seed(0)
    for label, norm, color in (("1", 1.0, BLUE), ("1.1", 1.1, ORANGE)):
        method = Unconstrained(init="orthogonal")
        network = OrthogonalRNN(1, n, nonlinearity="tanh", parametrization=method, bias=False).double()
        with torch.no_grad():
            network.transition_l0.weight *= norm
            network.weight_ih_l0 /= network.weight_ih_l0.norm()
            x = 0.3 * torch.randn(steps, 200, 1, dtype=torch.float64)
            changed = x.clone()
            changed[0] += 1
            moved = (network(changed)[0] - network(x)[0]).norm(dim=-1).amax(1)
        limits = [bound(network, 1.0, count, "one") for count in range(1, steps + 1)]
        time = np.arange(steps)
        axes.semilogy(time, limits, "--", color=color, linewidth=2.5)
        axes.semilogy(time, moved, color=color, linewidth=3)
        axes.text(steps + 2, limits[-1], f"bound, ||W|| = {label}", color=color, va="center")
    axes.text(steps / 2, 0.012, "solid: the most of 200 sequences", ha="center", va="center")
    axes.set(xlabel="steps after the input that moved by 1", ylabel="distance of states", xlim=(0, steps + 48))
    axes.set_ylim(0.004, 2e5)
    axes.set_xticks(range(0, steps + 1, 20))
    axes.set_yticks([0.01, 1, 100, 1e4], ["0.01", "1", "100", "10 000"])
    axes.minorticks_off()
    axes.spines["bottom"].set_bounds(0, steps)
    save(figure, "certificates")


def draw_registers() -> None:
    """Draw what a reflection and a projection do to two registers, on their axes."""
    figure, panels = wide(4.2, panels=2)
    moves = (
        (panels[0], (2, 0, 1), "strength 2 along e$_1$ − e$_2$:\nswaps the registers"),
        (panels[1], (1, 0, 0), "strength 1 along e$_1$:\nerases register 1"),
    )
    for axes, factor, title in moves:
        axes.plot([-0.15, 1.45], [0, 0], color=GRAY, linewidth=1.2)
        axes.plot([0, 0], [-0.15, 1.45], color=GRAY, linewidth=1.2)
        for point, color in (((1, 0), BLUE), ((0, 1), ORANGE)):
            image = Rule((factor,)).apply(np.array(point))
            axes.plot(*point, "o", color=color, markersize=13)
            if tuple(image) != point:
                bend = 0.45 if color == BLUE else 0.2
                axes.annotate(
                    "",
                    image,
                    point,
                    arrowprops={
                        "arrowstyle": "-|>",
                        "color": color,
                        "linewidth": 2.5,
                        "connectionstyle": f"arc3,rad={bend}",
                        "shrinkA": 10,
                        "shrinkB": 10,
                    },
                )
        axes.text(1.12, -0.17, "(1, 0)", color=BLUE, ha="center", va="top")
        axes.text(-0.1, 1.1, "(0, 1)", color=ORANGE, ha="right", va="center")
        axes.set_title(title)
        axes.set(xlim=(-0.6, 1.6), ylim=(-0.45, 1.5))
        axes.set_aspect("equal")
        axes.axis("off")
    save(figure, "registers")


DRAWN = {
    "methods": draw_methods,
    "circle": draw_circle,
    "gradients": draw_gradients,
    "cost": draw_cost,
    "house": draw_house,
    "demo": draw_demo,
    "reflection": draw_reflection,
    "block": draw_block,
    "speed": draw_speed,
    "speed_by_length": draw_speed_by_length,
    "leaderboard": draw_leaderboard,
    "ranks": draw_ranks,
    "forecast": draw_forecast,
    "certificates": draw_certificates,
    "registers": draw_registers,
}


def main(names: list[str]) -> None:
    """Draw the pictures of these names, or all of them."""
    torch.set_num_threads(1)
    for name in names or DRAWN:
        with mpl.rc_context(STYLE):
            DRAWN[name]()
    print(f"orthornn {orthornn.__version__}: {len(list(IMAGES.glob('*.svg')))} pictures in {IMAGES}")


if __name__ == "__main__":
    main(sys.argv[1:])
