"""Matrices on the manifold, of every field and shape that the optimizers take."""

import torch

SHAPES = [
    (1, 1),
    (2, 2),
    (7, 7),
    (7, 6),
    (9, 4),
    (9, 3),
    (13, 1),
]  # square, tall, and tall enough for the low-rank form
FIELDS = ["real", "pairs", "complex"]


def point(n, p, field="real", dtype=torch.float64):
    """A random point of the manifold, as a parameter."""
    is_complex = field != "real"
    M = torch.linalg.qr(torch.randn(n, p, dtype=torch.complex128 if is_complex else torch.float64))[0]
    if field == "pairs":
        return torch.nn.Parameter(torch.view_as_real(M).to(dtype).clone())
    if field == "complex":
        return torch.nn.Parameter(M.to(torch.complex64 if dtype == torch.float32 else torch.complex128))
    return torch.nn.Parameter(M.to(dtype))


def matrix(parameter):
    """The parameter as a complex or real matrix in double precision."""
    M = parameter.detach().clone()
    M = torch.view_as_complex(M.contiguous()) if M.dim() == 3 else M
    return M.to(torch.complex128 if M.is_complex() else torch.float64)


def error(parameter):
    M = matrix(parameter)
    return float(torch.linalg.matrix_norm(M.mH @ M - torch.eye(M.shape[1], dtype=M.dtype)))
