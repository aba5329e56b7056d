"""Every public callable with a wrong value in every argument: whatever is raised is an error of this package.

A value may also be accepted (None where an argument is optional); what may not happen is an AttributeError, or an error
of torch, numpy or Python from somewhere inside.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

import orthornn
from orthornn import (
    GORU,
    DeltaRNN,
    Householder,
    OrthogonalBlocks,
    OrthogonalRNN,
    OrthogonalRNNCell,
    PeepholeLSTM,
    ReflectionRNN,
    activations,
    certify,
    diagnostics,
    kernels,
    optim,
    penalties,
)
from orthornn.errors import ArgumentError, DTypeError, OrthornnError
from orthornn.learn.systems.sequence_model import SequenceModel
from orthornn.modules import Transition, hold_missing
from orthornn.modules.tracing import tracing
from orthornn.parametrizations.matrices import haar

T, B, I, N, K = 4, 2, 3, 4, 2


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape)


def trace_of_a_layer() -> Any:
    rnn = OrthogonalRNN(I, N)
    with tracing({"rnn": rnn}) as notes:
        rnn(randn(T, B, I))
    return notes["rnn"][0]


def same(x: Tensor, *_: Any) -> Tensor:
    return x


def network() -> OrthogonalRNN:
    return OrthogonalRNN(I, N)


def free_tensors(name: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """A bound parametrization as a function of its first free tensor."""
    method = getattr(orthornn, name)().bind(N)
    first, *others = (value.float() for value in method.initial())
    return lambda first: method(first, *others), {"first": first}


def assigned(name: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    method = getattr(orthornn, name)().bind(N)
    W = method(*(value.double() for value in method.initial()))
    return method.right_inverse, {"W": W}


def orthogonalized(layer: Any, **options: Any) -> Any:
    return orthornn.orthogonalize(copy.deepcopy(layer) if isinstance(layer, nn.Module) else layer, **options)


METHODS = {
    "Householder": {
        "reflections": 2,
        "field": "real",
        "base": "rotations",
        "u1": "sign",
        "angles": "full",
        "train_angles": True,
        "unit": False,
    },
    "ScaledCayley": {"negatives": 1, "field": "complex", "phases": True, "init": "blocks"},
    "MatrixExponential": {"field": "real", "rebase_every": 2, "init": "henaff"},
    "Givens": {"layers": 2, "field": "real"},
    "Hadamard": {"block": 1},
    "LeakyHouseholder": {"reflections": 2, "leaky": 0.5, "radii": (0.5, 0.9), "angles": "full"},
    "Rotations": {"angles": "full", "decay": True, "radii": (0.5, 0.9), "leaky": 0.5},
    "SpectralMargin": {"margin": 0.1, "init": "orthogonal"},
    "Stiefel": {"field": "real"},
    "Unconstrained": {"init": "orthogonal"},
    "RestrictedUnitary": {},
}
Calls = dict[str, tuple[Callable[..., Any], dict[str, Any]]]


def common() -> dict[str, Any]:
    return {
        "x": randn(T, B, I),
        "h0": randn(B, N),
        "weight_ih": randn(N, I),
        "bias": randn(N),
        "gain": 1.0,
        "batch_sizes": None,
        "output": "all",
        "backend": "auto",
        "memory": "checkpoint",
        "segment": 2,
        "reset": torch.ones(T, B, dtype=torch.bool),
        "restart": randn(B, N),
    }


def constructors() -> Calls:
    sizes = {"input_size": I, "hidden_size": N, "parametrization": Householder(), "nonlinearity": "modrelu"}
    options = {"bias": True, "learn_h0": False, "gain": 1.0, "learn_gain": False, "device": None, "dtype": None}
    layer = {"num_layers": 1, "batch_first": False, "dropout": 0.0, "bidirectional": False, "clip_backward": None}
    layer |= {"linear_transition": False, "form": "auto", "memory": "store", "segment": None}
    gated = {"batch_first": False, "device": None, "dtype": None}
    reflected = {"num_layers": 1, "dropout": 0.0, "bidirectional": False, "clip_backward": None, "learn_h0": False}
    reflected |= {"input_size": I, "hidden_size": N, "nonlinearity": "modrelu", "bias": True, "additive": True, **gated}
    reflected |= {"heads": 2, "gate": "scalar", "base": "fixed", "memory": "checkpoint", "segment": 2}
    shared = ("num_layers", "dropout", "bidirectional", "learn_h0", "heads", "gate", "bias")
    delta = {name: reflected[name] for name in shared} | {"key_size": 3, "updates": 2, "beta": 1.0}
    lstm = {"peepholes": True, "forget_bias": 1.0, "init": "uniform", "learn_state": False}
    blocks = {"input_size": I, "d_model": N, "state_size": 4, "depth": 2, "parametrization": None, "decay": True}
    blocks |= {"radii": (0.5, 0.9), "mixing": "mlp", "expansion": 2, "stride": 1, "norm": "layer", "residual": True}
    blocks |= {name: (options | layer)[name] for name in ("bias", "learn_h0", "dropout", "form", "device", "dtype")}
    blocks |= {name: layer[name] for name in ("batch_first", "bidirectional", "memory", "segment")}
    return {
        "OrthogonalBlocks": (OrthogonalBlocks, blocks),
        "OrthogonalRNN": (OrthogonalRNN, {**sizes, **options, **layer}),
        "OrthogonalRNN with its defaults": (OrthogonalRNN, {**sizes, **layer, "parametrization": None}),
        "OrthogonalRNNCell": (OrthogonalRNNCell, {**sizes, **options}),
        "GORU": (GORU, {**sizes, **gated, "learn_h0": False}),
        "PeepholeLSTM": (PeepholeLSTM, {"input_size": I, "hidden_size": N, **gated, **lstm}),
        "ReflectionRNN": (ReflectionRNN, {**reflected, "reflections": 2, "transition": "reflections", "beta": "input"}),
        "DeltaRNN": (DeltaRNN, {**delta, "input_size": I, "hidden_size": N, **gated}),
        **{name: (getattr(orthornn, name), arguments) for name, arguments in METHODS.items()},
        **{f"{name}.bind": (getattr(orthornn, name)().bind, {"n": N}) for name in METHODS},
        **{f"{name}.forward": free_tensors(name) for name in METHODS},
        **{f"{name}.right_inverse": assigned(name) for name in METHODS},
    }


def networks() -> Calls:
    rnn, goru, lstm, reflected = network(), GORU(I, N), PeepholeLSTM(I, N), ReflectionRNN(I, N, beta="input")
    state = randn(1, B, N)
    blocks, states = OrthogonalBlocks(I, N, 4, 2), randn(2, B, 4)
    resets = {"reset": torch.ones(T, B, dtype=torch.bool), "restart": state}
    memory, matrix = DeltaRNN(I, N), randn(1, B, 1, N, N)
    matrices = {**resets, "restart": matrix}
    once = {"reset": torch.ones(B, dtype=torch.bool), "restart": state}
    packed = {"input": pack_sequence([randn(T, I)]), "h0": randn(1, 1, N), "reset": pack_sequence([torch.ones(T) > 0])}
    return {
        "OrthogonalBlocks.forward": (blocks, {"input": randn(T, B, I), "h0": states, "output": "all", "hx": None}),
        "OrthogonalBlocks.step": (blocks.step, {"x": randn(B, I), "h": states}),
        "OrthogonalBlocks.set_memory": (blocks.set_memory, {"memory": "checkpoint", "segment": 2}),
        "OrthogonalRNN.forward": (rnn, {"input": randn(T, B, I), "h0": state, "output": "all", "hx": None, **resets}),
        "OrthogonalRNN of a PackedSequence": (rnn, packed),
        "OrthogonalRNN.step": (rnn.step, {"x": randn(B, I), "h": state, **once}),
        "OrthogonalRNN.forward_readout": (
            rnn.forward_readout,
            {"input": randn(T, B, I), "readout": nn.Linear(N, K), "h0": state, "hx": None, **resets},
        ),
        "OrthogonalRNN.fold": (OrthogonalRNN(I, N, nonlinearity="tanh").fold, {"to_torch": True}),
        "OrthogonalRNN.set_memory": (rnn.set_memory, {"memory": "checkpoint", "segment": 2}),
        "OrthogonalRNNCell.forward": (
            OrthogonalRNNCell(I, N),
            {"input": randn(B, I), "h": randn(B, N), **once, "restart": randn(B, N)},
        ),
        "GORU.forward": (goru, {"input": randn(T, B, I), "h0": state, "output": "all", **resets}),
        "PeepholeLSTM.forward": (
            lstm,
            {"input": randn(T, B, I), "state": (state, state), "output": "all", **resets, "restart": (state, state)},
        ),
        "ReflectionRNN.forward": (
            reflected,
            {"input": randn(T, B, I), "h0": state, "output": "all", "hx": None, **resets},
        ),
        "ReflectionRNN.step": (reflected.step, {"x": randn(B, I), "h": state, **once}),
        "ReflectionRNN.transition_matrices": (reflected.transition_matrices, {"x": randn(T, B, I), "layer": 0}),
        "DeltaRNN.forward": (memory, {"input": randn(T, B, I), "h0": matrix, "output": "all", "hx": None, **matrices}),
        "DeltaRNN.step": (memory.step, {"x": randn(B, I), "h": matrix, **once, "restart": matrix}),
        "hold_missing": (
            hold_missing,
            {"rnn": rnn, "x": randn(T, B, I), "observed": torch.ones(T, B, dtype=torch.bool), "h0": state},
        ),
        "Transition": (Transition, {"parametrization": Householder(), "n": N, "device": None, "dtype": None}),
        "Transition.set_weight_": (Transition(Householder(), N).set_weight_, {"W": haar(N, False)}),
    }


def kernel_calls() -> Calls:
    dense = {"W": haar(N, False).float(), "activation": "modrelu", "parameter": randn(N), "clip": None}
    wy = {"U": randn(N, K), "B": (randn(N), randn(N)), "activation": "tanh", "parameter": None, "clip": 1.0}
    turns = {"W": haar(N, False).float(), "readout": (randn(K, N), randn(K))}
    operator = {"apply": same, "apply_adjoint": same, "operands": (randn(N),), "activation": "tanh", "parameter": None}
    reflections = {"k": randn(5, 2, N), "beta": torch.ones(5, 2, 2), "h0": randn(B, N), "x": randn(5, N)}
    reflections |= {
        "tokens": torch.zeros(T, B, dtype=torch.int64),
        "gate": torch.ones(5, 2),
        "angles": randn(5, N // 2),
    }
    reflections |= {"activation": "modrelu", "parameter": randn(N), "batch_sizes": None, "output": "all"}
    reflections |= {"clip": 1.0, "backend": "auto", "memory": "checkpoint", "segment": 2}
    reflections |= {"reset": torch.zeros(T, B, dtype=torch.bool), "restart": randn(B, N)}
    plain = {k: v for k, v in common().items() if k not in ("backend", "memory", "segment")}
    packed = {"x": randn(T, I), "h0": randn(2, N), "batch_sizes": torch.tensor([2, 1, 1]), "reset": torch.ones(T) > 0}
    delta = {"q": randn(T, B, 1, K), "k": randn(T, B, 1, 1, K), "v": randn(T, B, 1, 1, N), "state": randn(B, 1, K, N)}
    delta |= {"beta": torch.ones(T, B, 1, 1), "gate": torch.ones(T, B, 1), "backend": "auto"}
    delta |= {"reset": torch.zeros(T, B, dtype=torch.bool), "restart": randn(B, 1, K, N)}
    return {
        "dense_rnn": (kernels.dense_rnn, {**common(), **dense}),
        "dense_rnn of flat rows": (kernels.dense_rnn, {**common(), **dense, **packed}),
        "compact_wy_rnn": (kernels.compact_wy_rnn, {**common(), **wy}),
        "rotations_rnn": (kernels.rotations_rnn, {**common(), **turns}),
        "reflection_rnn": (kernels.reflection_rnn, reflections),
        "delta_rnn": (kernels.delta_rnn, delta),
        "operator_rnn": (kernels.operator_rnn, {**plain, **operator, "clip": None}),
    }


def classifier() -> SequenceModel:
    return SequenceModel(network(), nn.Linear(N, K))


def certificates() -> Calls:
    sized = {"steps": T, "mode": "one"}
    judged = {"x": randn(T, B, I), "targets": torch.zeros(B, dtype=torch.int64), "mode": "one", "state_error": 0.1}
    return {
        "influence": (certify.influence, {"network": network(), "steps": T, "of": "state"}),
        "bound": (certify.bound, {"network": network(), "eps": 0.1, **sized, "state_error": 0.1}),
        "movements": (certify.movements, {"network": classifier(), **sized, "of": "state"}),
        "certified_radius": (certify.certified_radius, {"network": classifier(), **judged}),
        "certified_accuracy": (certify.certified_accuracy, {"network": classifier(), **judged, "eps": 0.1}),
    }


def functions() -> Calls:
    model, trace = network(), trace_of_a_layer()
    parameter = nn.Parameter(haar(N, False).float())
    return {
        "convert": (orthornn.convert, {"network": network(), "to": Householder(), "approximate": True}),
        "orthogonalize": (
            orthogonalized,
            {"layer": nn.Linear(N, N), "name": "weight", "parametrization": Householder(), "init": "polar"},
        ),
        "activations.get": (activations.get, {"activation": "leaky_relu", "slope": 0.1}),
        "orthogonality_error": (diagnostics.orthogonality_error, {"W": randn(N, N)}),
        "singular_values": (diagnostics.singular_values, {"W": randn(N, N)}),
        "hidden_gradient_norms": (
            diagnostics.hidden_gradient_norms,
            {"model": network(), "inputs": randn(T, B, I), "loss": "last", "normalize": False},
        ),
        "soft_orthogonality": (penalties.soft_orthogonality, {"W": randn(N, N), "strength": 1.0}),
        "spectrum_prior": (penalties.spectrum_prior, {"s": randn(N), "strength": 1.0}),
        "weight_decay": (penalties.weight_decay, {"W": randn(N, N), "strength": 1.0}),
        "norm_stabilizer": (penalties.norm_stabilizer, {"states": randn(T, B, N), "h0": randn(B, N), "strength": 1.0}),
        "gradient_norm": (
            penalties.gradient_norm,
            {"trace": trace, "delta": torch.ones_like(trace.projected), "strength": 1.0},
        ),
        "certified_margin": (
            penalties.certified_margin,
            {
                "network": classifier(),
                "scores": randn(B, K),
                "targets": torch.zeros(B, dtype=torch.int64),
                "eps": 0.1,
                "steps": T,
                "mode": "one",
                "strength": 1.0,
            },
        ),
        **certificates(),
        "CayleySGD": (
            optim.CayleySGD,
            {"params": [parameter], "lr": 0.1, "momentum": 0.5, "nesterov": True, "reorthogonalize_every": 5},
        ),
        "CayleyRMSprop": (
            optim.CayleyRMSprop,
            {"params": [parameter], "lr": 0.1, "alpha": 0.9, "eps": 1e-8, "project": True, "reorthogonalize_every": 5},
        ),
        "JointOptimizer": (
            lambda first, second: optim.JointOptimizer(first, second),
            {"first": torch.optim.SGD([parameter], lr=0.1), "second": torch.optim.SGD(model.parameters(), lr=0.1)},
        ),
        "param_groups": (
            optim.param_groups,
            {"model": model, "lr": 0.1, "recurrent_lr": 0.1, "manifold_lr": 0.1, "spectrum_lr": 0.1},
        ),
        "attach": (optim.attach, {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}),
    }


CALLS: dict[str, Callable[[], Calls]] = {
    "constructors": constructors,
    "networks": networks,
    "kernels": kernel_calls,
    "functions": functions,
}


THEIRS = {"loss", "apply", "apply_adjoint", "readout"}
"""Arguments that are functions: what they raise when they are called is the caller's own."""


