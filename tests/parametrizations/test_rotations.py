from __future__ import annotations

import math

import pytest
import torch

from orthornn import Rotations
from orthornn.errors import NotOnGroupError
from orthornn.parametrizations.matrices import haar


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("n", [2, 65, 300])
def test_its_own_matrices_come_back_whatever_their_dtype(n, dtype):
    method = Rotations().bind(n)
    W = method(*method.initial(torch.Generator().manual_seed(n))).to(dtype)
    (angles,) = method.right_inverse(W)
    off = (method(angles) - W.double()).abs().max()
    assert off <= 2 * torch.finfo(dtype).eps


@pytest.mark.parametrize(
    ("n", "dtype", "degrees"),
    [(512, torch.float32, 0.2), (1024, torch.float32, 0.5), (64, torch.float16, 1), (128, torch.bfloat16, 8)],
    ids=str,
)
def test_a_rotation_of_another_pair_is_refused_at_any_size(n, dtype, degrees):
    """What rounding allows was multiplied by n once more than it grows: 18 degrees passed at n = 512."""
    angle = math.radians(degrees)
    W = torch.eye(n, dtype=torch.float64)
    W[0, 0] = W[1, 1] = math.cos(angle)
    W[0, 1], W[1, 0] = math.sin(angle), -math.sin(angle)
    with pytest.raises(NotOnGroupError, match=r"Expected W to consist of rotations of the pairs \(i, i \+ "):
        Rotations().bind(n).right_inverse(W.to(dtype))


def test_a_random_matrix_in_bfloat16_is_refused():
    W = haar(128, False, torch.Generator().manual_seed(0))
    with pytest.raises(NotOnGroupError, match="rotations of the pairs"):
        Rotations().bind(128).right_inverse(W.bfloat16())


@pytest.mark.parametrize("decay", [-30.0, 4.0])
def test_radii_at_the_ends_of_their_range_come_back(decay):
    method = Rotations(decay=True).bind(9)
    W = method(torch.zeros(4, dtype=torch.float64), torch.full((5,), decay, dtype=torch.float64))
    torch.testing.assert_close(method(*method.right_inverse(W)), W, rtol=0, atol=1e-11)
