"""Real-time recurrent learning of a linear recurrence that runs as rotations, in blocks of steps.

    z_t = A z_{t-1} + V x_t + b,   A_k = g Rot(angle_k) R_k,   y_t = Y z_t + d

for pairs k of units; A is block-diagonal. For a parameter p, the trace e = dz_t/dp obeys the recurrence's derivative
and stays within the pair that p belongs to:

    angle_k:  e <- A e + J A z_{t-1}   (J = Rot(90 degrees))        V_ij:  e <- A e + x_tj (unit i)
    g:        e <- A e + (A / g) z_{t-1}                            b_i:   e <- A e + (unit i);   z_0:  e <- A e

and dL/dp = sum over t of (Y' dL/dy_t)'e. The past is not stored: H pairs take H (8 + 4 (I + 1)) numbers.

The reference is the specification; csrc/online.cpp runs the same steps compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .backends.cpp import extension


@dataclass
class Online:
    """Parameters, traces and the optimizer's state; float64, contiguous, on the CPU.

    Units are stored in two rows of H pairs, (2, H): the first and the second unit of each pair. For an odd number of
    units the second unit of the last pair is always zero.

    Attributes:
        inputs: I. outputs: K.
        parameters: angles (H,), g, V (I, 2, H), b (2, H), z_0 (2, H), Y (K, 2, H) and d (K,), in one vector.
        blocks: R_k, (2, 2, H). turns: (H,), 1 for a pair that turns, 0 for a single unit.
        rates: Learning rates, like parameters; None for no updates.
        every: Steps between updates. adam: Whether to update with Adam instead of plain gradient descent.
    """

    inputs: int
    outputs: int
    parameters: Tensor
    blocks: Tensor
    turns: Tensor
    rates: Tensor | None = None
    every: int = 1
    adam: bool = True
    decays: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        H = self.turns.shape[0]
        self.gradient = torch.zeros_like(self.parameters)
        self.moments = torch.zeros(2, *self.parameters.shape, dtype=torch.float64, device="cpu")
        self.state = torch.zeros(3 + 2 * (2 + self.inputs), 2, H, dtype=torch.float64, device="cpu")
        self.turned = torch.zeros_like(self.blocks)
        self.counts = torch.zeros(2, dtype=torch.int64, device="cpu")
        self.restart()

    @property
    def pairs(self) -> int:
        """Number of pairs, H."""
        return self.turns.shape[0]

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Return views of a vector like parameters: angles, gain, V, b, z0, Y, d."""
        H, I, K = self.pairs, self.inputs, self.outputs
        shapes = {
            "angles": (H,),
            "gain": (),
            "V": (I, 2, H),
            "b": (2, H),
            "z0": (2, H),
            "Y": (K, 2, H),
            "d": (K,),
        }
        found, at = {}, 0
        for name, shape in shapes.items():
            size = torch.Size(shape).numel()
            found[name], at = vector[at : at + size].view(shape), at + size
        return found

    def restart(self) -> None:
        """Start a new episode: reset the state to z_0 and every trace except the trace of z_0 to zero."""
        self.state.zero_()
        self.state[0] = self.named(self.parameters)["z0"]
        self.state[3, 0] = self.state[4, 1] = 1.0

    def turned_blocks(self) -> Tensor:
        """Return Rot(angle_k) R_k, (2, 2, H)."""
        angles = self.turns * self.named(self.parameters)["angles"]
        c, s = angles.cos(), angles.sin()
        top, low = self.blocks
        return torch.stack([c * top - s * low, s * top + c * low])

    def steps(self, x: Tensor, target: Tensor | None, compiled: bool | None = None) -> Tensor:
        """Return predictions (T, K) for inputs (T, I); with targets (T, K) learn from each step before the next.

        Args:
            x: Inputs.
            target: Targets of the loss (1/2) |y - target|^2; None to run without learning.
            compiled: Whether to use the compiled kernel. Default: None, for using it if it exists.
        """
        out = x.new_empty(x.shape[0], self.outputs)
        if _compiled(compiled):
            self._native(x, target, out, None)
            return out
        for t, x_t in enumerate(x):
            self._advance(x_t)
            parameters = self.named(self.parameters)
            out[t] = torch.einsum("kch,ch->k", parameters["Y"], self.state[0]) + parameters["d"]
            if target is not None:
                self._learn(out[t] - target[t])
        return out

    def learn(self, grad: Tensor, compiled: bool | None = None) -> None:
        """Learn from dL/dy (K,) of the most recent step."""
        if _compiled(compiled):
            self._native(grad.new_empty(0, self.inputs), None, grad.new_empty(0, self.outputs), grad)
        else:
            self._learn(grad)

    def _native(self, x: Tensor, target: Tensor | None, out: Tensor, grad: Tensor | None) -> None:
        extension.native.online(
            T=x.shape[0],
            H=self.pairs,
            I=self.inputs,
            K=self.outputs,
            parameters=self.parameters,
            gradient=self.gradient,
            moments=self.moments if self.adam else None,
            rates=self.rates,
            blocks=self.blocks,
            turns=self.turns,
            turned=self.turned,
            state=self.state,
            counts=self.counts,
            x=x,
            target=target,
            out=out,
            grad_out=grad,
            every=self.every,
            first_decay=self.decays[0],
            second_decay=self.decays[1],
            epsilon=self.epsilon,
        )

    def _advance(self, x: Tensor) -> None:
        parameters, R, state = self.named(self.parameters), self.turned_blocks(), self.state
        g, H = parameters["gain"], self.pairs
        turned = _times(R, state[0])
        state[1:] = g * _times(R, state[1:])
        state[1, 0] -= self.turns * g * turned[1]
        state[1, 1] += self.turns * g * turned[0]
        state[2] += turned
        columns = state[5:].view(1 + self.inputs, 2, 2, H)  # of b and V; (column, unit of the pair)
        amounts = torch.cat([x.new_ones(1), x])
        columns[:, 0, 0] += amounts.unsqueeze(1)
        columns[:, 1, 1] += amounts.unsqueeze(1)
        state[0] = g * turned + parameters["b"] + torch.einsum("ich,i->ch", parameters["V"], x)

    def _learn(self, grad: Tensor) -> None:
        parameters, sums, state = self.named(self.parameters), self.named(self.gradient), self.state
        grad_z = torch.einsum("k,kch->ch", grad, parameters["Y"])
        sums["Y"] += grad.view(-1, 1, 1) * state[0]
        sums["d"] += grad
        sums["angles"] += (grad_z * state[1]).sum(0)
        sums["gain"] += (grad_z * state[2]).sum()
        by_columns = (grad_z * state[3:]).sum(1).view(2 + self.inputs, 2, self.pairs)
        sums["z0"] += by_columns[0]
        sums["b"] += by_columns[1]
        sums["V"] += by_columns[2:]
        self.counts[0] += 1
        if self.rates is not None and self.counts[0] >= self.every:
            self._update(self.rates)

    def _update(self, rates: Tensor) -> None:
        mean = self.gradient / self.counts[0]
        self.counts[0] = 0
        self.counts[1] += 1
        if self.adam:
            decays, n = self.decays, float(self.counts[1])
            for moment, power, decay in zip(self.moments, (1, 2), decays):
                moment.mul_(decay).add_(mean**power, alpha=1 - decay)
            first, second = (moment / (1 - decay**n) for moment, decay in zip(self.moments, decays))
            mean = first / (second.sqrt() + self.epsilon)
        self.parameters -= rates * mean
        self.gradient.zero_()


def _compiled(wanted: bool | None) -> bool:
    return extension.missing() is None if wanted is None else wanted


def _times(R: Tensor, z: Tensor) -> Tensor:
    """Return R z for z (..., 2, H)."""
    top, low = z.unbind(-2)
    return torch.stack([R[0, 0] * top + R[0, 1] * low, R[1, 0] * top + R[1, 1] * low], dim=-2)
