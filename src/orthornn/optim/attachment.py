"""Hooks that run what a parametrization requires after an optimizer's step, and refuse optimizers that do not fit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
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

_due: WeakKeyDictionary[BoundParametrization, list[bool]] = WeakKeyDictionary()
"""Whether the optimizer of a parametrization has stepped since `after_update_`."""


def attach(model: nn.Module, optimizer: torch.optim.Optimizer) -> RemovableHandle:
    """Run, after each `optimizer.step()`, `after_update_` of every parametrization in `model` that it has moved.

    With several optimizers attach each (or one JointOptimizer): a parametrization belongs to the optimizer that has
    the first of its trained tensors. What is attached twice runs once per step all the same: the optimizers of
    `optim.recipes` are attached already.

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
        trained = [tensor for _, behind in bound.trained() for tensor in behind if tensor.requires_grad]
        if method.acts_after_update and trained and id(trained[0]) in owner:
            for tensor_name in method.names:
                bound.check_own(tensor_name, "which is corrected or rebased after each update")
            due = _due.setdefault(method, [False])
            moved.append((bound, due))
            part = owner[id(trained[0])]
            attached(method, part)
            cared.append((method, part))

            def before_step(*_: object, due: list[bool] = due) -> None:
                due[0] = True

            hooks.append(part.register_step_pre_hook(before_step))

    def after_step(*_: object) -> None:
        for bound, due in moved:
            if due[0]:
                due[0] = False
                bound.after_update_()

    return _Attachment([*hooks, optimizer.register_step_post_hook(after_step)], cared)


class _Attachment(RemovableHandle):
    """The hooks of an attachment, and for which parametrizations its optimizers care."""

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
