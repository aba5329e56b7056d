"""Check torch's settings for whether float32 products on a GPU may be rounded to tf32."""

from __future__ import annotations

import torch


def allowed() -> bool:
    """Return whether float32 products may be rounded to tf32 (torch.set_float32_matmul_precision).

    Newer torch versions have a setting per backend, and then raise an error if the general one is read.
    """
    matmul = torch.backends.cuda.matmul
    if hasattr(torch.backends, "fp32_precision"):  # torch 2.9
        return matmul.fp32_precision == "tf32"
    return matmul.allow_tf32
