"""The evidence: PAPER/NAME/BUDGET.json and BUDGET.png, each written atomically.

The JSON records the configurations, the machine, the commit, every seed with both selections, the missing runs, the rows and
the findings. An experiment that shares the runs of another leaves them to its file. Paths in configurations are reduced to
their last part.

The runs of an experiment may come from several machines. If a run is missing in the folder, or is longer in the file, its
record in the file is used: seeds of two machines form one row, and every curve is drawn. If an experiment needs more of a
run than its record (weights, spectra, every evaluation of very many runs), the rows and the figure that need it stay
unchanged.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any

from orthornn._files import read_bytes, write_bytes
from orthornn.environment import environment
from orthornn.errors import ArgumentError, ConfigError
from orthornn.learn.report.figures import canvas, or_a_warning, plain_style
from orthornn.learn.report.runs import SavedRun
from orthornn.learn.report.table import Column, Table
from orthornn.learn.runs.changes import MAY_CHANGE
from orthornn.learn.training import RunConfig
from orthornn.learn.training.config import flat
from orthornn.saved.json_files import LARGEST, parse, write_json

from ..markdown import percent
from .curves import evaluations_are_whole, restored, stored
from .experiment import Budget, Experiment, Plan, Published
from .result_table import ResultTable, Row, Runs, Trained

_DPI = 110
# the parts of a run's result and machine that its record has
_RESULT = ("steps", "update_seconds", "parameters", "hidden_size", "orthogonality_error")
_BEGAN_ON = ("commit", "processor", "cores", "threads", "torch", "gpu")
# the parts of a configuration that do not change the training
_OF_NO_EFFECT = (*MAY_CHANGE, "evaluation_batch", "checkpoint_every", "checkpoint_seconds", "keep_checkpoints")

Records = Mapping[tuple[str, int], dict[str, Any]]
"""The records of runs in a results file, by system and seed."""


def write(folder: Path, experiment: Experiment, budget: Budget, plan: Plan, runs: Runs) -> dict[str, Any]:
    """Write both files into folder/PAPER/NAME; return the content of the JSON."""
    place = folder / experiment.paper / experiment.name
    owner = folder / experiment.paper / (experiment.shares or experiment.name) / f"{budget}.json"
    earlier = _read(owner)["runs"] if owner.exists() else []
    elsewhere = _further(earlier, runs)
    from_records = (
        not plan.beyond_records
        and evaluations_are_whole(len(earlier))
        and all("curves" in record for record in elsewhere.values())  # which the oldest files do not have
    )
    if from_records:
        runs = _with_restored(runs, elsewhere)
    table = plan.tabulate(runs)
    content = describe(experiment, budget, runs, table, elsewhere)
    kept = bool(elsewhere) and not from_records
    if kept:
        content["missing"] += _unread(earlier, runs, elsewhere)
        content["complete"] = not content["missing"]
        if (place / f"{budget}.json").exists():
            content = _with_earlier(content, _read(place / f"{budget}.json"))
    place.mkdir(parents=True, exist_ok=True)
    write_json(place / f"{budget}.json", content)
    if table.draw is not None and not (kept and (place / f"{budget}.png").exists()):
        with or_a_warning(place / f"{budget}.png"):
            write_bytes(place / f"{budget}.png", picture(table))
    return content


def check_same_configurations(folder: Path, experiment: Experiment, budget: Budget, plan: Plan) -> None:
    """Raise ArgumentError if the results file in folder/PAPER/NAME has a run of the plan with another configuration."""
    file = folder / experiment.paper / (experiment.shares or experiment.name) / f"{budget}.json"
    wanted = plan.runs()
    for record in _read(file)["runs"] if file.exists() else []:
        key = record["system"], record["seed"]
        changes = _changes(record, wanted[key]) if key in wanted else []
        if changes:
            raise ArgumentError(
                f"Expected the runs in {file} to have the current configuration of this experiment, but for "
                f"{key[0]}, seed {key[1]}, {'; '.join(changes)}. Move the file away, or pass another folder with --results."
            )


def _changes(record: Mapping[str, Any], config: RunConfig) -> list[str]:
    """Return in words how the configuration of a record differs from this one, except in length, checkpoints and paths."""
    try:
        made = RunConfig.read(record["config"])
    except ConfigError as error:
        return [" ".join(str(error).split())]
    made = dataclasses.replace(made, **{name: getattr(config, name) for name in _OF_NO_EFFECT})
    old, new = (flat(_without_folders(one.to_dict())) for one in (made, config))
    return [
        f"{name} was {old.get(name)!r} and is {new.get(name)!r}"
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]


def _further(earlier: Iterable[dict[str, Any]], runs: Runs) -> Records:
    """Return the records of wanted runs that have made more updates than those in the folder, by system and seed."""
    steps = {(run.system, run.seed): run.steps for run in runs.there}
    found = {(run["system"], run["seed"]): run for run in earlier}
    return {key: run for key, run in found.items() if key in runs.wanted and run["steps"] > steps.get(key, 0)}


def _with_restored(runs: Runs, elsewhere: Records) -> Runs:
    """Return the runs together with those that exist only as records, in the order of the plan."""
    there = {(run.system, run.seed): run for run in runs.there}
    for key, record in elsewhere.items():
        there[key] = _restored(record, runs.wanted[key])
    return dataclasses.replace(runs, there=[there[key] for key in runs.wanted if key in there])


def _restored(record: Mapping[str, Any], config: RunConfig) -> Trained:
    """Return the run of a record; only its selected evaluations have full precision."""
    records = restored(record["curves"])
    for chosen in filter(None, record["selected"].values()):
        for one in records:
            if one["step"] == chosen["step"] and one["kind"] in chosen:
                one[record["metric"]] = chosen[one["kind"]]
    for one in records[-1:]:
        one |= {name: record[name] or 0.0 for name in ("seconds", "cpu_seconds")}
    result = {name: record[name] for name in _RESULT} if record["finished"] else None
    environment = {name: record.get(name) for name in _BEGAN_ON}
    config = dataclasses.replace(config, steps=record["of"], device=record["config"]["device"])
    return Trained(record["system"], record["seed"], SavedRun(Path(), config, environment, records, result))


def _unread(earlier: Iterable[dict[str, Any]], runs: Runs, elsewhere: Records) -> list[str]:
    """Return, in words, the recorded seeds that are not in the rows because other seeds of their system are new."""
    known = {(run["system"], run["seed"]) for run in earlier}
    new = {run.system for run in runs.there if (run.system, run.seed) not in known}
    return [
        f"{system}, seed {seed}: finished on another machine, and not in the rows of the seeds here. Bring the run "
        f"directories together"
        for system, seed in elsewhere
        if system in new
    ]


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a results file. Raise DataError if it is not JSON."""
    return parse(read_bytes(path, LARGEST), str(path))


