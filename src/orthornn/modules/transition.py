"""The hidden-to-hidden matrix of one layer and direction: a bound parametrization with its free tensors as
parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.optim.optimizer import register_optimizer_step_post_hook

from .._checks import check_factory, check_tensor, is_captured, is_transformed
from ..compact_wy import Base
from ..complex_as_real import complex_state, embed_state
from ..kernels.interception import is_intercepted
from ..kernels.projection import at_least_float32
from ..parametrizations.parametrization import BoundParametrization, Parametrization, check_description
from ..parametrizations.sharded import care_for, gathered
from ..parametrizations.torch_tools import parameters_behind
from ..parametrizations.upkeep import watch
from .current import assign_, check_assignable, current
from .read_weight import Read, check_unchanged, read

_SHARED = "W of orthornn"  # among the tensors that torch.nn.utils.parametrize.cached() keeps, by module and name


_forgetting: list[Any] = []  # the hook that forgets W after each step of an optimizer, once there is such a W


def _forget_shared(*_: object) -> None:
    """Discard every W inside cached(): torch does not count the changes that a fused optimizer makes."""
    store: dict[Any, Any] = parametrize._cache
    for key in [key for key in store if key[1] == _SHARED]:
        del store[key]


class Operator(NamedTuple):
    """A transition, described by its effect on rows of the real state; see orthornn.kernels.operator_rnn."""

    apply: Callable[..., Tensor]
    apply_adjoint: Callable[..., Tensor]
    operands: tuple[Tensor, ...]


class Transition(nn.Module):
    """The free tensors of a parametrization, and W (N, N) built from them.

    The free tensors are parameters of this module and have the names that the parametrization gives them. If no
    gradient is required, W is built once and cached until a free tensor or a buffer changes. If a gradient is required,
    W is cached inside torch.nn.utils.parametrize.cached(), until the step of an optimizer or a change other than
    through `.data`.

    Args:
        parametrization: Parametrization of W.
        n: Size N of the matrix.
        device, dtype: Device and dtype of the free tensors, real even if W is complex. Default: None, torch's defaults.

    Attributes:
        method: The bound parametrization, with its buffers.
    """

    _reads: tuple[Read, ...] = ()

    def __init__(
        self,
        parametrization: Parametrization,
        n: int,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_description("parametrization", parametrization)
        check_factory(device, dtype)
        self.method = parametrization.bind(n)
        for name, shape in zip(self.method.names, self.method.shapes):
            empty = torch.empty(shape, device=device, dtype=dtype or torch.get_default_dtype())
            self.register_parameter(name, nn.Parameter(empty))
        self.method.to(device=empty.device)  # where the default device has put the free tensors, too
        self._cache: _CachedMatrix | None = None
        self.reset_parameters()
        watch(self)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Redraw the free tensors and the parametrization's random buffers; do nothing on the meta device.

        Args:
            generator: Random number generator, on the CPU. Default: None, torch's default generator.
        """
        if not self.free()[0].is_meta:
            self.method.initial(generator)  # Not used: with this draw a seed gives the network that published runs had.
            self.assign_(self.method.initial(generator))

    def assign_(self, free: tuple[Tensor, ...]) -> None:
        """Copy values into the free tensors, or pass them to the torch parametrizations that compute them.

        Args:
            free: Values, in the order and with the shapes of the parametrization's free tensors.

        Raises:
            ArgumentError: If pruning or weight_norm, which have no inverse, computes a free tensor from others.
        """
        check_assignable(self, *self.method.names)
        for name, value in zip(self.method.names, free):
            assign_(self, name, value)

    def under(self, parametrization: Parametrization) -> Transition:
        """Return a new transition under another parametrization, with the same size, dtype, device, mode and trained
        flags.

        Args:
            parametrization: Parametrization of the new W.

        Raises:
            ArgumentError: If the parametrization does not support N.
        """
        first = self.free()[0]
        with torch.random.fork_rng(devices=[]):  # its initial values are of no use
            other = Transition(parametrization, self.method.n, device=first.device, dtype=first.dtype)
        other.requires_grad_(any(value.requires_grad for value in self.free()))
        return other.train(self.training)

    def set_weight_(self, W: Tensor) -> None:
        """Set the free tensors to represent W. Only its values count: no gradient passes to the origin of W.

        Args:
            W: Matrix (N, N), real or complex like the parametrization.

        Raises:
            NotOnGroupError: If W is not in the set that the parametrization spans.
            ArgumentError: Same as `assign_`.
            ShapeError, DTypeError: If W has another shape or dtype.
        """
        check_tensor("W", W)
        self._reads = ()  # rnn.weight_hh_l0 *= -1 changes what was read, and assigns it
        check_assignable(self, *self.method.names)  # before right_inverse, which sets buffers
        self.assign_(self.method.right_inverse(W.detach()))

    def free(self) -> tuple[Tensor, ...]:
        """Return the free tensors in the parametrization's order: parameters, or the tensors that a torch tool
        computes.

        Raises:
            ReadOnlyError: If a user changed in place a W that was `read`.
        """
        if not torch.compiler.is_compiling() and self._reads:
            self._check_reads()
        own, names = self._parameters, self._method.names
        return tuple([own[name] if name in own else current(self, name) for name in names])  # type: ignore[misc]

    def trained(self) -> tuple[tuple[nn.Parameter, ...], ...]:
        """Return for each free tensor the parameter itself, or the parameters from which a torch tool computes it."""
        return tuple([parameters_behind(self, name) for name in self._method.names])

    def wide_free(self) -> tuple[Tensor, ...]:
        """Return the free tensors, gathered if sharded, in at least float32: a 16-bit W is not orthogonal."""
        return tuple(map(_wide, self.free()))

    def read(self, name: str) -> Tensor:
        """Return W as in `matrix`, for a caller who may mistake it for a parameter: after an in-place change the next
        use raises.

        Args:
            name: Name of the attribute that the user read.
        """
        W = self.matrix()
        self._reads = (*self._reads, *read(name, W))
        return W

    def _check_reads(self) -> None:
        reads, self._reads = self._reads, ()
        self._reads = check_unchanged(reads)

    def _save_to_state_dict(self, *arguments: Any, **options: Any) -> None:
        self._check_reads()
        super()._save_to_state_dict(*arguments, **options)

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        self._reads = ()  # whose graph would hold the free tensors, which torch may exchange
        super()._load_from_state_dict(*arguments, **options)

    def matrix(self) -> Tensor:
        """Return W (N, N), complex for a complex parametrization, in the free tensors' precision (at least float32).

        The tensor is new: writing into it changes neither the free tensors nor later calls.
        """
        return self.cached_matrix().clone()

    def cached_matrix(self) -> Tensor:
        """Return W (N, N) as in `matrix`, but possibly the cached tensor or a free tensor itself: do not write into
        it.
        """
        free = self.free()
        if torch.jit.is_tracing():
            return self._traced_matrix()
        if torch.compiler.is_compiling() or is_transformed() or is_intercepted(*free):
            return self.method(*map(_wide, free))
        if _learns(free):
            return self._shared_matrix(free) if parametrize._cache_enabled else self.method(*map(_wide, free))
        if free and is_captured(free[0]):  # comparing values is waiting for them, and W is the graph's own
            return self.method(*map(_wide, free))
        made_from = (*free, *self._method.buffers())
        cached = self._cache
        if cached is None or not cached.holds(made_from):
            # Not in inference mode, where W could not be saved for a later backward pass of the inputs.
            with torch.inference_mode(False), torch.no_grad():
                W = self.method(*map(_wide, free))
                # A view would hold the free tensor, which torch.utils.swap_tensors then refuses to exchange.
                W = W.clone() if W.is_inference() or W._is_view() else W
                cached = self._cache = _CachedMatrix(tuple(t.detach().clone() for t in made_from), W, W._version)
        return cached.W

    def _shared_matrix(self, free: tuple[Tensor, ...]) -> Tensor:
        """Return W with its gradient, built once inside torch.nn.utils.parametrize.cached() and discarded at its end.

        It is recomputed after the step of an optimizer, and if a free tensor or a buffer is replaced, starts or stops
        being trained, or is changed in a way that torch counts: changes through `.data` are not. Comparing values would
        take longer than a step.
        """
        store: dict[Any, Any] = parametrize._cache
        made_from = (*free, *self._method.buffers())
        state = [(id(tensor), tensor._version, tensor.requires_grad) for tensor in made_from]
        found = store.get((id(self), _SHARED))
        if found is None or found[0] != state:
            if not _forgetting:
                _forgetting.append(register_optimizer_step_post_hook(_forget_shared))
            W = self.method(*map(_wide, free))
            found = store[id(self), _SHARED] = (state, W, made_from, self)  # alive, so that no id becomes another's
        return found[1]

    def _traced_matrix(self) -> Tensor:
        """Return W for a TorchScript trace; for ONNX a constant, since ONNX lacks the operators that build W."""
        if not torch.onnx.is_in_onnx_export():
            return self.method(*self.wide_free())
        state = torch._C._get_tracing_state()
        torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
        try:
            with torch.no_grad():
                return self.cached_matrix()
        finally:
            torch._C._set_tracing_state(state)  # type: ignore[attr-defined]

    def compact(self) -> tuple[Tensor, Base] | None:
        """Return (U, B) of the compact form, real (embedded if W is complex), or None."""
        return self._method.compact(*self.wide_free())

    @property
    def _method(self) -> BoundParametrization:
        """`method`, looked up ten times faster than torch looks up an attribute."""
        return self._modules["method"]  # type: ignore[return-value]

    @property
    def learns(self) -> bool:
        """Whether W would require a gradient if built now."""
        return _learns(self.free())

    @property
    def builds(self) -> bool:
        """True if each call builds W and its gradient because W is not cached. Does not run any torch tool to find
        out.
        """
        if not torch.is_grad_enabled() or parametrize._cache_enabled:
            return False
        held = {**self.__dict__, **self._parameters}  # a replica of data parallelism has tensors as attributes
        free = [(held[name],) if name in held else parameters_behind(self, name) for name in self._method.names]
        return any(tensor.requires_grad for tensors in free for tensor in tensors)

    @property
    def num_reflections(self) -> int | None:
        """Number of reflections of the compact form, or None if there is no such form."""
        return self._method.num_reflections

    @property
    def operator_cost(self) -> tuple[int, int] | None:
        """Cost of applying W by its structure, or None if this is not possible."""
        return self._method.operator_cost

    def operator(self) -> Operator | None:
        """Return W h and its adjoint on the real state, if the parametrization can apply W without building it."""
        method = self.method
        if method.operator_cost is None:
            return None
        operands = method.operands(*self.wide_free())
        if method.field == "real":
            return Operator(method.multiply, method.multiply_adjoint, operands)

        def embedded(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
            return lambda h, *operands: embed_state(function(complex_state(h), *operands))

        return Operator(embedded(method.multiply), embedded(method.multiply_adjoint), operands)

    def after_update_(self) -> None:
        """Do what the parametrization requires after an optimizer step."""
        care_for(self.method, self.free())

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_cache": None, "_reads": ()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        watch(self)

    def _apply(self, fn: Any, recurse: bool = True) -> Transition:
        self._cache = None
        self._check_reads()
        self._reads = ()
        return super()._apply(fn, recurse)


class _CachedMatrix(NamedTuple):
    """W, the tensors that it was built from, and the version it had: the caller may have written into it."""

    made_from: tuple[Tensor, ...]
    W: Tensor
    version: int

    def holds(self, now: tuple[Tensor, ...]) -> bool:
        """Return whether W still belongs to the tensors `now`.

        The tensors are compared by value: torch's fused optimizers, and `.data`, change a tensor but not its version.
        """
        return self.W._version == self.version and all(map(_same, self.made_from, now))


def _learns(free: Sequence[Tensor]) -> bool:
    """Return whether a W built now from these free tensors would require a gradient."""
    return torch.is_grad_enabled() and any([p.requires_grad for p in free])


def _wide(parameter: Tensor) -> Tensor:
    """Return a free tensor in the form from which W is computed."""
    return at_least_float32(gathered(parameter))


def _same(then: Tensor, now: Tensor) -> bool:
    if then.dtype != now.dtype or then.device != now.device:
        return False
    return then.is_meta or torch.equal(then, now)


class BuiltTransition(NamedTuple):
    """A transition whose tensors are already computed, with the interface that a layer needs."""

    method: BoundParametrization
    W: Tensor
    factors: tuple[Tensor, Base] | None
    operator_cost: None = None

    @property
    def learns(self) -> bool:
        """Whether W requires a gradient."""
        return self.W.requires_grad

    @property
    def builds(self) -> bool:
        """Return False: W is already built."""
        return False

    @property
    def num_reflections(self) -> int | None:
        """Number of reflections of the compact form, or None if there is no such form."""
        return self.method.num_reflections

    @classmethod
    def of(cls, transition: Transition | BuiltTransition) -> BuiltTransition:
        """Return the current W (N, N) and its compact form, if there is one."""
        return cls(transition.method, transition.cached_matrix(), transition.compact())

    def matrix(self) -> Tensor:
        """Return W (N, N); the caller may write into it."""
        return self.W.clone()

    def cached_matrix(self) -> Tensor:
        """Return W (N, N) itself: do not write into it."""
        return self.W

    def compact(self) -> tuple[Tensor, Base] | None:
        """Return (U, B), or None."""
        return self.factors

    def operator(self) -> Operator | None:
        """Return None: no structure is left."""
        return None
