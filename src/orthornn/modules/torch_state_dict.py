"""Read a state_dict of torch.nn.RNN into OrthogonalRNN: sum the biases and turn weight_hh into free tensors."""

from __future__ import annotations

import copy
from typing import Any


def read_torch_state(rnn: Any, state_dict: dict[str, Any], prefix: str, assign: bool, errors: list[str]) -> None:
    """Rewrite the keys of torch.nn.RNN in `state_dict`; append entries that cannot be represented to `errors`.

    assign: Whether the tensors will replace the network's tensors; they then keep the dtype in which they were saved.
    """
    for suffix, (name, transition) in zip(rnn.suffixes, rnn.transitions()):
        W = state_dict.pop(f"{prefix}weight_hh_{suffix}", None)
        if W is None:
            continue
        method = copy.deepcopy(transition.method)  # right_inverse sets its buffers
        if any(buffer.is_meta for buffer in method.buffers()) and not W.is_meta:
            method.to_empty(device=W.device)
            method.reset_parameters()
        try:
            free = method.right_inverse(W)
        except ValueError as error:
            errors.append(f"{prefix}weight_hh_{suffix} cannot be represented by {rnn.parametrization}: {error}")
            free = transition.free()  # so that nothing else seems to be missing
            method = transition.method
        for key, value in zip(method.names, free):
            state_dict[f"{prefix}{name}.{key}"] = value.to(W.dtype.to_real()) if assign else value
        for key, buffer in method.state_dict().items():
            state_dict[f"{prefix}{name}.method.{key}"] = buffer
        bias_hh = state_dict.pop(f"{prefix}bias_hh_{suffix}", None)
        if bias_hh is not None and f"{prefix}bias_ih_{suffix}" in state_dict:
            if rnn.activation.parameter_is_bias:
                errors.append(
                    f"the biases of torch.nn.RNN are added to the pre-activation; with {rnn.nonlinearity} this network "
                    f"has no such bias. Use nonlinearity='tanh' or 'relu'."
                )
            state_dict[f"{prefix}bias_ih_{suffix}"] = state_dict[f"{prefix}bias_ih_{suffix}"] + bias_hh
