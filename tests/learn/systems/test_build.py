from __future__ import annotations

import math

import pytest
import torch

from orthornn import Householder
from orthornn.diagnostics import orthogonality_error
from orthornn.errors import ArgumentError
from orthornn.learn.systems import MODEL_OPTIONS, MODELS, build, count_parameters
from orthornn.modules import OrthogonalRNN
from support.tolerances import tolerance

ORTHOGONAL = ("ornn", "ornn-rotations", "scornn")


@pytest.mark.parametrize(
    ("name", "sizes", "options", "count"),
    [
        ("ornn", (1, 10), {"hidden_size": 256, "reflections": 32}, 11034),  # Mhammedi et al., 2017, Table 3
        ("ornn", (49, 49), {"hidden_size": 512, "reflections": 510}, 182574),  # its Table 4
        ("scornn", (1, 10), {"hidden_size": 170}, 16415),  # Helfrich et al., 2018, Table 1
        ("scornn", (1, 10), {"hidden_size": 360}, 68950),
        ("scornn", (1, 10), {"hidden_size": 512}, 136970),
        ("scornn", (129, 129), {"hidden_size": 224}, 83121),  # its Table 2
        ("scornn", (129, 129), {"hidden_size": 322}, 135208),
        ("scornn", (129, 129), {"hidden_size": 425}, 200304),
        ("spectral", (1, 10), {"hidden_size": 128}, 2 * 128**2 + 13 * 128 + 10),  # its bases are counted as stored
        ("gru", (3, 5), {"hidden_size": 7}, 3 * 7 * (3 + 7 + 2) + 7 * 5 + 5),
        ("rnn", (3, 5), {"hidden_size": 7}, 7 * (3 + 7 + 1) + 7 * 5 + 5),
        ("scurnn", (1, 10), {"hidden_size": 116}, 116**2 + 26 * 116 + 10),
        ("exprnn", (1, 10), {"hidden_size": 170}, 16415),
        ("dtriv", (1, 10), {"hidden_size": 512}, 136970),
        ("eurnn", (1, 10), {"hidden_size": 512}, 2 * 511 + 512 + 25 * 512 + 10),
        ("goru", (3, 5), {"hidden_size": 8}, 7 + 3 * 3 * 8 + 2 * 64 + 3 * 8 + 8 + 8 * 5 + 5),
    ],
)
def test_the_papers_parameter_counts(name, sizes, options, count):
    assert count_parameters(build(name, *sizes, device="meta", **options)) == count


@pytest.mark.parametrize(
    ("name", "sizes", "width", "thousands"),
    [
        # Helfrich et al., 2018, Table 1 and Table 3 (MNIST)
        ("urnn", (1, 10), 512, 16),
        ("urnn", (1, 10), 2170, 69),
        ("full-urnn", (1, 10), 116, 16),
        ("full-urnn", (1, 10), 512, 270),
        ("lstm", (1, 10), 128, 68),
        ("lstm", (1, 10), 256, 270),
        ("lstm", (1, 10), 512, 1058),
        # its section 5.1 (copying)
        ("urnn", (10, 9), 470, 22),
        ("full-urnn", (10, 9), 128, 22),
        ("scornn", (10, 9), 190, 22),
        ("lstm", (10, 9), 68, 22),
        # its Table 2 (TIMIT)
        ("urnn", (129, 129), 158, 83),
        ("urnn", (129, 129), 256, 135),
        ("urnn", (129, 129), 378, 200),
        ("full-urnn", (129, 129), 128, 83),
        ("full-urnn", (129, 129), 192, 135),
        ("full-urnn", (129, 129), 256, 200),
        ("lstm", (129, 129), 84, 83),
        ("lstm", (129, 129), 120, 135),
        ("lstm", (129, 129), 158, 200),
        # Mhammedi et al., 2017, Table 4
        ("lstm", (49, 49), 184, 181),
        ("lstm", (49, 49), 183, 180),
        ("spectral", (1, 10), 128, 35),  # as its Table 3 quotes Vorontsov et al., 2017
    ],
)
def test_the_papers_rounded_counts(name, sizes, width, thousands):
    """The papers write about so many thousand; 270 and 22 stand for 266762 to 274954 and 21641 to 22569."""
    count = count_parameters(build(name, *sizes, hidden_size=width, device="meta"))
    assert count == pytest.approx(1000 * thousands, rel=0.03)


