"""Claims of Helfrich et al., 2018, without a table: sections 3.1, 4.1, 4.2, 5 and appendix D; and its released code."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from orthornn.learn.systems import Model
from orthornn.learn.tasks import Adding, Copying
from orthornn.learn.training import RunConfig
from orthornn.parametrizations import ScaledCayley
from orthornn.parametrizations.cayley import BoundScaledCayley

from .. import timing
from ..drawing import panels
from ..experiment import Plan, Published, Setting, reproduces
from ..result_table import ResultTable, Row, Runs
from .common import copying_and_adding, rmsprop, run, scornn, tensorflow_rmsprop

_N = 128
_LAPTOP = "n = 128; copying and adding over 200 steps, {} updates of 20 and of 50 sequences; one seed"


def _compared(setting: Setting, models: dict[str, Model], words: Mapping[str, str]) -> Plan:
    """Return a plan with every model on both tasks: rows of the test loss over the trivial baseline's, curves of both.

    words: What rows and curves call the models.
    """
    steps = setting.at(2, 500, 10_000)
    tasks = copying_and_adding(setting)
    systems = {
        f"{name}-{where}": run(setting, task, model, steps, batch, 50, optimizer=optimizer)
        for where, (task, batch, optimizer) in tasks.items()
        for name, model in models.items()
    }

    def tabulate(runs: Runs) -> ResultTable:
        rows, shown = [], {}
        for where, (task, _, _) in tasks.items():
            found = {name: runs.of(f"{name}-{where}") for name in models}
            shown[where] = {words[name]: own[0].curve("validation") for name, own in found.items() if own}
            for name, own in found.items():
                ends = [one.selected("loss")["last"] for one in own]
                values = [end.get("test", end.get("validation")) for end in ends if end is not None]
                ratios = [value / task.objective().trivial_loss for value in values if value is not None]
                if ratios:
                    what = f"{words[name]}, {where}, test loss over baseline"
                    note = "" if all(one.finished for one in own) else "unfinished"
                    mean = statistics.fmean(ratios)
                    rows.append(Row(what, mean, seeds=len(ratios), selection="last", form="{:.2g}", note=note))
        baselines = {where: task.objective().trivial_loss for where, (task, _, _) in tasks.items()}
        return ResultTable(rows, draw=panels(shown, log=True, baselines=baselines), size=(11, 4.2))

    return Plan(systems, tabulate, seeds=setting.at(1, 1, 5))


@reproduces(
    "ours",
    section="4.1",
    published=(Published("modReLU, copying, test loss over baseline", words="better than other activations"),),
    hours=(0.01, 4.0),
    laptop=(_LAPTOP.format(500),),
)
def activations(setting: Setting) -> Plan:
    """scoRNN with modReLU and with other activations."""
    words = {"modrelu": "modReLU", "relu": "ReLU", "leaky_relu": "leaky ReLU", "tanh": "tanh", "oplu": "OPLU"}
    words |= {"identity": "identity"}
    return _compared(setting, {name: scornn(_N, 1 / 2).replace(nonlinearity=name) for name in words}, words)


@reproduces(
    "ours",
    section="4.2",
    published=(
        Published("blocks, copying, test loss over baseline", words="a significant effect; the most effective"),
    ),
    hours=(0.01, 2.3),
    laptop=(_LAPTOP.format(500),),
)
def first_values(setting: Setting) -> Plan:
    """scoRNN with three initializations of A: the blocks of section 4.2, zero, and uniform."""
    words = {"blocks": "blocks", "zero": "A = 0", "uniform": "uniform A"}
    return _compared(setting, {name: scornn(_N, 1 / 2).replace(init=name) for name in words}, words)


@reproduces(
    "ours",
    section="5",
    published=(
        Published("ρ = n/2, copying, test loss over baseline", words="the best"),
        Published("ρ = n/2, adding, test loss over baseline", words="the best at T=200 (7n/10 at T=400, 750)"),
    ),
    hours=(0.01, 4.0),
    laptop=(_LAPTOP.format(500),),
)
def rho_sweep(setting: Setting) -> Plan:
    """scoRNN with different numbers of entries -1 in D: none, a tenth, half, seven tenths, all."""
    shares = {"rho-0": 0.0, "rho-n_10": 0.1, "rho-n_2": 0.5, "rho-7n_10": 0.7, "rho-n": 1.0}
    words = {"rho-0": "ρ = 0", "rho-n_10": "ρ = n/10", "rho-n_2": "ρ = n/2", "rho-7n_10": "ρ = 7n/10", "rho-n": "ρ = n"}
    return _compared(setting, {name: scornn(_N, share) for name, share in shares.items()}, words)


@reproduces(
    "ours",
    section="3",
    published=(Published("code, test loss", words="one result for text and code"),),
    hours=(0.01, 0.3),
    laptop=(
        "T = 200, n = 128, 500 updates of 20 sequences, one seed; the loss after the last update may be a spike of "
        "the curve",
    ),
)
def released_code(setting: Setting) -> Plan:
    """Copying as in the text, and as in the released code: 20000 fixed sequences, TensorFlow's RMSprop."""
    steps = setting.at(2, 500, 10_000)
    options: dict[str, Any] = {
        "T": setting.at(8, 200, 1000),
        "validation_size": setting.at(4, 100, 200),
        "test_size": setting.at(4, 200, 1000),
    }
    text, code = (Copying(variant=variant, **options) for variant in ("helfrich2018", "helfrich2018-code"))
    tensorflow = tensorflow_rmsprop()
    systems = {
        "text": run(setting, text, scornn(_N, 1 / 2), steps, 20, 50, optimizer=rmsprop()),
        "fixed-sequences": run(setting, code, scornn(_N, 1 / 2), steps, 20, 50, optimizer=rmsprop()),
        "tensorflow-rmsprop": run(setting, text, scornn(_N, 1 / 2), steps, 20, 50, optimizer=tensorflow),
        "code": run(setting, code, scornn(_N, 1 / 2), steps, 20, 50, optimizer=tensorflow),
    }

    def tabulate(runs: Runs) -> ResultTable:
        found = {name: runs.of(name) for name in systems}
        shown = {"copying": {name: own[0].curve("validation") for name, own in found.items() if own}}
        draw = panels(shown, log=True, baselines={"copying": text.objective().trivial_loss})
        return ResultTable(runs.rows_at_end("loss", form="{:.1e}"), draw=draw)

    return Plan(systems, tabulate)


