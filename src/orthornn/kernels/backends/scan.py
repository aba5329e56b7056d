"""The base of all backends that only run the time loop: input projection, factors, and every parameter gradient.

A `ScanBackend` provides the two loops. Parameter gradients are sums over rows, that is, matrix products over all steps
at once; this module computes them for all of these backends (derivations: backends/reference/*.md).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from ... import compact_wy
from ..call import Call, Gradients, Needs, Residuals, States
from ..projection import project, project_backward
from .protocol import Backend
from .reference.compact_wy import factor_gradients


class Scan(NamedTuple):
    """The results of the forward loop.

    states: (T, B, N), or (R, N) for a ragged batch. preactivations: (R, N), if phi' reads them. h_tilde: (R, M), for
    compact WY.
    """

    states: Tensor
    preactivations: Tensor | None = None
    h_tilde: Tensor | None = None


class ScanGradients(NamedTuple):
    """The results of the backward loop: dL/da (R, N), dL/dh_0 (B, N), dL/dparameter, C~ (R, M) for compact WY,
    dL/drestart.
    """

    delta: Tensor
    h0: Tensor
    parameter: Tensor | None = None
    C_tilde: Tensor | None = None
    restart: Tensor | None = None


class ScanBackend(Backend):
    """A backend that provides only the loop over time: `scan` and `scan_backward`."""

    @abstractmethod
    def scan(self, call: Call, x: Tensor) -> Scan:
        """Run the loop on projected rows x (R, N); `call.factors` holds (U, S) for compact WY."""

    @abstractmethod
    def scan_backward(self, call: Call, grad: Tensor, last: bool, saved: Tensor) -> ScanGradients:
        """Run the loop backwards.

        Args:
            call: Same as in `scan`.
            grad: dL/dh for every row (R, N), or with ``last`` for the last state of each sequence (B, N).
            last: Whether ``grad`` belongs to the last states.
            saved: States or pre-activations (R, N), depending on which phi' reads.
        """

    def prepare(self, call: Call) -> Call:
        """Return the call with a contiguous weight or, for compact WY, with its factors."""
        if call.options.kind != "compact_wy":
            return call._replace(weight=call.weight.contiguous())
        return call if call.factors is not None else call._replace(factors=factors(call))

    def forward(self, call: Call, save: bool) -> tuple[States, Residuals]:
        """Return the states and the residuals for the backward pass."""
        call, layout = self.prepare(call), call.layout
        states, preactivations, h_tilde = self.scan(call, project(call.rows, call.weight_ih, call.bias))
        result = States(None if call.options.only_last else states, layout.last(layout.flatten(states), call.h0))
        if not save:
            return result, Residuals()
        U, S = call.factors or (None, None)
        return result, Residuals(
            states if preactivations is None else None,
            preactivations,
            h_tilde,
            U if call.weight.dim() == 1 else None,
            S,
        )

    def backward(self, call: Call, grad: States, residuals: Residuals, needs: Needs) -> Gradients:
        """Return the required gradients."""
        layout, weight, kind = call.layout, call.weight, call.options.kind
        states = None if residuals.states is None else layout.flatten(residuals.states)
        preactivations = residuals.preactivations
        saved = states if preactivations is None else preactivations
        assert saved is not None
        if states is None:
            states = call.options.activation(saved.to(call.h0.dtype), call.parameter)
        if kind == "compact_wy":
            U = weight if residuals.U is None else residuals.U
            assert residuals.S is not None
            call = call._replace(factors=(U, residuals.S))
        else:
            call = call._replace(weight=weight.contiguous())
        rows_grad, last = _one_gradient(call, grad)
        delta, grad_h0, grad_parameter, C_tilde, grad_restart = self.scan_backward(call, rows_grad, last, saved)
        grad_x, grad_weight_ih = project_backward(delta, call.rows, call.weight_ih, needs.x, needs.weight_ih)
        grad_bias = delta.sum(dim=0) if needs.bias else None
        grad_weight: Tensor | None = None
        grad_base: tuple[Tensor | None, Tensor | None] = (None, None)
        if kind != "compact_wy":
            grad_weight = layout.sum_outer(delta, states, call.h0, call.restart) if needs.weight else None
        elif needs.weight or needs.c or needs.s:
            assert residuals.h_tilde is not None
            assert C_tilde is not None
            rows = (delta, residuals.h_tilde, C_tilde, states)
            grad_weight, found = factor_gradients(call, *rows, needs.c or needs.s)
            grad_base = found or grad_base
            if weight.dim() == 1:
                reflectors = compact_wy.unpack(weight.double(), call.h0.shape[1])
                grad_reflectors = compact_wy.normalize_backward(grad_weight.double(), reflectors, U)
                grad_weight = compact_wy.pack(grad_reflectors).to(weight.dtype)
        return Gradients(
            grad_x, grad_weight_ih, grad_bias, grad_h0, grad_weight, *grad_base, grad_parameter, grad_restart
        )


def factors(call: Call) -> tuple[Tensor, Tensor]:
    """Return U (N, M) and S (M, M), computed in float64, in the dtype of the states."""
    wide, S = compact_wy.factors(call.weight, call.h0.shape[1])
    return wide.to(call.h0.dtype), S.to(call.h0.dtype)


def reflected(U: Tensor, S: Tensor) -> Tensor:
    """Return U S, computed in float64.

    Rounding to tf32, if torch allows it, would move W away from the orthogonal matrices, by the same amount in every
    step.
    """
    return (U.double() @ S.double()).to(U.dtype)


def _one_gradient(call: Call, grad: States) -> tuple[Tensor, bool]:
    """Return the gradient of all rows, or the gradient of the last states and True."""
    if grad.all is None or (call.layout.rows == 0 and grad.last is not None):
        assert grad.last is not None
        return grad.last.contiguous(), True
    if grad.last is None:
        return grad.all, False
    rows = grad.all.clone(memory_format=torch.contiguous_format)
    rows[call.layout.last_rows(rows.device)] += grad.last.to(rows.dtype)
    return rows, False
