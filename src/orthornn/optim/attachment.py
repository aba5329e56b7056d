"""Hooks that run what a parametrization requires after an optimizer's step, and refuse optimizers that do not fit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from weakref import WeakKeyDictionary, ref

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ..errors import ArgumentError, ArgumentTypeError
from ..parametrizations import BoundParametrization
from ..parametrizations.upkeep import attached, detached
from .groups import bound_methods
from .joint import leaves
from .stiefel import StiefelOptimizer

_stepped: WeakKeyDictionary[BoundParametrization, set[int]] = WeakKeyDictionary()
"""The ids of the optimizers of a parametrization's tensors that have stepped since `after_update_`."""


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
    moved, cared, hooks = [], [], []
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
        tensors = [tensor for _, behind in bound.trained() for tensor in behind]
        parts = {id(part): part for part in (owner.get(id(tensor)) for tensor in tensors) if part is not None}
        if method.acts_after_update and parts:
            for tensor_name in method.names:
                bound.check_own(tensor_name, "which is corrected or rebased after each update")
            stepped = _stepped.setdefault(method, set())
            moved.append((bound, stepped))
            for part in parts.values():
                attached(method, part)
                cared.append((method, part))
                hooks.append(part.register_step_pre_hook(partial(_note, stepped)))

    def after_step(*_: object) -> None:
        for bound, stepped in moved:
            first = next((t for _, behind in bound.trained() for t in behind if t.requires_grad), None)
            part = None if first is None or first.grad is None else owner.get(id(first))
            if part is not None and id(part) in stepped:
                bound.after_update_()
            stepped.clear()

    return _Attachment([*hooks, optimizer.register_step_post_hook(after_step)], cared)


def _note(stepped: set[int], optimizer: torch.optim.Optimizer, *_: object) -> None:
    stepped.add(id(optimizer))


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
