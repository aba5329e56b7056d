"""Networks with rounded weights compute what the integers in C do, train, and are exported."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from orthornn import Hadamard, Householder, OrthogonalRNN
from orthornn.cli import main
from orthornn.errors import ArgumentError
from orthornn.export import RoundedNetwork, rounded, to_c
from orthornn.export.c import fixed, fold_network
from orthornn.export.c.bounds import find_ranges
from orthornn.learn.systems import SequenceModel
from orthornn.learn.tasks import Adding
from orthornn.learn.training import fine_tune, train
from support.compiled_c import COMPILERS, selftest_passes
from support.run_cases import config
from support.tolerances import tolerance

CASES = {
    "dense": {"nonlinearity": "tanh"},
    "reflections": {"parametrization": Householder(reflections=3, base="rotations"), "nonlinearity": "leaky_relu"},
    "packed reflections": {"parametrization": Householder(reflections=4), "nonlinearity": "relu", "learn_h0": True},
    "linear transition": {"nonlinearity": "tanh", "linear_transition": True},
    "rotations": {"nonlinearity": "identity"},
    "signs": {"parametrization": Hadamard(), "nonlinearity": "tanh"},
    "two layers": {"num_layers": 2, "nonlinearity": "prelu", "parametrization": Householder(reflections=2)},
    "complex": {"parametrization": Householder(field="complex", reflections=2), "nonlinearity": "relu"},
}


def network(output="all", inputs=3, size=20, outputs=4, **options):
    core = OrthogonalRNN(inputs, size, **options)
    return SequenceModel(core, nn.Linear(size * (2 if core.is_complex else 1), outputs), output=output).eval()


def integers(model, x, bits=8):
    folded = fold_network(model)
    return fixed.quantize(folded, bits, find_ranges(folded, x, None, None, 1.25))


@pytest.mark.parametrize("case", CASES)
def test_it_begins_at_the_network(case):
    model = network(**CASES[case])
    made, folded = rounded(model).network(), fold_network(model)
    for layer, expected in zip(made.layers, folded.layers):
        for name in ("V", "b", "W", "U", "parameter", "h0"):
            found, wanted = getattr(layer, name), getattr(expected, name)
            assert (found is None) == (wanted is None)
            assert found is None or np.abs(found - wanted).max() < 1e-6
    assert np.abs(made.Y - folded.Y).max() < 1e-6


@pytest.mark.parametrize("case", CASES)
def test_it_computes_what_the_integers_do(case):
    model = network(**CASES[case])
    x = torch.randn(60, 5, 3)
    twin = integers(model, x.transpose(0, 1))
    said = torch.from_numpy(twin.run(x.transpose(0, 1).numpy()) * twin.output_scale).transpose(0, 1)
    with torch.no_grad():
        errors = [float((y - said).square().mean().sqrt()) for y in (rounded(model).eval()(x), model(x))]
    assert errors[0] < 0.2 * errors[1]


@pytest.mark.parametrize("case", CASES)
def test_every_weight_has_a_gradient_through_the_rounding(case):
    model = network(**CASES[case])
    made = rounded(model, calibration=torch.randn(2, 9, 3))
    x = torch.randn(9, 5, 3)
    made(x).square().mean().backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in made.parameters())
    assert not torch.equal(made(x), made(x))  # the noise of rounding states
    assert torch.equal(made.eval()(x), made(x))
    assert torch.equal(rounded(model)(x), rounded(model)(x))


def test_sequences_of_several_lengths_and_tokens():
    model = SequenceModel(OrthogonalRNN(7, 12, nonlinearity="tanh"), nn.Linear(12, 4), output="last", token_classes=7)
    made = rounded(model).eval()
    sequences = [torch.randint(7, (length,)) for length in (3, 9, 5)]
    with torch.no_grad():
        whole = made(pack_sequence(sequences, enforce_sorted=False))
        alone = torch.cat([made(tokens[:, None]) for tokens in sequences])
    assert torch.allclose(whole, alone, atol=1e-6)
    assert (whole - model(pack_sequence(sequences, enforce_sorted=False))).abs().max() < 0.1


@pytest.mark.parametrize("case", [*CASES, "tokens"])
def test_a_step_is_that_of_the_integers_times_their_scales(case):
    """From the numbers q of the twin alone; reflections I - 2 q q'/|q|^2 are orthogonal whatever q is."""
    tokens = case == "tokens"
    model = network(**({"inputs": 1000} if tokens else CASES[case]))
    model.token_classes = 1000 if tokens else None
    with torch.no_grad():  # of equal sign: a row that is summed needs a larger unit than one of which an entry is read
        model.core.weight_ih_l0.abs_().add_(0.3)
    x = torch.randint(1000, (2, 5)) if tokens else torch.randn(2, 5, 3)
    folded = fold_network(model)
    twin = fixed.quantize(folded, 8, find_ranges(folded, x.numpy(), None, None, 1.25))

    def numbers(matrix, A, largest=fixed.LARGEST):
        return matrix.q * fixed.row_units(A, 8, largest)[:, None]

    layers = []
    for k, (layer, own) in enumerate(zip(folded.layers, twin.layers)):
        W = None if own.W is None else numbers(own.W, layer.W)
        U = None if own.U is None else own.U.q * np.sqrt(2 / np.maximum((own.U.q**2).sum(0), 1))
        V = numbers(own.V, layer.V, 1 if tokens and not k else fixed.LARGEST)
        layers.append(dataclasses.replace(layer, V=V, W=W, U=U))
    expected = dataclasses.replace(folded, layers=tuple(layers), Y=numbers(twin.Y, folded.Y))
    states, rows = [np.broadcast_to(h, (2, len(h))) for h in expected.first_states()], []
    for t in range(5):
        y, states = expected.step(x[:, t].numpy(), states)
        rows.append(y)
    with torch.no_grad():
        found = rounded(model).eval()(x.transpose(0, 1)).double().numpy()
    assert np.abs(found - np.stack(rows)).max() < tolerance(torch.float32, 200) * (1 + np.abs(found).max())


