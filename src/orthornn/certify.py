r"""Certificates: upper bounds, valid for every input, on how far a network's outputs move when its inputs move.

Let the inputs of two sequences differ by vectors of norm d_1, ..., d_T. If phi has the Lipschitz constant L (at most 1
for most nonlinearities), the states of one layer differ by

    e_t <= rho e_{t-1} + kappa d_t,    rho = L |g| ||W||_2,    kappa = L ||V||_2,    e_0 = 0

(rho = |g| ||W||_2 with a linear transition), hence e_t <= sum_s rho^(t-s) kappa d_s. An orthogonal W has rho = 1: an
early change counts exactly as much as a recent one. With any other W it may grow as rho^T. Layers, directions, pools and
readouts compose: c_s, the influence of step s, is computed from the output down, and the output moves by at most

    sum_s c_s d_s    <=  eps sum_s c_s     "every": every d_s <= eps
                     <=  eps ||c||_2       "energy": sum_s d_s^2 <= eps^2
                     <=  eps max_s c_s     "one": one d_s <= eps, the others are 0.

For a linear network the derivative of an output is the same everywhere, and the bound is exact. A linear recurrence whose
last state is read, by a nonlinear block too, has the matrix K = [W^(T-1) V ... V] from inputs to state. The norms of K
replace those of c: in "energy" they are smaller by up to the root of the state's size. Numbers are computed in float64 and
rounded outwards; docs/derivations/certificates.md has the steps. The certificate holds for the network in evaluation mode
with its stored parameters, evaluated without rounding.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from ._checks import (
    check_choice,
    check_dtype,
    check_finite,
    check_integer,
    check_module,
    check_number,
    check_same,
    check_shape,
    check_tensor,
)
from .activations import Activation, LeakyReLU
from .errors import ArgumentError, ArgumentTypeError
from .modules.blocks import OrthogonalBlocks
from .modules.layer import Layer
from .modules.rnn import OrthogonalRNN
from .parametrizations.matrices import as_complex

__all__ = ["bound", "certified_accuracy", "certified_radius", "influence", "movements"]

Mode = Literal["every", "energy", "one"]
MODES: tuple[str, ...] = get_args(Mode)
Of = Literal["input", "state"]
_UNIT = 2.0**-53  # the relative error of one operation in float64
_GELU = (1 + math.erf(1)) / 2 + 1 / (math.e * math.sqrt(math.pi))  # the largest slope of gelu, at sqrt(2)
_HELD = (
    "orthogonal",
    "unitary",
    "O",
    "SO",
    "det=-1",
    "U",
    "subset",
)  # groups on which training never changes ||W||_2 = 1


def influence(network: nn.Module, steps: int, of: Of = "input") -> Tensor:
    """Return the influences c (S,), float64: if step s moves by d_s, the outputs move by at most sum_s c_s d_s.

    Norms are Euclidean, and S is the number of steps. If the network is read at every step, c belongs to the output that
    moves most: the last one for one direction. For two directions c has 2 steps - 1 entries, ordered by the distance from
    the step that is read.

    Args:
        network: An OrthogonalRNN, or OrthogonalBlocks without norm, whose outputs are its states at every step; or a model
            with one of these as ``core``, a torch.nn.Linear as ``head``, and optionally ``output`` ("all" or "last", the
            default) and ``pool`` ("last", "mean" or "both").
        steps: Length of the sequences, T.
        of: ``"input"`` if d_s is how far the input of step s moves; ``"state"`` if it is a disturbance, such as rounding,
            of the state of every layer and direction after step s. Default: ``"input"``.

    Raises:
        ArgumentError, ArgumentTypeError: If the network has no certificate; the message explains why. For example, modReLU
            with b > 0 is discontinuous.
    """
    check_choice("of", of, get_args(Of))
    with torch.no_grad():
        model = _wide(network)
        found = _influences(model, check_integer("steps", steps, 1))
        weights = _part_norms(model, found.input.shape[0])
        return _outward(weights @ getattr(found, of), found.input.shape[-1])


def bound(network: nn.Module, eps: float, steps: int, mode: Mode = "every", state_error: float = 0.0) -> float:
    """Return the largest distance, in Euclidean norm, by which an output at any step can move.

    Args:
        network: Same as for :func:`influence`.
        eps: Bound on how far inputs move, at least 0.
        steps: Length of the sequences, T.
        mode: Meaning of eps. ``"every"``: the input of each step moves by at most eps. ``"energy"``: the root of the sum of
            the squared movements is at most eps. ``"one"``: the input of a single step, no matter which, moves by at most
            eps. Default: ``"every"``.
        state_error: Norm of an additional disturbance of the state of every layer at every step. Default: 0.

    Example::

        >>> rnn = OrthogonalRNN(3, 8)
        >>> bound(rnn, 0.1, steps=20, mode="one") <= 0.11 * float(torch.linalg.matrix_norm(rnn.weight_ih_l0, 2))
        True
    """
    check_choice("mode", mode, MODES)
    eps, state_error = check_number("eps", eps, 0), check_number("state_error", state_error, 0)
    with torch.no_grad():
        c = influence(network, steps)
        moved = _total(c, mode)
        last = _last_at_once(_wide(network), steps, mode)
        if last is not None:
            Y = _head(network).weight.double() if hasattr(network, "head") else None
            terms = [factor * _norm(M if Y is None else Y @ M) for M, factor in last]
            moved = torch.minimum(moved, torch.stack(terms).sum())
        jacobian = _jacobian(network, steps)
        if jacobian is not None:
            moved = torch.minimum(moved, _norm_of(jacobian, mode) + _slack(network, steps) * c.sum())
        drift = influence(network, steps, "state").sum() if state_error else 0.0
        return _finite_up(float(_outward(eps * moved + state_error * drift, 2)))


def movements(network: nn.Module, steps: int, mode: Mode = "every", of: Of = "input") -> Tensor:
    """Return the largest change of the difference between outputs i and j for eps = 1, (O, O) in float64.

    The result is differentiable in all parameters except those of a W whose norm is 1 by construction.

    Args:
        network: A model with a head, same as for :func:`influence`.
        steps: Length of the sequences, T.
        mode: Same as for :func:`bound`. Default: ``"every"``.
        of: Same as for :func:`influence`. Default: ``"input"``.
    """
    check_choice("mode", mode, MODES)
    check_choice("of", of, get_args(Of))
    found = _influences(network, check_integer("steps", steps, 1))
    Y = _head(network).weight.double()
    parts = Y.chunk(found.input.shape[0], dim=1)
    pairs = torch.stack([_distances(part) for part in parts], dim=-1)
    moved = _outward(_total(pairs @ getattr(found, of), mode), found.input.shape[-1] + Y.shape[1])
    last = _last_at_once(network, steps, mode) if of == "input" else None
    if last is None:
        return moved
    terms = [_outward(factor * _distances(Y @ M), sum(M.shape)) for M, factor in last]
    return torch.minimum(moved, torch.stack(terms).sum(0))


def certified_radius(
    network: nn.Module, x: Tensor | PackedSequence, targets: Tensor, mode: Mode = "every", state_error: float = 0.0
) -> Tensor:
    """Return for each sequence a radius eps: no change of its input by at most eps changes its class. (B,), float64.

    The radius of a sequence that the network misclassifies is 0.

    Args:
        network: A classifier: a model with a head, same as for :func:`influence`, that is read after the last step.
        x: Inputs (T, B, I), tokens (T, B), or a PackedSequence. Tokens count as one-hot vectors, so replacing a token moves
            the input by sqrt(2).
        targets: Classes (B,), integers.
        mode: Same as for :func:`bound`. Default: ``"every"``.
        state_error: Same as for :func:`bound`. Default: 0.
    """
    if getattr(network, "output", "last") != "last":
        raise ArgumentError(
            "Expected a network that is read after the last step, but this one is read at every step. Set output='last'."
        )
    check_number("state_error", state_error, 0)
    _core(network)
    parts = _by_length(x)
    check_shape("targets", targets, (sum(len(places) for places, _ in parts),))
    radii = torch.empty(len(targets), dtype=torch.float64, device=parts[0][1].device)
    for places, sequences in parts:
        radii[places] = _radii(network, sequences, targets[places], mode, state_error)
    return radii


def check_classes(targets: Tensor, scores: Tensor) -> None:
    """Raise an error unless the targets are classes (B,) of scores (B, O)."""
    check_shape("targets", targets, (scores.shape[0],))
    check_dtype("targets", targets, (torch.int64,))
    check_same("scores", scores.argmax(1), targets=targets)
    if targets.numel() and not 0 <= int(targets.min()) <= int(targets.max()) < scores.shape[1]:
        raise ArgumentError(f"Expected targets in 0..{scores.shape[1] - 1}, but got {targets.tolist()}.")


def certified_accuracy(
    network: nn.Module,
    x: Tensor | PackedSequence,
    targets: Tensor,
    eps: float,
    mode: Mode = "every",
    state_error: float = 0.0,
) -> float:
    """Return the fraction of sequences that are classified correctly for every change of their input by at most eps.

    Args:
        network, x, targets, mode, state_error: Same as for :func:`certified_radius`.
        eps: Bound on how far inputs move, at least 0. With eps = 0 the result is the accuracy.
    """
    check_number("eps", eps, 0)
    return float((certified_radius(network, x, targets, mode, state_error) > eps).double().mean())


@torch.no_grad()
def _radii(network: nn.Module, x: Tensor, targets: Tensor, mode: Mode, state_error: float) -> Tensor:
    """Return the certified radii (B,) of sequences of one length, x (T, B, I) or (T, B)."""
    model, steps = _wide(network), x.shape[0]
    moved = movements(model, steps, mode)
    jacobian = _jacobian(network, steps)
    if jacobian is not None:
        exact = _total(torch.linalg.vector_norm(jacobian[:, None] - jacobian[None], dim=-1), mode)
        moved = torch.minimum(moved, _outward(exact, steps) + _slack(network, steps) * movements(model, steps))
    scores = model(x.double() if x.is_floating_point() else x)
    check_classes(targets, scores)
    margins = scores.gather(1, targets[:, None]) - scores
    if state_error:
        margins = margins - state_error * movements(model, steps, of="state")[targets]
    others = torch.arange(scores.shape[1], device=scores.device) != targets[:, None]
    radii = torch.where(margins > 0, margins * (1 - 4 * _UNIT) / moved[targets], 0.0)
    return torch.where(others, radii, torch.inf).amin(1)


def _by_length(x: Tensor | PackedSequence) -> list[tuple[Tensor, Tensor]]:
    """Return (places in the batch, sequences (T, b, ...)) for each length."""
    if isinstance(x, PackedSequence):
        rows, lengths = pad_packed_sequence(x)
        found = [
            (length, (lengths == length).nonzero().squeeze(1).to(rows.device)) for length in lengths.unique().tolist()
        ]
        return [(places, rows[:length, places]) for length, places in found]
    check_tensor("x", x)
    check_shape("x", x, ("T", "B", "I") if x.is_floating_point() else ("T", "B"))
    return [(torch.arange(x.shape[1], device=x.device), x)]


class _Influences(NamedTuple):
    """Influence of each step's input, and of a disturbance of each state, on the parts that a head reads: (P, S)."""

    input: Tensor
    state: Tensor


