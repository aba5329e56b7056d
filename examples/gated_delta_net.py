"""Run the Gated DeltaNet layers of transformers with the compiled delta rule: python examples/gated_delta_net.py [STEPS]

`gated_delta_rule` takes and returns what the two functions of transformers do for which it stands in, in prompts, decoding
and training. The layer is Qwen3-Next's, with random weights: outputs and gradients of both are compared, then the function
is timed in turn with that of transformers, on one thread. Needs `pip install transformers`.
"""

from __future__ import annotations

import argparse
import time
from contextlib import AbstractContextManager
from unittest import mock

import torch
from torch import Tensor, nn
from transformers.models.qwen3_next import modeling_qwen3_next as modeling

from orthornn.kernels import delta_rnn

EPSILON = 1e-6  # what transformers adds to squared lengths


def gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **_: object,
) -> tuple[Tensor, Tensor | None]:
    """Return what each step reads (B, T, heads, V) and the last state; the arguments are those of transformers."""
    if not use_qk_l2norm_in_kernel:
        raise ValueError("Expected use_qk_l2norm_in_kernel=True, but got False: the kernel normalizes keys.")
    heads = value.shape[2]
    q, k, v, strengths, decay = (x.transpose(0, 1).float() for x in (query, key, value, beta, g))
    q, k = (x.repeat_interleave(heads // x.shape[2], dim=2) for x in (q, k))
    q = q * (q.square().sum(-1, keepdim=True) + EPSILON).rsqrt() / q.shape[-1] ** 0.5
    # The kernel's keys have length 1, those of transformers c: a strength of beta c^2 and a value v / c do the same.
    squared = k.square().sum(-1, keepdim=True).clamp_min(1e-12)
    c = (squared / (squared + EPSILON)).sqrt()
    state = q.new_zeros(q.shape[1], heads, k.shape[-1], v.shape[-1]) if initial_state is None else initial_state.float()
    strengths = strengths * c.squeeze(-1).square()
    k, v, strengths = (x.unsqueeze(2) for x in (k, v / c, strengths))  # one update in each step
    out, last = delta_rnn(q, k, v, strengths, state, gate=decay.exp())
    return out.transpose(0, 1).to(query.dtype), last if output_final_state else None


def compiled() -> AbstractContextManager[object]:
    """Put the kernel in the place of the functions of transformers meanwhile."""
    names = ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule")
    return mock.patch.multiple(modeling, **dict.fromkeys(names, gated_delta_rule))


def layer(heads: int = 16, size: int = 128, width: int = 256) -> nn.Module:
    """Return a layer with random weights."""
    names = {"key_head_dim": size, "value_head_dim": size, "num_key_heads": heads, "num_value_heads": heads}
    sizes = {f"linear_{name}": value for name, value in names.items()}
    return modeling.Qwen3NextGatedDeltaNet(modeling.Qwen3NextConfig(hidden_size=width, **sizes), 0)


def difference(net: nn.Module, x: Tensor) -> float:
    """Return the largest difference of outputs and gradients that the kernel makes, relative to the largest entry."""

    def run() -> tuple[Tensor, ...]:
        out = net(x)
        return (out.detach(), *torch.autograd.grad(out.square().mean(), list(net.parameters())))

    want = run()
    with compiled():
        return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(run(), want))


def times_faster(steps: int, heads: int = 16, size: int = 128, rounds: int = 5) -> list[float]:
    """Return how many times faster the kernel is than the function of transformers, forward, and with backward."""
    query, key, value = torch.randn(3, 1, steps, heads, size).unbind()
    decay, beta = torch.rand(2, 1, steps, heads).unbind()
    leaves = [leaf.requires_grad_() for leaf in (query, key, value, -decay, beta)]
    least = [[float("inf")] * 2 for _ in range(2)]
    for _ in range(rounds):
        for times, function in zip(least, (modeling.torch_chunk_gated_delta_rule, gated_delta_rule)):
            for backward in (False, True):
                start = time.process_time()
                with torch.set_grad_enabled(backward):
                    out, _last = function(*leaves, use_qk_l2norm_in_kernel=True)
                if backward:
                    torch.autograd.grad(out.square().mean(), leaves)
                times[backward] = min(times[backward], time.process_time() - start)
    return [theirs / mine for theirs, mine in zip(*least)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", type=int, nargs="?", default=1024, help="steps of the sequence (default: %(default)s)")
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print(f"difference relative to the largest entry: {difference(layer(), torch.randn(1, steps, 256)):.1e}")
    print("{:.1f} times faster forward, {:.1f} with backward".format(*times_faster(steps)))
