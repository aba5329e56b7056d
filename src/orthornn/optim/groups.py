"""Parameter groups by kind, each with a learning rate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.utils import parametrize

from .._checks import check_module
from ..errors import ArgumentError
from ..modules import Transition
from ..parametrizations import BoundParametrization
from ..parametrizations.sharded import care_for
from ..parametrizations.torch_tools import parameters_behind
from .stiefel import rate


class Bound(NamedTuple):
    """A bound parametrization in a model: its name, the module that holds its free tensors, and their names in it."""

    name: str
    method: BoundParametrization
    module: nn.Module
    tensors: tuple[str, ...]

    def trained(self) -> list[tuple[str, tuple[nn.Parameter, ...]]]:
        """Return for each free tensor its name in the parametrization, and the parameter itself or the parameters from
        which a torch tool computes it.
        """
        behind = [parameters_behind(self.module, tensor) for tensor in self.tensors]
        return list(zip(self.method.names, behind))

    def check_own(self, name: str, what: str) -> None:
        """Raise ArgumentError if a torch tool computes a free tensor, which then cannot be written into."""
        if self.module._parameters.get(self.tensors[self.method.names.index(name)]) is None:
            raise ArgumentError(
                f"Expected {self.name}.{name} to be a parameter, {what}, but got a tensor that parametrize, pruning or "
                f"weight_norm computes. Remove that tool."
            )

    def after_update_(self) -> None:
        """Apply the corrections that the parametrization requires after an update to its current tensors."""
        care_for(self.method, [getattr(self.module, tensor) for tensor in self.tensors])


def bound_methods(model: nn.Module) -> Iterator[Bound]:
    """Yield the parametrizations of all transitions and of all weights under `orthogonalize`, each once."""
    check_module("model", model)
    for name, module in model.named_modules():
        if isinstance(module, Transition):
            yield Bound(name, module.method, module, tuple(module.method.names))
        elif isinstance(module, parametrize.ParametrizationList):
            method = getattr(module[0], "method", None)
            if isinstance(method, BoundParametrization):
                single = not hasattr(module, "original0")
                names = ["original"] if single else [f"original{index}" for index in range(len(method.names))]
                yield Bound(name, method, module, tuple(names))


def param_groups(
    model: nn.Module,
    lr: float | Tensor,
    recurrent_lr: float | Tensor | None = None,
    *,
    manifold_lr: float | Tensor | None = None,
    spectrum_lr: float | Tensor | None = None,
) -> list[dict[str, Any]]:
    """Return the trained parameters of `model` as groups {"name", "params", "lr"}, omitting empty groups.

    name         what                                                              rate
    "other"      input weights, biases, heads                                      lr
    "recurrent"  free tensors of recurrent matrices that may move freely           recurrent_lr, or else lr / 10
    "spectrum"   of SpectralMargin, a group per margin; none at margin 0           spectrum_lr, or else that of
                                                                                   "recurrent", over 2 margin
    "manifold"   tensors that must stay on the Stiefel manifold                    manifold_lr, or else that of
                                                                                   "recurrent"

    Pass the last group to CayleySGD or CayleyRMSprop; any other optimizer moves it off the manifold (`attach` then
    raises an error).

    A schedule that sets rates instead of multiplying them, like OneCycleLR or CyclicLR, gives all groups the same rate
    if its max_lr is a number: pass a list with the groups' rates.

    The spectrum's rate is divided by 2 margin, as in Vorontsov et al. (2017) after eq. 11, because ds/dp = 2 margin
    sigma'(p). The effect depends on the optimizer. Under SGD a step changes s by lr 2 margin sigma'^2 dL/ds, which
    still grows with the margin (removing this growth would require dividing by its square). RMSprop and Adam remove the
    scale of the gradient, so without the division p moves at a rate independent of the margin; with the division s
    does: ds is about lr sigma'(p). We divide under every optimizer; spectrum_lr = 2 margin times the rate undoes the
    division. With margin=None s itself is the parameter, and nothing is divided.

    Args:
        model: The network.
        lr: Learning rate of the other parameters. This and the next three arguments are numbers, or tensors with one
            number, whose value the groups get.
        recurrent_lr: Learning rate of the free tensors of recurrent matrices. Default: None, lr / 10.
        manifold_lr: Learning rate of tensors on the Stiefel manifold. Default: None, recurrent_lr.
        spectrum_lr: Learning rate of spectra, before the division by 2 margin. Default: None, recurrent_lr.
    """
    other = rate(lr)
    recurrent = other / 10 if recurrent_lr is None else rate(recurrent_lr, "recurrent_lr")
    manifold = recurrent if manifold_lr is None else rate(manifold_lr, "manifold_lr")
    spectrum = recurrent if spectrum_lr is None else rate(spectrum_lr, "spectrum_lr")
    rates = {"other": other, "recurrent": recurrent}
    members: dict[str, list[Tensor]] = {"other": [], "recurrent": []}
    spectra: dict[float, list[Tensor]] = {}
    on_manifold: list[Tensor] = []
    seen: set[int] = set()
    for bound in bound_methods(model):
        method = bound.method
        for name, behind in bound.trained():
            new = [tensor for tensor in behind if tensor.requires_grad and id(tensor) not in seen]
            if not new:
                continue
            seen.update(map(id, new))
            if name in method.manifolds:
                bound.check_own(name, "which an optimizer keeps on its manifold")
                if method.manifolds[name] != "stiefel":
                    raise ArgumentError(
                        f"Expected a manifold that has an optimizer in orthornn, but got {method.manifolds[name]!r} for "
                        f"{name}."
                    )
                on_manifold += new
            elif name == "spectrum":
                margin = getattr(method, "margin", None)
                spectra.setdefault(spectrum if margin is None else spectrum / (2 * margin), []).extend(new)
            else:
                members["recurrent"] += new
    members["other"] = [p for p in model.parameters() if p.requires_grad and id(p) not in seen]
    groups = [{"name": name, "params": params, "lr": rates[name]} for name, params in members.items() if params]
    groups += [{"name": "spectrum", "params": params, "lr": own} for own, params in spectra.items()]
    if on_manifold:
        groups.append({"name": "manifold", "params": on_manifold, "lr": manifold})
    return groups
