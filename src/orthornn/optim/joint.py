"""Several optimizers that step together and act as one.

A JointOptimizer stores nothing itself: `param_groups` and `state` read and write its parts, so the two cannot diverge.
Its `state_dict` has torch's layout, as if one optimizer had all groups; `load_state_dict` passes each part the state
that the part's `state_dict` returned.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, MutableMapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from .._recording import recording
from ..errors import ArgumentError, ArgumentTypeError

_OWN = "parts"  # in a state_dict: what parts have besides torch's layout; without "param_groups", the earlier layout


class JointOptimizer(torch.optim.Optimizer):
    """Several optimizers as one: schedules, gradient scalers, hooks and checkpoints see all their groups.

    Each `step` runs a step of every part. `param_groups` and `state` are live views of the parts: change the groups
    (``group["lr"] = 0.1``), but not the list, which is rebuilt on each access. `defaults` contains the options that all
    parts share, with the values of the first part.

    Args:
        parts: The optimizers, in the order in which they step. A tensor must not be in two of them. `add_param_group`
            adds groups to the first.

    Raises:
        ArgumentTypeError: If a part is not a torch.optim.Optimizer.
        ArgumentError: If there is no part, a tensor is in two groups, or a part (LBFGS) calls the closure itself.
    """

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        if not parts:
            raise ArgumentError("Expected at least one optimizer, but got an empty list.")
        for part in parts:
            kind = type(part).__name__
            if not isinstance(part, torch.optim.Optimizer):
                raise ArgumentTypeError(f"Expected each part to be a torch.optim.Optimizer, but got {kind}.")
            closure = inspect.signature(part.step).parameters.get("closure")
            if closure is not None and closure.default is inspect.Parameter.empty:
                raise ArgumentError(
                    f"Expected parts that step without a closure, but got {kind}, which evaluates the loss several "
                    f"times per step. Step it separately."
                )
        _check_disjoint([group["params"] for part in parts for group in part.param_groups])
        shared = set.intersection(*(set(part.defaults) for part in parts))
        defaults = {name: value for name, value in parts[0].defaults.items() if name in shared}
        super().__init__([group for part in parts for group in part.param_groups], defaults)
        self.parts = parts

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all parts, in their order."""
        return [group for part in self._parts() for group in part.param_groups]

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        for part, own in self._distribute(groups):
            part.param_groups = own

    @property  # type: ignore[override]
    def state(self) -> MutableMapping[Any, Any]:
        """The state of each parameter, stored by the part that updates it."""
        return _States(self._parts())

    @state.setter
    def state(self, state: MutableMapping[Any, Any]) -> None:
        parts = self._parts()
        entries = [(_owner(parts, key), key, entry) for key, entry in state.items()] if parts else []
        for part in parts:
            part.state = defaultdict(dict)
        for part, key, entry in entries:
            part.state[key] = entry

    def _parts(self) -> tuple[torch.optim.Optimizer, ...]:
        return vars(self).get("parts", ())  # none yet in torch's constructor

    def _distribute(self, groups: list[dict[str, Any]]) -> Iterator[tuple[torch.optim.Optimizer, list[dict[str, Any]]]]:
        """Yield each part with its share of the groups. Before the first, raise ArgumentError if they do not match."""
        sizes = [[len(group["params"]) for group in part.param_groups] for part in self._parts()]
        expected, found = list(chain(*sizes)), [len(group["params"]) for group in groups]
        if self._parts() and expected != found:
            raise ArgumentError(
                f"Expected {len(expected)} parameter groups of {_listed(expected)} tensors, as in {self._names()}, "
                f"but got {len(found)} of {_listed(found)}. Build the optimizer as it was when the state was saved."
            )
        rest = iter(groups)
        for part, own in zip(self._parts(), sizes):
            yield part, [next(rest) for _ in own]

    def _names(self) -> str:
        return ", ".join(type(part).__name__ for part in self.parts)

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "parts": self.parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = {name: value for name, value in state.items() if name not in ("state", "param_groups")}
        super().__setstate__(own)
        if "parts" not in own:  # what a loader sets, and no copy of the whole
            for name in ("param_groups", "state"):
                if name in state:
                    setattr(self, name, state[name])

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Run one step of every part, and return the loss.

        Args:
            closure: Function that computes the gradients and returns the loss; it is called once. Default: None, for
                gradients that are already computed; the result is then None.
        """
        loss = None
        if closure is not None:
            with recording():
                loss = closure()
        with torch.inference_mode(False):  # what a part remembers must be writable outside of it, too
            for part in self.parts:
                part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return {"state": by the number of each parameter, "param_groups": of all parts}, as torch's optimizers do.

        Additional entries of a part, which torch's optimizers do not have, are under "parts", by the part's index.
        """
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        joint: dict[str, Any] = {"state": {}, "param_groups": []}
        count = 0
        for index, part in enumerate(self.parts):
            own, others = _renumbered(part.state_dict(), count)
            joint["state"].update(own["state"])
            joint["param_groups"] += own["param_groups"]
            if others:
                joint.setdefault(_OWN, {})[index] = others
            count += len(_tensors(part))
        for after in self._optimizer_state_dict_post_hooks.values():
            changed = after(self, joint)
            joint = joint if changed is None else changed
        return joint

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of the same parts.

        Args:
            state_dict: Result of `state_dict`: in torch's layout, or {"parts": one state_dict per part}.

        Raises:
            ArgumentError: If the state belongs to other optimizers.
        """
        state_dict = state_dict.copy()
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            changed = before(self, state_dict)
            state_dict = state_dict if changed is None else changed
        for part, own in list(self._split(state_dict)):
            part.load_state_dict(own)
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def _split(self, state_dict: dict[str, Any]) -> Iterator[tuple[torch.optim.Optimizer, dict[str, Any]]]:
        """Yield each part with the part's state_dict."""
        if "param_groups" not in state_dict:
            states = state_dict.get(_OWN, ())
            if len(states) != len(self.parts):
                raise ArgumentError(
                    f"Expected the state of {len(self.parts)} optimizers ({self._names()}), but got the state of "
                    f"{len(states)}. Pass the state_dict() of the same optimizers."
                )
            yield from zip(self.parts, states)
            return
        left = dict(state_dict["state"])
        for index, (part, groups) in enumerate(self._distribute(state_dict["param_groups"])):
            ids = list(chain.from_iterable(group["params"] for group in groups))
            own = {"state": {key: left.pop(key) for key in dict.fromkeys(ids) if key in left}, "param_groups": groups}
            numbered, _ = _renumbered(own, 0)
            others = state_dict.get(_OWN, {}).get(index, {})
            yield part, {**numbered, **others, "state": {**numbered["state"], **others.get("state", {})}}
        if left:
            raise ArgumentError(
                f"Expected states of parameters in the groups, but got entries for {', '.join(map(repr, left))}. "
                f"Pass the state_dict() of the same optimizers."
            )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the first part. To add a group to another part, call the part's `add_param_group`.

        Args:
            param_group: Same as for torch.optim.Optimizer: "params", and options of this group.

        Raises:
            ArgumentError: If another part has one of the parameters.
        """
        if not self._parts():  # torch's constructor, which may not copy the groups
            return
        given = param_group["params"]
        if isinstance(given, Tensor):
            given = [given]
        elif not isinstance(given, set):  # an iterator can be read once; of a set torch complains
            given = list(given)
        new = [entry[1] if isinstance(entry, tuple) else entry for entry in given]
        _check_disjoint([new, *(group["params"] for part in self.parts[1:] for group in part.param_groups)])
        self.parts[0].add_param_group({**param_group, "params": given})


class _States(MutableMapping[Any, Any]):
    """The state of several optimizers, by parameter; each entry belongs to the optimizer that has the parameter."""

    def __init__(self, parts: tuple[torch.optim.Optimizer, ...]) -> None:
        self._parts = parts

    def __getitem__(self, key: Any) -> Any:
        return _owner(self._parts, key).state[key]  # an empty entry for a parameter without one, as in torch

    def __setitem__(self, key: Any, value: Any) -> None:
        _owner(self._parts, key).state[key] = value

    def __delitem__(self, key: Any) -> None:
        del _owner(self._parts, key).state[key]

    def __contains__(self, key: Any) -> bool:
        return any(key in part.state for part in self._parts)

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(part.state for part in self._parts)

    def __len__(self) -> int:
        return sum(len(part.state) for part in self._parts)

    def __repr__(self) -> str:
        return repr(dict(self))


def leaves(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """Return the optimizers that update tensors themselves: the parts, parts of joint parts, or the optimizer
    itself.
    """
    if not isinstance(optimizer, JointOptimizer):
        return [optimizer]
    return [leaf for part in optimizer.parts for leaf in leaves(part)]


def _owner(parts: tuple[torch.optim.Optimizer, ...], key: Any) -> torch.optim.Optimizer:
    """Return the part whose state has `key`, or otherwise the part that updates this parameter."""
    for part in parts:
        if key in part.state:
            return part
    for part in parts:
        if any(tensor is key for tensor in _tensors(part)):
            return part
    got = f"a tensor of shape {tuple(key.shape)}" if isinstance(key, Tensor) else repr(key)
    names = ", ".join(type(part).__name__ for part in parts)
    raise KeyError(f"Expected a parameter of {names}, but got {got}. Add it to one of them with add_param_group.")


def _tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [tensor for group in optimizer.param_groups for tensor in group["params"]]


def _check_disjoint(groups: list[list[Tensor]]) -> None:
    seen: set[int] = set()
    for tensors in groups:
        for tensor in tensors:
            if id(tensor) in seen:
                raise ArgumentError(
                    f"Expected each tensor in one parameter group, but got a tensor of shape {tuple(tensor.shape)} in more "
                    f"than one. Pass each optimizer separate groups."
                )
        seen.update(map(id, tensors))


def _listed(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes)) or "no"


def _renumbered(state_dict: dict[str, Any], first: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (a state_dict with its parameters numbered from `first`, its entries outside torch's layout)."""
    groups = state_dict["param_groups"]
    ids = {key: first + i for i, key in enumerate(chain.from_iterable(group["params"] for group in groups))}
    state = {ids[key]: entry for key, entry in state_dict["state"].items() if key in ids}
    others = {name: value for name, value in state_dict.items() if name not in ("state", "param_groups")}
    global_state = {key: entry for key, entry in state_dict["state"].items() if key not in ids}
    if global_state:
        others["state"] = global_state
    numbered = [{**group, "params": [ids[key] for key in group["params"]]} for group in groups]
    return {"state": state, "param_groups": numbered}, others
