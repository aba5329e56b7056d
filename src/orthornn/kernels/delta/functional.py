"""The delta rule as a function: checks the arguments, builds a `DeltaCall`, runs it."""

from __future__ import annotations

from torch import Tensor

from ..._checks import check_choice, check_dtype, check_same, check_shape, check_tensor
from ...errors import ShapeError
from ..reflections.functional import check_range, strengths
from ..validation import Resets, check_kind_of_batch_sizes, check_resets, checked_layout
from .call import DeltaCall
from .kernel import BACKENDS, run


def delta_rnn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: float | Tensor,
    state: Tensor,
    *,
    gate: Tensor | None = None,
    reset: Tensor | None = None,
    restart: Tensor | None = None,
    batch_sizes: Tensor | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    r"""Run a recurrence with a matrix state that is erased and written at each step along keys: the delta rule.

    .. math:: S \leftarrow g_t \circ S_{t-1}, \quad
              S \leftarrow S - \beta_i \hat{k}_i (\hat{k}_i' S - v_i') \text{ for } i = 1, \ldots, M, \quad
              S_t = S, \quad o_t = S_t' q_t

    where :math:`\hat{k} = k / \max(|k|, 10^{-6})`. One update is the delta rule of DeltaNet, several updates are
    DeltaProduct. With beta = 2 an update is a reflection of the columns of S; with beta = 1 the value v replaces the
    one stored along k.

    Args:
        q: Queries.
        k: Keys. They are normalized; a key shorter than 1e-6 fades out instead.
        v: Values.
        beta: Strength of each update, in [0, 2]: a number, or one per update and head.
        state: Initial state S_0.
        gate: g in [0, 1]: one per head, or one per entry of its keys. Default: None, 1.
        reset: True if a new episode starts before step t. Default: None, no resets.
        restart: State from which episodes start. Default: ``state``.
        batch_sizes: Rows of each step, int64 (T,) on the CPU, never increasing; rows are then flat, (R, ...), as in a
            PackedSequence. Default: None, B rows in each step.
        backend: ``"auto"``; ``"cpp"``, the compiled kernel; ``"chunked"``, matrix products over chunks of steps in
            torch, on every device; or ``"reference"``, a loop over steps.

    Shape:
        - q: (T, B, H, K). k: (T, B, M, H, K). v: (T, B, M, H, V). beta: (T, B, M, H). gate: (T, B, H) or (T, B, H, K).
          reset: (T, B). With ``batch_sizes``, (R, ...) instead of (T, B, ...).
        - state, restart: (B, H, K, V).
        - Output: o (T, B, H, V) or (R, H, V), and the state after each sequence's last step (B, H, K, V).

    Raises:
        ShapeError: If sizes do not match.
        ArgumentError: If beta or gate is outside its range.

    Example::

        >>> q, k, v = torch.randn(7, 3, 2, 8), torch.randn(7, 3, 1, 2, 8), torch.randn(7, 3, 1, 2, 5)
        >>> o, last = delta_rnn(q, k, v, 1.0, torch.zeros(3, 2, 8, 5))
        >>> o.shape, last.shape
        (torch.Size([7, 3, 2, 5]), torch.Size([3, 2, 8, 5]))
    """
    check_dtype("state", state)
    check_shape("state", state, ("B", "H", "K", "V"))
    batch, heads, keys, values = state.shape
    check_tensor("k", k)
    lead = 2 if batch_sizes is None else 1
    if batch_sizes is not None:
        check_kind_of_batch_sizes(batch_sizes)
    if k.dim() != lead + 3 or tuple(k.shape[-2:]) != (heads, keys) or k.shape[-3] < 1:
        kind = "(T, B, M, H, K)" if lead == 2 else "(R, M, H, K)"
        raise ShapeError(
            f"Expected k of shape {kind} with H = {heads} and K = {keys} as in state and M at least 1, but got "
            f"{tuple(k.shape)}."
        )
    first, updates = tuple(k.shape[:lead]), k.shape[-3]
    check_shape("q", q, (*first, heads, keys))
    check_shape("v", v, (*first, updates, heads, values))
    beta = strengths(beta, k, (*first, updates, heads))
    if gate is not None:
        check_tensor("gate", gate)
        check_shape("gate", gate, (*first, heads) if gate.dim() == lead + 1 else (*first, heads, keys))
    check_same("state", state, q=q, k=k, v=v, beta=beta, gate=gate)
    check_range("beta", beta, 2)
    if gate is not None:
        check_range("gate", gate, 1)
        gate = gate.unsqueeze(-1) if gate.dim() == lead + 1 else gate
    check_choice("backend", backend, BACKENDS)
    layout = checked_layout(k, batch_sizes, batch, "state")
    found = check_resets(Resets(reset, restart), first, state, "state")
    if found.reset is not None:
        layout = layout.between(found.reset.flatten())
    out, last = run(DeltaCall(q, k, v, beta, gate, state, found.restart, layout, backend))
    assert out is not None
    assert last is not None
    return out, last
