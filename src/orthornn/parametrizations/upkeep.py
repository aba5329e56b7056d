"""Warn if an optimizer updates tensors that need corrections after each update, and nothing makes them.

A parametrization requires corrections in two ways: `after_update_` (rebase_every, unit=True, u1="soft"), which
orthornn.optim.attach calls, and `manifolds` (Stiefel, SpectralMargin), which only some optimizers respect. Training
runs without either, but leaves the set of the parametrization. Every torch optimizer is checked after its first step,
and again when another such tensor first has a gradient or when the number of its groups changes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary, WeakSet, ref

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from .._warnings import warn
from .parametrization import BoundParametrization

_SILENCE = "Silence this with warnings.filterwarnings('ignore', category=orthornn.errors.OrthornnWarning)."


class Owner(Protocol):
    """A module that holds the free tensors of a bound parametrization."""

    method: BoundParametrization

    def free(self) -> tuple[Tensor, ...]:
        """Return the free tensors, in the order of `method.names`."""

    def trained(self) -> tuple[tuple[Tensor, ...], ...]:
        """Return for each free tensor the parameter itself, or the parameters from which a torch tool computes it."""


class _Checked(NamedTuple):
    """Number of groups that an optimizer had at the last check, and the tensors that it had not moved yet."""

    groups: int
    waiting: list[ref[Tensor]]

    def holds(self, optimizer: torch.optim.Optimizer) -> bool:
        tensors = (tensor() for tensor in self.waiting)
        return self.groups == len(optimizer.param_groups) and all(t is None or t.grad is None for t in tensors)


_watched: WeakSet[Any] = WeakSet()
_lock = threading.Lock()  # one thread may build a network while another trains
_checked: WeakKeyDictionary[torch.optim.Optimizer, _Checked] = WeakKeyDictionary()
_attached: WeakKeyDictionary[BoundParametrization, WeakKeyDictionary[torch.optim.Optimizer, int]] = WeakKeyDictionary()
"""Number of times each optimizer is attached to a parametrization."""
_hooks: list[Any] = []


def watch(owner: Owner) -> None:
    """Warn if an optimizer updates this owner's tensors without the corrections that they need, if any."""
    if not (owner.method.acts_after_update or owner.method.manifolds):
        return
    with _lock:
        _watched.add(owner)
        if not _hooks:
            _hooks.append(register_optimizer_step_post_hook(_after_step))


def attached(method: BoundParametrization, optimizer: torch.optim.Optimizer) -> None:
    """Record that `after_update_` of `method` runs after each step of `optimizer`."""
    times = _attached.setdefault(method, WeakKeyDictionary())
    times[optimizer] = times.get(optimizer, 0) + 1


def detached(method: BoundParametrization, optimizer: torch.optim.Optimizer) -> None:
    """Undo one `attached`; after the last one, the next step is checked again."""
    times = _attached[method]
    times[optimizer] -= 1
    if not times[optimizer]:
        del times[optimizer]
        _checked.pop(optimizer, None)


def _after_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
    if torch.compiler.is_compiling() or hasattr(optimizer, "parts"):  # parts step themselves
        return
    checked = _checked.get(optimizer)
    if checked is not None and checked.holds(optimizer):
        return
    own = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    moved = {one for one, tensor in own.items() if tensor.grad is not None}
    with _lock:
        owners = list(_watched)
    waiting: list[ref[Tensor]] = []
    for owner in owners:
        reason = _neglected(owner, optimizer, moved)
        if reason is not None:
            _checked[optimizer] = _Checked(len(optimizer.param_groups), [])
            warn(f"{reason} {_SILENCE}")
            return
        if owner.method.manifolds or optimizer not in _attached.get(owner.method, ()):
            behind = (id(tensor) for tensors in owner.trained() for tensor in tensors)
            waiting += [ref(own[one]) for one in behind if one in own and one not in moved]
    _checked[optimizer] = _Checked(len(optimizer.param_groups), waiting)


def _neglected(owner: Owner, optimizer: torch.optim.Optimizer, moved: set[int]) -> str | None:
    """Return the problem with `optimizer` updating the tensors `moved`, or None."""
    method, behind, name = owner.method, owner.trained(), type(optimizer).__name__
    kind = type(method).__name__.removeprefix("Bound")
    for tensor_name, tensors in zip(method.names, behind):
        manifold = method.manifolds.get(tensor_name)
        if manifold is not None and _any(tensors, moved) and getattr(optimizer, "manifold", None) != manifold:
            return (
                f"{name} has updated `{tensor_name}` of {kind}, which must stay on the {manifold} manifold, but does not "
                f"keep it there. Pass it to orthornn.optim.CayleySGD or CayleyRMSprop: it is in the group 'manifold' of "
                f"orthornn.optim.param_groups(model, lr)."
            )
    trained = [tensors for tensors in behind if any(tensor.requires_grad for tensor in tensors)]
    if method.acts_after_update and trained and _any(trained[0], moved) and optimizer not in _attached.get(method, ()):
        return (
            f"{name} has updated {kind}, which must be corrected or rebased after each update, but nothing does that. "
            f"Call orthornn.optim.attach(model, optimizer) once, before training."
        )
    return None


def _any(tensors: Iterable[Tensor], moved: set[int]) -> bool:
    return any(id(tensor) in moved for tensor in tensors)
