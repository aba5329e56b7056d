"""The product of many layers of rotations of neighboring units, as a few products of block-diagonal matrices.

Layer l, counted from 0, rotates the pairs (p, p + 1) with p = l mod 2. Take K successive layers, K even and the first
one even. A window of 2K units contains a trapezoid: the pairs of the i-th layer that are at least i units away from
both ends. It depends on nothing outside the window. Between two trapezoids remains another one, upside down, in the
window that is shifted by K units. So the K layers are B A, with A and B block-diagonal, in blocks of 2K units:

    units    0           2K          4K
    layer 0  |oooooooooooo|oooooooooooo|        o  in A, windows from 0
    layer 1  |.oooooooooo.|.oooooooooo.|        .  in B, windows from -K
    layer 2  |..oooooooo..|..oooooooo..|

All blocks of all windows and of all groups of K layers are built at once, in K steps; then 2 L/K products yield W for L
layers, in about 4 N^2 L multiply-adds. Applying one layer after another would take L steps on the whole matrix, each
saved for backward.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

GROUP = 8  # K: its steps cost as much as the products


def brick_product(c: Tensor, s: Tensor, group: int = GROUP) -> Tensor:
    """Return F_L ... F_1 (N, N), where F_l h = c_l * h + s_l * (h with the units of each pair of layer l exchanged).

    Args:
        c: (L, N), with the dtype of the result; 1 for a unit without a partner.
        s: (L, N); 0 for a unit without a partner.
        group: Number of layers per group, K.
    """
    layers, n = c.shape
    width, windows, groups = 2 * group, -(-n // (2 * group)), -(-layers // group)
    A, B = _blocks(c, s, group, windows, groups)
    W = F.pad(torch.eye(n, dtype=c.dtype, device=c.device), (0, 0, 0, windows * width - n))
    for inner, outer in zip(A, B):
        W = torch.bmm(inner, W.view(windows, width, n)).view(-1, n)
        W = torch.bmm(outer, F.pad(W, (0, 0, group, group)).view(windows + 1, width, n)).view(-1, n)[group:-group]
    return W[:n]


def _blocks(c: Tensor, s: Tensor, group: int, windows: int, groups: int) -> tuple[Tensor, Tensor]:
    """Return the blocks of A (groups, windows, 2K, 2K), and the blocks of B, which has one more window."""
    layers, n = c.shape
    below, behind = groups * group - layers, 2 * group * windows - n
    step, unit = torch.arange(group, device=c.device).unsqueeze(1), torch.arange(2 * group, device=c.device)
    reach = torch.minimum(unit, 2 * group - 1 - unit)  # units to the nearer end of the window
    inside = torch.stack([reach >= step, reach >= group - step])
    parts = []
    for value, alone in ((c, 1.0), (s, 0.0)):
        value = F.pad(value, (group, behind + group, 0, below), value=alone).view(groups, group, -1)
        first = value[..., group:-group].view(groups, group, windows, -1)
        both = torch.cat([first, value.view(groups, group, windows + 1, -1)], 2)
        there = torch.cat(
            [mask.unsqueeze(1).expand(-1, count, -1) for mask, count in zip(inside, (windows, windows + 1))], 1
        )
        parts.append(torch.where(there, both, alone).unsqueeze(-1))
    blocks = torch.eye(2 * group, dtype=c.dtype, device=c.device).expand(groups, 2 * windows + 1, -1, -1)
    for layer in range(group):
        odd = layer % 2
        partner = (((unit - odd) ^ 1) + odd).clamp(0, 2 * group - 1)
        kept, given = parts[0][:, layer] * blocks, blocks.index_select(-2, partner)
        blocks = torch.addcmul(kept, parts[1][:, layer], given)
    return blocks[:, :windows], blocks[:, windows:]
