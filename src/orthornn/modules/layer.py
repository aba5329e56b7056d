"""One layer and direction: its tensors, the arguments it passes to the kernels, and how it processes a sequence.

Complex networks run on the real state [Re h; Im h] of twice the size (complex_as_real.py). For modReLU the bias is the
b of phi and is not added to the pre-activation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import activations
from .._checks import is_transformed
from ..activations import Activation
from ..complex_as_real import complex_dtype, complex_state, embed_matrix, embed_state
from ..kernels import irregular, recurrence, rotation
from ..kernels.call import Call, Options, States
from ..kernels.checkpointing import Mode, segment_length
from ..kernels.cost_model import Linear
from ..kernels.functional import scaled
from ..kernels.interception import is_autocast, is_observed, no_autocast, refuse_clip
from ..kernels.operator_rnn import OperatorCall, number_like, run_operator
from ..kernels.projection import at_least_float32, cast, is_tokens, project
from ..layout import SequenceLayout
from ..parametrizations.matrices import as_complex
from ..rotation_basis import rotations_of
from . import impulse
from .forms import CallSizes, check_rotations, choose_form, reads_response, runs_as_rotations
from .tracing import LayerTrace
from .transition import BuiltTransition, Transition

_IDENTITY = activations.get("identity")


def activation_in(nonlinearity: str | Activation, is_complex: bool) -> Activation:
    """Return the activation of a layer: for a complex state modReLU acts on pairs, eq. 4 of Mhammedi et al. (2017)."""
    phi = activations.get(nonlinearity)
    return activations.get("complex_modrelu") if is_complex and phi.name == "modrelu" else phi


class Settings(NamedTuple):
    """The options with which a network runs its layers: clip_backward, form, memory and segment of OrthogonalRNN, and a
    kernel backend.
    """

    clip: float | None = None
    form: str = "auto"
    memory: Mode = "store"
    segment: int | None = None
    backend: str = "auto"


@dataclass
class Layer:
    """The tensors of one layer and direction. N is the hidden size.

    Attributes:
        is_complex: Whether states are complex.
        size: Size of the real state of the kernels: N, or 2N if states are complex.
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

    def run(
        self,
        x: Tensor,
        h0: Tensor,
        layout: SequenceLayout,
        only_last: bool,
        settings: Settings,
        restart: Tensor | None = None,
        carried: bool = False,
    ) -> States:
        """Return all states, unless ``only_last``, and the last ones.

        Args:
            x: Inputs (T, B, I), or tokens (T, B); flat rows of a ragged batch.
            h0: (B, N).
            layout: The division of the rows into steps.
            only_last: Leave out the states of all steps.
            settings: How the network runs its layers.
            restart: The state (B, N) from which sequences restart at the resets of the layout.
            carried: Whether the last states are the h0 of the next segment: they are then returned in full precision,
                not rounded to the dtype of the outputs.
        """
        dtype = self.state_dtype()
        if layout.dt is not None:
            return self._out(self._over_time(x, h0, layout, only_last, settings, restart), dtype, carried)
        call = self._call(x, h0, layout, _options(self.activation, settings, only_last), dtype, restart)
        call = recurrence.widened(call) if carried else call
        if only_last and self._may_use_response(call, settings):
            last = impulse.last_state(self._stored(settings), call)
            if last is not None:
                return self._out(States(None, last), dtype, carried)
        return self._out(self.apply_transition(call, settings), dtype, carried)

    def _over_time(
        self,
        x: Tensor,
        h0: Tensor,
        layout: SequenceLayout,
        only_last: bool,
        settings: Settings,
        restart: Tensor | None,
    ) -> States:
        """Do the same as `run`, in at least float32, for a layout with times between steps."""
        assert layout.dt is not None
        angles, rates = self._flow()
        weight_ih = self.input_weight(x)
        h0 = cast(self.state_in(h0), weight_ih.dtype)
        restart = None if restart is None else cast(self.state_in(restart), weight_ih.dtype)
        x = self._added(x, weight_ih)
        options = Options("irregular", _IDENTITY, None, only_last, settings.backend)
        dt = layout.unflatten(layout.dt)
        call = irregular.IrregularCall(x, angles, rates, dt, h0, restart, layout, options)
        if settings.memory != "store":
            segment = settings.segment or segment_length(layout.length, self.size, 0)
            call = call._replace(options=options.changed(segment_length=segment))
        return irregular.run(call)

    def _flow(self) -> tuple[Tensor, Tensor]:
        """Return the angles and rates per unit of time, float64."""
        assert isinstance(self.transition, Transition)
        found = self.transition.method.flow(*self.transition.wide_free())
        assert found is not None
        return found

    def _added(self, x: Tensor, weight_ih: Tensor) -> Tensor:
        """Return the term that a linear recurrence adds at each step: V x + b, or with a linear transition phi of
        it.
        """
        bias, parameter = self.bias()
        x = self.input_in(x, weight_ih)
        with no_autocast(x):
            added = project(x, weight_ih, bias)
            return self.activation(added, parameter) if self.linear_transition else added

    def every_kth(self, x: Tensor, h0: Tensor, k: int, settings: Settings) -> Tensor | None:
        """Return the states (T/k, B, N) after steps k, 2k, ..., T of a real linear layer, for x (T, B, I) with T a
        multiple of k. Return None if the layer's response to one step overflows.
        """
        dtype, layout = self.state_dtype(), SequenceLayout(x.shape[0], x.shape[1])
        call = self._call(x, h0, layout, _options(self.activation, settings), dtype, None)
        states = impulse.every_kth(self._stored(settings), self.transition, call, k, self.gain)
        return None if states is None else cast(states, dtype)

    def trace(
        self,
        x: Tensor,
        h0: Tensor,
        layout: SequenceLayout,
        only_last: bool,
        settings: Settings,
        restart: Tensor | None = None,
    ) -> tuple[States, LayerTrace]:
        """Do the same as `run`, and return a trace whose tensors can be passed to autograd.grad.

        The input is projected outside the kernel, and all states are stored.
        """
        dtype = self.state_dtype()
        call = self._call(x, h0, layout, _options(self.activation, settings), dtype, restart)
        with no_autocast(x):
            projected = call.x
            if call.weight_ih is not None:
                projected = layout.unflatten(project(call.rows, call.weight_ih, call.bias))
        if not projected.requires_grad and torch.is_grad_enabled():
            projected.requires_grad_()
        call = call.changed(x=projected, weight_ih=None, bias=None)
        states = self.apply_transition(call, settings._replace(memory="store", segment=None))
        assert states.all is not None
        phi = (call.options.activation, call.parameter)
        trace = LayerTrace(self, phi, projected, call.h0, states.all, layout, call.restart)
        # From all states, so that their gradient is complete.
        last = layout.last(layout.flatten(states.all), call.h0)
        return self._out(States(None if only_last else states.all, last), dtype), trace

    def forward_readout(
        self,
        x: Tensor,
        h0: Tensor,
        layout: SequenceLayout,
        readout: rotation.Readout,
        settings: Settings,
        restart: Tensor | None = None,
    ) -> Tensor | None:
        """Return Y h_t + d for every step, (T, B, K) or (R, K), if W runs as rotations; otherwise None. readout: (Y,
        d).
        """
        if self.is_complex or self.weight_ih.dtype not in (torch.float32, torch.float64):
            return None
        if settings.form not in ("auto", "rotations") or is_autocast(h0):
            return None
        call = self._call(x, h0, layout, _options(self.activation, settings), self.state_dtype(), restart)
        if settings.clip is not None or not self._may_rotate(call):
            return None
        linear, group = self._linear_sizes(call, readout), self.transition.method.group
        if settings.form == "auto" and not runs_as_rotations(linear, group):
            return None
        W = self._matrix()
        if settings.form == "auto" and rotations_of(W) is None:
            return None
        return rotation.run(self._in_segments(call.changed(weight=W), settings, 0), self._gain(call.h0), readout).all

    def step(self, x: Tensor, h: Tensor, clip: float | None = None, dt: Tensor | None = None) -> Tensor:
        """Return h_t (B, N) from x_t (B, I) or tokens (B,) and h_{t-1} (B, N), by plain torch operations.

        Args:
            x: The input.
            h: The previous state.
            clip: Bound on the entries of dL/da_t, or None.
            dt: Time since the previous step (B,), float64, for a linear recurrence of rotations; None for 1.
        """
        dtype, weight_ih = self.state_dtype(), self.input_weight(x)
        if dt is not None:
            wide = irregular.turned(self.state_in(h), *self._flow(), dt) + self._added(x, weight_ih)
            return cast(self.state_out(wide), dtype)
        bias, parameter = self.bias()
        x, h = self.input_in(x, weight_ih), cast(self.state_in(h), weight_ih.dtype)
        with no_autocast(x):
            a, carried = project(x, weight_ih, bias), self.gain * (h @ self._matrix().mT)
            if self.linear_transition:
                states = _clipped(carried + self.activation(a, parameter), clip)
            else:
                states = self.activation(_clipped(a + carried, clip), parameter)
            return cast(self.state_out(states), dtype)

    def input_weight(self, x: Tensor) -> Tensor:
        """Return V (size, I) for a real input, or (size, 2I) for a complex input that is represented as a real one."""
        weight = at_least_float32(self.weight_ih)
        if not self.is_complex:
            return weight
        return embed_matrix(as_complex(weight)) if x.is_complex() else torch.cat(weight.unbind(-1))

    def bias(self) -> tuple[Tensor | None, Tensor | None]:
        """Return (the bias added to the pre-activation, phi's parameter), each of at most ``size`` numbers, or None."""
        bias = None if self.bias_ih is None else at_least_float32(self.bias_ih)
        if self.activation.parameter_is_bias:
            b = self.weight_ih.new_zeros(self.activation.parameter_size(self.size)) if bias is None else bias
            return None, at_least_float32(b)
        if bias is not None and self.is_complex:
            bias = torch.cat(bias.unbind(-1))
        parameter = self.activation_parameter
        return bias, None if parameter is None else at_least_float32(parameter)

    def matrix(self) -> Tensor:
        """Return W on the real state, (size, size); the caller may write into it."""
        W = self.transition.matrix()
        return embed_matrix(W) if self.is_complex else W

    def _matrix(self) -> Tensor:
        """Return W on the real state, (size, size). It may be the cached tensor itself: do not write into it."""
        W = self.transition.cached_matrix()
        return embed_matrix(W) if self.is_complex else W

    def built(self) -> Layer:
        """Return the layer with its current W and factors, so the gradients of all calls reach the same W."""
        return Layer(**{**vars(self), "transition": BuiltTransition.of(self.transition)})

    def _call(
        self,
        x: Tensor,
        h0: Tensor,
        layout: SequenceLayout,
        options: Options,
        dtype: torch.dtype,
        restart: Tensor | None,
    ) -> Call:
        """Return the call without its transition; if the transition is linear, x already is phi(V x + b)."""
        weight_ih = self.input_weight(x)
        bias, parameter = self.bias()
        h0 = cast(self.state_in(h0), weight_ih.dtype)
        restart = None if restart is None else cast(self.state_in(restart), weight_ih.dtype)
        stored = torch.bfloat16 if dtype == torch.bfloat16 else h0.dtype
        if not self.linear_transition:
            weight_ih = cast(weight_ih, stored)
            x = self.input_in(x, weight_ih)
            return Call(x, weight_ih, bias, h0, h0, None, None, parameter, restart, layout, options)
        x = self.input_in(x, weight_ih)
        with no_autocast(x):
            x = self.activation(project(x, weight_ih, bias), parameter).to(stored)
        linear = options.changed(activation=_IDENTITY)
        return Call(x, None, None, h0, h0, None, None, None, restart, layout, linear)

    def apply_transition(self, call: Call, settings: Settings) -> States:
        """Apply W in the requested form, or in the cheapest one."""
        h0, m = call.h0, self.transition.num_reflections
        wanted, sizes = self._wanted(call, settings)
        form = choose_form(wanted, sizes)
        W = self._matrix() if form == "rotations" else None
        if (
            W is not None and wanted == "auto" and rotations_of(W) is None
        ):  # an optimizer has let it drift off its group
            form = choose_form(wanted, sizes._replace(linear=None))
        if form == "operator":
            return self._run_operator(call)
        gain = self._gain(h0)
        call = self._in_segments(call, settings, (m or 0) if form == "compact_wy" else 0)
        if form == "rotations":
            check_rotations(call.options.activation.name, call.options.clip)
            return rotation.run(call.changed(weight=W), gain)
        compact = self.transition.compact() if form == "compact_wy" else None
        if compact is None:
            return recurrence.run(scaled(call.with_transition("dense", self._matrix()), gain))
        U, base = compact
        c, s = (None, None) if base is None else base
        return recurrence.run(scaled(call.with_transition("compact_wy", U, c, s), gain))

    def _run_operator(self, call: Call) -> States:
        h0, options = call.h0, call.options
        operator = self.transition.operator()
        assert operator is not None
        gain = self._gain(h0)
        return run_operator(
            OperatorCall(
                call.x if is_tokens(call.x) else call.x.to(h0.dtype),
                None if call.weight_ih is None else call.weight_ih.to(h0.dtype),
                call.bias,
                h0,
                call.parameter,
                call.layout,
                operator.apply,
                operator.apply_adjoint,
                operator.operands,
                number_like(gain, h0),
                options.activation,
                options.clip,
                options.only_last,
                call.restart,
            )
        )

    def _in_segments(self, call: Call, settings: Settings, m: int) -> Call:
        """Return the call with its segment length, if it has one. m: Number of reflections of the form that runs."""
        if settings.memory == "store":
            return call
        segment = settings.segment or segment_length(call.layout.length, self.size, m)
        return call.changed(options=call.options.changed(segment_length=segment))

    def _stored(self, settings: Settings) -> impulse.Apply:
        """Return a function that runs a call with this transition and stores all states."""
        settings = settings._replace(memory="store", segment=None)
        return lambda call: self.apply_transition(call, settings)

    def _may_use_response(self, call: Call, settings: Settings) -> bool:
        """Return whether the last state may come from the response to one step: a linear recurrence that runs eagerly.

        Any gain is allowed: the response is computed with gain W, trained or not, and discarded if it overflows. Two
        cases are excluded because they are not sums of such responses: gradients that are clipped at every step, and
        phi(V x + b) of a linear transition, which `impulse.serves` detects by its projected input. A requested form
        runs as it is, step by step, and so does a complex state, since no such case has been measured.
        """
        if settings.form != "auto" or settings.clip is not None or self.is_complex:
            return False
        if is_autocast(call.h0):  # it would round the product to 16 bits
            return False
        # In this order: a graph that compared its sizes would be one for sizes of the same choice only.
        if not self._may_rotate(call) or not impulse.serves(call):
            return False
        return reads_response(self._linear_sizes(call), call.x.shape[2])

    def _wanted(self, call: Call, settings: Settings) -> tuple[str, CallSizes]:
        """Return the requested form and the facts that the choice of a form depends on."""
        # A trace has sizes as tensors: all forms but one ask for them.
        wanted = "dense" if torch.jit.is_tracing() else settings.form
        rotates = wanted == "auto" and call.options.clip is None and self._may_rotate(call)
        # Applied by its structure, all states are stored.
        structured = settings.memory == "store" or wanted == "operator"
        cost = self.transition.operator_cost if structured else None
        return wanted, CallSizes(
            n=self.size,
            num_reflections=self.transition.num_reflections,
            operator_cost=cost,
            batch=call.layout.batch,
            steps=call.layout.length,
            built_rows=self._built_rows(call),
            on_cpu=call.h0.is_cpu,
            linear=self._linear_sizes(call) if rotates else None,
            group=self.transition.method.group if rotates else "all",
        )

    def _may_rotate(self, call: Call) -> bool:
        """Return whether rotations are an option: a linear recurrence on a CPU, observed only by autograd."""
        options = call.options
        if options.activation.name != "identity" or options.backend != "auto":
            return False
        if not call.h0.is_cpu or is_observed(call.x, call.h0):  # a graph may not know how many numbers there are
            return False
        return call.h0.numel() > 0

    def _linear_sizes(self, call: Call, readout: rotation.Readout | None = None) -> Linear:
        """Return the sizes of a linear recurrence.

        Args:
            call: The call of the recurrence.
            readout: (Y, d), which reads every state, or None.
        """
        learns = self.transition.learns
        tensors = (*call.tensors(), self.weight_ih, self.gain, *(readout or ()))
        trained = learns or any(isinstance(t, Tensor) and t.requires_grad for t in tensors)
        trained = trained and torch.is_grad_enabled()
        return Linear(
            n=self.size,
            m=self.transition.num_reflections,
            batch=call.layout.batch,
            steps=call.layout.length if not call.layout.is_ragged else call.layout.rows // call.layout.batch,
            all_states=not call.options.only_last,
            projected=call.weight_ih is None,
            trained=trained,
            held=not learns,
            read=None if readout is None else readout[0].shape[0],
        )

    def _built_rows(self, call: Call) -> int | None:
        """Return the number of rows of a call on a CPU for which W would be built and differentiated; otherwise
        None.
        """
        if not self.transition.builds or not call.h0.is_cpu or is_observed(call.x, call.h0):
            return None
        return call.layout.rows

    def _gain(self, h0: Tensor) -> float | Tensor:
        return self.gain.to(h0.dtype) if isinstance(self.gain, Tensor) else self.gain

    def state_in(self, h: Tensor) -> Tensor:
        """Return a state in the form that the kernels take."""
        return embed_state(h) if self.is_complex else h

    def state_out(self, h: Tensor) -> Tensor:
        """Return a state in the form that the user sees."""
        return complex_state(h) if self.is_complex else h

    def input_in(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return an input in the form that the kernels take."""
        if is_tokens(x):
            return x
        return cast(embed_state(x) if x.is_complex() else x, weight.dtype)

    def _out(self, states: States, dtype: torch.dtype, carried: bool = False) -> States:
        """Return states in the form that the user sees; the last states stay unrounded if carried to another
        segment.
        """
        every, last = states
        every = None if every is None else cast(self.state_out(every), dtype)
        last = None if last is None else self.state_out(last)
        return States(every, last if last is None or carried else cast(last, dtype))

    def state_dtype(self) -> torch.dtype:
        """Return the dtype of the states of a sequence: the dtype of the weights, or bfloat16 if autocast requests it.

        bfloat16 states are stored in bfloat16; the recurrence runs in float32 with an unrounded W.
        """
        dtype = _narrow(self.weight_ih, self.is_complex)
        if dtype != torch.float32 or not is_autocast(self.weight_ih):
            return dtype
        return torch.bfloat16 if torch.get_autocast_dtype(self.weight_ih.device.type) == torch.bfloat16 else dtype


def _options(phi: Activation, settings: Settings, only_last: bool = False) -> Options:
    """Return the options of a call, before the form of its transition is chosen."""
    return Options("dense", phi, settings.clip, only_last, settings.backend)


class _Clip(torch.autograd.Function):
    """The identity, with a gradient that is clipped as the kernels clip dL/da_t."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, clip: float) -> Tensor:
        ctx.clip = clip
        return a.view_as(a)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        if torch.is_grad_enabled():  # a higher derivative will be asked for
            refuse_clip(ctx.clip)
        return grad.clamp(-ctx.clip, ctx.clip), None


def _clipped(a: Tensor, clip: float | None) -> Tensor:
    """Return a tensor whose gradient is clipped in the backward pass."""
    if clip is None:
        return a
    if not torch.compiler.is_compiling() and is_transformed():
        refuse_clip(clip)
    return _Clip.apply(a, clip)


def _narrow(weight: Tensor, is_complex: bool) -> torch.dtype:
    """Return the dtype of outputs: the dtype of the weights (complex states have no 16-bit form)."""
    return complex_dtype(weight.dtype) if is_complex else weight.dtype
