"""The one place where a tolerance comes from.

A result of k dependent operations, none of which enlarges errors (orthogonal transitions, activations of slope at most
1), is off by at most about k eps relative to the largest intermediate value; dot products of length n count as n
operations. The factor 8 covers what that model leaves out: the constants of sums, and elementary functions.
"""

import torch


def tolerance(dtype: torch.dtype, operations: int = 1) -> float:
    """The bound on an error relative to the largest value involved."""
    return 8 * torch.finfo(dtype).eps * max(operations, 1)