@pytest.mark.parametrize("base", ["identity", "rotations"])
def test_the_noise_has_the_variance_of_its_roundings(base):
    """From a state of zero the base, each of three reflections and the sum round once, by s^2/12 each."""
    model = OrthogonalRNN(
        1, 30, parametrization=Householder(reflections=3, base=base), nonlinearity="identity", bias=False, form="dense"
    )
    made = rounded(model, calibration=torch.randn(1, 9, 1), form="reflections")
    noise = made(torch.zeros(1, 2000, 1)).detach()
    roundings = 3 + 1 + (base == "rotations")
    expected = made.layers[0].unit * (roundings / 12) ** 0.5
    # of 60000 numbers the deviation is known to 0.3 %
    assert float(noise.std()) == pytest.approx(expected, rel=0.02)


def test_what_is_not_in_the_reflectors_is_not_trained():
    """Column j begins with j zeros, which the C does not have."""
    made = rounded(network(parametrization=Householder(reflections=4), nonlinearity="tanh"), form="reflections")
    made(torch.randn(9, 5, 3)).square().sum().backward()
    assert made.layers[0].U.grad.triu(1).abs().max() == 0
    with torch.no_grad():
        made.layers[0].U.add_(torch.randn(20, 4))
    U = made.network().layers[0].U
    assert np.abs(np.triu(U, 1)).max() == 0
    assert np.abs((U**2).sum(0) - 2).max() < 1e-12


def test_training_brings_the_integers_nearer():
    """With weights of three bits, whose error is larger than that of the states."""
    torch.manual_seed(0)
    method = Householder(reflections=16, base="rotations")
    teacher = network(parametrization=method, nonlinearity="tanh", size=24, outputs=2)
    nn.init.uniform_(teacher.core.bias_ih_l0, -0.2, 0.2)
    x = torch.randn(30, 64, 3)
    with torch.no_grad():
        wanted = teacher(x)

    def error(model):
        twin = integers(model, x.transpose(0, 1), 3)
        return np.square(
            twin.run(x.transpose(0, 1).numpy()) * twin.output_scale - wanted.transpose(0, 1).numpy()
        ).mean()

    student = RoundedNetwork(fold_network(teacher), 3)
    before = error(student)
    optimizer = torch.optim.Adam(student.parameters(), 3e-3)
    for _ in range(80):
        optimizer.zero_grad()
        (student(x) - wanted).square().mean().backward()
        optimizer.step()
    assert error(student) < 0.5 * before


