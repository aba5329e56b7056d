"""Hooks that run what a parametrization requires after an optimizer's step, and refuse optimizers that do not fit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..errors import ArgumentError, ArgumentTypeError
from ..parametrizations import BoundParametrization
from ..parametrizations.upkeep import attached, detached
from .groups import Bound, bound_methods
from .joint import leaves
from .stiefel import StiefelOptimizer

_stepping: WeakKeyDictionary[BoundParametrization, dict[int, bool]] = WeakKeyDictionary()
"""By the ids of the optimizers of a parametrization's tensors that step now: whether they had a gradient for it before."""


def attach(model: nn.Module, optimizer: torch.optim.Optimizer) -> RemovableHandle:
    """Run, after each `optimizer.step()`, `after_update_` of every parametrization in `model` that it has moved.

    With several optimizers attach each (or one JointOptimizer): a parametrization belongs to the optimizer that has
    the first of its trained tensors. One that is frozen now is cared for once it is trained. What is attached twice
    runs once per step all the same: the optimizers of `optim.recipes` are attached already.

    A copy of the optimizer (deepcopy, pickle) has no hooks, as is torch's way: attach it to the copy of the model.

    Args:
        model: The network, with parametrizations in any of its modules.
        optimizer: Of all or some of its parameters.

    Returns:
        A handle whose `remove()` ends it; the next step then warns if a parametrization needs care.

    Raises:
        ArgumentError: If the optimizer has a tensor that must stay on a manifold and does not keep it there, or one of
            torch's tools (parametrize, pruning) computes a tensor that `after_update_` writes.
        ArgumentTypeError: For arguments in another order.
    """
    if not (isinstance(model, nn.Module) and isinstance(optimizer, torch.optim.Optimizer)):
        raise ArgumentTypeError(
            f"Expected a module and an optimizer, but got {type(model).__name__} and {type(optimizer).__name__}. "
            f"Call attach(model, optimizer)."
        )
    owner = {id(p): part for part in leaves(optimizer) for group in part.param_groups for p in group["params"]}
    cares, cared, hooks = [], [], []
    for bound in bound_methods(model):
        method = bound.method
        for tensor_name, behind in bound.trained():
            part = next((owner[id(tensor)] for tensor in behind if id(tensor) in owner), None)
            if tensor_name in method.manifolds and part is not None and not isinstance(part, StiefelOptimizer):
                raise ArgumentError(
                    f"Expected an optimizer that leaves {bound.name}.{tensor_name} on the {method.manifolds[tensor_name]} "
                    f"manifold, but got {type(part).__name__}. Pass the parameter to CayleySGD or CayleyRMSprop: it is "
                    f'in the group "manifold" of param_groups(model, lr).'
                )
        parts = {id(owner[id(t)]): owner[id(t)] for _, behind in bound.trained() for t in behind if id(t) in owner}
        if method.acts_after_update and parts:
            care = _Care(bound, owner, list(parts))
            cares.append(care)
            for part in parts.values():
                attached(method, part)
                cared.append((method, part))
                hooks.append(part.register_step_pre_hook(care.before_step))

    def after_step(*_: object) -> None:
        for care in cares:
            care.after_step()

    return _Attachment([*hooks, optimizer.register_step_post_hook(after_step)], cared)


class _Care:
    """The care for one parametrization after the steps that move it.

    It belongs to the optimizer that has the first of its tensors that is trained then. A closure may compute gradients
    inside the step, and a hook delete them at its end, so that they are looked for before and after it.
    """

    def __init__(self, bound: Bound, owner: Mapping[int, torch.optim.Optimizer], parts: Sequence[int]) -> None:
        self._bound, self._owner, self._parts, self._is_checked = bound, owner, parts, False
        self._stepping = _stepping.setdefault(bound.method, {})
        if self._first() is not None:
            self._check()

    def _first(self) -> Tensor | None:
        return next((t for _, behind in self._bound.trained() for t in behind if t.requires_grad), None)

    def _check(self) -> None:
        for name in self._bound.method.names:
            self._bound.check_own(name, "which is corrected or rebased after each update")
        self._is_checked = True

    def before_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        first = self._first()
        self._stepping[id(optimizer)] = first is not None and first.grad is not None

    def after_step(self) -> None:
        first = self._first()
        part = None if first is None else self._owner.get(id(first))
        stepping = None if part is None else self._stepping.get(id(part))
        if first is not None and stepping is not None and (stepping or first.grad is not None):
            if not self._is_checked:
                self._check()
            self._bound.after_update_()
        for own in self._parts:
            self._stepping.pop(own, None)


class _Attachment(RemovableHandle):
    """The hooks of an attachment, and for which parametrizations its optimizers care. A copy has none to remove."""

    _hooks: Sequence[RemovableHandle] = ()
    _cared: Sequence[tuple[ref[BoundParametrization], ref[torch.optim.Optimizer]]] = ()

    def __init__(
        self, hooks: Sequence[RemovableHandle], cared: Sequence[tuple[BoundParametrization, torch.optim.Optimizer]]
    ) -> None:
        super().__init__(OrderedDict())  # of its own it has none
        self._hooks = list(hooks)
        self._cared = [(ref(method), ref(part)) for method, part in cared]  # a handle keeps neither of them alive

    def remove(self) -> None:
        """End it; once more does nothing."""
        for hook in self._hooks:
            hook.remove()
        for method, part in ((method(), part()) for method, part in self._cared):
            if method is not None and part is not None:
                detached(method, part)
        self._hooks, self._cared = [], []