def test_exact_counts_of_the_unitary_networks():
    """7n, n^2 or 2 K + n numbers of W, 2n of h_0, n biases, 2nI of V and 2nO + O of the readout."""
    for n, inputs, outputs in ((512, 1, 10), (116, 1, 10), (6, 3, 4)):
        rest = 3 * n + 2 * n * inputs + 2 * n * outputs + outputs
        assert count_parameters(build("urnn", inputs, outputs, hidden_size=n, device="meta")) == 7 * n + rest
        assert count_parameters(build("full-urnn", inputs, outputs, hidden_size=n, device="meta")) == n * n + rest
        assert count_parameters(build("exprnn-unitary", inputs, outputs, hidden_size=n, device="meta")) == n * n + rest


@pytest.mark.parametrize("name", ["lstm", "lstm-orthogonal"])
def test_an_lstm_has_one_bias_a_gate(name):
    model = build(name, 3, 5, hidden_size=7)
    assert count_parameters(model) == 4 * 7 * (3 + 7 + 1) + 7 * 5 + 5
    model(torch.rand(4, 2, 3)).sum().backward()
    torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0).step()
    if name == "lstm":
        assert not model.core.bias_hh_l0.any()
    peepholes = count_parameters(build("lstm-peephole", 3, 5, hidden_size=7))
    assert peepholes == count_parameters(model) + 3 * 7


