"""Policies with an orthogonal memory for RecurrentPPO of sb3-contrib.

The policies equal those of sb3-contrib except for the recurrent network: a sequence in which episodes end takes one
call with ``reset``, while sb3-contrib calls an LSTM for each step. sb3-contrib carries two tensors per network, (h, c)
of an LSTM; here they are the two halves of the state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._checks import check_callable, check_flag, check_integer, check_number
from .._optional_packages import import_optional
from ..errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from ..modules import OrthogonalBlocks
from ..modules.network import RecurrentNetwork
from ..optim import attach, param_groups
from .state import initial_state

import_optional("sb3_contrib", "rl", "the policies of orthornn.integrations.sb3")

from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy  # noqa: E402
from stable_baselines3.common.policies import ActorCriticPolicy  # noqa: E402
from stable_baselines3.common.torch_layers import CombinedExtractor, NatureCNN  # noqa: E402

States = tuple[Tensor, Tensor]


class SharingError(ArgumentError, AssertionError):
    """Error for networks of actor and critic that contradict each other; sb3-contrib raises AssertionError for them."""


class PolicyMemory(nn.Module):
    """An orthornn network with the interface that a policy of sb3-contrib calls, with the state as a pair of tensors.

    Args:
        network: A unidirectional network with time as its first dimension, whose state is one tensor.
        features: Number of features of the policy, which must be the input size of the network.

    Attributes:
        input_size: Number of features, I.
        num_layers: 1, since the states of all layers are concatenated.
        hidden_size: Size of each tensor of a state: half of the numbers of all layers, rounded up.
        output_size: Number of features that policy and value read.

    Shape:
        - features: (n T, I), the steps of each of n sequences one after another. states: a pair of (1, n, hidden_size).
          episode_starts: (n T,), 1 if an episode starts.
        - Output: (n T, output_size), and the states after the last step.
    """

    num_layers = 1

    def __init__(self, network: RecurrentNetwork, features: int) -> None:
        super().__init__()
        if not isinstance(network, RecurrentNetwork):
            raise ArgumentTypeError(
                f"Expected memory to return a network of orthornn, but got {type(network).__name__}. Return, for "
                f"example, OrthogonalBlocks(features, 64, 128)."
            )
        if network.batch_first:
            raise ArgumentError("Expected a network of sequences (T, B, I), but got batch_first=True. Leave it out.")
        if network.input_size != features:
            raise ShapeError(
                f"Expected a network that reads {features} features, but got input_size={network.input_size}. Build it "
                f"with the argument of memory."
            )
        self.network = network
        self.input_size = network.input_size
        state = initial_state(network, "Use MlpLstmPolicy of sb3-contrib for an LSTM.")
        with torch.no_grad():
            out, _ = network.step(torch.zeros(1, features))
        self.output_size = _real(out).shape[-1]
        self._is_complex = state.is_complex()
        self._shape = (state.shape[0], *state.shape[2:])
        self.hidden_size = math.ceil(math.prod(self._shape) * (2 if self._is_complex else 1) / 2)

    def forward(self, features: Tensor, states: States, episode_starts: Tensor) -> tuple[Tensor, States]:
        """Return outputs and states; the class lists the shapes."""
        count = self._check(features, states, episode_starts)
        x = features.reshape(count, -1, self.input_size).transpose(0, 1)
        starts = (episode_starts != 0).reshape(count, -1).mT
        h = self.unpaired(states)
        if len(x) == 1 and not (self.training and torch.is_grad_enabled()):
            out, h = self.network.step(x[0], h, reset=starts[0])
            return _real(out), self.paired(h)
        out, h = self.network(x, h, reset=starts)
        return _real(out).transpose(0, 1).flatten(0, 1), self.paired(h)

    def _check(self, features: Tensor, states: States, episode_starts: Tensor) -> int:
        """Return the number of sequences, after checking that all arguments agree on it."""
        if not (isinstance(states, tuple) and len(states) == 2):
            found = f"{len(states)} tensors" if isinstance(states, tuple) else type(states).__name__
            raise ArgumentTypeError(
                f"Expected states to be a pair of tensors, but got {found}. Pass initial_states(n)."
            )
        first, second = states
        rows, count = len(features), first.shape[1] if first.dim() == 3 else 0
        if first.shape != (1, count, self.hidden_size) or second.shape != first.shape:
            raise ShapeError(
                f"Expected a pair of states of shape (1, n, {self.hidden_size}), but got {tuple(first.shape)} and "
                f"{tuple(second.shape)}. Pass the states of the previous step, or initial_states(n)."
            )
        if not count or rows % count:
            raise ShapeError(
                f"Expected a number of states that divides the {rows} rows of features, but got {count}. Pass "
                f"the states of these sequences."
            )
        if episode_starts.is_complex():
            raise DTypeError(f"Expected episode_starts of zeros and ones, but got {episode_starts.dtype}. Pass bool.")
        if episode_starts.numel() != rows:
            raise ShapeError(
                f"Expected episode_starts for each of {rows} rows of features, but got "
                f"{tuple(episode_starts.shape)}. Pass one truth value per sequence and step."
            )
        return count

    def initial_states(self, count: int) -> States:
        """Return the states from which episodes start. count: Number of sequences, n."""
        return self.paired(self.network.initial_states(count))

    def paired(self, h: Tensor) -> States:
        """Return a state of the network, (L, n, ...), as two tensors (1, n, hidden_size)."""
        h = torch.view_as_real(h) if self._is_complex else h
        flat = h.transpose(0, 1).flatten(1)
        if flat.shape[1] % 2:
            flat = nn.functional.pad(flat, (0, 1))
        first, second = flat[None].split(self.hidden_size, -1)
        return first, second

    def unpaired(self, states: States) -> Tensor:
        """Return the state of the network, (L, n, ...), from two tensors (1, n, hidden_size)."""
        flat = torch.cat(states, -1)[0]
        if self._is_complex:
            return torch.view_as_complex(flat.unflatten(1, (*self._shape, 2))).transpose(0, 1)
        return flat[:, : math.prod(self._shape)].unflatten(1, self._shape).transpose(0, 1)


def _real(out: Tensor) -> Tensor:
    """Return outputs (..., N), or for a complex network (..., 2 N): real and imaginary parts, concatenated."""
    return torch.view_as_real(out).flatten(-2) if out.is_complex() else out


def _blocks(
    lstm_hidden_size: int, n_lstm_layers: int, lstm_kwargs: Mapping[str, Any], features: int
) -> OrthogonalBlocks:
    options = {"state_size": lstm_hidden_size, "decay": False, **lstm_kwargs}
    if n_lstm_layers == 1:
        options.pop("dropout", None)  # which is between blocks
    return OrthogonalBlocks(features, lstm_hidden_size, options.pop("state_size"), n_lstm_layers, **options)


class MlpOrthogonalPolicy(RecurrentActorCriticPolicy):
    """A policy for RecurrentPPO that uses an orthornn network as memory, instead of the LSTM of MlpLstmPolicy.

    Args:
        observation_space, action_space, lr_schedule: Passed by the algorithm.
        memory: Function that builds the recurrent network from the number of features. Default: None, OrthogonalBlocks
            with the three arguments below.
        lstm_hidden_size: ``d_model``, the number of features that policy and value read. Default: 256.
        n_lstm_layers: Number of blocks. Default: 1.
        lstm_kwargs: Other arguments of OrthogonalBlocks. Unless they contain other values, ``state_size`` is
            ``lstm_hidden_size`` and ``decay`` is False: an agent's memory does not forget within an episode. Default:
            None.
        shared_lstm: Let the critic read the actor's memory without training it. Only with ``enable_critic_lstm=False``.
            Default: ``False``.
        enable_critic_lstm: Give the critic a separate memory. If both are False, the critic reads the features through
            a linear layer. Default: ``True``.
        recurrent_lr: Learning rate of the recurrent matrices, relative to the other parameters. Default: 0.1.
        options: Other arguments of MlpLstmPolicy: ``net_arch``, ``share_features_extractor``, ``optimizer_class``, ...

    Raises:
        ArgumentError: If an argument is outside its range, or ``memory`` is passed together with the sizes of
            OrthogonalBlocks.
        SharingError: If actor and critic share a memory and the critic also has one, or share memories but not
            features.

    Example::

        >>> from sb3_contrib import RecurrentPPO
        >>> from orthornn.integrations.sb3 import MlpOrthogonalPolicy
        >>> model = RecurrentPPO(MlpOrthogonalPolicy, "CartPole-v1", n_steps=16, policy_kwargs={"lstm_hidden_size": 8})
        >>> model.policy.lstm_actor.network
        OrthogonalBlocks(4, 8, 8, depth=1, parametrization=Rotations(), mixing='glu')
    """

    lstm_actor: PolicyMemory
    lstm_critic: PolicyMemory | None
    _memory_options: dict[str, Any]

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        lr_schedule: Callable[[float], float],
        *,
        memory: Callable[[int], RecurrentNetwork] | None = None,
        lstm_hidden_size: int = 256,
        n_lstm_layers: int = 1,
        lstm_kwargs: dict[str, Any] | None = None,
        shared_lstm: bool = False,
        enable_critic_lstm: bool = True,
        recurrent_lr: float = 0.1,
        **options: Any,
    ) -> None:
        check_integer("lstm_hidden_size", lstm_hidden_size, 1)
        check_integer("n_lstm_layers", n_lstm_layers, 1)
        if memory is not None:
            if isinstance(memory, torch.nn.Module):
                raise ArgumentTypeError(
                    f"Expected memory to be a function of the number of features, but got {type(memory).__name__}. Pass "
                    f"the function that builds it: actor and critic each need a network."
                )
            check_callable("memory", memory)
            if (lstm_hidden_size, n_lstm_layers, lstm_kwargs) != (256, 1, None):
                raise ArgumentError(
                    "Expected no lstm_hidden_size, n_lstm_layers or lstm_kwargs with memory, but got one. Set the sizes "
                    "in the function memory."
                )
        self.shared_lstm = check_flag("shared_lstm", shared_lstm)
        self.enable_critic_lstm = check_flag("enable_critic_lstm", enable_critic_lstm)
        if shared_lstm and enable_critic_lstm:
            raise SharingError(
                "Expected shared_lstm or enable_critic_lstm, but got both. Pass enable_critic_lstm=False to share "
                "the memory of the actor."
            )
        if shared_lstm and not options.get("share_features_extractor", True):
            raise SharingError(
                "Expected shared features with shared_lstm=True, but got share_features_extractor=False. Share both."
            )
        self._memory_options = {
            "memory": memory,
            "lstm_hidden_size": lstm_hidden_size,
            "n_lstm_layers": n_lstm_layers,
            "lstm_kwargs": lstm_kwargs,
            "shared_lstm": shared_lstm,
            "enable_critic_lstm": enable_critic_lstm,
            "recurrent_lr": check_number("recurrent_lr", recurrent_lr, 0),
        }
        # The class above sb3-contrib's, which has everything but the LSTMs.
        ActorCriticPolicy.__init__(self, observation_space, action_space, lr_schedule, **options)

    def _build_mlp_extractor(self) -> None:
        own = self._memory_options
        sizes = own["lstm_hidden_size"], own["n_lstm_layers"], own["lstm_kwargs"] or {}
        build = own["memory"] or partial(_blocks, *sizes)
        features = int(self.features_dim)  # a NumPy integer for MultiDiscrete observations
        self.lstm_actor = PolicyMemory(build(features), features)
        self.lstm_output_dim = self.lstm_actor.output_size
        self.lstm_hidden_state_shape = (self.lstm_actor.num_layers, 1, self.lstm_actor.hidden_size)
        self.lstm_critic = self.critic = None
        if self.enable_critic_lstm:
            self.lstm_critic = PolicyMemory(build(features), features)
        elif not self.shared_lstm:
            self.critic = nn.Linear(features, self.lstm_output_dim)
        super()._build_mlp_extractor()

    def _build(self, lr_schedule: Callable[[float], float]) -> None:
        super()._build(lr_schedule)
        lr, scale = lr_schedule(1), self._memory_options["recurrent_lr"]
        groups = param_groups(self, lr, scale * lr)
        self.optimizer = self.optimizer_class(groups, **{"lr": lr, **self.optimizer_kwargs})
        attach(self, self.optimizer)
        # The algorithm writes one learning rate into all groups before it updates.
        self.optimizer.register_step_pre_hook(partial(_scale_rates, scale))
        self.optimizer.register_step_post_hook(partial(_scale_rates, None))

    @staticmethod
    def _process_sequence(
        features: Tensor, lstm_states: States, episode_starts: Tensor, lstm: PolicyMemory
    ) -> tuple[Tensor, States]:
        out: tuple[Tensor, States] = lstm(features, lstm_states, episode_starts)
        return out

    def predict(
        self,
        observation: Any,
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """Return actions and the following states.

        Args:
            observation: Observation of one or several environments.
            state: State returned by the previous call. Default: None, the states from which episodes start.
            episode_start: bool (n,), whether each environment has just begun an episode. Default: None, none has.
            deterministic: Return the most probable actions instead of samples.

        Raises:
            ShapeError: If states or truth values have another number of environments.
            ArgumentTypeError, DTypeError: If they have another type.
        """
        tensors, _ = self.obs_to_tensor(observation)
        count = len(next(iter(tensors.values())) if isinstance(tensors, dict) else tensors)
        if state is None:
            with torch.no_grad():
                first = self.lstm_actor.initial_states(count)
            state = tuple(half.cpu().numpy() for half in first)
        else:
            _check_predicted(state, (1, count, self.lstm_actor.hidden_size))
        if episode_start is not None:
            found = np.asarray(episode_start)
            if found.dtype.kind not in "biuf":
                raise DTypeError(f"Expected episode_start to be bool, but got {found.dtype}. Pass truth values.")
            if found.shape != (count,):
                raise ShapeError(
                    f"Expected episode_start of shape ({count},), one truth value per environment, but got {found.shape}."
                )
        return super().predict(observation, state, episode_start, deterministic)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        options: dict[str, Any] = super()._get_constructor_parameters()
        return {**options, "share_features_extractor": self.share_features_extractor, **self._memory_options}


class CnnOrthogonalPolicy(MlpOrthogonalPolicy):
    """A policy for images, like CnnLstmPolicy: NatureCNN extracts the features. See MlpOrthogonalPolicy."""

    def __init__(self, *spaces: Any, features_extractor_class: type = NatureCNN, **options: Any) -> None:
        super().__init__(*spaces, features_extractor_class=features_extractor_class, **options)


class MultiInputOrthogonalPolicy(MlpOrthogonalPolicy):
    """A policy for Dict observations, like MultiInputLstmPolicy: CombinedExtractor extracts the features. See
    MlpOrthogonalPolicy.
    """

    def __init__(self, *spaces: Any, features_extractor_class: type = CombinedExtractor, **options: Any) -> None:
        super().__init__(*spaces, features_extractor_class=features_extractor_class, **options)


def _check_predicted(state: object, shape: tuple[int, ...]) -> None:
    """Raise unless a state is a pair of arrays with this shape."""
    if not (isinstance(state, tuple) and len(state) == 2):
        found = f"{len(state)} arrays" if isinstance(state, tuple) else type(state).__name__
        raise ArgumentTypeError(
            f"Expected state to be a pair of arrays, but got {found}. Pass the state returned by predict."
        )
    shapes = [np.shape(half) for half in state]
    if shapes != [shape, shape]:
        raise ShapeError(
            f"Expected state to be two arrays of shape {shape}, but got {shapes[0]} and {shapes[1]}. Pass the state "
            f"returned by predict for this number of environments."
        )


def _scale_rates(scale: float | None, optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Multiply the learning rate of recurrent matrices; with None, restore the original rate."""
    for group in optimizer.param_groups:
        if group.get("name") == "other":
            continue
        if scale is None:
            group["lr"] = group.pop("lr_of_others")
        else:
            group["lr_of_others"], group["lr"] = group["lr"], group["lr"] * scale
