"""Time recurrent policies of sb3-contrib with an LSTM and with the networks of orthornn, on one thread.

    python benchmarks/agents.py --out results/bench/agents.json

Three measurements, in processor time: the recurrent part of an update, forward and backward, with episodes that start at
one in a hundred steps (sb3-contrib's own `_process_sequence` with its LSTM, next to a `PolicyMemory`); one step of a
rollout; and all of `RecurrentPPO.learn`. Outputs and gradients are compared with those of a loop over steps first; a
difference is an error. The least of several runs by turns.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import torch
from sb3_contrib import RecurrentPPO
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from orthornn import Householder, OrthogonalBlocks, OrthogonalRNN
from orthornn.environment import environment
from orthornn.errors import VerificationError
from orthornn.integrations.sb3 import MlpOrthogonalPolicy, PolicyMemory

SIZES = [(128, 8, 256), (512, 8, 256), (2048, 8, 64)]  # T, B, N
FEATURES, PROBABILITY = 64, 0.01
LSTM, RNN, BLOCKS = "LSTM of sb3-contrib", "OrthogonalRNN", "OrthogonalBlocks"
ENVIRONMENT, ENVIRONMENTS, STEPS, BATCH, HIDDEN = "CartPole-v1", 8, 256, 512, 256  # of learn; HIDDEN is the default
Run = Callable[[], Any]


def seconds(work: Run) -> float:
    """Return the processor time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def by_turns(runs: dict[str, Run], rounds: int) -> dict[str, float]:
    """Return the least time of each, after one call that does not count."""
    for run in runs.values():
        run()
    found = [{name: seconds(run) for name, run in runs.items()} for _ in range(rounds)]
    return {name: min(times[name] for times in found) for name in runs}


def memories(size: int) -> dict[str, PolicyMemory]:
    """Return the networks that are compared with an LSTM of this size."""
    method = Householder(16, base="rotations")
    rnn = OrthogonalRNN(FEATURES, size, parametrization=method, nonlinearity="modrelu")
    networks = {RNN: rnn, BLOCKS: OrthogonalBlocks(FEATURES, size, size, decay=False)}
    return {name: PolicyMemory(network, FEATURES) for name, network in networks.items()}


def verify(T: int, B: int, N: int) -> None:
    """Raise VerificationError unless outputs and gradients are those of a loop over steps; in float64."""
    for name, memory in memories(N).items():
        memory.double()
        x = torch.randn(B * T, FEATURES, dtype=torch.float64, requires_grad=True)
        starts = (torch.rand(B * T) < PROBABILITY).double()
        own, _ = memory(x, memory.initial_states(B), starts)
        h, outs = memory.network.initial_states(B), []
        for x_t, reset in zip(x.view(B, T, FEATURES).unbind(1), (starts.view(B, T) > 0).unbind(1)):
            out, h = memory.network.step(x_t, h, reset=reset)
            outs.append(out)
        loop, weights = torch.stack(outs, 1).flatten(0, 1), torch.randn_like(own)
        leaves = [x, *memory.parameters()]
        pairs = [torch.autograd.grad((out * weights).sum(), leaves) for out in (own, loop)]
        for mine, other in [(own, loop), *zip(*pairs)]:
            off = float((mine - other).detach().abs().max() / other.detach().abs().max().clamp_min(1))
            if not off < 1e-9:
                raise VerificationError(f"Expected {name} to agree with a loop over steps, but got {off:.1e} off.")


def recurrent_part(T: int, B: int, N: int, rounds: int) -> dict[str, Any]:
    """Return the times of forward and backward over T steps of B sequences, as an entry of the results."""
    verify(min(T, 100), B, N)
    x = torch.randn(B * T, FEATURES)
    starts = (torch.rand(B * T) < PROBABILITY).float()
    process = RecurrentActorCriticPolicy._process_sequence
    lstm, zeros, none = nn.LSTM(FEATURES, N), torch.zeros(1, B, N), torch.zeros(B * T)
    weights = torch.randn(B * T, N)
    runs: dict[str, Run] = {
        LSTM: lambda: (process(x, (zeros, zeros), starts, lstm)[0] * weights).sum().backward(),
        f"{LSTM}, no episode starts": lambda: (process(x, (zeros, zeros), none, lstm)[0] * weights).sum().backward(),
    }
    for name, memory in memories(N).items():
        h = tuple(half.detach() for half in memory.initial_states(B))
        runs[name] = lambda memory=memory, h=h: (memory(x, h, starts)[0] * weights).sum().backward()  # type: ignore[misc]
    return {"T": T, "B": B, "N": N, "seconds": by_turns(runs, rounds)}


def algorithm(policy: Any) -> RecurrentPPO:
    """Return RecurrentPPO with its own defaults, but for the sizes of rollouts and minibatches."""
    environments = DummyVecEnv([lambda: gymnasium.make(ENVIRONMENT)] * ENVIRONMENTS)
    return RecurrentPPO(policy, environments, n_steps=STEPS, batch_size=BATCH, seed=0, device="cpu")


def rollout_step(rounds: int) -> dict[str, float]:
    """Return the milliseconds of one step of the policies, for all environments."""
    runs = {}
    for name, policy in ((LSTM, "MlpLstmPolicy"), (BLOCKS, MlpOrthogonalPolicy)):
        model = algorithm(policy)
        model.policy.set_training_mode(False)
        seen, none = torch.randn(ENVIRONMENTS, 4), torch.zeros(ENVIRONMENTS)
        states = model._last_lstm_states
        step: Run = torch.no_grad()(lambda policy=model.policy, states=states: policy(seen, states, none))  # type: ignore[misc]
        runs[name] = lambda step=step: [step() for _ in range(100)]  # type: ignore[misc]
    return {name: 10 * time for name, time in by_turns(runs, rounds).items()}


def learn(rollouts: int) -> dict[str, Any]:
    """Return the frames per second of `learn`, updates included."""
    frames = ENVIRONMENTS * STEPS * rollouts
    found = {}
    for name, policy in ((LSTM, "MlpLstmPolicy"), (BLOCKS, MlpOrthogonalPolicy)):
        model = algorithm(policy)
        found[name] = frames / seconds(lambda model=model: model.learn(frames))  # type: ignore[misc]
    return {"environment": ENVIRONMENT, "frames": frames, "frames_per_second": found}


def main() -> None:
    """Print a table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="a JSON file for the times in seconds")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rollouts", type=int, default=4, help="of learn")
    parser.add_argument("--sizes", default=";".join(f"{T},{B},{N}" for T, B, N in SIZES), help="T,B,N;T,B,N;...")
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    sizes = [tuple(map(int, size.split(","))) for size in given.sizes.split(";")]
    record: dict[str, Any] = {
        "environment": environment(),
        "versions": {name: version(name) for name in ("sb3-contrib", "stable-baselines3", "gymnasium")},
        "features": FEATURES,
        "probability": PROBABILITY,
        "recurrent": [],
    }
    for T, B, N in sizes:
        found = recurrent_part(T, B, N, given.rounds)
        record["recurrent"].append(found)
        print(
            f"T={T}, B={B}, N={N}: " + ", ".join(f"{k} {1e3 * v:.1f} ms" for k, v in found["seconds"].items()),
            flush=True,
        )
    steps = record["step_milliseconds"] = rollout_step(given.rounds)
    print("a step: " + ", ".join(f"{name} {value:.2f} ms" for name, value in steps.items()), flush=True)
    record["learn"] = learn(given.rollouts)
    rates = record["learn"]["frames_per_second"]
    print("learn: " + ", ".join(f"{name} {value:.0f} frames/s" for name, value in rates.items()), flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