@pytest.mark.sampled(56)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("output", ["all", "last"])
def test_shapes_and_gradients(name, tokens, output):
    torch.manual_seed(0)
    model = build(name, 3, 5, hidden_size=6, output=output, tokens=tokens)
    inputs = torch.randint(0, 3, (4, 2)) if tokens else torch.rand(4, 2, 3)
    prediction = model(inputs)
    assert prediction.shape == ((4, 2, 5) if output == "all" else (2, 5))
    prediction.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)
    assert any(parameter.grad.abs().sum() > 0 for parameter in model.core.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_one_hot_and_last_is_the_last_of_all(name):
    def made(**options):
        torch.manual_seed(1)
        return build(name, 4, 3, hidden_size=5, dtype=torch.float64, **options)

    tokens = torch.randint(0, 4, (6, 3))
    one_hot = torch.nn.functional.one_hot(tokens, 4).double()
    every = made(output="all", tokens=True)(tokens)
    # the same sums in another order
    close = {"rtol": 0, "atol": tolerance(torch.float64, 6 * 2 * 5)}
    torch.testing.assert_close(made(output="all")(one_hot), every, **close)
    torch.testing.assert_close(made(output="last", tokens=True)(tokens), every[-1], **close)


@pytest.mark.sampled(25)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("budget", [300, 5000])
def test_the_width_is_the_largest_within_the_budget(name, budget):
    model = build(name, 1, 10, parameters=budget)
    width = model.core.hidden_size
    assert count_parameters(model) <= budget
    assert count_parameters(build(name, 1, 10, hidden_size=width + 1, device="meta")) > budget


def test_the_papers_widths_follow_from_their_budgets():
    assert build("scornn", 1, 10, parameters=16415).core.hidden_size == 170
    assert build("scornn", 1, 10, parameters=16414).core.hidden_size == 169
    assert build("scornn", 1, 10, parameters=16415, negatives=85).core.hidden_size == 170
    assert build("ornn", 1, 10, parameters=11034, reflections=32).core.hidden_size == 256


@pytest.mark.parametrize("name", ORTHOGONAL)
def test_first_values(name):
    torch.manual_seed(0)
    core = build(name, 2, 3, hidden_size=50).core
    W = core.weight_hh_l0.detach().double()
    # float32 numbers of size 1/sqrt(N), rounded once: N * eps / sqrt(12) at most a few times over
    assert torch.linalg.matrix_norm(W.T @ W - torch.eye(50, dtype=torch.float64)) < 50 * torch.finfo(torch.float32).eps
    assert not core.bias_ih_l0.any()
    bound = {"ornn": (6 / 52) ** 0.5}.get(name, 0.01)
    largest = float(core.weight_ih_l0.detach().abs().max())
    assert 0.9 * bound < largest <= bound  # of 100 uniform numbers one is above 0.9 but for a chance of 0.9^100
    if name.startswith("ornn"):
        bound = {"ornn": (3 / 100) ** 0.5}.get(name, 0.01)
        assert 0.8 * bound < float(core.h0.detach().abs().max()) <= bound


def test_the_scornn_has_half_of_its_eigenvalues_reflected():
    torch.manual_seed(0)
    W = build("scornn", 1, 1, hidden_size=12, dtype=torch.float64).core.weight_hh_l0.detach()
    eigenvalues = torch.linalg.eigvals(W)
    assert int((eigenvalues.real > 0).sum()) == 6
    assert int((eigenvalues.real < 0).sum()) == 6


def test_rotations_spread_the_spectrum():
    torch.manual_seed(0)

    def ones(name):
        W = build(name, 1, 1, hidden_size=20, reflections=4, dtype=torch.float64).core.weight_hh_l0.detach()
        return int(((torch.linalg.eigvals(W) - 1).abs() < 1e-6).sum())

    assert ones("ornn") == 16
    assert ones("ornn-rotations") == 0


@pytest.mark.parametrize("options", [{}, {"depth": 2, "bidirectional": True}])
def test_an_lstm_from_glorot_has_the_bounds_of_each_gate_and_of_the_readout(options):
    N, inputs, outputs = 96, 31, 17
    torch.manual_seed(0)
    model = build("lstm", inputs, outputs, hidden_size=N, init="glorot", **options)
    matrices = [parameter for name, parameter in model.core.named_parameters() if name.startswith("weight")]
    assert len(matrices) == (8 if options else 2)
    for matrix in (*(gate for stacked in matrices for gate in stacked.split(N)), model.head.weight):
        bound = math.sqrt(6 / sum(matrix.shape))
        assert 0.95 * bound < float(matrix.detach().abs().max()) <= bound  # the largest of more than 1500 entries
    assert model.head.bias.tolist() == [0] * outputs
    assert set(model.core.bias_ih_l0.tolist()) == {0.0, 5.0}
    plain = build("lstm", inputs, outputs, hidden_size=N, **options)
    assert float(plain.core.weight_hh_l0.detach().abs().max()) <= 1 / math.sqrt(N)
    assert any(plain.head.bias.tolist())


def test_the_lstms_start_with_their_forget_gate_open():
    core = build("lstm", 2, 3, hidden_size=4).core
    total = (core.bias_ih_l0 + core.bias_hh_l0).detach()
    assert total.tolist() == [0] * 4 + [5] * 4 + [0] * 8
    assert build("lstm", 2, 3, hidden_size=4, forget_bias=1.0).core.bias_ih_l0[4:8].tolist() == [1] * 4
    assert build("lstm-peephole", 2, 3, hidden_size=4).core.bias[4:8].tolist() == [1] * 4
    assert build("lstm-orthogonal", 2, 3, hidden_size=4, forget_bias=5.0).core.bias[4:8].tolist() == [5] * 4


UNITARY = ("urnn", "full-urnn", "eurnn", "exprnn-unitary", "scurnn")


@pytest.mark.parametrize("name", UNITARY)
def test_unitary_first_values(name):
    torch.manual_seed(0)
    core = build(name, 2, 3, hidden_size=50).core
    W = core.weight_hh_l0.detach().to(torch.complex128)
    identity = torch.eye(50, dtype=W.dtype)
    assert torch.linalg.matrix_norm(W.mH @ W - identity) < 2 * 50 * torch.finfo(torch.float32).eps
    assert not core.bias_ih_l0.any()
    inputs, state = (0.01, 0.01) if name == "scurnn" else ((6 / 102) ** 0.5, (3 / 100) ** 0.5)
    assert 0.9 * inputs < float(core.weight_ih_l0.detach().abs().max()) <= inputs
    assert 0.9 * state < float(core.h0.detach().abs().max()) <= state


@pytest.mark.parametrize("name", UNITARY)
def test_a_unitary_network_is_a_loop_over_complex_numbers(name):
    """The block embedding of Mhammedi et al. (2017, section 3), gradients included."""
    torch.manual_seed(0)
    core = build(name, 2, 3, hidden_size=5, dtype=torch.float64).core
    with torch.no_grad():
        core.bias_ih_l0.uniform_(-0.02, -0.01)
    x = torch.randn(6, 3, 2, dtype=torch.float64)
    smallest = []

    def loop():
        W, V = core.weight_hh_l0, torch.view_as_complex(core.weight_ih_l0)
        h, states = torch.view_as_complex(core.h0).expand(3, 5), []
        for x_t in x:
            z = h @ W.T + x_t.to(V.dtype) @ V.T
            smallest.append(float(z.detach().abs().min()))
            h = torch.relu(z.abs() + core.bias_ih_l0) * z / z.abs()
            states.append(h)
        return torch.stack(states)

    found, expected = core(x)[0], loop()
    assert found.is_complex()
    # z / |z| turns an error in z into one larger by 1 / |z|
    bound = tolerance(torch.float64, 6 * 25) / min(smallest)
    assert bound < 1e-8
    torch.testing.assert_close(found, expected, rtol=0, atol=bound)
    weights = torch.randn(6, 3, 5, dtype=torch.complex128)

    def gradients(states):
        loss = (states * weights).real.sum()
        return torch.autograd.grad(loss, list(core.parameters()))

    for a, b in zip(gradients(found), gradients(expected)):
        torch.testing.assert_close(a, b, rtol=0, atol=bound * (1 + float(b.abs().max())))


def test_the_baselines_first_values():
    torch.manual_seed(0)
    irnn = build("irnn", 2, 3, hidden_size=40).core
    assert torch.equal(irnn.weight_hh_l0, torch.eye(40))
    assert irnn.nonlinearity == "relu"
    assert not irnn.bias_ih_l0.any()
    assert 0.0007 < float(irnn.weight_ih_l0.detach().std()) < 0.0013
    for name in ("lt-ornn", "lt-irnn"):
        core = build(name, 2, 3, hidden_size=6).core
        assert core.linear_transition
        x, h0 = torch.rand(1, 4, 2), torch.rand(1, 4, 6)
        by_hand = h0[0] @ core.weight_hh_l0.T + torch.relu(x[0] @ core.weight_ih_l0.T + core.bias_ih_l0)
        torch.testing.assert_close(core(x, h0)[0][0], by_hand)


def test_options_of_the_systems():
    assert build("eurnn", 1, 1, hidden_size=8, layers="fft").core.parametrization.layers == "fft"
    assert build("goru", 1, 1, hidden_size=8, layers=3).core.parametrization.layers == 3
    assert build("dtriv", 1, 1, hidden_size=8).core.parametrization.rebase_every == 100
    assert build("exprnn", 1, 1, hidden_size=8, rebase_every=7).core.parametrization.rebase_every == 7
    core = build("spectral", 1, 1, hidden_size=8, margin="none", nonlinearity="oplu", gain=1.05, clip_backward=2.0).core
    assert (core.parametrization.margin, core.nonlinearity, core.gain, core.clip_backward) == (None, "oplu", 1.05, 2.0)
    core = build("ornn", 1, 1, hidden_size=8, reflections=3, nonlinearity="oplu", base="rotations", unit=True).core
    assert core.parametrization == Householder(reflections=3, base="rotations", unit=True)
    assert core.nonlinearity == "oplu"
    assert build("ornn", 1, 1, hidden_size=8, field="complex", nonlinearity="modrelu").core.is_complex
    assert build("ornn-rotations", 1, 1, hidden_size=8, nonlinearity="tanh").core.nonlinearity == "tanh"
    soft = build("ornn", 1, 1, hidden_size=8, reflections=8, u1="soft").core.parametrization
    assert soft == Householder(reflections=8, u1="soft")
    named = {
        "reflections",
        "u1",
        "angles",
        "layers",
        "rebase_every",
        "forget_bias",
        "negatives",
        "init",
        "slope",
        "learn_h0",
    }
    assert set(MODEL_OPTIONS) == named | {
        "margin",
        "nonlinearity",
        "gain",
        "clip_backward",
        "nonnegative",
        "initial_values",
        "base",
        "field",
        "unit",
        "memory",
        "segment",
        *("head", "head_width", "pool", "dropout", "bidirectional", "lags"),
        *("depth", "state_size", "stride", "mixing", "norm", "decay", "decay_in", "r_min"),
    }


@pytest.mark.parametrize("name", ["ornn", "ornn-rotations", "scornn", "elman", "spectral"])
def test_a_prelu_starts_from_the_slope_in_every_layer_and_direction(name):
    core = build(name, 2, 1, hidden_size=8, nonlinearity="prelu", slope=0.7, depth=2, bidirectional=True).core
    slopes = [core.get_parameter(f"activation_{suffix}") for suffix in core.suffixes]
    assert len(slopes) == 4
    assert all((slope == 0.7).all() for slope in slopes)


@pytest.mark.parametrize("reflections", [1, 5, 8])
def test_the_first_reflectors_of_ornn_fill_the_cube(reflections):
    core = build("ornn", 1, 1, hidden_size=8, reflections=reflections).core
    reflectors = core.get_parameter("transition_l0.reflectors").detach()
    if reflections == 8:
        assert abs(float(reflectors[-1])) == 1  # u_1
        reflectors = reflectors[:-1]
    assert float(reflectors.abs().max()) < 1
    assert float(reflectors.min()) < 0 < float(reflectors.max())
    assert orthogonality_error(core.weight_hh_l0) < tolerance(torch.float32, 8)


def test_heads_are_part_of_the_budget():
    for name in ("ornn", "urnn", "lstm", "blocks"):
        for head, options in (("linear", {}), ("mlp", {}), ("mlp", {"head_width": 5})):
            budget = {"linear": 2000, "mlp": 3000}[head]
            model = build(name, 3, 4, parameters=budget, head=head, **options)
            count = count_parameters(model)
            wider = build(name, 3, 4, hidden_size=model.core.hidden_size + 1, head=head, **options)
            assert count <= budget < count_parameters(wider)
            if head == "mlp":
                first, _, last = model.head
                width = options.get("head_width", 64)
                features = model.core.hidden_size * (2 if name == "urnn" else 1)
                assert (first.in_features, first.out_features, last.in_features, last.out_features) == (
                    *(features, width),
                    *(width, 4),
                )
                model(torch.randn(5, 2, 3)).sum().backward()
                assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    with pytest.raises(ArgumentError, match="head_width only with head='mlp'"):
        build("ornn", 1, 2, hidden_size=4, head_width=3)
    with pytest.raises(ArgumentError, match="Did you mean 'mlp'"):
        build("ornn", 1, 2, hidden_size=4, head="mpl")
    with pytest.raises(ArgumentError, match="stride=1 for a prediction at every step"):
        build("blocks", 1, 2, hidden_size=4, stride=3, output="all")


def test_only_the_first_block_forgets_where_that_is_asked_for():
    for choice, forgets in (("first", [True, False, False]), ("all", [True] * 3), (None, [True] * 3)):
        core = build("blocks", 1, 2, hidden_size=4, depth=3, decay=True, decay_in=choice).core
        assert [block.recurrence.parametrization.decay for block in core.blocks] == forgets
    with pytest.raises(ArgumentError, match="decay_in only with decay=True"):
        build("blocks", 1, 2, hidden_size=4, decay_in="first")
    with pytest.raises(ArgumentError, match="Expected decay_in"):
        build("blocks", 1, 2, hidden_size=4, decay=True, decay_in="last")


def test_factors_of_the_decay_start_on_the_ring_from_r_min():
    for r_min, least in ((0.01, 0.01), (None, 0.9)):
        core = build("blocks", 1, 2, hidden_size=64, depth=2, decay=True, r_min=r_min).core
        for block in core.blocks:
            radii = torch.linalg.eigvals(block.recurrence.weight_hh_l0).abs()
            assert least - 1e-6 <= radii.min() <= 0.6 * least + 0.4
            assert 0.9 < radii.max() <= 0.999 + 1e-6
    first, second = build("blocks", 1, 2, hidden_size=64, depth=2, decay=True, decay_in="first", r_min=0.01).core.blocks
    assert (
        orthogonality_error(second.recurrence.weight_hh_l0) < 1e-5 < orthogonality_error(first.recurrence.weight_hh_l0)
    )
    for wrong in (0, -0.1, 0.9995, math.nan):
        with pytest.raises(ArgumentError, match="Expected r_min to be"):
            build("blocks", 1, 2, hidden_size=4, decay=True, r_min=wrong)
    with pytest.raises(ArgumentError, match="r_min only with decay=True"):
        build("blocks", 1, 2, hidden_size=4, r_min=0.5)


def test_srnn_starts_like_ornn():
    core = build("srnn", 2, 3, hidden_size=9).core
    assert core.nonlinearity == "tanh"
    assert core.learn_h0
    assert float(core.weight_hh_l0.detach().abs().max()) <= (3 / 9) ** 0.5
    assert not core.bias_ih_l0.any()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("lstn", 1, 1), {}, "model to be one of .*Did you mean 'lstm'"),
        (("lstm", 1, 1), {"reflections": 3}, "lstm has no reflections; .* choose ornn, ornn-rotations"),
        (("ornn", 1, 1), {"angles": "full"}, "ornn has no angles; leave it out or choose ornn-rotations"),
        (("ornn-rotations", 1, 1), {"angles": "half"}, "angles"),
        (("ornn", 1, 1), {"hidden_size": 3, "parameters": 100}, "Pass one"),
        (
            ("ornn", 10, 10),
            {"parameters": 20},
            r"which the smallest ornn here has, of width 1, but got 20\. Raise",
        ),
        (
            ("ornn", 10, 10),
            {"parameters": 100, "reflections": 8},
            "the smallest ornn here has, of width 8",
        ),
        (("ornn", 1, 1), {"hidden_size": 4, "reflections": 5}, "reflections"),
        (("ornn", 0, 1), {}, "input_size"),
        (("ornn", 1, 1), {"hidden_size": 0}, "hidden_size"),
        (("ornn", 1, 1), {"output": "first"}, "output"),
    ],
)
def test_wrong_arguments_are_named(arguments, options, message):
    with pytest.raises(ArgumentError, match=message):
        build(*arguments, **options)


def test_the_default_width_and_reflections():
    core = build("ornn", 1, 1).core
    assert isinstance(core, OrthogonalRNN)
    assert core.hidden_size == 128
    assert core.extra_repr()
    assert count_parameters(core) == count_parameters(build("ornn", 1, 1, reflections=32).core)
    assert build("ornn", 1, 1, hidden_size=3).core.hidden_size == 3
