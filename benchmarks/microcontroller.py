"""Small networks in integers: train them, export them as C, and measure what that costs.

    python benchmarks/microcontroller.py mnist FOLDER OUT --minutes 80 --results results/microcontroller.json
    python benchmarks/microcontroller.py count FOLDER OUT --results results/microcontroller.json
    python benchmarks/microcontroller.py lstm CMSIS_NN OUT --results results/microcontroller.json
    python benchmarks/microcontroller.py sensor FOLDER OUT --results results/microcontroller.json
    python benchmarks/microcontroller.py tables SERIES OUT --digits DIGITS --results results/microcontroller-tables.json

mnist: pixel MNIST, one pixel per step; the images for validation are the last 5000 of a permutation of the training images.
count: the instructions and the code of a network as that of mnist, but with its initial weights, on which they do not depend;
other entries of mnist stay as they are.
lstm: the int8 LSTM of CMSIS-NN, a folder of its sources, with about the multiply-adds of the network of mnist, counted alike.
sensor: BasicMotions of the UEA archive, six channels of a smart watch, ten seeds.
tables: the sets of orthornn_evidence.own_data, each with the default network of tables as `orthornn train` trains it, seed 0;
the scales are the largest values on at most 300 training sequences, times 4.

The networks of the first two are two linear layers of rotations,

h_t = R_1 h_{t-1} + relu(V x_t + b_1), g_t = R_2 g_{t-1} + relu(V' h_t + b_2), read out after the last step. Both recurrences
are linear, so training runs along all steps at once: R^t u is a prefix sum of R^-t u, turned by R^t. The angles are trained.
Prints the test accuracy in float32 and as C in integers, flash and RAM, and with arm-none-eabi-gcc and qemu-system-arm the
instructions of a step on a Cortex-M4.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from orthornn import OrthogonalRNN, Unconstrained
from orthornn.environment import commit
from orthornn.export import to_c
from orthornn.learn.predict import load
from orthornn.learn.systems import SequenceModel
from orthornn.learn.tasks import Task
from orthornn_evidence.files.idx import read_idx
from orthornn_evidence.own_data.cells import Cell, trained
from orthornn_evidence.own_data.sets import SETS, Places
from support.compiled_c import Compiled, command
from support.devices import GCC_M4, M4, on_cortex_m4, run_on_cortex_m4

INNER, OUTER = 5.0, 28.0  # typical sizes of the two states, so that one rate fits all weights
NUMBERS = ("int8", "int16")
TYPICAL = 300  # sequences that calibrate a network of tables
LSTM_UNITS = 51
SENSOR_UNITS, SENSOR_SEEDS, SENSOR_UPDATES, SENSOR_BATCH = 32, 10, 200, 20


def log_uniform(low: float, high: float, count: int) -> Tensor:
    """Return numbers whose logarithms are uniform."""
    return torch.exp(torch.rand(count) * math.log(high / low) + math.log(low))


def initial(n: int, inputs: int, outputs: int) -> dict[str, Tensor]:
    """Return the initial weights of a network with N units in each layer."""
    half = n // 2
    quarter = torch.cat([torch.rand(half - half // 3) * math.pi / 2, log_uniform(4e-3, 1, half // 3)])

    def signs() -> Tensor:
        return torch.where(torch.rand(half) < 0.5, -1.0, 1.0)

    values = {
        "a1": quarter * signs(),
        "a2": log_uniform(1e-3, 0.5, half) * signs(),
        "V1": torch.randn(n, inputs) / math.sqrt(inputs),
        "b1": torch.rand(n) * 0.2 - 0.1,
        "V2": (torch.rand(n, n) * 2 - 1) * math.sqrt(3 / n),
        "b2": torch.zeros(n),
        "Y": (torch.rand(outputs, n) * 2 - 1) / math.sqrt(n) * 0.3,
        "d": torch.zeros(outputs),
    }
    return {name: value.requires_grad_() for name, value in values.items()}


def logits(p: dict[str, Tensor], x: Tensor) -> Tensor:
    """x: (T, B, I) -> (B, O)."""
    n, T = len(p["V1"]), len(x)
    half, t = n // 2, torch.arange(T, dtype=torch.float32)[:, None]
    first, second = torch.relu(x @ p["V1"].mT + p["b1"]).split(half, -1)
    c, s = (t * p["a1"]).cos()[:, None], (t * p["a1"]).sin()[:, None]
    P, Q = torch.cumsum(c * first + s * second, 0), torch.cumsum(c * second - s * first, 0)
    h = torch.cat([c * P - s * Q, s * P + c * Q], -1)
    first, second = torch.relu(h @ (p["V2"].mT / INNER) + p["b2"]).split(half, -1)
    c, s = ((T - 1 - t) * p["a2"]).cos(), ((T - 1 - t) * p["a2"]).sin()

    def weighed(u: Tensor, w: Tensor) -> Tensor:
        return torch.einsum("tbh,th->bh", u, w)

    g = torch.cat([weighed(first, c) - weighed(second, s), weighed(first, s) + weighed(second, c)], -1)
    return g @ p["Y"].mT / OUTER + p["d"]


class Learner:
    """Adam with a cosine schedule; the angles have a tenth of the learning rate."""

    def __init__(self, p: dict[str, Tensor], warmup: int) -> None:
        angles, others = [p["a1"], p["a2"]], [value for name, value in p.items() if name not in ("a1", "a2")]
        self.optimizer = torch.optim.Adam([{"params": others}, {"params": angles}], lr=1, betas=(0.9, 0.99))
        self.p, self.warmup, self.updates = p, warmup, 0

    def update(self, x: Tensor, y: Tensor, part: float) -> None:
        """Take one step. part: of the training that is over, 0 to 1."""
        rate = 3e-3 * min(1, (self.updates + 1) / self.warmup) * (0.5 + 0.5 * math.cos(math.pi * part)) + 1e-6
        for group, factor in zip(self.optimizer.param_groups, (1, 0.1)):
            group["lr"] = rate * factor
        loss = F.cross_entropy(logits(self.p, x), y)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self.p.values()), 1.0)
        self.optimizer.step()
        self.updates += 1


def train_for(minutes: float, x: Tensor, y: Tensor, n: int) -> dict[str, Tensor]:
    """Return the weights after so many minutes, of images x (B, T) as bytes."""
    order = torch.randperm(len(x))
    rows, held = order[:55000], order[55000:]
    p = initial(n, 1, 10)
    learner, begin, part = Learner(p, 200), time.time(), 0.0
    while part < 1:
        for batch in rows[torch.randperm(len(rows))].split(64)[:-1]:
            part = (time.time() - begin) / (60 * minutes)
            if part >= 1:
                break
            learner.update(pixels(x[batch]).transpose(0, 1), y[batch], part)
    right = accuracy(p, pixels(x[held]), y[held])
    print(f"{learner.updates} updates of 64 images, validation accuracy {right:.4f}", flush=True)
    return p


def pixels(images: Tensor) -> Tensor:
    """Return (B, T, 1) between 0 and 1 from bytes (B, T)."""
    return images[..., None].float().div(255)


@torch.no_grad()
def accuracy(p: dict[str, Tensor], x: Tensor, labels: Tensor) -> float:
    """Return the share of sequences (B, T, I) whose class has the largest score."""
    parts = zip(x.split(100), labels.split(100))
    return sum(int((logits(p, some.transpose(0, 1)).argmax(-1) == y).sum()) for some, y in parts) / len(x)


def rotation(angles: Tensor) -> Tensor:
    """Return the matrix (N, N) of plane rotations by angles (N/2,)."""
    c, s = torch.diag(angles.cos()), torch.diag(angles.sin())
    return torch.cat([torch.cat([c, -s], 1), torch.cat([s, c], 1)])


@torch.no_grad()
def network(p: dict[str, Tensor]) -> SequenceModel:
    """Return the weights as a model that can be exported."""
    n, inputs = p["V1"].shape
    core = OrthogonalRNN(inputs, n, 2, parametrization=Unconstrained(), nonlinearity="relu", linear_transition=True)
    core.weight_hh_l0, core.weight_hh_l1 = rotation(p["a1"]), rotation(p["a2"])
    core.weight_ih_l0.copy_(p["V1"])
    core.weight_ih_l1.copy_(p["V2"] / INNER)
    core.bias_ih_l0.copy_(p["b1"])
    core.bias_ih_l1.copy_(p["b2"])
    head = torch.nn.Linear(n, len(p["d"]))
    head.weight.copy_(p["Y"] / OUTER)
    head.bias.copy_(p["d"])
    return SequenceModel(core, head, output="last").eval()


def export(model: SequenceModel, out: Path, x: Tensor, y: Tensor, typical: Tensor, labels: list[str]) -> dict[str, Any]:
    """Return the accuracy on sequences x (B, T, I) and the cost, by number format."""
    description = {"input": "real", "output": "last", "says": "classes", "labels": labels}
    run = type("Run", (), {"model": model, "description": description})()
    found = {}
    for numbers in NUMBERS:
        made = to_c(run, out / numbers, numbers=numbers, calibration=typical, force=True)
        compiled, fixed = Compiled(made, "gcc", ("-O3", "-march=native")), made.integers
        assert fixed is not None
        read = fixed.quantize(x.numpy()).astype(np.int16)
        right = sum(int(compiled.run(sequence).argmax()) == int(label) for sequence, label in zip(read, y))
        assert all(np.array_equal(compiled.run(one), twin) for one, twin in zip(read, fixed.run(x[:20].numpy())))
        found[numbers] = {
            "accuracy": right / len(y),
            "weights": made.sizes.weights,
            "ram": made.sizes.ram,
            "multiply_adds": made.sizes.multiply_adds,
        }
        if shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm"):
            device = on_cortex_m4(out / numbers, integers=True)
            assert device.selftest == 0
            found[numbers] |= {"instructions": round(max(device.instructions)), "code": device.code}
        print(numbers, found[numbers], flush=True)
    return found


def mnist(given: argparse.Namespace) -> dict[str, Any]:
    """Return the results on pixel MNIST."""
    torch.manual_seed(0)
    kinds = (("images-idx3-ubyte", 3), ("labels-idx1-ubyte", 1))
    files = [(given.data / f"{part}-{kind}.gz", dimensions) for part in ("train", "t10k") for kind, dimensions in kinds]
    x, y, test_x, test_y = (torch.from_numpy(np.array(read_idx(*file))) for file in files)
    x, test_x, y, test_y = x.flatten(1), test_x.flatten(1), y.long(), test_y.long()
    p = torch.load(given.weights) if given.weights else train_for(given.minutes, x, y, given.units)
    p["V1"] = p["V1"].reshape(len(p["V1"]), 1)
    torch.save({name: value.detach() for name, value in p.items()}, given.out / "weights.pt")
    right = accuracy(p, pixels(test_x), test_y)
    print(f"float32: test accuracy {right:.4f}", flush=True)
    parameters = sum(value.numel() for value in p.values())
    labels = [str(digit) for digit in range(10)]
    made = export(network(p), given.out, pixels(test_x), test_y, pixels(x[:300]), labels)
    return {"units": given.units, "minutes": given.minutes, "parameters": parameters, "accuracy": right} | made


def count(given: argparse.Namespace) -> dict[str, Any]:
    """Return the results on pixel MNIST that there are, with the instructions and the code of the present C."""
    kept = json.loads(given.results.read_text())["mnist"]
    torch.manual_seed(0)
    model, x = network(initial(kept["units"], 1, 10)), torch.rand(20, 784, 1)
    made = export(model, given.out, x, model(x.transpose(0, 1)).argmax(-1), x, [str(digit) for digit in range(10)])
    for numbers in NUMBERS:
        kept[numbers] |= {name: made[numbers][name] for name in ("instructions", "code")}
    return kept | {"counted": commit()}


def lstm(given: argparse.Namespace) -> dict[str, Any]:
    """Return the instructions of the LSTM of CMSIS-NN."""
    (given.out / "network.h").write_text(
        "#include <stdint.h>\n#define NETWORK_INPUTS 1\n"
        f"#define NETWORK_OUTPUTS {LSTM_UNITS}\n"
        f"typedef struct {{ int16_t cell[{LSTM_UNITS}]; int8_t hidden[{LSTM_UNITS}]; }} network_state;\n"
        "void network_init(network_state *);\nvoid network_step(network_state *, const int8_t *, int8_t *);\n"
        "int network_selftest(void);\n"
    )
    folders = [given.data / "Source" / f"{name}Functions" for name in ("LSTM", "NNSupport", "BasicMath", "Activation")]
    sources = [Path(__file__).with_name("cmsis_nn_lstm.c"), *(path for one in folders for path in one.glob("*.c"))]
    sources = [path for path in sources if not path.stem.endswith(("f16", "f32"))]
    objects = []
    for source in sources:
        objects.append(given.out / f"{source.stem}.o")
        flags = ("-Ofast", "-std=gnu99", "-ffunction-sections", f"-I{given.out}", f"-I{given.data / 'Include'}")
        command(GCC_M4, *flags, *M4, "-c", source, "-o", objects[-1])
    found = run_on_cortex_m4(given.out, objects, "int8_t", "int8_t")
    description = command("git", "-C", given.data, "describe", "--always", "--tags").strip()
    return {
        "units": LSTM_UNITS,
        "multiply_adds": 4 * LSTM_UNITS * (LSTM_UNITS + 1),
        "instructions": round(max(found.instructions)),
        "version": description,
    }


def sensor(given: argparse.Namespace) -> dict[str, Any]:
    """Return the results on BasicMotions, of several seeds."""
    (x, y), (test_x, test_y) = (read_archive(given.data / f"BasicMotions_{part}.ts") for part in ("TRAIN", "TEST"))
    labels = sorted(set(y))
    y, test_y = (torch.tensor([labels.index(name) for name in names]) for names in (y, test_y))
    mean, deviation = x.mean((0, 1)), x.std((0, 1))
    x, test_x = (x - mean) / deviation, (test_x - mean) / deviation
    runs = []
    for seed in range(SENSOR_SEEDS):
        torch.manual_seed(seed)
        p = initial(SENSOR_UNITS, x.shape[2], len(labels))
        learner = Learner(p, 20)
        for update in range(SENSOR_UPDATES):
            batch = torch.randperm(len(x))[:SENSOR_BATCH]
            learner.update(x[batch].transpose(0, 1), y[batch], update / SENSOR_UPDATES)
        right = accuracy(p, test_x, test_y)
        print(f"seed {seed}, float32: test accuracy {right:.4f}", flush=True)
        runs.append({"accuracy": right} | export(network(p), given.out / str(seed), test_x, test_y, x, labels))
    parameters = sum(value.numel() for value in p.values())
    return {"units": SENSOR_UNITS, "updates": SENSOR_UPDATES, "parameters": parameters, "seeds": runs}


def tables(given: argparse.Namespace) -> dict[str, Any]:
    """Return the results on the sets of tables: those that were measured here, and others of the file."""
    places = Places(given.out / "made", given.data, given.digits)
    rows = []
    for name in given.sets.split(",") if given.sets else SETS:
        folder = given.out / name
        entry = trained(places, Cell(name, "default", 0), folder)
        loaded = load(folder)
        task, model = loaded.config.task, loaded.model.eval()
        size = loaded.config.batch_size
        steps = min(-(-TYPICAL // size), task.steps_per_epoch(size) or 1)
        batches = [task.problem().train(step, size, 0).inputs for step in range(steps)]
        typical = [one for inputs in batches for one in sequences(inputs)][:TYPICAL]
        row = {"set": name, "metric": task.metric, "parameters": entry["parameters"], "float32": score(task, model)}
        for numbers in ("float32", *NUMBERS):
            options = {} if numbers == "float32" else {"numbers": numbers, "calibration": typical}
            made = to_c(model, folder / numbers, force=True, **options)
            found = {"weights": made.sizes.weights, "ram": made.sizes.ram}
            if made.integers is not None:
                fixed, compiled = made.integers, Compiled(made)
                assert all(np.array_equal(compiled.run(fixed.quantize(x)), fixed.run(x[None])[0]) for x in typical[:10])
                found["score"] = score(task, model, lambda x, fixed=fixed: fixed.run(x) * fixed.output_scale)
            row[f"{numbers} in C"] = found
        print(row, flush=True)
        rows.append(row)
    record = json.loads(given.results.read_text()) if given.results.exists() else {}
    found = {row["set"]: row for row in (*record.get("tables", {}).get("sets", ()), *rows)}
    return {"sets": [found[name] for name in SETS if name in found]}


@torch.no_grad()
def score(task: Task, model: SequenceModel, run: Callable[[np.ndarray], np.ndarray] | None = None) -> float:
    """Return the metric of a task on its test part. run: Makes predictions of sequences (B, T, I); None for the model."""
    total = count = 0.0
    for batch in task.problem().test(64):
        prediction = model(batch.inputs)
        if run is not None:
            prediction = like(prediction, batch.inputs, run)
        one, of = task.objective().metrics(prediction, batch.targets)[task.metric]
        total, count = total + one, count + of
    return total / count


def like(prediction: Tensor, inputs: Tensor | PackedSequence, run: Callable[[np.ndarray], np.ndarray]) -> Tensor:
    """Return what `run` makes of a batch, in the form of the model's prediction."""
    read = sequences(inputs)
    found = [Tensor()] * len(read)
    for length in {len(x) for x in read}:  # those of one length together, which is faster
        places = [k for k, x in enumerate(read) if len(x) == length]
        for k, y in zip(places, run(np.stack([read[k] for k in places]))):
            found[k] = torch.from_numpy(y).float()
    if prediction.dim() == 2 and len(prediction) == len(found) and found[0].dim() == 1:
        return torch.stack(found)
    assert isinstance(inputs, Tensor)
    return torch.stack(found, 1)


