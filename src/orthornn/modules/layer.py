"""One layer and direction, as plain values: from inputs to states over a sequence, or over a single step.

Real:    h_t = phi(gain W h_{t-1} + V x_t + b).
With linear_transition (Henaff et al., 2016, section 4, LT-RNN): h_t = gain W h_{t-1} + phi(V x_t + b).
Complex: the same on [Re h; Im h] (Mhammedi et al., 2017, section 3); V, b and h_0 have a last dimension of 2,
(real, imaginary). With modrelu and complex_modrelu the bias is b of phi, not added to the pre-activation.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import activations
from ..activations import Activation
from ..errors import ArgumentError
from ..kernels import compact_wy_rnn, dense_rnn, operator_rnn, rotations_rnn
from ..kernels.embedding import complex_state, embed_matrix, embed_state
from ..kernels.functional import Output
from ..kernels.memory import Mode
from ..kernels.plan import Linear, cheaper_form, operator_pays, rotations_pay
from ..kernels.rotations.basis import kept, rotations_of
from ..kernels.sequence import cast, is_tokens, project
from ..kernels.transforms import is_intercepted, needs_plain_torch
from .lockstep import BuiltTransition
from .packing import last_of_each
from .trace import LayerTrace
from .transition import Transition

Phi = tuple[Activation, Tensor | None]  # with its parameter
BIASED = ("modrelu", "complex_modrelu")  # activations whose parameter is the layer's bias


def activation_in(nonlinearity: str | Activation, is_complex: bool) -> Activation:
    """The activation of a layer: on a complex state modReLU is eq. 4 of Mhammedi et al. (2017), on pairs."""
    phi = activations.get(nonlinearity)
    return activations.get("complex_modrelu") if is_complex and phi.name == "modrelu" else phi


@dataclass
class Layer:
    """The tensors of one layer and direction. N is the hidden size.

    is_complex: whether states are. size: that of the real state on which the kernels work, 2N if they are.
    """

    transition: Transition | BuiltTransition
    weight_ih: Tensor
    bias_ih: Tensor | None
    activation: Activation
    activation_parameter: Tensor | None
    gain: float | Tensor
    linear_transition: bool
    is_complex: bool
    size: int

    def _wide(self, tensor: Tensor | None) -> Tensor | None:
        """In at least float32: the recurrence does not run in 16 bits."""
        if tensor is None:
            return None
        return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor

    def input_weight(self, x: Tensor) -> Tensor:
        """V (size, I) for a real input, (size, 2I) for an embedded complex one."""
        weight = self._wide(self.weight_ih)
        assert weight is not None
        if not self.is_complex:
            return weight
        return embed_matrix(torch.view_as_complex(weight)) if x.is_complex() else torch.cat(weight.unbind(-1))

    def bias(self) -> tuple[Tensor | None, Tensor | None]:
        """(what is added to the pre-activation, the activation's parameter), each (size,) or less, or None."""
        bias = self._wide(self.bias_ih)
        if self.activation.name in BIASED:
            b = self.weight_ih.new_zeros(self.activation.parameter_size(self.size)) if bias is None else bias
            return None, self._wide(b)
        if bias is not None and self.is_complex:
            bias = torch.cat(bias.unbind(-1))
        return bias, self._wide(self.activation_parameter)

    def matrix(self) -> Tensor:
        """Return W on the real state (size, size); the caller may write into it."""
        W = self.transition.matrix()
        return embed_matrix(W) if self.is_complex else W

    def _matrix(self) -> Tensor:
        """Return W on the real state (size, size), perhaps the cached tensor itself: only to be read."""
        W = self.transition.cached_matrix()
        return embed_matrix(W) if self.is_complex else W

    def state_in(self, h: Tensor) -> Tensor:
        """A state as the kernels take it."""
        return embed_state(h) if self.is_complex else h

    def state_out(self, h: Tensor) -> Tensor:
        """A state as the user sees it."""
        return complex_state(h) if self.is_complex else h

    def input_in(self, x: Tensor, weight: Tensor) -> Tensor:
        """An input as the kernels take it."""
        if is_tokens(x):
            return x
        return cast(embed_state(x) if x.is_complex() else x, weight.dtype)

    def sequence(
        self,
        x: Tensor,
        h0: Tensor,
        batch_sizes: Tensor | None,
        output: Output,
        clip: float | None,
        form: str,
        backend: str = "auto",
        traces: list[LayerTrace] | None = None,
        memory: Mode = "store",
        segment: int | None = None,
    ) -> Tensor:
        """States (T, B, N), flat (R, N), or with output="last" (B, N), from inputs (T, B, I) or (R, I).

        memory, segment: as in orthornn.kernels.dense_rnn.
        traces: where to note this sequence, if somebody looks; see trace.py.
        """
        if traces is not None:
            return self._traced(x, h0, batch_sizes, output, clip, form, backend, traces)
        seen = self._seen_dtype()
        h0, x, weight_ih, bias, phi = self._operands(x, h0, seen)
        states = self._recurrence(
            x,
            h0,
            phi,
            batch_sizes,
            clip,
            form,
            weight_ih=weight_ih,
            bias=bias,
            output=output,
            backend=backend,
            memory=memory,
            segment=segment,
        )
        return self._narrowed(states, seen)

    def _traced(
        self,
        x: Tensor,
        h0: Tensor,
        batch_sizes: Tensor | None,
        output: Output,
        clip: float | None,
        form: str,
        backend: str,
        traces: list[LayerTrace],
    ) -> Tensor:
        """`sequence`, with the projected inputs and all states as tensors that autograd.grad can be asked about."""
        dtype = self._seen_dtype()
        h0, x, weight_ih, bias, phi = self._operands(x, h0, dtype)
        with nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False):
            projected = x if weight_ih is None else project(x, weight_ih, bias)
        if not projected.requires_grad and torch.is_grad_enabled():
            projected.requires_grad_()
        states = self._recurrence(projected, h0, phi, batch_sizes, clip, form, output="all", backend=backend)
        traces.append(LayerTrace(self, phi, projected, h0, states, batch_sizes))
        seen = states if output == "all" else last_of_each(states, h0, batch_sizes)
        return self._narrowed(seen, dtype)

    def _operands(
        self, x: Tensor, h0: Tensor, seen: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Phi]:
        """(h_0, x, V, b, phi) as the kernels take them; where the transition is linear, x is phi(V x + b) already."""
        weight_ih = self.input_weight(x)
        bias, parameter = self.bias()
        h0 = cast(self.state_in(h0), weight_ih.dtype)
        stored = torch.bfloat16 if seen == torch.bfloat16 else h0.dtype
        if not self.linear_transition:
            weight_ih = cast(weight_ih, stored)
            return h0, self.input_in(x, weight_ih), weight_ih, bias, (self.activation, parameter)
        x = self.input_in(x, weight_ih)
        with nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False):
            x = self.activation(project(x, weight_ih, bias), parameter).to(stored)
        return h0, x, None, None, (activations.get("identity"), None)

    def _recurrence(
        self,
        x: Tensor,
        h0: Tensor,
        phi: Phi,
        batch_sizes: Tensor | None,
        clip: float | None,
        form: str,
        *,
        output: Output,
        backend: str,
        weight_ih: Tensor | None = None,
        bias: Tensor | None = None,
        memory: Mode = "store",
        segment: int | None = None,
    ) -> Tensor:
        """The states, W being applied in the form that was asked for or that costs least."""
        common = self._common(h0, batch_sizes, clip, output, weight_ih, bias)
        how: dict[str, Any] = {"memory": memory, "segment": segment}
        form = "dense" if torch.jit.is_tracing() else form  # the others ask for sizes, which a trace has as tensors
        if form == "rotations":
            return self._as_rotations(x, h0, phi, self._matrix(), {**common, **how}, backend)
        if form == "auto" and clip is None and self._may_turn(x, h0, phi, batch_sizes, backend):
            W = self._matrix()
            if self._turns(x, h0, W, output, weight_ih):
                return self._as_rotations(x, h0, phi, W, {**common, **how}, backend)
        method = self.transition.method
        stored = memory == "store" or form == "operator"  # applied by its structure, all states are kept
        structured = stored and form not in ("dense", "compact_wy") and method.operator_cost is not None
        operator = self.transition.operator() if structured else None
        if operator is not None and (form == "operator" or operator_pays(operator.cost, self.size, h0.shape[0])):
            x = x if is_tokens(x) else x.to(h0.dtype)
            common["weight_ih"] = None if weight_ih is None else weight_ih.to(h0.dtype)
            return operator_rnn(x, h0, operator.apply, operator.apply_adjoint, operator.operands, *phi, **common)
        if method.columns is not None and form == "auto":
            form = cheaper_form(self.size, method.columns)
        compact = None if form == "dense" else self.transition.compact()
        if compact is None:
            return dense_rnn(x, h0, self._matrix(), *phi, **common, backend=backend, memory=memory, segment=segment)
        return compact_wy_rnn(x, h0, *compact, *phi, **common, backend=backend, memory=memory, segment=segment)

    def _common(
        self,
        h0: Tensor,
        batch_sizes: Tensor | None,
        clip: float | None,
        output: Output,
        weight_ih: Tensor | None,
        bias: Tensor | None,
    ) -> dict[str, Any]:
        """What all recurrences take."""
        return {
            "weight_ih": weight_ih,
            "bias": bias,
            "gain": self.gain if not isinstance(self.gain, Tensor) else self.gain.to(h0.dtype),
            "batch_sizes": batch_sizes,
            "output": output,
            "clip": clip,
        }

    def read(
        self,
        x: Tensor,
        h0: Tensor,
        batch_sizes: Tensor | None,
        readout: tuple[Tensor, Tensor | None],
        clip: float | None,
        form: str,
        memory: Mode = "store",
        segment: int | None = None,
    ) -> Tensor | None:
        """Y h_t + d for every step, (T, B, K) or (R, K), where W runs as rotations; else None. readout: (Y, d)."""
        if self.is_complex or self.weight_ih.dtype not in (torch.float32, torch.float64) or clip is not None:
            return None
        if form not in ("auto", "rotations") or torch.is_autocast_enabled(h0.device.type):
            return None
        phi: Phi = (activations.get("identity") if self.linear_transition else self.activation, None)
        if not self._may_turn(x, h0, phi, batch_sizes, "auto"):
            return None
        W = self._matrix()
        inside = None if self.linear_transition else self.weight_ih
        if form == "auto" and not self._turns(x, h0, W, "all", inside, readout[0].shape[0]):
            return None
        h0, x, weight_ih, bias, phi = self._operands(x, h0, self._seen_dtype())
        common = self._common(h0, batch_sizes, clip, "all", weight_ih, bias)
        how = {"memory": memory, "segment": segment, "readout": readout}
        return self._as_rotations(x, h0, phi, W, {**common, **how}, "auto")

    def _may_turn(self, x: Tensor, h0: Tensor, phi: Phi, batch_sizes: Tensor | None, backend: str) -> bool:
        """Whether W as rotations is to be considered: a linear recurrence that nothing but autograd looks at."""
        if phi[0].name != "identity" or backend != "auto" or h0.device.type != "cpu" or h0.numel() == 0:
            return False
        graph = torch.compiler.is_compiling() or torch.jit.is_tracing()
        return not (graph or needs_plain_torch() or is_intercepted(x, h0))

    def _turns(
        self, x: Tensor, h0: Tensor, W: Tensor, output: Output, weight_ih: Tensor | None, read: int | None = None
    ) -> bool:
        """Whether W is orthogonal and costs less as rotations."""
        steps = x.numel() // (h0.shape[0] * (1 if is_tokens(x) else x.shape[-1]))
        size = Linear(
            n=self.size,
            m=self.transition.method.columns,
            batch=h0.shape[0],
            steps=steps,
            all_states=output == "all",
            projected=weight_ih is None,
            trained=torch.is_grad_enabled()
            and any(t is not None and t.requires_grad for t in (x, h0, W, weight_ih, self.weight_ih)),
            held=not W.requires_grad,
            read=read,
        )
        if not rotations_pay(size._replace(found=True)):
            return False
        known = kept(W)
        if known is not None:
            return known[0] is not None
        return rotations_pay(size) and rotations_of(W) is not None

    def _as_rotations(self, x: Tensor, h0: Tensor, phi: Phi, W: Tensor, common: dict[str, Any], backend: str) -> Tensor:
        if phi[0].name != "identity":
            raise ArgumentError(
                f"form='rotations' is for linear recurrences: nonlinearity='identity', or linear_transition=True; "
                f"got {phi[0].name}."
            )
        if common["clip"] is not None:
            raise ArgumentError("form='rotations' has no clip_backward: clipping entries is not linear; got one.")
        return rotations_rnn(x, h0, W, **{k: v for k, v in common.items() if k != "clip"}, backend=backend)

    def _narrowed(self, states: Tensor, seen: torch.dtype) -> Tensor:
        """States as the user sees them."""
        return cast(self.state_out(states), seen)

    def _seen_dtype(self) -> torch.dtype:
        """The dtype of the states of a sequence: that of the weights, or bfloat16 where autocast says so.

        bfloat16 states are stored as such, and the recurrence runs in float32 with W as it is.
        """
        dtype, device = _narrow(self.weight_ih, self.is_complex), self.weight_ih.device.type
        if dtype != torch.float32 or device == "meta" or not torch.is_autocast_enabled(device):
            return dtype
        return torch.bfloat16 if torch.get_autocast_dtype(device) == torch.bfloat16 else dtype

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        """h_t (B, N) from x_t (B, I) or tokens (B,) and h_{t-1} (B, N), by plain torch operations."""
        weight_ih = self.input_weight(x)
        bias, parameter = self.bias()
        x, h = self.input_in(x, weight_ih), self.state_in(h).to(weight_ih.dtype)
        # There is no autocast for meta tensors.
        with nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False):
            a, carried = project(x, weight_ih, bias), self.gain * (h @ self._matrix().mT)
            if self.linear_transition:
                states = carried + self.activation(a, parameter)
            else:
                states = self.activation(a + carried, parameter)
        return self.state_out(states).to(_narrow(self.weight_ih, self.is_complex))


def _narrow(weight: Tensor, is_complex: bool) -> torch.dtype:
    """The dtype of outputs: that of the weights (complex states have no 16-bit form)."""
    if not is_complex:
        return weight.dtype
    return torch.complex128 if weight.dtype == torch.float64 else torch.complex64
