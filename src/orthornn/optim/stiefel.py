"""The base of the optimizers on the Stiefel manifold: the tensors that they accept, the step, and the control of drift.

Each update is exact up to rounding, but rounding errors accumulate: with M stored in float32, ||M^H M - I||_F grows as
the square root of the number of updates, whatever the precision of the update (at N = 512 it exceeds 1e-5 after some
hundred updates). Therefore the update runs in float64, and every `reorthogonalize_every` updates a Newton-Schulz step,
also in float64, takes M back to the manifold. The error before that step is stored in the state as "drift".
"""

from __future__ import annotations

import numbers
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from .._checks import check_dtype, check_finite, check_integer, check_number, check_tensor
from .._recording import recording
from ..errors import ArgumentError, ArgumentTypeError, NonFiniteError, NotOnGroupError, OrthornnError, ShapeError
from ..parametrizations.matrices import as_complex, as_pairs, orthogonality_error, rounding, widen
from ..parametrizations.sharded import gathered, sharded_like
from .cayley import polar_step

_eagerly = torch._disable_dynamo  # torch.compiler.disable, without importing dynamo together with the package
_FAR = 0.1  # beyond this a Newton-Schulz step is no small correction: something else has moved the matrix
_REFUSED = {
    "weight_decay": "Leave it out: the norm of such a matrix is constant.",
    "maximize": "Negate the loss.",
}


def rate(lr: object, name: str = "lr") -> float:
    """Return a learning rate as a float, from any real number or a tensor with one, as in torch's optimizers. Raise
    ArgumentError or ArgumentTypeError if it is negative, not finite, or not a number.
    """
    if isinstance(lr, Tensor) and lr.numel() == 1:
        lr = lr.item()
    if isinstance(lr, numbers.Real) and not isinstance(lr, int):
        lr = float(lr)  # for the message: NumPy's numbers print their class
    return check_number(name, lr, 0)