def _with_earlier(content: dict[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content with the rows of an earlier one that have more seeds or more of the training."""
    new, old = ({row["what"]: row for row in rows} for rows in (content["rows"], earlier["rows"]))
    published = [name for name, row in new.items() if "published" in row]
    names = [
        name for name in dict.fromkeys([*published, *old, *new]) if name in new or old[name]["reproduced"] is not None
    ]
    made = [_better(old.get(name), new.get(name)) for name in names]
    findings = content["findings"] or earlier["findings"]
    return {**content, "rows": made, "findings": findings, "numbers": {**earlier["numbers"], **content["numbers"]}}


def _better(earlier: dict[str, Any] | None, row: dict[str, Any] | None) -> dict[str, Any]:
    """Return the row with more evidence, with the current published value; the later row if both have the same."""
    if earlier is None or row is None:
        return earlier or row or {}
    if earlier["reproduced"] is None or (row["reproduced"] is not None and _evidence(row) >= _evidence(earlier)):
        return row
    return {**{key: value for key, value in row.items() if key.startswith("published")}, **earlier}


def _evidence(row: Mapping[str, Any]) -> float:
    return float((row["seeds"] or 0) * (1 if row["share"] is None else row["share"]))


@plain_style()
def picture(table: ResultTable) -> bytes:
    """Return the figure as PNG."""
    assert table.draw is not None
    figure = canvas(table.size)
    table.draw(figure)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=_DPI)
    return content.getvalue()


def describe(
    experiment: Experiment, budget: Budget, runs: Runs, table: ResultTable, elsewhere: Records = MappingProxyType({})
) -> dict[str, Any]:
    """Return the content of the JSON. elsewhere: Records of runs, by system and seed, to keep unchanged."""
    machine = environment()
    written = machine.pop("started")
    del machine["command"]
    here = {(run.system, run.seed): run for run in runs.there}
    of = len({**here, **elsewhere})
    records = [elsewhere.get(key) or _run(here[key], of) for key in runs.wanted if key in {**here, **elsewhere}]
    missing = runs.missing([key for key, run in elsewhere.items() if run["finished"]])
    return {
        "paper": experiment.paper,
        "name": experiment.name,
        "place": experiment.place,
        "section": experiment.section,
        "summary": experiment.summary,
        "budget": budget,
        "command": experiment.command(budget),
        "complete": not missing,
        "missing": missing,
        "differences": list(experiment.laptop) if budget == "laptop" else [],
        "written": written,
        "machine": machine,
        "wall_seconds": round(sum(run["seconds"] for run in records), 1),
        "cpu_seconds": round(sum(run.get("cpu_seconds") or 0.0 for run in records), 1),
        "rows": [_row(row) for row in beside(experiment.published, table.rows)],
        "findings": list(table.conclusions),
        "numbers": dict(table.numbers),
        "runs": [] if experiment.shares else records,
    }


def beside(published: Iterable[Published], rows: Sequence[Row]) -> list[tuple[Published | None, Row | None]]:
    """Return every published cell with its row, in the paper's order, then the rows without a published cell."""
    by_name = {row.what: row for row in rows}
    pairs: list[tuple[Published | None, Row | None]] = [(cell, by_name.pop(cell.what, None)) for cell in published]
    return [*pairs, *((None, row) for row in by_name.values())]


def _row(pair: tuple[Published | None, Row | None]) -> dict[str, Any]:
    cell, row = pair
    what = cell.what if cell is not None else row.what if row is not None else ""
    made: dict[str, Any] = {"what": what}
    if cell is not None:
        made["published"] = cell.value
        if cell.words:
            made["published_words"] = cell.words
        if cell.statement:
            made["statement"] = True
    if row is None:
        return {**made, "reproduced": None, "form": cell.form if cell else ""}
    return {
        **made,
        "reproduced": row.value,
        "spread": row.spread,
        "seeds": row.seeds,
        "selection": row.selection,
        "test_selected": row.test_selected,
        "minutes": row.minutes,
        "share": row.share,
        "form": row.form,
        "note": row.note,
    }


def _run(run: Trained, of: int) -> dict[str, Any]:
    result = run.saved.result or {}
    return {
        "system": run.system,
        "seed": run.seed,
        "finished": run.finished,
        "steps": run.steps,
        "of": run.saved.config.steps,
        "seconds": run.seconds,
        "cpu_seconds": run.cpu_seconds,
        **{name: result.get(name) for name in _RESULT[1:]},
        "metric": run.task.metric,
        "selected": run.selected(),
        "curves": stored(run.saved.records, of),
        **{name: run.saved.environment.get(name) for name in _BEGAN_ON},
        "config": _without_folders(run.saved.config.to_dict()),
    }


def _without_folders(plain: dict[str, Any]) -> dict[str, Any]:
    task = plain["task"]
    if "data" in task:
        task["data"] = PurePath(task["data"]).name
    return plain


def results_table(content: Mapping[str, Any]) -> Table:
    """Return the rows of a results file, to be shown."""
    shown = Table(
        f"{content['paper']}, {content['place']} ({content['budget']}): {content['summary']}",
        [
            Column("", left=True),
            Column("published"),
            Column("reproduced"),
            Column("seeds"),
            Column("selected by", left=True),
            Column("best test"),
            Column("min/run"),
            Column("of full"),
            Column("", left=True),
        ],
    )
    for row in content["rows"]:
        shown.rows.append(_cells(row))
    shown.notes += [*content["findings"], *(f"missing: {words}" for words in content["missing"])]
    return shown


def _cells(row: Mapping[str, Any]) -> list[str]:
    form = row["form"]
    published = row.get("published")
    words = [form.format(published) if published is not None else "", row.get("published_words", "")]
    if row["reproduced"] is None and "selection" not in row:
        return [row["what"], " ".join(filter(None, words)), "" if row.get("statement") else "not run", *[""] * 6]
    return [
        row["what"],
        " ".join(filter(None, words)),
        reproduced(row),
        str(row["seeds"]),
        row["selection"],
        best_test(row),
        "" if row["minutes"] is None else f"{row['minutes']:.1f}",
        share(row),
        row["note"],
    ]


def reproduced(row: Mapping[str, Any]) -> str:
    """Return the reproduced value with its spread, with no more digits than the spread supports."""
    if row["reproduced"] is None:
        return "-"
    form = _form(row)
    value = form.format(row["reproduced"])
    return value if row.get("spread") is None else f"{value} ± {form.format(row['spread'])}"


def best_test(row: Mapping[str, Any]) -> str:
    """Return the test value that the test data would have selected, with the digits of the reproduced one."""
    return "" if row["test_selected"] is None else _form(row).format(row["test_selected"])


def _form(row: Mapping[str, Any]) -> str:
    """Return a row's format. If that counts significant digits, or shows none of the spread, return a format with decimals up
    to the first digit of the spread (the second, if the first is 1), or with an exponent if they would be too many.
    """
    form, spread = str(row["form"]), row.get("spread")
    if not spread or not (form.endswith("g}") or (form.endswith("f}") and float(form.format(spread)) == 0)):
        return form
    digits, _, exponent = f"{spread:.1e}".partition("e")
    if int(exponent) < -6:
        return "{:.1e}"
    return f"{{:.{max(0, (digits[0] == '1') - int(exponent))}f}}"


def share(row: Mapping[str, Any]) -> str:
    """Return the fraction of the full budget's training that the runs have had, in percent."""
    made = row.get("share")
    return "" if made is None else f"{100 * made:.2g} %" if made < 0.995 else percent(made)