def _influences(network: nn.Module, steps: int) -> _Influences:
    """Return the influences on the parts that a head reads: the states of each direction, or the output of blocks, once for
    each pooled quantity.
    """
    core, readings = _core(network), _readings(network)
    blocks = isinstance(core, OrthogonalBlocks)
    directions = core.num_directions
    if "all" in readings and directions == 2:
        steps = 2 * steps - 1
    outputs = 1 if blocks else directions
    like = next(core.parameters())
    start = torch.zeros(outputs, len(readings) * outputs, steps, dtype=torch.float64, device=like.device)
    for r, reading in enumerate(readings):
        for d in range(outputs):
            row = start[d, r * outputs + d]
            if reading == "mean":
                row += 1 / steps
            elif reading == "all":
                row[steps // 2 if directions == 2 else -1] = 1
            else:
                row[-1 if d == 0 else 0] = 1  # a reverse direction ends at the first step
    return _down_blocks(core, start[0]) if isinstance(core, OrthogonalBlocks) else _down(core, start)


def _down_blocks(core: OrthogonalBlocks, c: Tensor) -> _Influences:
    """Return the influences below, given c (K, S), the influences of the outputs of the last block."""
    _check_blocks(core)
    state = torch.zeros_like(c)
    for k in reversed(range(core.depth)):
        block: Any = core.blocks[k]
        read = _mixed(block.mix, core.num_directions)
        below, of_states = _down(block.recurrence, torch.stack([factor * c for factor in read]))
        state = state + of_states
        if core.residual:
            below = below + (c if block.skip is None else _norm(block.skip.weight) * c)
        c = below
    return _Influences(c, state)


def _mixed(mix: nn.Sequential, directions: int) -> list[Tensor]:
    """Return the Lipschitz constants of a block's mixing with respect to the states of each direction."""
    after = _GELU if len(mix) == 2 else _GELU * _norm(mix[2].weight)  # type: ignore[arg-type]
    return [after * _norm(part) for part in mix[0].weight.chunk(directions, dim=1)]  # type: ignore[operator]


def _down(core: OrthogonalRNN, c: Tensor) -> _Influences:
    """Return the influences below, given c (D, K, S), the influences of the states of the last layer."""
    layers, directions = core.layers(), core.num_directions
    state = torch.zeros_like(c[0])
    for k in reversed(range(core.num_layers)):
        parts = directions if k else 1
        below = [torch.zeros_like(state) for _ in range(parts)]
        for d, layer in enumerate(layers[k * directions : (k + 1) * directions]):
            V = as_complex(layer.weight_ih) if layer.is_complex else layer.weight_ih
            own = c[d].flip(-1) if d else c[d]  # in the order in which this direction reads
            carried = _carry(layer) ** torch.arange(c.shape[-1], dtype=torch.float64, device=c.device)
            state = state + _unflipped(_before(own, carried), d)
            for p, part in enumerate(V.chunk(parts, dim=1)):
                below[p] = below[p] + _unflipped(_before(own, _response(layer, part, carried)), d)
        c = torch.stack(below)
    return _Influences(c[0], state)


def _unflipped(c: Tensor, direction: int) -> Tensor:
    return c.flip(-1) if direction else c


def _before(c: Tensor, response: Tensor) -> Tensor:
    """Return an upper bound on sum_{t >= s} response_{t-s} c_t, computed by FFT and raised by its rounding error."""
    T = c.shape[-1]
    product = torch.fft.irfft(torch.fft.rfft(c.flip(-1), 2 * T) * torch.fft.rfft(response, 2 * T), 2 * T)
    error = 16 * math.log2(4 * T) * _UNIT * torch.linalg.vector_norm(c, dim=-1, keepdim=True)
    found = product[..., :T].flip(-1).clamp_min(0) + error * torch.linalg.vector_norm(response)
    return found.nan_to_num(nan=math.inf, posinf=math.inf)


def _response(layer: Layer, V: Tensor, carried: Tensor) -> Tensor:
    """Return the largest movement of the state s steps after an input of V moved by 1, (S,)."""
    geometric = _slope(layer) * _norm(V) * carried
    if layer.activation.name != "identity":
        return geometric
    impulses = _impulses(layer, V, len(carried))
    norms = torch.linalg.matrix_norm(impulses.movedim(1, 0), 2)  # may decay although ||W|| does not show it
    rounding = torch.arange(1, len(carried) + 1, device=carried.device) * (8 * layer.size**1.5 * _UNIT)
    return torch.minimum(geometric, norms + rounding * geometric)


def _impulses(layer: Layer, V: Tensor, steps: int) -> Tensor:
    """Return (g W)^s V for s = 0, ..., steps - 1, (N, steps, I), by doubling the number of steps."""
    P, M = _double(layer.transition.matrix()) * layer.gain, _double(V)[:, None]
    while M.shape[1] < steps:
        M = torch.cat([M, torch.tensordot(P, M, 1)], 1)
        P = P @ P
    return M[:, :steps]


def _last_at_once(network: Any, steps: int, mode: Mode) -> list[tuple[Tensor, Tensor]] | None:
    """Return [(M, factor)]: what the head reads moves by a sum of M v, |v| <= factor, for inputs that move by 1.

    None unless it reads the last step, or every one, of one block, or in energy of one linear layer, in one direction.
    """
    core = _core(network)
    rnn: Any = core.blocks[0].recurrence if isinstance(core, OrthogonalBlocks) else core
    read = _readings(network) in (("last",), ("all",))
    if rnn.nonlinearity != "identity" or core.num_layers > 1 or core.bidirectional or not read:
        return None
    (layer,) = rnn.layers()
    V = as_complex(layer.weight_ih) if layer.is_complex else layer.weight_ih
    K = _impulses(layer, V, steps)
    K = torch.view_as_real(K).movedim(3, 1).flatten(0, 1) if K.is_complex() else K
    one, identity = K.new_ones(()), torch.eye(len(K), dtype=K.dtype, device=K.device)
    carried = _carry(layer) ** torch.arange(steps, dtype=torch.float64, device=K.device)
    rounding = 8 * _UNIT * steps * layer.size**1.5 * _norm(V) * _total(carried, mode)
    if not isinstance(core, OrthogonalBlocks):
        return [(K.flatten(1), one), (identity, rounding)] if mode == "energy" else None
    _check_blocks(core)
    block: Any = core.blocks[0]
    A = block.mix[0].weight.double()
    after = block.mix[2].weight.double() if len(block.mix) > 2 else torch.eye(len(A), dtype=A.dtype, device=A.device)
    AK = torch.tensordot(A, K, 1)
    if mode == "energy":
        size = _norm(AK.flatten(1))
    else:
        up = 1 + 16 * (len(A) + core.input_size) * _UNIT
        size = _outward(_total(torch.linalg.matrix_norm(AK.movedim(1, 0), 2) * up, mode), steps)
    terms = [(after, _GELU * (size + _norm(A) * rounding))]
    return terms if block.skip is None else [*terms, (block.skip.weight.double(), one)]


def _carry(layer: Layer) -> Tensor:
    """Return rho, the largest growth factor of a difference of states in one step."""
    W = layer.transition.matrix()
    group = layer.transition.method.group
    norm = _norm(W.detach() if group in _HELD else W)
    gain = layer.gain.double() if isinstance(layer.gain, Tensor) else torch.tensor(layer.gain, dtype=torch.float64)
    return gain.abs().to(norm.device) * norm * (1.0 if layer.linear_transition else _slope(layer))


def _slope(layer: Layer) -> Tensor | float:
    """Return the Lipschitz constant of phi, at least 1; only leaky_relu and prelu can have slopes above 1."""
    phi, parameter = layer.activation, layer.bias()[1]
    if isinstance(phi, LeakyReLU):
        return max(1.0, phi.slope)
    if parameter is None:
        return 1.0
    if phi.name == "prelu":
        return parameter.double().abs().amax().clamp_min(1)
    _check_no_jump(phi, parameter)
    return 1.0


def _check_no_jump(phi: Activation, b: Tensor) -> None:
    if phi.name in ("modrelu", "complex_modrelu") and bool((b > 0).any()):
        raise ArgumentError(
            f"Expected a continuous nonlinearity, but got {phi.name} with b up to {float(b.detach().max()):.3g}. If b > 0 "
            f"it jumps from -b to b at 0, and no bound exists. Constrain b to be at most 0, or use "
            f"nonlinearity='scaled_tanh'."
        )


def _norm(A: Tensor) -> Tensor:
    """Return ||A||_2, rounded up."""
    check_finite("the weights", A)
    A = _double(A)
    return torch.linalg.matrix_norm(A, 2) * (1 + 16 * sum(A.shape) * _UNIT)


def _double(A: Tensor) -> Tensor:
    return A.to(torch.complex128 if A.is_complex() else torch.float64)


def _distances(Y: Tensor) -> Tensor:
    """Return ||Y_i - Y_j||, (O, O), with the gradient 0 on the diagonal."""
    squares = (Y[:, None] - Y[None]).square().sum(-1)
    same = squares == 0
    return torch.where(same, 0.0, torch.where(same, 1.0, squares).sqrt())


def _total(c: Tensor, mode: str) -> Tensor:
    """Return the total of the influences (..., S) for eps = 1."""
    if mode == "every":
        return c.sum(-1)
    return c.amax(-1) if mode == "one" else torch.linalg.vector_norm(c, dim=-1)


def _outward(value: Tensor, terms: int) -> Tensor:
    """Return the value, a sum of `terms` positive terms, rounded up."""
    return value * (1 + 4 * (terms + 8) * _UNIT)


def _finite_up(value: float) -> float:
    return math.nextafter(value, math.inf) if value else 0.0


def _jacobian(network: nn.Module, steps: int) -> Tensor | None:
    """Return the derivative of a linear network's outputs, (O, T, I), which is the same everywhere; None if not linear.

    For a network that is read at every step, it is the derivative of the last output; None if it has two directions.
    """
    core = _core(network)
    if not isinstance(core, OrthogonalRNN) or core.nonlinearity != "identity":
        return None
    every = "all" in _readings(network)
    if every and core.bidirectional:
        return None
    model = _wide(network)
    with torch.enable_grad():
        like = next(model.parameters())
        x = torch.zeros(steps, 1, core.input_size, dtype=torch.float64, device=like.device, requires_grad=True)
        outputs = model(x)
        outputs = outputs[0] if isinstance(outputs, tuple) else outputs
        outputs = outputs[-1] if every else outputs
        rows = [torch.autograd.grad(y, x, retain_graph=True)[0] for y in _as_real(outputs).flatten()]
    return torch.stack(rows).squeeze(2)


def _norm_of(jacobian: Tensor, mode: str) -> Tensor:
    """Return the largest norm of J d for eps = 1: exact, except that for "every" it is the least of three bounds."""
    outputs, steps, width = jacobian.shape
    by_step = torch.linalg.matrix_norm(jacobian.transpose(0, 1), 2)
    whole = _norm(jacobian.flatten(1))
    if mode == "energy":
        return whole
    up = 1 + 16 * (outputs + width) * _UNIT
    if mode == "one":
        return by_step.amax() * up
    by_output = torch.linalg.vector_norm(jacobian.norm(dim=-1).sum(-1))
    return torch.stack([by_step.sum() * up, math.sqrt(steps) * whole, by_output]).amin()


def _slack(network: nn.Module, steps: int) -> float:
    """Return the rounding error of a Jacobian, a chain of products, relative to the sum of the influences."""
    core = _core(network)
    width = max(core.hidden_size, core.input_size) * (2 if core.is_complex else 1) * core.num_directions
    return 8 * _UNIT * (steps + core.num_layers + 1) * width**1.5


def _part_norms(network: nn.Module, parts: int) -> Tensor:
    """Return ||Y_p||_2 of the columns of the head that read each part, (P,); 1 without a head."""
    if not hasattr(network, "head"):
        return torch.ones(parts, dtype=torch.float64, device=next(network.parameters()).device)
    return torch.stack([_norm(part) for part in _head(network).weight.chunk(parts, dim=1)])


def _wide(network: nn.Module) -> Any:
    """Return a copy in float64 and in evaluation mode; raise an error if the network has no certificate."""
    check_module("network", network)
    _core(network)
    wide = copy.deepcopy(network).double().eval()
    for module in wide.modules():
        if isinstance(module, OrthogonalRNN):
            module.clip_backward = None  # the gradient must be the derivative
    if hasattr(wide, "head"):
        _check_forward(wide)
    return wide


def _check_forward(model: Any) -> None:
    """Raise ArgumentError if a model computes anything other than its head from the outputs of its core."""
    core = model.core
    x = torch.linspace(-1, 1, 3 * 2 * core.input_size, dtype=torch.float64).view(3, 2, -1)
    x = x.to(next(model.parameters()).device)
    every, last = core(x)[0], core(x, output="last")[0]
    parts = {"all": every, "last": last, "mean": every.mean(0)}
    features = torch.cat([_as_real(parts[name]) for name in _readings(model)], dim=-1)
    expected = model.head(features)
    found = model(x)
    if found.shape != expected.shape or not torch.allclose(found, expected, rtol=1e-8, atol=1e-8, equal_nan=True):
        raise ArgumentError(
            "Expected a model that returns its head applied to the outputs of its core, but its result differs. Set its "
            "attributes output ('all' or 'last') and pool, or certify a model that consists of this core and head only."
        )


def _as_real(outputs: Tensor) -> Tensor:
    return torch.view_as_real(outputs).flatten(-2) if outputs.is_complex() else outputs


def _core(network: Any) -> OrthogonalRNN | OrthogonalBlocks:
    core = getattr(network, "core", network)
    if not isinstance(core, (OrthogonalRNN, OrthogonalBlocks)):
        raise ArgumentTypeError(
            f"Expected an OrthogonalRNN or OrthogonalBlocks, or a model with one as its core, but got "
            f"{type(core).__name__}. Gates multiply states, and no bound on their products holds for all inputs."
        )
    if core.batch_first:
        raise ArgumentError("Expected a network that reads (T, B, I), but got batch_first=True. Set it to False.")
    added = [name for name in ("recent", "series") if getattr(network, name, None) is not None]
    if added:
        raise ArgumentError(
            f"Expected a head that reads only the outputs of the core, but got a model with {added[0]!r}. Train it without."
        )
    return core


def _head(network: Any) -> nn.Linear:
    head = getattr(network, "head", None)
    if not isinstance(head, nn.Linear):
        raise ArgumentTypeError(
            f"Expected a model with a torch.nn.Linear as its head, but got {type(head).__name__}. Train with a linear head."
        )
    return head


def _readings(network: Any) -> Sequence[str]:
    """Return the pooled quantities that the head reads, in the order of its columns."""
    if not hasattr(network, "head"):
        return ("all",)
    _head(network)
    if getattr(network, "output", "last") == "all":
        return ("all",)
    pool = getattr(network, "pool", "last")
    if pool == "summary":
        raise ArgumentError(
            "Expected the pool 'last', 'mean' or 'both', but got 'summary': the bounds do not cover its maximum."
        )
    return ("last", "mean") if pool == "both" else (pool,)


def _check_blocks(core: OrthogonalBlocks) -> None:
    if core.depth > 1 and core.norm != "none":
        raise ArgumentError(
            f"Expected blocks with norm='none', but got {core.norm!r}. A norm divides by the size of its input: near 0 it "
            f"magnifies changes hundreds of times. Train with norm='none'."
        )
    if core.mixing == "glu":
        raise ArgumentError(
            "Expected blocks with mixing='gelu' or 'mlp', but got 'glu'. It multiplies states by gates, and no bound holds "
            "for all inputs. Train with mixing='gelu' or 'mlp'."
        )
    if core.stride > 1:
        raise ArgumentError(
            f"Expected blocks with stride=1, but got {core.stride}. Certify the network without a stride."
        )