class StiefelOptimizer(torch.optim.Optimizer):
    """An optimizer for matrices with orthonormal columns that keeps them orthonormal.

    A parameter is real (N, P), complex (N, P), or pairs (N, P, 2) of real and imaginary parts, N >= P, in float32 or
    float64, and on the manifold to the rounding of its dtype. Weight decay does not apply, since ||M||_F is constant: a
    group with weight decay, or with ``maximize``, raises ArgumentError.

    Raises NotOnGroupError for a parameter off the manifold, with its distance; ShapeError or DTypeError for a parameter
    that cannot be on it; NonFiniteError for a gradient that is not finite or whose running means overflow, before
    changing the parameter and the means; and ArgumentError for a sparse gradient.
    """

    manifold = "stiefel"  # on which its parameters stay

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise ArgumentTypeError(
                "Expected params to be matrices or groups of them, but got one tensor. Pass [tensor]."
            )
        try:
            super().__init__(params, defaults)
        except OrthornnError:
            raise
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(
                f"Expected params to be matrices or groups of them, but got {params!r}: {error}."
            ) from None

    @abstractmethod
    def _moved(self, M: Tensor, G: Tensor, state: dict[str, Any], group: dict[str, Any], parameter: Tensor) -> Tensor:
        """Return the next M from M and the gradient G in double precision; buffers, shaped like `parameter`, go to
        `state`.
        """

    def _check_group(self, group: dict[str, Any]) -> None:
        """Raise ArgumentError if a value of a group, or a default, is outside its range."""
        rate(group["lr"])
        check_integer("reorthogonalize_every", group["reorthogonalize_every"], 1)
        for name, advice in _REFUSED.items():  # a group may hold anything; of these torch's optimizers make something
            if group.get(name):
                raise ArgumentError(
                    f"Expected no {name} for a matrix on the manifold, but got {group[name]!r}. {advice}"
                )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group after checking its values and its matrices.

        Args:
            param_group: Same as for torch.optim.Optimizer: "params", and options of this group.

        Raises:
            ArgumentError: If a value is not allowed.
            ShapeError, NotOnGroupError: If a matrix is not on the manifold.
        """
        self._check_group({**self.defaults, **param_group})
        given = param_group["params"]
        if isinstance(given, Tensor):
            check_tensor("the parameter", given)
        is_set = isinstance(given, (set, frozenset))  # which has no order: torch refuses it
        group = {**param_group, "params": given if is_set else [given] if isinstance(given, Tensor) else list(given)}
        for index, entry in enumerate(() if is_set else group["params"]):
            name, parameter = entry if isinstance(entry, tuple) else (f"parameter {index}", entry)
            if isinstance(parameter, Tensor):  # anything else torch complains about
                check_on_manifold(name, gathered(parameter))
        super().add_param_group(group)

    # Compiled, torch 2.13 would compute one matrix of several from the values of another, from the third step on.
    @_eagerly
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient, and return the loss.

        Args:
            closure: Function that recomputes the gradients and returns the loss. Default: None, for gradients that are
                already computed; the result is then None.
        """
        loss = None
        if closure is not None:
            with recording():
                loss = closure()
        for group in self.param_groups:
            self._check_group(group)  # a value may have been changed since it was added
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        if grad.layout != torch.strided:
            raise ArgumentError(
                f"Expected a dense gradient for the parameter of shape {tuple(parameter.shape)}, since a step along the "
                f"manifold moves every entry, but got {grad.layout}. Pass grad.to_dense()."
            )
        whole, grad = gathered(parameter), gathered(grad)
        check_finite("the gradient", grad)
        before = dict(self.state[parameter])
        try:
            M = self._next(whole, grad, self.state[parameter], group)
        except Exception:
            self.state[parameter] = before
            if not before:
                del self.state[parameter]
            raise
        parameter.copy_(sharded_like(stored(M, whole), parameter))

    def _next(self, whole: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        """Return the next matrix, in double precision, and count the update in its state."""
        if not state:
            state.update(step=0, drift=0.0)
        try:
            M = self._moved(widen(as_matrix(whole)), widen(as_matrix(grad)), state, group, whole)
        except torch.linalg.LinAlgError:
            raise NonFiniteError(
                f"Expected a computable update, but got a singular equation with lr={group['lr']:g} and a "
                f"gradient with an entry of size {float(grad.abs().max()):.3g}. Lower lr, or clip the gradient."
            ) from None
        state["step"] += 1
        if state["step"] % group["reorthogonalize_every"] == 0:
            error = orthogonality_error(M)
            if not error <= _FAR:
                raise NotOnGroupError(
                    f"Expected the parameter of shape {tuple(whole.shape)} to be on the manifold, but got "
                    f"||M^H M - I||_F = {error:.3g} before update {state['step']}. Let only this optimizer "
                    f"change it."
                )
            state["drift"] = max(state["drift"], error)
            M = polar_step(M)
        if not bool(torch.isfinite(M).all()):
            raise NonFiniteError(
                f"Expected a finite update, but got NaN or infinity with lr={group['lr']:g}. Lower lr, or clip the "
                f"gradient."
            )
        return M

    @torch.no_grad()
    def orthogonality_errors(self) -> list[float]:
        """Return the current ||M^H M - I||_F of every parameter, in float64, in the order of the groups."""
        return [orthogonality_error(as_matrix(gathered(p))) for group in self.param_groups for p in group["params"]]

    def drift(self) -> float:
        """Return the largest ||M^H M - I||_F that a re-orthogonalization has found so far; 0 before the first."""
        return max((state["drift"] for state in self.state.values() if state), default=0.0)


def as_matrix(tensor: Tensor) -> Tensor:
    """Return (N, P), complex if the tensor is or holds pairs (N, P, 2)."""
    return as_complex(tensor) if tensor.dim() == 3 else tensor


def stored(M: Tensor, like: Tensor) -> Tensor:
    """Return a matrix in the form of `like`: with its dtype, and as pairs if it has pairs."""
    return (M if like.is_complex() else as_pairs(M)).to(like.dtype)


def check_buffer(buffer: Tensor, grad: Tensor) -> Tensor:
    """Return the value that an update stores for the next ones; raise NonFiniteError if it overflows, since that is
    permanent.
    """
    if not bool(torch.isfinite(buffer).all()):
        raise NonFiniteError(
            f"Expected a gradient whose running mean fits {buffer.dtype}, but got an entry of size "
            f"{float(grad.abs().max()):.3g}. Clip the gradient."
        )
    return buffer


def check_on_manifold(name: str, tensor: Tensor) -> None:
    """Raise unless `tensor` is a matrix with orthonormal columns, to the rounding of its dtype."""
    check_tensor(name, tensor)
    if not tensor.is_complex():
        check_dtype(name, tensor)
    is_pairs = tensor.dim() == 3 and tensor.shape[-1] == 2 and not tensor.is_complex()
    if not (tensor.dim() == 2 or is_pairs) or tensor.shape[0] < tensor.shape[1]:
        raise ShapeError(
            f"Expected {name} to be a matrix (N, P), or pairs (N, P, 2), with N >= P, to have orthonormal columns, but got "
            f"{tuple(tensor.shape)}. Pass a wide matrix transposed, and other parameters to another optimizer."
        )
    check_finite(name, tensor)
    M = as_matrix(tensor.detach())
    error = orthogonality_error(M)
    if error > rounding(M):
        raise NotOnGroupError(
            f"Expected {name} of shape {tuple(tensor.shape)} to be on the manifold, but got ||M^H M - I||_F = "
            f"{error:.3g} (rounding of {tensor.dtype} allows {rounding(M):.1g}). Start from an orthogonal matrix (for "
            f"instance torch.nn.init.orthogonal_), or pass the parameter to another optimizer."
        )


Parameters = Iterable[Any]
