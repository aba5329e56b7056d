"""Exact online learning of a linear network: gradients of the whole past at every step, without storing the past."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import pairwise
from math import isfinite
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._checks import (
    check_choice,
    check_finite,
    check_flag,
    check_integer,
    check_module,
    check_number,
    check_shape,
    check_tensor,
    is_transformed,
)
from ..errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    NonFiniteError,
    NotOnGroupError,
    ShapeError,
    TransformError,
)
from ..kernels.interception import is_intercepted
from ..kernels.online import Online
from ..kernels.validation import check_reset
from ..parametrizations.matrices import orthogonality_error, rounding
from ..rotation_basis import decompose
from .current import assign_, check_assignable

_OWN_NAMES = {  # of `gradients`, in the kernel
    "gain": "gain",
    "weight_ih": "V",
    "bias_ih": "b",
    "h0": "z0",
    "readout_weight": "Y",
    "readout_bias": "d",
}
_SAVED = ("parameters", "blocks", "turns", "rates", "gradient", "moments", "state", "counts")  # tensors of `Online`


class OnlineLearner:
    r"""A linear network and its readout that learn from one sequence, step by step, by real-time recurrent learning.

    Create a learner with :meth:`OrthogonalRNN.online`. It holds copies: the network and the readout do not change until
    :meth:`write_back`. The learner works in the basis in which W consists of rotations, W = Q R Q', in float64 on the
    CPU. In this basis each parameter moves only one pair of units, so tracing its effect on the state takes a few
    numbers and as many multiply-adds per step: O(N (I + K)) in total, independent of the length of the past.

    The learner trains the angles of W's rotations (their planes are fixed), the gain, V, b, h_0, and the readout's
    matrix and vector, if they require a gradient in the network and the readout.

    While parameters do not change, the gradient equals back-propagation through the whole past up to rounding. With
    updates in between, a trace sums the effects that the parameter had at each step with its value at that time: the
    error is of first order in the learning rate and decays at the rate of the gain. Truncated back-propagation, in
    contrast, ignores everything older than its window even if parameters do not change. With a gain of 1 the traces of
    an endless stream grow without bound, like the gradient itself: choose a gain below 1, or restart.

    Args:
        network: One real linear layer with an orthogonal W.
        readout: The layer that predicts from the state.
        rates: Learning rates by parameter: V, Y, angles, gain, b, z0 (the initial state) and d. None for no updates.
        every: Steps between updates.
        optimizer: ``"adam"`` or ``"sgd"``.
        h0: The initial state (N,), or None for the trained state or zeros.
    """

    _may_learn = False  # from a gradient: after a call with one step and no target

    def __init__(
        self,
        network: Any,
        readout: nn.Linear,
        rates: dict[str, float] | None,
        every: int,
        optimizer: Literal["adam", "sgd"],
        h0: Tensor | None,
    ) -> None:
        self.network, self.readout = network, readout
        W = network.layers()[0].matrix().detach().cpu()
        check_finite("the network's W", W)
        found = decompose(W)
        if (found is not None and W.dtype != torch.float64) or _is_rounded(W, network):
            U, gains, V = torch.linalg.svd(W.double())  # of the nearest that is orthogonal in float64
            found = decompose(gains.mean() * (U @ V))
        if found is None:
            raise NotOnGroupError(
                "Expected W to be orthogonal, or a multiple of an orthogonal matrix, but got neither. Use a parametrization "
                "of orthogonal matrices."
            )
        self._Q = found.Q
        n, H = W.shape[0], W.shape[0] - W.shape[0] // 2
        c, s = found.turns
        half = n // 2
        blocks, turns = (
            torch.zeros(2, 2, H, dtype=torch.float64, device="cpu"),
            torch.ones(H, dtype=torch.float64, device="cpu"),
        )
        blocks[0, 0, :half], blocks[0, 1, :half] = c[:half], s[:half]
        blocks[1, 0, :half], blocks[1, 1, :half] = s[H:], c[H:]
        if n % 2:  # the middle unit is alone
            blocks[0, 0, half], turns[half] = c[half] + s[half], 0.0
        count = H + 1 + 2 * H * (network.input_size + 2 + readout.out_features) + readout.out_features
        parameters = torch.zeros(count, dtype=torch.float64, device="cpu")
        self._online = Online(network.input_size, readout.out_features, parameters, blocks, turns)
        self._online.every, self._online.adam = every, optimizer == "adam"
        self._read(h0)
        if rates is not None:
            self._online.rates = torch.zeros_like(parameters)
            for name, rate in self._online.named(self._online.rates).items():
                rate.fill_(rates[name])
            if rates["angles"]:
                self._check_can_be_written()
        self._online.restart()

    @torch.no_grad()
    def _check_can_be_written(self) -> None:
        """Raise unless the parametrization reaches W with turned rotations, before anything is learned."""
        ((_, transition),) = self.network.transitions()
        check_assignable(transition, *transition.method.names)
        if transition.method.group != "subset":  # it reaches them all
            return
        angles = self._online.named(self._online.parameters)["angles"]
        angles.copy_(torch.linspace(0.1, 0.2, len(angles), dtype=torch.float64, device="cpu"))
        W = self.transition.to(transition.free()[0])
        angles.zero_()
        try:
            copy.deepcopy(transition).set_weight_(W)
        except NotOnGroupError as error:
            raise ArgumentError(
                f"Expected a parametrization that reaches W after its rotations have turned, but got "
                f"{self.network.parametrization}. Use Householder(), Stiefel() or Rotations(), or pass "
                f"learn_angles=False."
            ) from error

    @torch.no_grad()
    def _read(self, h0: Tensor | None) -> None:
        """Copy the network's and the readout's parameters. Raise NonFiniteError if one is NaN or infinite."""
        network, readout, Q = self.network, self.readout, self._Q
        for module, name, _ in self._places():
            if isinstance(value := getattr(module, name), Tensor):
                check_finite(f"{'the readout' if module is readout else 'the network'}'s {name}", value.detach())
        own = self._online.named(self._online.parameters)
        layer = network.layers()[0]
        own["gain"].copy_(
            torch.as_tensor(layer.gain, dtype=torch.float64, device="cpu")
        )  # a number would be float32 on the way
        own["V"].copy_(self._pairs((Q.mT @ layer.weight_ih.detach().double().cpu()).mT))
        if layer.bias_ih is not None:
            own["b"].copy_(self._pairs(layer.bias_ih.detach().double().cpu() @ Q))
        first = network.initial_states(1)[0][0] if h0 is None else h0
        own["z0"].copy_(self._pairs(first.detach().double().cpu() @ Q))
        own["Y"].copy_(self._pairs(readout.weight.detach().double().cpu() @ Q))
        if readout.bias is not None:
            own["d"].copy_(readout.bias.detach())

    def __call__(self, x: Tensor, target: Tensor | None = None, reset: Tensor | None = None) -> Tensor:
        """Return the prediction of every step, each made before learning from the target of that step.

        Args:
            x: Inputs of the next T steps.
            target: Targets of the loss (1/2) |y - target|^2. Default: None, run without learning.
            reset: True if a new episode starts before a step, as with :meth:`restart`. Default: None, no reset.

        Shape:
            - x: (T, I). target and output: (T, K). reset: bool (T,).

        Raises:
            NonFiniteError: If x or a target is NaN or infinite (nothing is learned from it), or if a prediction is,
                because learning has diverged.
            ShapeError, DTypeError, DeviceError: If a tensor does not match the network.
        """
        self._check("x", x, self._online.inputs)
        if target is not None:
            self._check("target", target, self._online.outputs)
            if target.shape[0] != x.shape[0]:
                raise ShapeError(f"Expected a target for each of {x.shape[0]} steps, but got {target.shape[0]}.")
        if reset is not None:
            check_reset(reset, (x.shape[0],), x.device)
        found = self._steps(_memory(x), None if target is None else _memory(target), reset)
        self._may_learn = target is None and x.shape[0] == 1
        if not _is_finite(found):
            step = int((~found.isfinite()).any(1).nonzero()[0])
            raise NonFiniteError(
                f"Expected finite predictions, but got NaN or infinity at step {step} of this call: the parameters or the "
                f"state have grown beyond float64. Create another learner with a lower lr or a gain below 1."
            )
        return found

    def _steps(self, x: Tensor, target: Tensor | None, reset: Tensor | None) -> Tensor:
        """Return predictions, restarting at the beginning of each episode."""
        starts = [] if reset is None else reset.nonzero().flatten().tolist()
        found = []
        for first, last in pairwise(sorted({0, *starts, x.shape[0]})):
            if first in starts:
                self._online.restart()
            found.append(self._online.steps(x[first:last], None if target is None else target[first:last]))
        return torch.cat(found) if found else self._online.steps(x, target)

    def learn(self, grad: Tensor) -> None:
        """Learn from a gradient, for custom losses: call it after a call with one step and no target.

        Args:
            grad: dL/dy (K,) of the last prediction.

        Raises:
            NonFiniteError: If the gradient is NaN or infinite. Nothing is learned from it.
            ShapeError, DTypeError, DeviceError: If the gradient does not match the prediction.
            ArgumentError: If the last call had several steps or a target, or its gradient was already used.
        """
        self._check("grad", grad, self._online.outputs, dim=1)
        if not self._may_learn:
            raise ArgumentError(
                "Expected learn() after a call with one step and no target, but got another call or none. Call the learner "
                "with x (1, I) first."
            )
        self._online.learn(_memory(grad))
        self._may_learn = False

    def restart(self) -> None:
        """Start a new episode: reset the state to h_0 and stop gradients to earlier steps."""
        self._online.restart()
        self._may_learn = False

    @property
    def state(self) -> Tensor:
        """The state h_t (N,) after the last step, in the network's basis."""
        return self._units(self._online.state[0]) @ self._Q.mT

    @property
    def transition(self) -> Tensor:
        """W (N, N) with the current angles, without the gain."""
        Q, online, n = self._Q, self._online, self._Q.shape[0]
        R, H, half = online.turned_blocks(), online.pairs, self._Q.shape[0] // 2
        W = torch.zeros(n, n, dtype=torch.float64, device="cpu")
        first, second = torch.arange(H, device="cpu"), torch.arange(H, n, device="cpu")
        W[first, first] = R[0, 0]
        W[second, second] = R[1, 1, :half]
        W[first[:half], second], W[second, first[:half]] = R[0, 1, :half], R[1, 0, :half]
        return Q @ W @ Q.mT

    @property
    def gradients(self) -> dict[str, Tensor]:
        """Gradients summed since the last update, in the network's basis.

        angles (H,); gain (); weight_ih (N, I); bias_ih (N,); h0 (N,); readout_weight (K, N); readout_bias (K,).
        """
        return self._named(self._online.gradient)

    def _named(self, vector: Tensor) -> dict[str, Tensor]:
        own, Q = self._online.named(vector), self._Q
        return {
            "angles": own["angles"].clone(),
            "gain": own["gain"].clone(),
            "weight_ih": (self._units(own["V"]) @ Q.mT).mT,
            "bias_ih": self._units(own["b"]) @ Q.mT,
            "h0": self._units(own["z0"]) @ Q.mT,
            "readout_weight": self._units(own["Y"]) @ Q.mT,
            "readout_bias": own["d"].clone(),
        }

    @torch.no_grad()
    def write_back(self) -> None:
        """Write the learned values into the network and the readout; values with a learning rate of 0 do not change.

        W is set by the parametrization's right inverse, which raises NotOnGroupError if W has left the set that it
        spans. Other tensors are set through their torch parametrization, if they have one.

        Raises:
            ArgumentError: If pruning or weight_norm, which have no inverse, computes one of them. Nothing is written.
            NonFiniteError: If learning has diverged. Nothing is written.
        """
        rates = self._online.rates
        if rates is None:
            return
        learned = {name for name, rate in self._online.named(rates).items() if bool(rate.any())}
        places = [(module, name, key) for module, name, key in self._places() if _OWN_NAMES[key] in learned]
        for module, name, _ in places:
            check_assignable(module, name)
        values = self._named(self._online.parameters)
        for key in ("angles", *(key for _, _, key in places)):
            if not bool(values[key].isfinite().all()):
                raise NonFiniteError(
                    f"Expected finite parameters, but got {key} with NaN or infinity: learning has diverged. Create another "
                    f"learner with a lower lr; nothing has been written."
                )
        if "angles" in learned:
            suffix = self.network.suffixes[0]
            W = self.transition.to(getattr(self.network, f"weight_ih_{suffix}"))  # orthogonal in its dtype
            setattr(self.network, f"weight_hh_{suffix}", W)
        for module, name, key in places:
            now = getattr(module, name)
            if now is not None:
                assign_(module, name, values[key].view(now.shape))

    def _places(self) -> tuple[tuple[nn.Module, str, str], ...]:
        """Return the modules and names of all learned values except W, by their names in `gradients`."""
        suffix = self.network.suffixes[0]
        return (
            (self.network, f"weight_ih_{suffix}", "weight_ih"),
            (self.network, f"bias_ih_{suffix}", "bias_ih"),
            (self.network, f"gain_{suffix}", "gain"),
            (self.network, "h0", "h0"),
            (self.readout, "weight", "readout_weight"),
            (self.readout, "bias", "readout_bias"),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything that later steps depend on, from which another learner continues bit for bit.

        The state contains parameters, traces, the optimizer's moments, rates and settings, and the basis of W's
        rotations. The network and the readout are not included; they have a separate state_dict.

        Example::

            >>> rnn, readout = OrthogonalRNN(1, 8, nonlinearity="identity"), torch.nn.Linear(8, 1)
            >>> learner = rnn.online(readout, lr=1e-3)
            >>> resumed = rnn.online(readout, lr=1e-3)
            >>> resumed.load_state_dict(learner.state_dict())
        """
        online = self._online
        values = {name: getattr(online, name) for name in _SAVED}
        tensors = {name: None if value is None else value.clone() for name, value in values.items()}
        own = {"every": online.every, "adam": online.adam, "may_learn": self._may_learn}
        return {"Q": self._Q.clone(), **tensors, **own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a `state_dict` of another learner, with its rates and settings.

        Args:
            state_dict: State of a learner with the same numbers of inputs, units and outputs. It is copied.

        Raises:
            ArgumentError: If entries are missing or unknown.
            ShapeError, DTypeError, DeviceError: If a tensor does not match the learner.
        """
        own, online = self.state_dict(), self._online
        if isinstance(state_dict, Mapping) and state_dict:  # one of before it was stored has none
            state_dict = {"may_learn": True, **state_dict}
        if not isinstance(state_dict, Mapping) or state_dict.keys() != own.keys():
            found = sorted(map(str, state_dict)) if isinstance(state_dict, Mapping) else type(state_dict).__name__
            raise ArgumentError(
                f"Expected a state_dict of the entries {', '.join(own)}, but got {found}. Pass the state_dict() of a "
                f"learner."
            )
        own["rates"] = online.parameters  # for its shape: a learner of gradients has none
        tensors = {name: state_dict[name] for name in ("Q", *_SAVED)}
        if tensors["rates"] is None:
            del tensors["rates"]
        for name, value in tensors.items():
            check_shape(name, value, tuple(own[name].shape))
            if value.dtype != own[name].dtype:
                raise DTypeError(
                    f"Expected {name} to be {own[name].dtype}, but got {value.dtype}. Pass it as it was saved."
                )
            if value.device.type != "cpu":
                raise DeviceError(
                    f"Expected {name} on the CPU, but got {value.device}. Load it with map_location='cpu'."
                )
        every, adam = check_integer("every", state_dict["every"], 1), check_flag("adam", state_dict["adam"])
        with torch.inference_mode(False):  # what a learner writes to must be writable outside of it, too
            taken = {
                name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()
            }
        self._Q, self._may_learn = taken.pop("Q"), check_flag("may_learn", state_dict["may_learn"])
        vars(online).update({"rates": None, **taken, "every": every, "adam": adam})

    def _pairs(self, rows: Tensor) -> Tensor:
        """Return rows (..., N) as (..., 2, H)."""
        H = self._online.pairs
        return torch.stack([rows[..., :H], nn.functional.pad(rows[..., H:], (0, 2 * H - rows.shape[-1]))], dim=-2)

    def _units(self, pairs: Tensor) -> Tensor:
        """Return (..., 2, H) as rows (..., N)."""
        n = self._Q.shape[0]
        return pairs.flatten(-2)[..., :n]

    def _check(self, name: str, tensor: Tensor, width: int, dim: int = 2) -> None:
        check_shape(name, tensor, ("T", width) if dim == 2 else (width,))
        _check_real(name, tensor)
        if not _is_finite(tensor):
            check_finite(name, tensor)


def _is_rounded(W: Tensor, network: Any) -> bool:
    """Return whether 16-bit parameters make up W, and W is a multiple of an orthogonal matrix up to their rounding."""
    stored = next(network.transitions())[1].free()[0].dtype
    if stored not in (torch.bfloat16, torch.float16):
        return False
    unit = W.double() / torch.linalg.matrix_norm(W.double()) * W.shape[0] ** 0.5
    return orthogonality_error(unit) <= rounding(unit.to(stored))


def _is_finite(tensor: Tensor) -> bool:
    """Return whether all numbers are finite. A single step is checked in plain Python, which takes only a
    microsecond.
    """
    if tensor.numel() <= 16:
        return all(map(isfinite, tensor.flatten().tolist()))
    return bool(tensor.isfinite().all())


def _memory(tensor: Tensor) -> Tensor:
    """Return the tensor as float64 memory that the kernel can read: contiguous, and without a lazy negation."""
    return tensor.detach().double().contiguous().resolve_neg()


def _check_real(name: str, tensor: Tensor) -> None:
    """Raise unless a tensor holds readable real numbers on the CPU: learning happens outside of autograd."""
    if not tensor.is_floating_point():
        raise DTypeError(f"Expected {name} to be real, but got {tensor.dtype}. Convert it with .double().")
    if tensor.device.type != "cpu":
        raise DeviceError(f"Expected {name} on the CPU, but got {tensor.device}. Move it with .cpu().")
    if is_transformed() or is_intercepted(tensor):
        raise TransformError(
            "Expected plain tensors, since online learning writes in place, but got a torch.func transform, forward mode "
            "or a dispatch mode. Call the learner outside of it."
        )


def online(
    network: Any,
    readout: nn.Linear,
    lr: float | None,
    recurrent_lr: float | None,
    every: int,
    optimizer: Literal["adam", "sgd"],
    learn_angles: bool,
    h0: Tensor | None,
) -> OnlineLearner:
    """Return a learner after checking the arguments of `OrthogonalRNN.online`."""
    if torch.is_inference_mode_enabled():
        with torch.inference_mode(False):  # what a learner writes to must be writable outside of it, too
            return online(network, readout, lr, recurrent_lr, every, optimizer, learn_angles, h0)
    check_module("readout", readout)
    if len(network.suffixes) != 1 or network.nonlinearity != "identity" or network.linear_transition:
        raise ArgumentError(
            "Expected one layer and direction with nonlinearity='identity', but got a network whose traces are not O(N). "
            "Use truncated back-propagation: detach the state between pieces of the sequence."
        )
    if network.clip_backward is not None:
        raise ArgumentError(
            f"Expected a network without clip_backward, since traces carry the whole gradient forwards, but got "
            f"clip_backward={network.clip_backward:g}. Set it to None, or use truncated back-propagation."
        )
    if network.is_complex:
        raise ArgumentError("Expected a real network, but got a complex one. Use a parametrization with field='real'.")
    if not isinstance(readout, nn.Linear) or readout.in_features != network.hidden_size:
        raise ShapeError(f"Expected readout to be a Linear of {network.hidden_size} features, but got {readout}.")
    weights = (network.layers()[0].weight_ih, readout.weight)
    for name, weight in zip(("the network's parameters", "readout.weight"), weights):
        if not weight.is_floating_point():
            raise DTypeError(f"Expected {name} to be real, but got {weight.dtype}.")
        if weight.is_meta or is_intercepted(weight):
            raise DeviceError(f"Expected {name} to have values, but got a tensor without. Move it with .to_empty().")
    if readout.out_features < 1:
        raise ShapeError(f"Expected readout to predict at least one number, but got {readout}.")
    check_integer("every", every, 1)
    check_choice("optimizer", optimizer, ("adam", "sgd"))
    check_flag("learn_angles", learn_angles)
    if h0 is not None:
        check_tensor("h0", h0)
        _check_real("h0", h0)
        check_shape("h0", h0, (network.hidden_size,))
        check_finite("h0", h0.detach())
    if lr is None:
        if recurrent_lr is not None:
            raise ArgumentError(
                f"Expected lr together with recurrent_lr, but got lr=None and recurrent_lr={recurrent_lr!r}. Pass lr=0.0 "
                f"to learn the recurrence only."
            )
        return OnlineLearner(network, readout, None, every, optimizer, h0)
    rate = check_number("lr", lr, 0.0)
    recurrent = rate if recurrent_lr is None else check_number("recurrent_lr", recurrent_lr, 0.0)
    rates = dict.fromkeys(("V", "b", "z0", "Y", "d"), rate)
    rates["angles"], rates["gain"] = recurrent if learn_angles else 0.0, recurrent
    trained = _trained(network, readout)
    rates = {name: value if trained[name] else 0.0 for name, value in rates.items()}
    if (rate or recurrent) and not any(rates.values()):
        raise ArgumentError(
            "Expected a trainable parameter, but got none: in the network and the readout all are frozen or have "
            "learning rate 0. Unfreeze them with requires_grad_(), or pass lr=None to sum gradients only."
        )
    return OnlineLearner(network, readout, rates, every, optimizer, h0)


@torch.enable_grad()
def _trained(network: Any, readout: nn.Linear) -> dict[str, bool]:
    """Return which of the kernel's parameters the network and the readout train: those that exist and are not
    frozen.
    """
    layer, ((_, transition),) = network.layers()[0], network.transitions()
    tensors = {
        "V": layer.weight_ih,
        "b": layer.bias_ih,
        "gain": layer.gain if network.learn_gain else None,
        "z0": network.h0 if network.learn_h0 else None,
        "Y": readout.weight,
        "d": readout.bias,
    }
    trained = {name: tensor is not None and tensor.requires_grad for name, tensor in tensors.items()}
    return {**trained, "angles": any(tensor.requires_grad for tensor in transition.free())}
