"""The networks as TensorDict modules for TorchRL.

Use `OrthogonalModule` like TorchRL's LSTMModule and GRUModule. They split a batch of time into episodes, pad them and
call the network on all of them; this module calls the network once, with ``reset`` at the beginning of each episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._checks import check_flag
from .._optional_packages import import_optional
from ..errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from ..modules.network import RecurrentNetwork
from .state import initial_state

import_optional("torchrl", "rl", "the modules of orthornn.integrations.torchrl")

from tensordict import TensorDictBase  # noqa: E402
from tensordict.nn import TensorDictModuleBase, dispatch  # noqa: E402
from torchrl.data import Unbounded  # noqa: E402
from torchrl.envs import TensorDictPrimer  # noqa: E402
from torchrl.modules import recurrent_mode  # noqa: E402

Key = str | tuple[str, ...]


class OrthogonalModule(TensorDictModuleBase):
    """An orthornn network in a tensordict, for one step at a time or for a batch of time.

    Inside ``torchrl.modules.set_recurrent_mode(True)``, which TorchRL's losses use, the last dimension of the
    tensordict is time, and the state is the state of its first step. Otherwise each element is one step of an
    environment. In both modes, an episode starts from the network's initial state if ``is_init`` is true.

    Args:
        network: A unidirectional network that reads sequences (T, B, I), whose state is one tensor.
        in_key: Key of the input; states have the key ``"recurrent_state"``. Only without ``in_keys``.
        in_keys: Keys of the input and the state, and of ``is_init`` if it has another name.
        out_key: Key of the output; states have the key ``("next", "recurrent_state")``. Only without ``out_keys``.
        out_keys: Keys of the output and the state after each step; `make_tensordict_primer` requires ``("next", KEY)``
            for the latter.
        default_recurrent_mode: The mode outside ``set_recurrent_mode``. Default: ``False``.

    Shape:
        - Input: (..., I), or (..., T, I) in recurrent mode. ``is_init``: bool (..., 1).
        - State: (..., L, S), or (..., L, S, 2) for a complex network. Default: the network's initial states.
        - Output: (..., O). In recurrent mode only the last step of the states is written; the other steps are 0.

    Raises:
        ArgumentError: If keys are missing, or the tensordict lacks ``is_init``.
        ArgumentTypeError: If ``network`` is not an orthornn network, or its state is a pair of tensors (PeepholeLSTM).
        ShapeError, DTypeError: If a mask or a state does not match the network.

    Example::

        >>> from tensordict import TensorDict
        >>> from torchrl.modules import set_recurrent_mode
        >>> from orthornn import OrthogonalBlocks
        >>> from orthornn.integrations.torchrl import OrthogonalModule
        >>> memory = OrthogonalModule(OrthogonalBlocks(3, 8, 16), in_key="observation", out_key="embedding")
        >>> observed = {"observation": torch.randn(4, 20, 3), "is_init": torch.rand(4, 20, 1) < 0.1}
        >>> with set_recurrent_mode(True):
        ...     memory(TensorDict(observed, [4, 20]))["embedding"].shape
        torch.Size([4, 20, 8])
    """

    def __init__(
        self,
        network: RecurrentNetwork,
        *,
        in_key: Key | None = None,
        in_keys: Sequence[Key] | None = None,
        out_key: Key | None = None,
        out_keys: Sequence[Key] | None = None,
        default_recurrent_mode: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(network, RecurrentNetwork):
            raise ArgumentTypeError(
                f"Expected a network of orthornn, but got {type(network).__name__}. Build one first."
            )
        if network.batch_first:
            raise ArgumentError("Expected a network of sequences (T, B, I), but got batch_first=True. Leave it out.")
        network._check_steps()
        self.network = network
        self._default_mode = check_flag("default_recurrent_mode", default_recurrent_mode)
        read = _keys("in_key", in_key, in_keys, "recurrent_state")
        self.in_keys = [*read, "is_init"] if len(read) == 2 else read
        self.out_keys = _keys("out_key", out_key, out_keys, ("next", "recurrent_state"))
        if len(self.in_keys) != 3 or len(self.out_keys) != 2:
            raise ArgumentError(
                f"Expected in_keys for an input and a state, and out_keys for an output and a state, but got {in_keys} and "
                f"{out_keys}. Pass in_key and out_key for the usual ones."
            )
        state = initial_state(network, "Use torchrl.modules.LSTMModule for an LSTM.")
        self._is_complex = state.is_complex()
        state = torch.view_as_real(state) if self._is_complex else state
        self._state_shape, self._state_dtype = (state.shape[0], *state.shape[2:]), state.dtype

    @property
    def recurrent_mode(self) -> bool:
        """Whether the last dimension of a tensordict is time."""
        mode = recurrent_mode()
        return self._default_mode if mode is None else bool(mode)

    def make_tensordict_primer(self) -> TensorDictPrimer:
        """Return the transform that adds the state to the tensordicts of an environment.

        Raises:
            ArgumentError: If the key of the state after a step is not ``("next", KEY)``, with the state's KEY.
        """
        before, after = (key if isinstance(key, tuple) else (key,) for key in (self.in_keys[1], self.out_keys[1]))
        if after != ("next", *before):
            raise ArgumentError(
                f"Expected the state after a step as {('next', *before)}, but got {after}. Change it in out_keys."
            )
        spec = Unbounded(shape=self._state_shape, dtype=self._state_dtype)
        return TensorDictPrimer({before: spec}, expand_specs=True)

    @dispatch
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the output and the state after each step into a tensordict, and return it."""
        of_input, of_state, of_start = self.in_keys
        x, h, starts = (tensordict.get(key, None) for key in (of_input, of_state, of_start))
        if starts is None:
            raise ArgumentError(
                f"Expected {of_start!r} in the tensordict, which marks where episodes begin, but got none. Append "
                f"torchrl.envs.InitTracker() to the environment."
            )
        batch = tensordict.batch_size
        self._check(batch, x, h, starts)
        timed = self.recurrent_mode
        if timed and not batch:
            raise ShapeError(
                "Expected a tensordict whose last dimension is time in recurrent mode, but got no dimensions. "
                "Leave the mode, or stack steps."
            )
        steps = batch[-1] if timed else 1
        rows = x.reshape(-1, steps, x.shape[-1]).transpose(0, 1)
        reset = starts.reshape(-1, steps).mT
        if h is not None:
            h = h.reshape(-1, steps, *self._state_shape)[:, 0].transpose(0, 1)
            h = torch.view_as_complex(h.contiguous()) if self._is_complex else h
        if timed:
            out, after = self.network(rows, h, reset=reset)
            out = out.transpose(0, 1)
        else:
            out, after = self.network.step(rows[0], h, reset=reset[0])
        after = (torch.view_as_real(after) if self._is_complex else after).transpose(0, 1).unsqueeze(1)
        if steps > 1:
            after = torch.cat([after.new_zeros(len(after), steps - 1, *self._state_shape), after], 1)
        out = torch.view_as_real(out).flatten(-2) if out.is_complex() else out
        tensordict.set(self.out_keys[0], out.reshape(*batch, out.shape[-1]))
        tensordict.set(self.out_keys[1], after.reshape(*batch, *self._state_shape))
        return tensordict

    def _check(self, batch: torch.Size, x: Any, h: Any, starts: Any) -> None:
        """Raise unless the entries of a tensordict match the network."""
        of_input, of_state, of_start = self.in_keys
        if not isinstance(x, Tensor):
            raise ArgumentTypeError(f"Expected a tensor {of_input!r} in the tensordict, but got {type(x).__name__}.")
        if x.shape != (*batch, self.network.input_size):
            raise ShapeError(
                f"Expected {of_input!r} of shape {(*batch, self.network.input_size)}, but got {tuple(x.shape)}. Build the "
                f"network with this input_size."
            )
        if starts.dtype != torch.bool:
            raise DTypeError(f"Expected {of_start!r} to be bool, but got {starts.dtype}. Convert it with .bool().")
        if starts.shape not in (batch, (*batch, 1)):
            raise ShapeError(f"Expected {of_start!r} of shape {(*batch, 1)}, but got {tuple(starts.shape)}.")
        if h is not None and h.shape != (*batch, *self._state_shape):
            raise ShapeError(
                f"Expected {of_state!r} of shape {(*batch, *self._state_shape)}, but got {tuple(h.shape)}. Append "
                f"make_tensordict_primer() to the environment."
            )


def _keys(name: str, key: Key | None, keys: Sequence[Key] | None, state: Key) -> list[Key]:
    """Return keys as given, either a single one or all."""
    if (key is None) == (keys is None):
        given = "neither" if key is None else "both"
        raise ArgumentError(f"Expected either {name} or {name}s, but got {given}. Pass {name} for the usual state.")
    return [key, state] if keys is None else list(keys)  # type: ignore[list-item]
