"""Convert a network to another parametrization: train with scaled Cayley, deploy with Householder.

Each transition's W is passed to the right_inverse of the target. If the target can represent W, the result is exact up
to rounding. Otherwise the nearest matrix that was found replaces W, and a warning reports its distance. If only the
determinant differs, this is the orthogonal matrix with the sign of W's least singular direction flipped (Frobenius
distance 2 from an orthogonal W). For a margin, the singular values of W are clipped. For fewer reflections or
rotations, a least-squares search returns a local minimum.
"""

from __future__ import annotations

import contextlib
import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from .._checks import check_flag, check_module
from .._recording import recording
from .._warnings import warn
from ..complex_as_real import complex_dtype
from ..errors import ArgumentError, NotOnGroupError, OrthornnWarning
from ..parametrizations.matrices import polar_factor, polar_of_determinant, widen
from ..parametrizations.parametrization import BoundParametrization, Parametrization, check_description
from ..parametrizations.search import nearest
from ..parametrizations.spectral import BoundSpectralMargin
from .delta import DeltaRNN
from .reflections import ReflectionRNN
from .transition import Transition

Network = TypeVar("Network", bound=nn.Module)


class ApproximationWarning(OrthornnWarning):
    """Warning that a transition was replaced by the nearest one that the target can represent."""


def convert(network: Network, to: Parametrization, approximate: bool = True) -> Network:
    """Return a copy of the network with its transitions under another parametrization.

    Args:
        network: OrthogonalRNN, OrthogonalRNNCell, GORU, OrthogonalBlocks, a Transition, or any module that contains
            some of them.
        to: The target parametrization.
        approximate: If True, use the nearest representable W and warn with an ApproximationWarning that reports the
            Frobenius distance of each; if False, raise NotOnGroupError instead. Default: True.

    Raises:
        ArgumentError: If there is no transition, if a transition depends on the input, or if one of the transition and
            ``to`` is real and the other complex: N complex units cannot hold a state of N real units, nor the other way
            round.
        NotOnGroupError: If ``to`` cannot represent a transition and ``approximate=False``.
    """
    with recording(), torch.no_grad():  # without recording, under inference_mode, the copy could not be trained
        return _converted_network(network, to, approximate)


def _converted_network(network: Network, to: Parametrization, approximate: bool) -> Network:
    check_module("network", network)
    _refuse_input_dependent(network)
    check_flag("approximate", approximate)
    check_description("`to`", to)
    if isinstance(network, Transition):
        alone = nn.ModuleDict({"transition": network})
        return _converted_network(alone, to, approximate)["transition"]  # type: ignore[return-value]
    converted = copy.deepcopy(network)
    distances: dict[str, float] = {}
    replaced: dict[Transition, Transition] = {}
    named = converted.named_modules(remove_duplicate=False)  # a transition that networks share has several names
    for name, transition in [(n, m) for n, m in named if isinstance(m, Transition)]:
        if transition not in replaced:
            replaced[transition], distances[name] = _converted(name, transition, to, approximate)
        parent, _, attribute = name.rpartition(".")
        setattr(converted.get_submodule(parent), attribute, replaced[transition])
    if not replaced:
        raise ArgumentError(f"Expected a network with a transition to convert, but got {type(network).__name__}.")
    for module in converted.modules():
        if any(isinstance(child, Transition) for child in module.children()):
            vars(module).update(parametrization=to)
    listed = ", ".join(f"{name}: {distance:.3g}" for name, distance in distances.items() if distance)
    if listed:
        warn(
            f"{to!r} does not represent these transitions exactly. The nearest found are at Frobenius distance {listed}.",
            ApproximationWarning,
        )
    return converted


def _refuse_input_dependent(network: nn.Module) -> None:
    """Raise ArgumentError if a module has no single W."""
    for module in network.modules():
        if isinstance(module, (ReflectionRNN, DeltaRNN)):
            has_matrices = isinstance(module, ReflectionRNN)
            advice = " Its transition_matrices(x) returns W for each input." if has_matrices else ""
            raise ArgumentError(
                f"Expected transitions that are one matrix each, but got a {type(module).__name__}, whose transition depends "
                f"on the input: no parametrization of one matrix represents it.{advice}"
            )


def _converted(name: str, transition: Transition, to: Parametrization, approximate: bool) -> tuple[Transition, float]:
    """Return the transition under another parametrization, and the distance between the two matrices W."""
    replacement = transition.under(to)
    if replacement.method.field != transition.method.field:
        raise ArgumentError(
            f"Expected {to!r} to be {transition.method.field}, like {name}, but got {replacement.method.field}. "
            f"Use field={transition.method.field!r}."
        )
    W = transition.method(*(value.double() for value in transition.wide_free()))
    replacement.method.double()
    free, distance = _represent(replacement.method, W, transition.free()[0].dtype, approximate)
    replacement.assign_(free)
    return replacement, distance


def _represent(
    method: BoundParametrization, W: Tensor, stored: torch.dtype, approximate: bool
) -> tuple[tuple[Tensor, ...], float]:
    """Return (free tensors, ||W(free) - W||_F). The distance is 0 if right_inverse accepts W.

    stored: Dtype of the free tensors of the original W. If W itself is the free tensor (Stiefel), it is orthogonal only
        to this precision.
    """
    try:
        return method.right_inverse(W), 0.0
    except NotOnGroupError:
        if W.is_complex():
            stored = complex_dtype(stored)
        narrow = W.to(stored)
        if torch.equal(narrow.to(W.dtype), W):
            with contextlib.suppress(NotOnGroupError):
                return method.right_inverse(narrow), 0.0
        if not approximate:
            raise
    candidates = _nearest_of_group(method, widen(W))
    for candidate in candidates:
        with contextlib.suppress(NotOnGroupError):
            free = method.right_inverse(candidate)
            break
    else:
        free, _ = nearest(method, candidates[-1])
    return free, float(torch.linalg.matrix_norm(method(*free) - W))


def _nearest_of_group(method: BoundParametrization, W: Tensor) -> list[Tensor]:
    """Return the nearest matrices to try, nearest first: first ignoring the determinant, then respecting it.

    right_inverse of a group with one determinant may accept the other as well if a buffer holds its sign.
    """
    if isinstance(method, BoundSpectralMargin):
        left, s, right = torch.linalg.svd(W)
        margin = method.margin or 0.0
        return [(left * s.clamp(1 - 0.999 * margin, 1 + 0.999 * margin)) @ right]
    wanted = {"SO": 1.0, "det=-1": -1.0}.get(method.group)
    return [polar_factor(W)] if wanted is None else [polar_factor(W), polar_of_determinant(W, wanted)]
