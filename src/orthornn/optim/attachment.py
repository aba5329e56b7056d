"""Hooks that apply the corrections of a parametrization after an optimizer step and refuse optimizers that do not
fit.
"""

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
"""Whether the tensors of the optimizers that step now had a gradient before the step, by the optimizers' ids."""


def attach(model: nn.Module, optimizer: torch.optim.Optimizer) -> RemovableHandle:
    """Run `after_update_` of every parametrization in `model` that an `optimizer.step()` has changed, after each step.

    If there are several optimizers, attach each of them (or one JointOptimizer): a parametrization belongs to the
    optimizer that has the first of its trained tensors. A parametrization that is frozen now is handled once it is
    trained. Attaching twice still runs the corrections once per step. The optimizers of `optim.recipes` are already
    attached.

    As usual in torch, a copy of the optimizer (deepcopy, pickle) has no hooks: attach it to the copy of the model.

    Args:
        model: The network, with parametrizations in any of its modules.
        optimizer: Optimizer of all or some of its parameters.

    Returns:
        A handle whose `remove()` detaches the optimizer; the next step then warns if a parametrization needs
        corrections.

    Raises:
        ArgumentError: If a tensor must stay on a manifold and the optimizer does not keep it there, or if one of
            torch's tools (parametrize, pruning) computes a tensor that `after_update_` writes.
        ArgumentTypeError: If the arguments are in another order.
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
                    f"Expected an optimizer that keeps {bound.name}.{tensor_name} on the {method.manifolds[tensor_name]} "
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
    """The corrections of one parametrization after each step that changes it.

    The parametrization belongs to the optimizer that has the first of its tensors that is trained at that time. A
    closure may compute gradients inside the step, and a hook may delete them at its end, so gradients are checked
    before and after it.
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
    """The hooks of an attachment, and the parametrizations that its optimizers handle. A copy has no hooks to
    remove.
    """

    _hooks: Sequence[RemovableHandle] = ()
    _cared: Sequence[tuple[ref[BoundParametrization], ref[torch.optim.Optimizer]]] = ()

    def __init__(
        self, hooks: Sequence[RemovableHandle], cared: Sequence[tuple[BoundParametrization, torch.optim.Optimizer]]
    ) -> None:
        super().__init__(OrderedDict())  # of its own it has none
        self._hooks = list(hooks)
        self._cared = [(ref(method), ref(part)) for method, part in cared]  # a handle keeps neither of them alive

    def remove(self) -> None:
        """Detach; calling it again does nothing."""
        for hook in self._hooks:
            hook.remove()
        for method, part in ((method(), part()) for method, part in self._cared):
            if method is not None and part is not None:
                detached(method, part)
        self._hooks, self._cared = [], []