ELSEWHERE = {"denormals_as_zero", "load", "train"}
"""Public names that take no arguments, or files and names of models; their own tests hold what they refuse."""


class Wrong:
    """Nothing that anything here could mean."""


def wrong_values(right: Any) -> Iterator[Any]:
    """Values that are none of what `right` is, or nearly."""
    yield from (
        None,
        "wrong",
        b"",
        [1.0, 2.0],
        (),
        {},
        7,
        -1,
        2.5,
        float("nan"),
        True,
        1j,
        Wrong(),
        Wrong,
        np.ones((3, 2)),
    )
    yield from (
        np.float32(1),
        np.int64(3),
        nn.Linear(2, 2),
        torch.float32,
        torch.tensor(0.5),
        torch.zeros(1, 1, 1, 1, 1),
    )
    tensor = right if isinstance(right, Tensor) else torch.ones(B, N)
    tensor = tensor.detach()
    yield tensor.numpy()
    yield tensor.tolist()
    yield [tensor]
    yield (tensor, None)
    yield (None, tensor)
    for dtype in (torch.int64, torch.bool, torch.uint8, torch.complex64, torch.bfloat16, torch.float64):
        yield tensor.to(dtype)
    yield tensor.to_sparse()
    yield tensor.to("meta")
    yield tensor.unsqueeze(0)
    yield tensor[..., :0]
    yield tensor[None][:0]
    yield torch.cat([tensor, tensor])
    yield tensor * float("nan")
    if tensor.dim() == 2:
        yield tensor.to_sparse_csr()


