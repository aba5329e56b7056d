"""Findings of our own on what Mhammedi et al., 2017, claim or leave open."""

from __future__ import annotations

from typing import Any

from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Adding, Copying
from orthornn.learn.training import load_model

from .. import charts, signs
from ..experiment import Plan, Published, Setting, reproduces
from ..result_table import ResultTable, Row, Runs
from .common import BASELINE, copying_run, paper_run, tabulate_copying


@reproduces(
    "ours",
    section="5.5",
    published=(),
    hours=(0.02, 7.0),
    laptop=("T=100, 600 updates, two seeds (full: T=500, 20000 updates, five seeds)",),
)
def copying_reflections(setting: Setting) -> Plan:
    """Copying with different numbers of reflections m and bases: with m < n and no base, n - m eigenvalues of W are
    exactly 1.
    """
    steps, T = setting.at(2, 600, 20_000), setting.at(4, 100, 500)
    models = {
        f"{base}-m{m}": model_named("ornn", hidden_size=128, reflections=m, nonlinearity="modrelu", base=base)
        for m in setting.at((4,), (4, 16, 64, 128), (4, 16, 64, 128))
        for base in ("identity", "rotations")
    }
    systems = {name: copying_run(setting, model, steps, T) for name, model in models.items()}
    names = {f"{base}-m{m}": f"base {base}, m={m}" for m in (4, 16, 64, 128) for base in ("identity", "rotations")}
    return Plan(systems, tabulate_copying(names), seeds=setting.at(1, 2, 5))


@reproduces(
    "ours",
    section="5.5",
    published=(),
    hours=(0.01, 4.0),
    laptop=("T=100, 600 updates, two seeds (full: T=500, 20000 updates, five seeds)",),
)
def block_structure(setting: Setting) -> Plan:
    """Copying, 128 real units, modReLU on pairs: with and without the block structure of a complex W, which the paper
    suspects, and with and without eigenvalues 1, the other explanation.
    """
    steps, T = setting.at(2, 600, 20_000), setting.at(4, 100, 500)
    unitary = model_named("ornn", hidden_size=64, field="complex", nonlinearity="modrelu")
    real = model_named("ornn", hidden_size=128, reflections=16, nonlinearity="complex_modrelu")
    models = {
        "blocks-ones": unitary.replace(reflections=8),
        "blocks-spread": unitary.replace(reflections=8, base="rotations"),
        "free-ones": real,
        "free-spread": real.replace(base="rotations"),
    }
    names = {
        "blocks-ones": "block structure, 112 eigenvalues 1",
        "blocks-spread": "block structure, eigenvalues spread",
        "free-ones": "no block structure, 112 eigenvalues 1",
        "free-spread": "no block structure, eigenvalues spread",
    }
    systems = {name: copying_run(setting, model, steps, T) for name, model in models.items()}
    return Plan(systems, tabulate_copying(names), seeds=setting.at(1, 2, 5))