@pytest.mark.sampled(2)
@pytest.mark.skipif(not COMPILERS, reason="needs a C compiler")
@pytest.mark.parametrize("case", CASES)
def test_the_exported_c_is_the_rounded_network(case, tmp_path):
    model = network(**CASES[case])
    run = type("Run", (), {})()
    run.model = model
    run.description = {"input": "real", "output": "all", "says": "classes", "scale": 0.5, "labels": list("abcd")}
    x = torch.randn(3, 30, 3)
    made = rounded(run, "int8", calibration=x)
    with torch.no_grad():
        for parameter in made.parameters():  # also the entries of reflectors that are zero in every product
            parameter.add_(0.02 * torch.randn_like(parameter))
    written = to_c(made, tmp_path, numbers="int8", calibration=x)
    selftest_passes(tmp_path)
    assert '"a"' in (tmp_path / "network.c").read_text()
    said = written.integers.run(x.numpy()) * written.integers.output_scale
    with torch.no_grad():
        expected = made.eval()(0.5 * x.transpose(0, 1)).transpose(0, 1).numpy()
    assert np.abs(said - expected).max() < 0.02 * np.abs(expected).max()


def test_what_is_refused(tmp_path):
    made = rounded(network())
    assert isinstance(made, RoundedNetwork)
    with pytest.raises(ArgumentError, match="form='auto' for a network whose form is already chosen, but got 'dense'"):
        to_c(made, tmp_path, form="dense")
    with pytest.raises(ArgumentError, match="numbers to be one of"):
        rounded(network(), "float32")
    with pytest.raises(ArgumentError, match="no C form"):
        rounded(nn.LSTM(3, 4))


def test_a_run_is_fine_tuned_by_the_command(tmp_path, capsys):
    run = tmp_path / "run"
    train(config("ornn", task=Adding(T=6, validation_size=50, test_size=5), steps=3), run)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((20, 6, 2)))
    words = ["export", str(run), "--c", "--numbers", "int8", "--calibration", str(tmp_path / "x.npy"), "--out"]
    assert main([*words, str(tmp_path / "tuned"), "--fine-tune", "30", "--fine-tune-lr", "0.01"]) == 0
    out = capsys.readouterr().out
    before, after = (
        float(word) for word in out.split("rounded weights: ")[1].split("\n")[0].split(", after 30 updates ")
    )
    assert after < before
    if COMPILERS:
        selftest_passes(tmp_path / "tuned")
    assert main([*words, str(tmp_path / "plain"), "--fine-tune", "1", "--fine-tune-lr", "100"]) == 0
    assert "the weights before are written" in capsys.readouterr().out
    assert main([*words, str(tmp_path / "untuned")]) == 0
    files = [(tmp_path / folder / "network.c").read_text() for folder in ("plain", "untuned")]
    assert files[0] == files[1]
    assert main(["export", str(run), "--c", "--fine-tune", "5"]) == 2
    assert "--numbers int8 or int16 with --fine-tune" in capsys.readouterr().err


def test_a_task_that_carries_states_is_refused(monkeypatch):
    task = Adding(T=6, validation_size=5, test_size=5)
    monkeypatch.setattr(type(task.objective()), "carries_state", True)
    with pytest.raises(ArgumentError, match="which carries states over"):
        fine_tune(rounded(network(inputs=2, output="last", outputs=1)), config(task=task), 0, 5, 1e-3)
    monkeypatch.undo()
    for lr in (0.0, 1e39, 1e-50):
        with pytest.raises(ArgumentError, match="Expected fine_tune_lr to be positive, between 1"):
            fine_tune(rounded(network(inputs=2, output="last", outputs=1)), config(), 0, 5, lr)
