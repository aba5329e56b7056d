"""The recording of gradients while a network trains, whatever the caller has switched off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def recording() -> Iterator[None]:
    """Inside, and in functions with this as their decorator, autograd records: also under torch.no_grad(),
    torch.inference_mode() and torch.set_grad_enabled(False), and tensors made here can be trained outside of them.
    """
    with torch.inference_mode(False), torch.enable_grad():
        yield