def sequences(inputs: Tensor | PackedSequence) -> list[np.ndarray]:
    """Return the sequences (T, I) of a batch."""
    if isinstance(inputs, PackedSequence):
        rows, lengths = pad_packed_sequence(inputs)
        return [rows[:length, k].numpy() for k, length in enumerate(lengths.tolist())]
    return list(inputs.transpose(0, 1).numpy())


def read_archive(path: Path) -> tuple[Tensor, list[str]]:
    """Return sequences (B, T, I) and the names of their classes from a file of the UEA archive."""
    _, _, lines = path.read_text().lower().partition("@data\n")
    rows = [line.split(":") for line in lines.split()]
    x = torch.tensor([[[float(word) for word in channel.split(",")] for channel in row[:-1]] for row in rows])
    return x.transpose(1, 2), [row[-1] for row in rows]


def main() -> None:
    """Run the command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = {"mnist": mnist, "count": count, "lstm": lstm, "sensor": sensor, "tables": tables}
    options.add_argument("task", choices=tasks)
    options.add_argument("data", type=Path)
    options.add_argument("out", type=Path)
    options.add_argument("--minutes", type=float, default=80)
    options.add_argument("--units", type=int, default=96)
    options.add_argument("--weights", type=Path, help="a file of an earlier run of mnist, in place of training")
    options.add_argument("--digits", type=Path, help="of tables: a folder of spoken digits")
    options.add_argument("--sets", help="of tables: names of sets, joined by commas, in place of all")
    options.add_argument(
        "--results", type=Path, required=True, help="the JSON file, of which the task's entry is written"
    )
    given = options.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    found = tasks[given.task](given)
    record = json.loads(given.results.read_text()) if given.results.exists() else {}
    if given.task == "count":
        record["mnist"] = found
    else:
        record[given.task] = {"commit": commit()} | found
    given.results.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