def failures(calls: Calls) -> list[str]:
    """One line for each raw error, and for calls that fail although their arguments are right."""
    found = []
    for name, (function, right) in calls.items():
        function(**right)
        for argument, value in right.items():
            for wrong in wrong_values(value):
                if argument in THEIRS and callable(wrong):
                    continue
                if name.endswith(".forward") and argument == "first" and getattr(wrong, "is_meta", False):
                    continue  # buffers are elsewhere: torch's own error names both devices
                try:
                    function(**{**right, argument: wrong})
                except OrthornnError:
                    continue
                except Exception as error:
                    found.append(f"{name}({argument}={describe(wrong)}): {type(error).__name__}: {error}")
    return found


def describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.layout} {value.dtype} {tuple(value.shape)} on {value.device}"
    return f"{type(value).__name__} {value!r}"[:60].replace("\n", " ")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", CALLS)
def test_every_error_is_one_of_this_package(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = failures(CALLS[kind]())
    assert not found, f"{len(found)} raw errors:\n" + "\n".join(found[:400])


def test_every_public_callable_is_called():
    modules = (orthornn, kernels, penalties, certify, diagnostics, optim)
    public = {name for module in modules for name in module.__all__ if callable(getattr(module, name))}
    called = {name.split(".")[0].split(" ")[0] for make in CALLS.values() for name in make()}
    assert public - called == ELSEWHERE


def test_the_harness_sees_a_raw_error():
    assert len(failures({"f": (lambda W: W @ W, {"W": torch.eye(2)})})) > 10


def test_an_argument_that_is_no_tensor_is_named():
    with pytest.raises(ArgumentError, match="Expected h0 to be a tensor, but got list"):
        kernels.dense_rnn(randn(T, B, N), [0.0], torch.eye(N), "tanh")
    with pytest.raises(TypeError, match="Expected W to be a tensor, but got ndarray"):
        diagnostics.orthogonality_error(np.eye(3))
    with pytest.raises(ArgumentError, match=r"sparse_coo.*to_dense"):
        penalties.soft_orthogonality(torch.eye(3).to_sparse())


def test_a_function_instead_of_its_name_is_answered_by_the_name():
    for tanh in (torch.tanh, nn.Tanh(), nn.Tanh):
        with pytest.raises(
            ArgumentError, match=r"but got the (function tanh|module Tanh|class Tanh)\. Pass its name, 'tanh'\.$"
        ):
            OrthogonalRNN(I, N, nonlinearity=tanh)
    with pytest.raises(ArgumentError, match=r"but got the function gelu\. Pass a name\.$"):
        OrthogonalRNN(I, N, nonlinearity=nn.functional.gelu)


def test_dtypes_of_parameters_that_are_refused():
    with pytest.raises(DTypeError, match=r"got torch\.complex64\. For a complex state"):
        OrthogonalRNN(I, N, dtype=torch.complex64)
    with pytest.raises(DTypeError, match=r"got torch\.int32\. Pass torch\.float32"):
        OrthogonalRNN(I, N, dtype=torch.int32)