@reproduces(
    "ours",
    section="6",
    published=(),
    hours=(0.06, 1.4),
    laptop=("T=200, 3000 updates, two seeds (full: T=400, 15000 updates, five seeds)",),
)
def unitary_orthogonal(setting: Setting) -> Plan:
    """Adding: unitary and orthogonal W of 128 real units, with all or a few reflections; leaky ReLU on every real
    number.
    """
    T, steps = setting.at(6, 200, 400), setting.at(2, 3000, 15_000)
    smoke = setting.budget == "smoke"
    task = Adding(T=T, validation_size=4, test_size=4) if smoke else Adding(T=T)
    n = setting.at(16, 128, 128)
    models = {
        "unitary-few": model_named("ornn", hidden_size=n // 2, reflections=n // 16, field="complex"),
        "orthogonal-few": model_named("ornn", hidden_size=n, reflections=n // 8),
        "unitary-all": model_named("ornn", hidden_size=n // 2, reflections=n // 2, field="complex"),
        "orthogonal-all": model_named("ornn", hidden_size=n, reflections=n),
    }
    systems = {name: paper_run(setting, task, model, 0.01, steps, 50, 100) for name, model in models.items()}
    names = {
        "unitary-few": "unitary 64, 8 complex reflections",
        "orthogonal-few": "orthogonal 128, 16 reflections",
        "unitary-all": "unitary 64, full U(64)",
        "orthogonal-all": "orthogonal 128, full O(128)",
    }

    def tabulate(runs: Runs) -> ResultTable:
        def draw(figure: Any) -> None:
            lines = {
                names[system]: [run.curve("validation") for run in runs.of(system)]
                for system in runs.systems
                if runs.of(system)
            }
            charts.curves(
                figure.add_subplot(),
                lines,
                x="updates",
                y="MSE",
                title=f"T={T}",
                level=("baseline", BASELINE),
                log=True,
            )

        return ResultTable(runs.rows(names=names), draw=draw)

    return Plan(systems, tabulate, seeds=setting.at(1, 2, 5))


@reproduces(
    "text of section 6",
    section="6",
    published=(
        Published("u_1 in [-1, 1], adding, test loss", words="could also be applied (a soft constraint)"),
        Published("u_1 in [-1, 1], copying, test recall", words="could also be applied (a soft constraint)"),
    ),
    hours=(0.15, 2.1),
    laptop=("n = 64, T=100 in both tasks, two seeds (full: n=128, T=400, five seeds)",),
)
def soft_u1(setting: Setting) -> Plan:
    """All reflections, with u_1 as a sign or as a factor from -1 to 1, which lets one singular value of W leave 1."""
    T, steps, n = setting.at(6, 100, 400), setting.at(2, 15_000, 15_000), setting.at(6, 64, 128)
    held_out = {"validation_size": 4, "test_size": 4} if setting.budget == "smoke" else {}
    tasks = {"adding": Adding(T=T, **held_out), "copying": Copying(T=T, **held_out)}  # type: ignore[arg-type]
    words = {"sign": "u_1 = -1 or 1", "soft": "u_1 in [-1, 1]"}
    systems = {
        f"{u1}-{name}": paper_run(
            setting,
            task,
            model_named("ornn", hidden_size=n, reflections=n, u1=u1),
            0.01 if name == "adding" else 1e-3,
            steps,
            50,
            100,
        )
        for name, task in tasks.items()
        for u1 in words
    }
    names = {f"{u1}-{name}": f"{said}, {name}" for name in tasks for u1, said in words.items()}

    def tabulate(runs: Runs) -> ResultTable:
        rows = runs.rows(names=names)
        for system in systems:
            for one in runs.of(system)[:1]:
                if system.startswith("soft") and one.finished:
                    u1 = load_model(one.saved.path)[1].core.get_parameter("transition_l0.reflectors").detach()[-1]
                    rows.append(Row(f"{names[system]}: |u_1| at the end", abs(float(u1)), form="{:.4f}"))
        return ResultTable(rows)

    return Plan(systems, tabulate, seeds=setting.at(1, 2, 5), beyond_records=True)


@reproduces(
    "ours",
    section="5",
    published=(),
    hours=(0.05, 0.05),
)
def u1_sign(setting: Setting) -> Plan:
    """How often u_1 changes its sign under Adam, with the paper's rule (-1 if u_1 <= 0, else 1, after each update)."""
    updates, n = setting.at(5, 20_000, 20_000), 4

    def measure(runs: Runs) -> ResultTable:
        rows, farthest = [], {}
        for rate in (1e-3, 1e-2, 0.1, 0.5):
            found = signs.follow(n, rate, updates, seed=0)
            farthest[str(rate)] = found.farthest
            rows.append(
                Row(
                    f"rate {rate}: flips in {updates} updates",
                    float(found.flips),
                    form="{:.0f}",
                    note=f"largest step {found.farthest:.3g}, bound {signs.REACH * rate:.3g}; "
                    f"||W - target||_F at the end {found.distance:.2g}",
                )
            )
        further_claims = [
            "A step of Adam is at most 3.16 times its rate, so below a rate of 0.316 the rule can never change the sign of "
            "u_1: det W stays what it was drawn as, and half of O(n) is out of reach in training.",
        ]
        return ResultTable(rows, further_claims, numbers={"largest step": farthest})

    return Plan({}, measure)
