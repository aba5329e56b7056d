"""The backward pass of the input projection, as far as it has a form of its own on a GPU."""

from __future__ import annotations

import torch

from orthornn.kernels import projection


def test_sums_by_token_are_the_same_by_the_operator_that_a_gpu_takes(monkeypatch):
    """index_add_ has no order on a GPU; a token that does not occur has a sum of 0, and one may occur often."""
    tokens, delta = torch.tensor([4, 0, 4, 4, 2]), torch.randn(5, 3, dtype=torch.float64)
    sums = []
    for on_gpu in (False, True):
        monkeypatch.setattr(torch.Tensor, "is_cuda", on_gpu)
        sums.append(projection._sum_by_token(delta, tokens, 6))
    monkeypatch.undo()
    expected = torch.stack([delta[tokens == token].sum(dim=0) for token in range(6)])
    for found in sums:
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)


def test_gradients_that_nobody_needs_are_not_computed(monkeypatch):
    """A frozen embedding: the sum over the rows of each token is left out."""
    monkeypatch.setattr(projection, "_sum_by_token", None)
    delta, V = torch.randn(5, 3, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)
    tokens, rows = torch.tensor([4, 0, 4, 4, 2]), torch.randn(5, 6, dtype=torch.float64)
    assert projection.project_backward(delta, tokens, V, False, False) == (None, None)
    assert projection.project_backward(delta, rows, V, False, False) == (None, None)