@reproduces(
    "ours",
    section="3.1",
    published=(
        Published("unscaled: the entry of A for eigenvalues -.99999 +- .00447i", 447.212, "{:.3f}"),
        Published("unscaled: updates to reach that W", words='"very slowly, if at all"'),
    ),
    hours=(0.01, 0.1),
    laptop=("at most 20000 updates (in full: 10^6)",),
)
def near_minus_one(setting: Setting) -> Plan:
    """The 2 x 2 example of section 3.1: RMSprop (1e-3) trains A towards that W, from the initial value of section 4.2,
    with D = I and D = -I.
    """
    limit = setting.at(20, 20_000, 1_000_000)
    cosine = -0.99999
    sine = math.sqrt(1 - cosine**2)
    wanted = torch.tensor([[cosine, -sine], [sine, cosine]], dtype=torch.float64)

    def reach(negatives: int) -> tuple[int | None, float]:
        method = ScaledCayley(negatives=negatives).bind(2).double()
        skew = method.initial(torch.Generator().manual_seed(0))[0].requires_grad_()
        optimizer = torch.optim.RMSprop([skew], lr=1e-3, alpha=0.9)
        for update in range(limit):
            loss = (method(skew) - wanted).square().sum()
            if loss.item() < 1e-6:
                return update, float(skew.detach().abs().max())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return None, float(skew.detach().abs().max())

    def tabulate(runs: Runs) -> ResultTable:
        entry = float(ScaledCayley().bind(2).double().right_inverse(wanted)[0].abs().max())
        exact = math.sqrt((1 - cosine) / (1 + cosine))
        rows = [
            Row(
                "unscaled: the entry of A for eigenvalues -.99999 +- .00447i",
                exact,
                selection="computed",
                form="{:.3f}",
            )
        ]
        for name, negatives in (("unscaled", 0), ("scaled", 2)):
            updates, largest = reach(negatives)
            note = f"not in {limit}" if updates is None else ""
            rows.append(Row(f"{name}: updates to reach that W", updates, form="{:.0f}", note=note))
            rows.append(Row(f"{name}: |a| then", largest, form="{:.4g}"))
        rows.append(
            Row("right_inverse: |a| after it has chosen the signs of D", entry, selection="computed", form="{:.4g}")
        )
        return ResultTable(rows)

    return Plan({}, tabulate)


@reproduces(
    "ours",
    section="appendix D",
    published=(Published("n=170: share", words="small compared to the propagation through all time steps"),),
    hours=(0.01, 0.05),
    laptop=("two updates; T = 784 and batches of 50 as on pixel MNIST; processor time for one thread",),
)
def share_of_w(setting: Setting) -> Plan:
    """The share of an update's time spent on building W and on carrying its gradient back to A; adding over 784 steps."""

    def tabulate(runs: Runs) -> ResultTable:
        rows = []
        for n in setting.at((6,), (170, 360, 512, 1000), (170, 360, 512, 1000)):
            task = Adding(T=setting.at(8, 784, 784))
            config = RunConfig(task, scornn(n, 1 / 2), rmsprop(), batch_size=setting.at(2, 50, 50))
            whole = timing.seconds_an_update(config, updates=setting.at(1, 2, 10))
            alone = timing.seconds_an_update(replace(config, batch_size=1), updates=setting.at(1, 10, 20))
            method = ScaledCayley(negatives=n // 2).bind(n)
            skew = method.initial()[0].float().requires_grad_()

            def build(method: BoundScaledCayley = method, skew: torch.Tensor = skew) -> None:
                W = method(skew)
                W.backward(torch.ones_like(W))

            of_w = timing.median_seconds(build, setting.at(2, 5, 20))
            rows.append(Row(f"n={n}: milliseconds for W", 1000 * of_w, form="{:.2f}"))
            rows.append(Row(f"n={n}: milliseconds per update", 1000 * whole, form="{:.1f}"))
            rows.append(Row(f"n={n}: share", of_w / whole, form="{:.1%}"))
            rows.append(Row(f"n={n}, one sequence: share", of_w / alone, form="{:.0%}"))
        return ResultTable(rows)

    return Plan({}, tabulate)
