"""Random calls of the two recurrences, and the oracle: plain torch in float64, differentiated by autograd."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from orthornn import activations, compact_wy
from orthornn.kernels import compact_wy_rnn, dense_rnn, rotations_rnn
from orthornn.kernels.call import Options

DIFFERENTIABLE = ("x", "weight_ih", "bias", "h0", "weight", "c", "s", "parameter", "restart")


@dataclass(frozen=True)
class Case:
    """One call: `kind` is dense, packed (reflectors), matrix (U as a matrix), or rotations (linear, W orthogonal)."""

    kind: str = "dense"
    activation: str = "tanh"
    n: int = 5
    m: int = 2
    steps: int = 7
    batch: int = 3
    inputs: int | None = 2  # None: projected input; 0: tokens
    packed: bool = False
    base: bool = True
    bias: bool = True
    output: str = "all"
    clip: float | None = None
    gain: float = 1.0
    memory: str = "store"
    segment: int | None = None
    reset: str | None = None  # where sequences restart: "random", "none", "all", "first" or "last" step
    restart: bool = False  # from a state of their own, not h0
    grows: bool = False  # modrelu and complex_modrelu with b > 0, which can be undone
    seed: int = 0
    tensors: dict[str, Tensor] = field(default_factory=dict)

    @property
    def paired(self) -> bool:
        """Whether the activation acts on pairs of units."""
        return activations.get(self.activation).paired

    def draw(self) -> Case:
        """The same case with its tensors drawn, in float64, so scaled that states neither vanish nor explode."""
        generator = torch.Generator().manual_seed(self.seed)

        def normal(*shape: int, scale: float = 1.0) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator) * scale

        batch_sizes = None
        if self.packed:
            longest = torch.randint(1, self.steps + 1, (self.batch,), generator=generator).sort(descending=True)[0]
            longest[0] = self.steps
            batch_sizes = (longest.unsqueeze(0) > torch.arange(self.steps).unsqueeze(1)).sum(dim=1)
        leading = (self.steps, self.batch) if batch_sizes is None else (int(batch_sizes.sum()),)
        phi = activations.get(self.activation)
        n = self.n
        tensors = {"h0": normal(self.batch, n)}
        if self.inputs is None:
            tensors["x"] = normal(*leading, n)
        elif self.inputs == 0:
            tensors["x"] = torch.randint(0, 4, leading, generator=generator)
            tensors["weight_ih"] = normal(n, 4)
        else:
            tensors["x"] = normal(*leading, self.inputs)
            tensors["weight_ih"] = normal(n, self.inputs)
        if self.bias:
            tensors["bias"] = normal(n, scale=0.1)
        if phi.parameter_size(n):
            tensors["parameter"] = phi.initial + normal(phi.parameter_size(n), scale=0.2)
            if self.grows:
                tensors["parameter"] = tensors["parameter"].abs()
            elif self.activation == "modrelu":  # b > 0 makes phi jump at z = 0, where rounding then decides the sign
                tensors["parameter"] = -tensors["parameter"].abs()
        if self.kind in ("dense", "rotations"):
            tensors["weight"] = torch.linalg.qr(normal(n, n))[0]
        elif self.kind == "packed":
            tensors["weight"] = normal(compact_wy.packed_size(n, self.m))
        else:
            # Columns of norm 1 to 2: Theorem 2 has terms of size 1/|u| that cancel, so a tiny u magnifies rounding.
            U = normal(n, self.m)
            lengths = 1 + torch.rand(self.m, dtype=torch.float64, generator=generator)
            tensors["weight"] = U * lengths / torch.linalg.vector_norm(U, dim=0)
        if self.kind not in ("dense", "rotations") and self.base:
            angle = normal(n, scale=3.0)
            half = n // 2
            angle[n - half :] = angle[:half]
            tensors["c"], sine = angle.cos(), angle.sin()
            tensors["s"] = torch.cat([-sine[: n - half], sine[n - half :]])
            if n % 2:
                tensors["c"][half], tensors["s"][half] = 1.0, 0.0
        if batch_sizes is not None:
            tensors["batch_sizes"] = batch_sizes
        if self.reset is not None:
            mask = torch.rand(self.steps, self.batch, generator=generator) < {"random": 0.3, "all": 2}.get(
                self.reset, -1
            )
            if self.reset in ("first", "last"):
                mask[0 if self.reset == "first" else -1] = True
            lengths = [self.batch] * self.steps if batch_sizes is None else batch_sizes.tolist()
            tensors["reset"] = (
                mask if batch_sizes is None else torch.cat([row[:size] for row, size in zip(mask, lengths)])
            )
            if self.restart:
                tensors["restart"] = normal(self.batch, n)
        return replace(self, tensors=tensors)

    def to(self, dtype: torch.dtype, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """Leaves of that dtype that require gradients; batch_sizes stays on the CPU."""
        return {
            name: tensor.detach().clone().to(device, dtype).requires_grad_()
            if tensor.is_floating_point()
            else tensor.clone().to("cpu" if name == "batch_sizes" else device)
            for name, tensor in self.tensors.items()
        }

    def call(self, tensors: dict[str, Tensor], backend: str = "auto") -> Tensor:
        """The public function on these tensors."""
        keywords = {
            "weight_ih": tensors.get("weight_ih"),
            "bias": tensors.get("bias"),
            "gain": self.gain,
            "batch_sizes": tensors.get("batch_sizes"),
            "output": self.output,
            "clip": self.clip,
            "backend": backend,
            "memory": self.memory,
            "segment": self.segment,
            "reset": tensors.get("reset"),
            "restart": tensors.get("restart"),
        }
        x, h0, weight, parameter = tensors["x"], tensors["h0"], tensors["weight"], tensors.get("parameter")
        if self.kind == "rotations":
            assert self.activation == "identity"
            assert keywords.pop("clip") is None
            return rotations_rnn(x, h0, weight, **keywords)
        if self.kind == "dense":
            return dense_rnn(x, h0, weight, self.activation, parameter, **keywords)
        base = (tensors["c"], tensors["s"]) if "c" in tensors else None
        return compact_wy_rnn(x, h0, weight, base, self.activation, parameter, **keywords)

    def oracle(self, tensors: dict[str, Tensor]) -> Tensor:
        """The output by a loop over single sequences and steps with W as a matrix: nothing of the kernels is used."""
        x, h0, weight, parameter = tensors["x"], tensors["h0"], tensors["weight"], tensors.get("parameter")
        phi = activations.get(self.activation)
        W = weight
        if self.kind not in ("dense", "rotations"):
            W = torch.eye(self.n, dtype=h0.dtype)
            columns, at = [], 0
            if self.kind == "packed":
                for j in range(self.m):
                    columns.append(torch.cat([weight.new_zeros(j), weight[at : at + self.n - j]]))
                    at += self.n - j
            else:
                columns = list(weight.unbind(1))
            for u in columns:
                W = W @ (torch.eye(self.n, dtype=h0.dtype) - 2 * torch.outer(u, u) / (u @ u))
            if "c" in tensors:
                half = self.n // 2
                order = [*range(self.n - half, self.n), *range(half, self.n - half), *range(half)]
                B = torch.diag(tensors["c"]) + torch.diag(tensors["s"]) @ torch.eye(self.n, dtype=h0.dtype)[order]
                W = W @ B
        if "weight_ih" in tensors:
            x = tensors["weight_ih"].mT[x] if self.inputs == 0 else x @ tensors["weight_ih"].mT
        if "bias" in tensors:
            x = x + tensors["bias"]
        sizes = tensors["batch_sizes"].tolist() if self.packed else [self.batch] * self.steps
        rows = list(x.unbind(0)) if self.packed else list(x.flatten(0, 1).unbind(0))
        h = list(h0.unbind(0))
        restart = tensors.get("restart", h0)
        # one by one: under a transform, torch 2.6 cannot tolist()
        resets = [bool(flag) for flag in tensors["reset"].flatten()] if self.reset else [False] * len(rows)
        states = []
        for size in sizes:
            for b in range(size):
                h[b] = restart[b] if resets.pop(0) else h[b]
                h[b] = phi(self.gain * (W @ h[b]) + rows.pop(0), parameter)
                states.append(h[b])
        if self.output == "last":
            return torch.stack(h)
        flat = torch.stack(states) if states else h0[:0]
        return flat if self.packed else flat.view(self.steps, self.batch, self.n)

    def differentiable(self, tensors: dict[str, Tensor]) -> list[Tensor]:
        """The tensors whose gradients are compared."""
        return [tensors[name] for name in DIFFERENTIABLE if name in tensors and tensors[name].is_floating_point()]


def operator_arguments(
    case: Case, backend: str = "auto", tensors: dict[str, Tensor] | None = None
) -> tuple[list[torch.Tensor], str]:
    """What the custom operator is given for a case, in float64 or with these tensors."""
    t = case.to(torch.float64) if tensors is None else tensors
    names = ("x", "weight_ih", "bias", "h0", "weight", "c", "s", "parameter", "restart", "batch_sizes")
    given = [t.get(name) for name in names]
    given.append(t.get("reset"))
    if "reset" in t and "restart" not in t:
        given[names.index("restart")] = t["h0"]
    kind = "dense" if case.kind == "dense" else "compact_wy"
    options = Options(kind, activations.get(case.activation), None, case.output == "last", backend, case.segment)
    present = "".join("0" if tensor is None else "1" for tensor in given)
    return [t["h0"].new_empty(0) if tensor is None else tensor for tensor in given], present + options.to_spec()
