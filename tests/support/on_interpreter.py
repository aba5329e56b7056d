"""The Triton backend on Triton's interpreter: `python -m support.on_interpreter PART`, with TRITON_INTERPRET=1 set before.

A program of its own, because the variable has to be set before anything imports triton.
"""

from __future__ import annotations

import sys

import torch

from orthornn import activations
from orthornn.kernels.backends.triton import launch
from support.against_oracle import check, check_clip, check_not_finite
from support.cases import Case
from support.halved import INPUTS, ROUNDING, check_halved
from support.halved import alternating as alternating_halved

KINDS = ("dense", "packed", "matrix")
SMALL = {"m": 2, "steps": 3, "batch": 2}


def alternating(shift: int) -> list[Case]:
    """Every activation, with kinds of transition, layouts and outputs taking turns."""
    return [
        Case(
            KINDS[(k + shift) % 3],
            name,
            n=6 if name == "complex_modrelu" else 5,
            packed=(k + shift) % 2 == 0,
            output=("all", "last")[(k + shift) // 2 % 2],
            **SMALL,
        )
        for k, name in enumerate(activations.ACTIVATIONS)
    ]


PARTS: dict[str, tuple[int, list[Case]]] = {
    "one-sequence-a-program": (1, alternating(0)),
    "the-other-kinds": (1, alternating(1)),
    "blocks-of-sequences": (
        16,
        [
            Case("dense", "oplu", n=21, packed=True, **SMALL),
            Case("matrix", "modrelu", n=18, **SMALL),
            Case("packed", "prelu", n=7, output="last", **SMALL),
        ],
    ),
    "rotations": (
        1,
        [
            Case("rotations", "identity", n=1, batch=1, steps=1),
            # Pieces are 2 steps or more: the last one is shorter; then pieces of pieces; then two blocks of pairs.
            Case("rotations", "identity", n=7, batch=2, steps=5, gain=0.9),
            Case("rotations", "identity", n=4, batch=1, steps=4, output="last"),
            Case("rotations", "identity", n=2, batch=1, steps=17),
            Case("rotations", "identity", n=262, batch=1, steps=2, inputs=None),
            Case("rotations", "identity", n=3, steps=0, output="last"),
            Case("rotations", "identity", n=5, packed=True),
        ],
    ),
    "sizes": (
        1,
        [
            Case("dense", "tanh", n=1, m=1, batch=1, steps=1),
            Case("dense", "modrelu", n=70, m=1, batch=1, steps=2),  # two segments of unequal size
            Case("packed", "modrelu", n=7, m=0, batch=1, steps=2),
            Case("packed", "oplu", n=33, m=33, batch=1, steps=2, gain=0.9),
            Case("matrix", "tanh", n=9, m=5, batch=1, steps=2, base=False),
            Case("dense", "relu", n=5, batch=1, steps=3, memory="checkpoint", segment=2),
            Case("packed", "oplu", n=5, m=2, batch=2, steps=3, memory="checkpoint", segment=2, packed=True),
        ],
    ),
    "bfloat16": (1, [alternating_halved(0)[k] for k in (2, 6, 7)] + [INPUTS[5]]),
    "bfloat16-blocks": (16, [alternating_halved(2)[8], INPUTS[1]]),
}


# Importing Triton takes seconds, so a process runs several parts.
GROUPS = {
    "single": ("one-sequence-a-program", "bfloat16", "sizes"),
    "blocks": ("blocks-of-sequences", "bfloat16-blocks", "rotations"),
    "the-other-kinds": ("the-other-kinds",),
}


def run(part: str) -> None:
    """The cases of one part."""
    launch.BLOCK, cases = PARTS[part]
    for case in cases:
        if part.startswith("bfloat16"):  # the interpreter cuts off what a GPU rounds to the nearest
            check_halved(case, "triton", torch.device("cpu"), 2 * ROUNDING)
        else:
            check(case, "triton", torch.float32)
    if part == "one-sequence-a-program":
        for activation in activations.ACTIVATIONS:
            check_not_finite("triton", activation, float("nan"), clip=0.5)
        check_not_finite("triton", "complex_modrelu", float("inf"))
    if part == "sizes":
        check_clip("triton", "dense")
        for launch.RESIDENT in (64, 800):  # reflectors in chunks, then U and S in place of U and V
            strategy = launch.compact_wy_strategy(20, 14, 1)
            assert (strategy.name, strategy.constants["FACTORED"]) == (
                ("streamed", False) if launch.RESIDENT == 64 else ("resident", True)
            ), strategy
            check(Case("matrix", "modrelu", n=20, m=14, batch=1, steps=2), "triton", torch.float32)
    print(part, len(cases), "cases")


if __name__ == "__main__":
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True)  # torch.empty returns NaN
    assert torch.empty(3).isnan().all()
    from orthornn.kernels.backends.triton import rotations as triton  # importing it costs a second

    triton.PIECE = 2
    for name in GROUPS[sys.argv[1]]:
        run(name)
