"""The same network under another parametrization: train as scaled Cayley, deploy as Householder.

Each transition's W goes through the target's right_inverse. Where the target spans the set that contains W, that is
exact to rounding. Where it does not, the nearest matrix that was found takes its place, and a warning reports its
distance: of another determinant, the orthogonal matrix with the other sign on W's least singular direction (Frobenius
distance 2 from an orthogonal W); outside a margin, W with its singular values clipped; of fewer reflections or
rotations, the outcome of a least-squares search, a local minimum.
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
    """A transition was replaced by the nearest one that the target can represent."""


def convert(network: Network, to: Parametrization, approximate: bool = True) -> Network:
    """Return a copy of the network whose transitions are under another parametrization.

    Args:
        network: OrthogonalRNN, OrthogonalRNNCell, GORU, OrthogonalBlocks, a Transition, or any module that contains some of
            them.
        to: The parametrization.
        approximate: Take the nearest representable W, with an ApproximationWarning that names the Frobenius distance of each;
            False to raise NotOnGroupError instead. Default: True.

    Raises:
        ArgumentError: If there is no transition, if a transition depends on the input, or if one is real and ``to``
            complex or the other way round: a state of N complex units is not one of N real ones.
        NotOnGroupError: With ``approximate=False``, if ``to`` does not represent a transition.
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
    """Raise ArgumentError if a module has no one W."""
    for module in network.modules():
        if isinstance(module, (ReflectionRNN, DeltaRNN)):
            has_matrices = isinstance(module, ReflectionRNN)
            advice = " Its transition_matrices(x) returns W for each input." if has_matrices else ""
            raise ArgumentError(
                f"Expected transitions that are one matrix each, but got a {type(module).__name__}, whose transition depends "
                f"on the input: no parametrization of one matrix represents it.{advice}"
            )


def _converted(name: str, transition: Transition, to: Parametrization, approximate: bool) -> tuple[Transition, float]:
    """Return the transition under another parametrization, and the distance of its W from this one."""
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
    """Return (free tensors, ||W(free) - W||_F), the distance 0 where right_inverse takes W.

    stored: The dtype of the free tensors that W is from. If they are W itself (Stiefel), W is orthogonal only to that.
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
    """Return the nearest matrices to try, the nearest first: without regard to the determinant, then with it.

    right_inverse of a group of one determinant may take the other, too, where a buffer holds its sign.
    """
    if isinstance(method, BoundSpectralMargin):
        left, s, right = torch.linalg.svd(W)
        margin = method.margin or 0.0
        return [(left * s.clamp(1 - 0.999 * margin, 1 + 0.999 * margin)) @ right]
    wanted = {"SO": 1.0, "det=-1": -1.0}.get(method.group)
    return [polar_factor(W)] if wanted is None else [polar_factor(W), polar_of_determinant(W, wanted)]
