"""Whether float32 products may be rounded to tf32 on a GPU, as torch's settings say."""

from __future__ import annotations

import torch


def allowed() -> bool:
    """Return whether float32 products may be rounded to tf32 (torch.set_float32_matmul_precision).

    Newer versions of torch have a setting per backend, and asking for the general one is then an error.
    """
    matmul = torch.backends.cuda.matmul
    if hasattr(torch.backends, "fp32_precision"):  # torch 2.9
        return matmul.fp32_precision == "tf32"
    return matmul.allow_tf32
