"""The version of torch that the tests run with, as a pair of numbers that can be compared."""

from __future__ import annotations

import torch

TORCH = tuple(int(number) for number in torch.__version__.split(".")[:2])
