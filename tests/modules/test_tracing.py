"""Traces of a network whose sequences restart."""

from __future__ import annotations

import torch

from orthornn import Householder, OrthogonalRNN
from orthornn.modules.tracing import tracing
from orthornn.penalties import gradient_norm
from support.tolerances import tolerance


def traced(reset, restart=None):
    torch.manual_seed(0)
    rnn = OrthogonalRNN(2, 5, parametrization=Householder(), nonlinearity="tanh", learn_h0=True, dtype=torch.float64)
    x = torch.randn(6, 3, 2, dtype=torch.float64)
    with tracing({"rnn": rnn}) as notes:
        out, _ = rnn(x, reset=reset, restart=restart)
    return notes["rnn"][0], out


def test_a_trace_knows_where_sequences_restart():
    reset = torch.zeros(6, 3, dtype=torch.bool)
    reset[0, 0] = reset[3, 1] = reset[4, 1] = reset[5, 2] = True
    restart = torch.randn(1, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    note, out = traced(reset, restart)
    bound = {"rtol": 0, "atol": tolerance(torch.float64, 30)}
    torch.testing.assert_close(note.states, torch.tanh(note.preactivations()), **bound)
    assert torch.equal(note.previous()[3, 1], restart[0, 1])
    (delta,) = torch.autograd.grad(out.square().sum(), note.projected, retain_graph=True)
    carried = note.backward_through_W(delta)
    assert torch.equal(carried[reset], torch.zeros(4, 5, dtype=torch.float64))
    total = 2 * out.detach()
    total[:-1] += carried.detach()[1:]  # dL/dh_t, and from it dL/da_t
    torch.testing.assert_close(delta, (1 - out.detach() ** 2) * total, **bound)
    assert torch.equal(note.backward_through_W(delta[1:]), carried[1:])


def test_steps_before_a_reset_do_not_count_in_the_gradient_penalty():
    """Where every step is a reset no signal passes from one step to another, and none has to keep its norm."""
    note, out = traced(torch.ones(6, 3, dtype=torch.bool))
    (delta,) = torch.autograd.grad(out.square().sum(), note.projected, retain_graph=True)
    assert gradient_norm(note, delta).item() == 0.0
    note, out = traced(None)
    (delta,) = torch.autograd.grad(out.square().sum(), note.projected, retain_graph=True)
    assert gradient_norm(note, delta).item() > 0.0


def test_a_trace_inside_another_hands_the_network_back():
    rnn = OrthogonalRNN(2, 5)
    x = torch.randn(6, 3, 2)
    with tracing({"rnn": rnn}) as outer:
        with tracing({"rnn": rnn}) as inner:
            rnn(x)
        rnn(x)
        rnn(x)
    rnn(x)
    assert (len(inner["rnn"]), len(outer["rnn"])) == (1, 2)
    assert "_traces" not in vars(rnn)
