"""Cost: Tables 1 and 2, and the feed-forward layer of section 6."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from orthornn import compact_wy
from orthornn.learn.systems import Model, model_named
from orthornn.learn.tasks import Adding
from orthornn.learn.training import RunConfig
from orthornn.parametrizations import ScaledCayley

from .. import charts, flops
from ..experiment import Plan, Published, Setting, reproduces
from ..result_table import ResultTable, Row, Runs
from ..timing import median_seconds, seconds_an_update
from .common import adam


@reproduces(
    "Table 1",
    section="4",
    published=(
        Published("uRNN (Arjovsky et al., 2016)", words="O(T n log n), a subset of U(n) when n > 7"),
        Published("Full-capacity uRNN (Wisdom et al., 2016)", words="O(T n^2 + n^3), the full U(n)"),
        Published("Unitary RNN (Hyland & Raetsch, 2017)", words="O(T n^2 + n^3), the full U(n)"),
        Published("oRNN, m = n", words="O(T n m), the full O(n)"),
        Published("oRNN, m = 16", words="O(T n m)"),
    ),
    hours=(0.1, 0.3),
    laptop=("T=100 and n up to 256 (full: T=784, n up to 1024)",),
)
def table1(setting: Setting) -> Plan:
    """Milliseconds of one online step (one sequence, loss, gradient, Adam) against width; the paper states only orders
    of growth.
    """
    sizes = setting.at((8, 16), (64, 128, 256), (128, 256, 512, 1024))
    task = Adding(T=setting.at(6, 100, 784), validation_size=1, test_size=1)
    methods: dict[str, Callable[[int], Model]] = {
        "uRNN (Arjovsky et al., 2016)": lambda n: model_named("urnn", hidden_size=n),
        "Full-capacity uRNN (Wisdom et al., 2016)": lambda n: model_named("full-urnn", hidden_size=n),
        "Unitary RNN (Hyland & Raetsch, 2017)": lambda n: model_named("exprnn-unitary", hidden_size=n),
        "oRNN, m = n": lambda n: model_named("ornn", hidden_size=n, reflections=n),
        "oRNN, m = 16": lambda n: model_named("ornn", hidden_size=n, reflections=min(16, n // 2)),
        "sRNN": lambda n: model_named("srnn", hidden_size=n),
    }

    def measure(runs: Runs) -> ResultTable:
        milliseconds: dict[str, list[float]] = {}
        for name, model in methods.items():
            milliseconds[name] = []
            for n in sizes:
                config = RunConfig(task=task, model=model(n), optimizer=adam(1e-3), batch_size=1)
                milliseconds[name].append(1000 * seconds_an_update(config, setting.at(1, 7, 15)))
        rows = [
            Row(name, times[-1], form="{:.2f} ms", note=f"n={sizes[-1]}; {times[-1] / times[-2]:.1f} x n={sizes[-2]}")
            for name, times in milliseconds.items()
        ]

        def draw(figure: Any) -> None:
            axes = figure.add_subplot()
            lines = {name: [(sizes, times)] for name, times in milliseconds.items()}
            charts.curves(axes, lines, x="n", y="milliseconds an online step", title=f"T={task.T}", log=True)
            axes.set_xscale("log", base=2)

        return ResultTable(rows, numbers={"T": task.T, "n": list(sizes), "milliseconds": milliseconds}, draw=draw)

    return Plan({}, measure)


_SIZES = ((128, 16), (256, 32), (512, 510))
_TWICE = "n=512, m=510: oRNN over sRNN, FP and BP"


@reproduces(
    "Table 2",
    section="4.2",
    published=(
        *(
            Published(f"n={n}, m={m}: {what}", float(count), "{:.0f}")
            for n, m in _SIZES
            for what, count in flops.published(n, m).items()
        ),
        Published(_TWICE, words='"about twice": 8n²T against 5n²T operations'),
    ),
    hours=(0.01, 0.01),
)
def table2(setting: Setting) -> Plan:
    """Operations of one step: the paper's formulas, and the count while Algorithm 1 runs."""

    def measure(runs: Runs) -> ResultTable:
        rows = []
        for n, m in setting.at(((8, 3),), _SIZES, _SIZES):
            random = np.random.default_rng(0)
            U = np.tril(random.standard_normal((n, m)))
            h, d = random.standard_normal(n), random.standard_normal(n)
            step = flops.algorithm1(U, h, d)
            wy = flops.compact_wy_forward(U, h)[1]
            simple = flops.dense(n)
            found = {
                "oRNN FP": step.forward,
                "oRNN BP": step.backward,
                "oRNN BP, H recomputed": step.backward + step.forward,
                "sRNN FP": simple[0],
                "sRNN BP": simple[1],
                "oRNN FP by compact WY": wy,
            }
            rows += [
                Row(f"n={n}, m={m}: {name}", float(count), selection="computed", form="{:.0f}")
                for name, count in found.items()
            ]
            if (n, m) == _SIZES[-1]:
                ratio = (step.forward + step.backward) / sum(simple)
                formula = flops.published(n, m)
                printed = (formula["oRNN FP"] + formula["oRNN BP"]) / (formula["sRNN FP"] + formula["sRNN BP"])
                rows.append(
                    Row(
                        _TWICE,
                        ratio,
                        selection="computed",
                        form="{:.2f}",
                        note=f"{printed:.2f} by the printed formulas",
                    )
                )
        further_claims = [
            "Algorithm 1 without the zeros of U makes 2m(2n-m+1) operations forward and 7m(2n-m+1)/2 backward, fewer than "
            "printed: near m = n two thirds of (4n-m+2)m and seven tenths of (7n-2m+3)m.",
            "Forward, (4n-m+2)m is within m of the compact WY form of Theorem 2, (4n-m+1)m, and not Algorithm 1's count.",
        ]
        return ResultTable(rows, further_claims)

    return Plan({}, measure)


@reproduces(
    "text of section 6",
    section="6",
    published=(
        Published("Householder, m = 16", words="O(B L n m)"),
        Published("matrix made by an inverse (Cayley)", words="O(B L n^2 + L n^3)"),
    ),
    hours=(0.05, 0.1),
)
def feed_forward(setting: Setting) -> Plan:
    """Milliseconds of one orthogonal layer without weight sharing, forward and backward, 50 rows, n=512."""
    n, m, batch = setting.at((16, 4, 2), (512, 16, 50), (512, 16, 50))

    def measure(runs: Runs) -> ResultTable:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(batch, n, generator=generator)
        packed = torch.randn(compact_wy.packed_size(n, m), generator=generator).requires_grad_()
        method = ScaledCayley(negatives=n // 2).bind(n)
        free = tuple(one.float().requires_grad_() for one in method.initial(generator))

        def householder() -> None:
            U, S = compact_wy.factors(packed, n)
            compact_wy.reflect(x, U.float(), S.float())[0].sum().backward()

        def cayley() -> None:
            (x @ method(*free).mT).sum().backward()

        times = {
            "Householder, m = 16": 1000 * median_seconds(householder, setting.at(1, 15, 15)),
            "matrix made by an inverse (Cayley)": 1000 * median_seconds(cayley, setting.at(1, 5, 15)),
        }
        return ResultTable(
            [Row(name, value, form="{:.2f} ms", note=f"n={n}, B={batch}") for name, value in times.items()]
        )

    return Plan({}, measure)
