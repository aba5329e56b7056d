"""Tables of the measurements outside the papers: words in finite groups, the delta rule, reflections, resets and so on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from orthornn._checks import check_choice

from ..bench.cases import Case
from ..exact_machines import TASKS
from ..markdown import markdown_table
from ..popgym.agent import MEMORIES
from ..popgym.ppo import Recipe
from ..popgym.runs import ENVIRONMENTS, Score, scores

LENGTHS = ("512", "1024", "4096")
GOAL = 0.99
_LETTERS = ("elements", "generators", "projections", "projections-4000")
_TRANSITIONS = {"cayley": "dense", "linear": "linear, as rotations"}  # cases of `orthornn bench` without reflections
_ORDER = [(group, letters) for group in ("s5", "a5") for letters in _LETTERS]
Record = Mapping[str, Any]


def group_words(results: Path, kind: str) -> str:
    """Return a table of the runs in results/group-words: "trained", "exact", or the list of "failures".

    Raises:
        ArgumentError: If the kind is unknown.
    """
    check_choice("kind", kind, _KINDS)
    return "\n".join(_KINDS[kind](list(_records(results))))


def _records(results: Path) -> Iterator[tuple[str, str, Record]]:
    """Yield (group, letters, record) of every file, in the order of the page."""
    files = {path.stem: path for path in (results / "group-words").glob("*.json")}
    names = ["-".join(name) for name in _ORDER if "-".join(name) in files]
    for name in [*names, *sorted(set(files) - set(names))]:
        group, letters = name.split("-", 1)
        yield group.upper(), letters, json.loads(files[name].read_text(encoding="utf-8"))


def _trained(records: Sequence[tuple[str, str, Record]]) -> list[str]:
    titles = ["group", "letters", "parameters", "seeds", "seconds", "starts", "L = 512", "L = 1024", "L = 4096"]
    rows = []
    for group, letters, record in records:
        runs = record["runs"]
        seconds = [run["seconds"] for run in runs]
        cells = [group, letters, runs[0]["parameters"], len(runs), f"{min(seconds):.0f} to {max(seconds):.0f}"]
        cells += [_each(run["starts"] for run in runs)]
        cells += [_each(f"{run['accuracy'][length]:.3g}" for run in runs) for length in LENGTHS]
        reached = sum(run["accuracy"]["1024"] >= GOAL for run in runs)
        rows.append([*cells, f"{reached} of {len(runs)}"])
    return markdown_table([*titles, "at least .99 at 1024"], rows)


def _exact(records: Sequence[tuple[str, str, Record]]) -> list[str]:
    titles = ["group", "letters", "dimension", "distance", "all of L = 32 to 4096 right", "L = 1 000 000, seed 0"]
    rows = []
    for group, letters, record in records:
        found = [run["snapped"] for run in record["runs"]]
        made = [one for one in found if "failed" not in one]
        right = [all(one["accuracy"][length] == 1 for length in ("32", "128", *LENGTHS)) for one in made]
        first = found[0]
        longest = max(map(int, first.get("accuracy", {"0": 0})))
        at_last = [
            "" if longest < 1_000_000 or "failed" in first else f"{first[key][str(longest)]:.3g}"
            for key in ("accuracy", "accuracy_in_float32")
        ]
        distances = _each(f"{one['distance']:.2g}" for one in made)
        cells = [group, letters, _each(one["dimension"] for one in made), distances, f"{sum(right)} of {len(found)}"]
        rows.append([*cells, *at_last])
    return markdown_table([*titles, "in float32"], rows)


def _failures(records: Sequence[tuple[str, str, Record]]) -> list[str]:
    lines = []
    for group, letters, record in records:
        for run in record["runs"]:
            if run["accuracy"]["1024"] >= GOAL:
                continue
            length = run["stages"][-1][0]
            how = "trained to the end" if run["finished"] else f"out of time at {length} letters"
            at = f"`{run['accuracy']['1024']:.3g}`"
            lines.append(
                f"- {group}, {letters}, seed {run['seed']}: {at} at 1024 letters, {how}, starts: {run['starts']}."
            )
    return lines or ["- None."]


def _each(values: Iterator[Any]) -> str:
    return " ".join(map(str, values))


_KINDS = {"trained": _trained, "exact": _exact, "failures": _failures}


def exact_machines(results: Path, kind: str) -> str:
    """Return a table of the runs in results/exact-machines: "trained" networks, "machines", or the seeds that are "failures".

    Raises:
        ArgumentError: If the kind is unknown.
    """
    check_choice("kind", kind, ("trained", "machines", "failures"))
    paths = (results / "exact-machines" / f"{name}.json" for name in TASKS)
    records = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()}
    if kind == "failures":
        lines = [
            f"- {name}, seed {run['seed']}: "
            + ("no automaton was found." if run["states"] is None else f"an automaton of {run['states']} states.")
            for name, record in records.items()
            for run in record["runs"]
            if not run["exact"]
        ]
        return "\n".join(lines or ["- None."])
    rows = []
    for name, record in records.items():
        runs, machine = record["runs"], record["machine"]
        if kind == "trained":
            lengths, right = [run["longest_words"] for run in runs], [run["accuracy_of_the_network"] for run in runs]
            exact = f"{sum(run['exact'] for run in runs)} of {len(runs)}"
            seconds = [run["seconds"] for run in runs]
            cells = [f"{median(seconds):.1f}", f"{max(seconds):.1f}", f"{min(lengths)} to {max(lengths)}"]
            cells += [f"{median(one[length] for one in right):.2f}" for length in ("512", "4096")]
            rows.append([name, exact, *cells])
        else:
            wrong = f"{machine['c_wrong']} of {machine['c_steps']}" if "c_wrong" in machine else ""
            registers = " + ".join(map(str, machine["registers"]))
            cells = [machine["states"], machine["tokens"], registers, machine["factors"], machine["steps_tried"]]
            rows.append([name, *cells, machine.get("c_bytes", ""), wrong])
    titles = {
        "trained": ["task", "exact", "seconds, median", "largest", "letters", "network at 512", "network at 4096"],
        "machines": [
            "task",
            "states",
            "tokens",
            "registers",
            "factors",
            "steps tried",
            "bytes of C",
            "wrong outputs of C",
        ],
    }[kind]
    return "\n".join(markdown_table(titles, rows))


def delta_rule(results: Path) -> str:
    """Return the times in results/bench/delta_rule.json as a table."""
    record = json.loads((results / "bench" / "delta_rule.json").read_text(encoding="utf-8"))
    titles = ["T", "B", "updates", "heads", "K = V", "gate", "loop, ms", "kernel, ms", "times faster"]
    rows = []
    for run in record["runs"]:
        ms, faster = run["milliseconds"], run["times_faster"]
        cells = [run["T"], run["B"], run["M"], run["heads"], run["keys"], run["gate"] or "none", f"{ms['loop']:.0f}"]
        for backend in ("cpp", "chunked"):
            cells += [f"{ms[backend]:.3g}", f"{faster[backend]:.0f}"]
        rows.append(cells)
    first, off = record["runs"][0]["bytes"], record["norm_off_after_100000_updates"]
    worst = {name: max(v for key, v in off.items() if key.startswith(name)) for name in ("cpp", "chunked")}
    lines = [
        *markdown_table([*titles, "chunks, ms", "times faster"], rows),
        "",
        f"Saved by the kernel for the backward pass of the first row, besides the inputs ({_megabytes(first['inputs'])}): "
        f"{_megabytes(first['saved_states'])}; every state would be {_megabytes(first['every_state'])}. The norm of a state "
        f"after 100 000 updates with a strength of 2 is off by {worst['cpp']:.1g} with the kernel, {worst['chunked']:.1g} in "
        "chunks (float32, relative).",
    ]
    return "\n".join(lines)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def reflections(results: Path) -> str:
    """Return the times in results/bench/reflections.json as a table."""
    record = json.loads((results / "bench" / "reflections.json").read_text(encoding="utf-8"))
    rows = []
    for run in record["runs"]:
        cells = [run["T"], run["B"], run["N"], run["M"], f"{1e3 * run['loop']:.0f}", f"{1e3 * run['kernel']:.2g}"]
        rows.append([*cells, f"{run['loop'] / run['kernel']:.0f}"])
    lines = markdown_table(["T", "B", "N", "M", "plain loop, ms", "kernel, ms", "times faster"], rows)
    return "\n".join([*lines, "", _machine(record["environment"])])


def resets(results: Path) -> str:
    """Return the times in results/bench/resets.json as a table: ratios of medians to the call without resets."""
    record = json.loads((results / "bench" / "resets.json").read_text(encoding="utf-8"))
    names = {"with resets": ".1f", "step loop in Python": ".0f", "nn.LSTM per piece": ".0f"}
    rows = []
    for one in record["resets"]:
        case = one["case"]
        medians = {name: median(chain.from_iterable(time["rounds"])) for name, time in one["timings"].items()}
        W = f"{case['m']} reflections" if case["m"] else _TRANSITIONS[case["form"]]
        cells = [f"{W}, n = {case['n']}, B = {case['batch']}"]
        cells += [format(medians[name] / medians["without resets"], form) for name, form in names.items()]
        rows.append(cells)
    return "\n".join([*markdown_table(["network", *names], rows), "", _machine(record["environment"])])


def agents(results: Path) -> str:
    """Return the times of recurrent policies in results/bench/agents.json as a table."""
    record = json.loads((results / "bench" / "agents.json").read_text(encoding="utf-8"))
    lstm, *others = "LSTM of sb3-contrib", "OrthogonalRNN", "OrthogonalBlocks"
    rows = []
    for run in record["recurrent"]:
        times = run["seconds"]
        cells = [run["T"], run["B"], run["N"], f"{1e3 * times[lstm]:.0f}"]
        for name in others:
            cells += [f"{1e3 * times[name]:.1f}", f"{times[lstm] / times[name]:.0f}"]
        rows.append(cells)
    titles = ["T", "B", "N", f"{lstm}, ms"]
    for name in others:
        titles += [f"`{name}`, ms", "times faster"]
    versions = f"sb3-contrib {record['versions']['sb3-contrib']}."
    return "\n".join([*markdown_table(titles, rows), "", f"{_machine(record['environment'])} {versions}"])


class Played(NamedTuple):
    """The trainings in an environment of POPGym: their record, the scores of each memory, and published ones if known."""

    name: str
    record: dict[str, Any]
    scores: dict[str, Score]
    published: dict[str, Any] | None

    @property
    def is_better(self) -> bool | None:
        """Whether blocks score more than the best published model; None unless both scores are known."""
        if self.published is None or "blocks" not in self.scores:
            return None
        return self.scores["blocks"].mean > self.published["best"]


def _played(results: Path) -> list[Played]:
    published = json.loads((results / "popgym" / "published.json").read_text(encoding="utf-8"))["scores"]
    found = []
    for name in ENVIRONMENTS:
        path = results / "popgym" / f"{name}.json"
        if path.exists():
            record = json.loads(path.read_text(encoding="utf-8"))
            found.append(Played(name, record, scores(record), published.get(name)))
    return [one for one in found if one.scores]


def popgym(results: Path) -> str:
    """Return the scores in results/popgym next to published ones, where ours are better or worse, and what is unfinished."""
    played, rows = _played(results), []
    for one in played:
        known, recipe = one.published, one.record["recipe"]
        cells = ["", ""] if known is None else [f"{known['GRU']:.3f}", f"{known['best']:.3f} ({known['best model']})"]
        for memory in MEMORIES:
            own = one.scores.get(memory)
            cells.append("unfinished" if own is None else f"{own.mean:.3f} ± {own.deviation:.3f}")
        rows.append([one.name, *cells, _thousands(recipe["steps"]), f"{recipe['discount']:g}"])
    titles = [
        "environment",
        "published GRU",
        "best of 13 models",
        "`OrthogonalBlocks`",
        "GRU",
        "LSTM",
        "steps",
        "discount",
    ]
    lines = [*markdown_table(titles, rows), ""] if rows else []
    sentences = {
        "`OrthogonalBlocks` better than the best published model": [one.name for one in played if one.is_better],
        "`OrthogonalBlocks` worse than the best published model": [
            one.name for one in played if one.is_better is False
        ],
        "Trained earlier, with larger minibatches and without scaling of rewards": [
            one.name for one in played if one.record["recipe"]["minibatches"] != Recipe.minibatches
        ],
        "Unfinished": sorted(set(ENVIRONMENTS) - {one.name for one in played}, key=ENVIRONMENTS.index),
    }
    for what, names in sentences.items():
        lines += [f"{what}: {', '.join(f'`{name}`' for name in names)}.", ""] if names else []
    return "\n".join(lines).rstrip()


def popgym_wins(results: Path) -> str:
    """Return in how many environments blocks score more than the best published model, such as "3 of 7"."""
    verdicts = [one.is_better for one in _played(results) if one.is_better is not None]
    return f"{sum(verdicts)} of {len(verdicts)}"


def _thousands(count: int) -> str:
    return f"{count:,}".replace(",", " ")


def popgym_score(results: Path, environment: str, whose: str) -> str:
    """Return one score: of a memory in results/popgym, or the published one of "GRU" or the "best" model; or the "steps" or
    the "discount" of our runs.

    Raises:
        ArgumentError: If the score does not exist, or its runs are unfinished.
    """
    if whose in ("GRU", "best"):
        published = json.loads((results / "popgym" / "published.json").read_text(encoding="utf-8"))
        return f"{published['scores'][environment][whose]:.2f}"
    record = json.loads((results / "popgym" / f"{environment}.json").read_text(encoding="utf-8"))
    if whose == "steps":
        return _thousands(record["recipe"]["steps"])
    if whose == "discount":
        return f"{record['recipe']['discount']:g}"
    found = scores(record)
    check_choice(f"memory of {environment}", whose, list(found))
    return f"{found[whose].mean:.2f}"


def long_step(results: Path) -> str:
    """Return the times and memory in results/bench/million-steps.json as a table."""
    record = json.loads((results / "bench" / "million-steps.json").read_text(encoding="utf-8"))
    rows = []
    for step in record["steps"]:
        case = step["case"]
        W = f"{case['m']} reflections" if case["m"] else "scaled Cayley"
        seconds, megabytes = median(chain.from_iterable(step["timing"]["rounds"])), step["peak_bytes"] / 1e6
        rows.append([W, f"`{step['mode']}`", step["segment"] or "", f"{seconds:.2g}", _two_digits(megabytes)])
    titles = ["transition", "memory", "k", "seconds", "MB"]
    return "\n".join([*markdown_table(titles, rows), "", _machine(record["environment"])])


def drift(results: Path) -> str:
    """Return the errors of orthogonality in results/bench/drift.json as a table."""
    record = json.loads((results / "bench" / "drift.json").read_text(encoding="utf-8"))
    rows = [
        [n, one["updates"], f"{one['before_a_correction']:.2e}", f"{one['now']:.1e}"]
        for n, size in record["sizes"].items()
        for one in size["errors"]
    ]
    titles = ["n", "updates", "largest error so far", "error after the last correction"]
    return "\n".join([*markdown_table(titles, rows), "", f"`{record['command']}`"])


def gpu(results: Path, kind: str) -> str:
    """Return a table of results/gpu: "layers", "epochs", "kernels", "backends" or "recurrences".

    Raises:
        ArgumentError: If the kind is unknown.
    """
    check_choice("kind", kind, _GPU)
    name, lines = _GPU[kind]
    record = json.loads((results / "gpu" / name).read_text(encoding="utf-8"))
    machine = record["machine"]
    return "\n".join([*lines(record), "", f"{machine['device']}, torch {machine['torch']}, T = {record['T']}."])


def gpu_ratio(results: Path, case: str, network: str, other: str) -> str:
    """Return the ratio of the times of two networks in results/gpu/layers-h200.json."""
    record = json.loads((results / "gpu" / "layers-h200.json").read_text(encoding="utf-8"))
    networks = record["layers"][case]["networks"]
    return _two_digits(networks[network]["ms"] / networks[other]["ms"])


def _gpu_layers(record: Record) -> list[str]:
    rows = []
    cases = {Case.parse(name): row for name, row in record["layers"].items()}
    for case in sorted(cases, key=lambda case: (case.form, case.n, case.batch)):
        row = cases[case]
        ms = {key.removesuffix(" float32"): one["ms"] for key, one in row["networks"].items() if "float32" in key}
        cells = [_unbroken(case.title), f"{ms['ours']:.2g}", f"{ms['ours-graph']:.2g}"]
        cells += [f"{_two_digits(ms[peer] / ms['ours'])} x" for peer in ("rnn", "lstm", "gru")]
        cells += [f"{_two_digits(ms[f'{peer}-graph'] / ms['ours-graph'])} x" for peer in ("rnn", "lstm")]
        rows.append(cells)
    titles = ["layer", "ms", "as a graph, ms", "`nn.RNN`", "`nn.LSTM`", "`nn.GRU`"]
    return markdown_table([*titles, "`nn.RNN`, both as graphs", "`nn.LSTM`, both as graphs"], rows)


def _unbroken(title: str) -> str:
    """Return a title whose "B = 50" does not break over two lines."""
    return title.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")


def _gpu_epochs(record: Record) -> list[str]:
    rows: dict[str, list[str]] = {}
    for key, row in record["epochs"].items():
        case = key.split()[0]
        rows.setdefault(case, [_unbroken(Case.parse(case).title)]).append(f"{row['epoch_s']:.2g}")
    return markdown_table(["layer", "float32, s", "tf32, s", "bfloat16, s"], rows.values())


def _gpu_kernels(record: Record) -> list[str]:
    rows = []
    for one in record["kernels"]:
        size = f"{one['n']}" if not one["m"] else f"{one['n']}, {one['m']}"
        blocks = "1" if one["blocks"] == 1 else f"cluster of {one['blocks']}"
        together = f"{one['side'] * one['turns']}" + f" ({one['turns']} turns)" * (one["turns"] > 1)
        cells = [size, one["batch"], blocks, together, one["threads"], _each(iter(one["lanes"]))]
        rows.append([*cells, f"{one['forward_us']:.2g}", f"{one['backward_us']:.2g}"])
    titles = ["N, M", "B", "multiprocessors", "sequences in them", "threads", "lanes", "forward, us", "backward, us"]
    return markdown_table(titles, rows)


def _gpu_backends(record: Record) -> list[str]:
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for key, one in record["recurrences"].items():
        case, backend, precision = key.split()
        rows.setdefault((case, precision), {})[backend] = f"{one['both_us']:.2g}"
    names = ("cuda", "triton", "graph")
    cells = [[Case.parse(c).title, p, *(row.get(name, "") for name in names)] for (c, p), row in rows.items()]
    return markdown_table(["recurrence", "precision", *(f"`{name}`, us" for name in names)], cells)


def _gpu_recurrences(record: Record) -> list[str]:
    found: dict[str, dict[str, Record]] = {}
    for key, one in record["recurrences"].items():
        case, backend = key.split(" ", 1)
        found.setdefault(case, {})[backend] = one
    rows = []
    for case, row in sorted(found.items(), key=lambda item: (Case.parse(item[0]).n, Case.parse(item[0]).batch)):
        ours = row["cuda float32"]
        others = [row.get(f"graph {precision}") for precision in ("float32", "tf32")]
        cells = [_unbroken(Case.parse(case).title), *map(_two_digits, (ours["forward_us"], ours["both_us"]))]
        rows.append([*cells, *("" if one is None else _two_digits(one["both_us"]) for one in others)])
    return markdown_table(
        ["recurrence", "`cuda`, forward, us", "`cuda`, us", "`graph`, us", "`graph` in tf32, us"], rows
    )


_GPU = {
    "layers": ("layers-h200.json", _gpu_layers),
    "epochs": ("layers-h200.json", _gpu_epochs),
    "kernels": ("kernels-h200.json", _gpu_kernels),
    "backends": ("backends-h200.json", _gpu_backends),
    "recurrences": ("recurrences-h200.json", _gpu_recurrences),
}


def _two_digits(value: float) -> str:
    return f"{float(f'{value:.2g}'):g}"


def _machine(environment: Record) -> str:
    """Return the machine of a measurement."""
    threads = "one thread" if environment["threads"] == 1 else f"{environment['threads']} threads"
    return f"{environment['processor']}, {threads}, torch {environment['torch']}."
