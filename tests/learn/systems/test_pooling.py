"""Pooling: what a head reads of a whole sequence does not depend on how sequences are batched, and streams."""

from __future__ import annotations

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from orthornn.errors import ArgumentError
from orthornn.learn.systems import build, count_parameters
from orthornn.learn.systems.pooling import POOLS, RunningPool, pooled

LENGTHS = (4, 9, 1, 7)
CORES = [("lstm", {}), ("gru", {"depth": 2, "bidirectional": True}), ("goru", {}), ("blocks", {"decay": True})]
CORES += [("ornn", {"reflections": 3, "depth": 2, "bidirectional": True}), ("scurnn", {}), ("lstm-peephole", {})]


@pytest.mark.parametrize("kind", POOLS)
def test_a_pool_by_its_formula(kind):
    outputs = [torch.randn(length, 5, dtype=torch.float64) for length in LENGTHS]
    wanted = {
        "last": [rows[-1] for rows in outputs],
        "mean": [rows.mean(0) for rows in outputs],
        "both": [torch.cat([rows[-1], rows.mean(0)]) for rows in outputs],
        "summary": [torch.cat([rows[-1], rows.mean(0), rows.max(0).values]) for rows in outputs],
    }[kind]
    packed = pack_sequence(outputs, enforce_sorted=False)
    torch.testing.assert_close(pooled(packed, None, kind), torch.stack(wanted))
    for rows, expected in zip(outputs, wanted):
        torch.testing.assert_close(pooled(rows.unsqueeze(1), None, kind)[0], expected)
        running = RunningPool(kind)
        for row in rows:
            streamed = running(row.unsqueeze(0))
        torch.testing.assert_close(streamed[0], expected)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize(("name", "options"), CORES)
def test_a_batch_of_unequal_lengths_predicts_what_each_sequence_does(name, options, pool):
    torch.manual_seed(0)
    sequences = [torch.randn(length, 3, dtype=torch.float64) for length in LENGTHS]
    model = build(name, 3, 2, hidden_size=6, pool=pool, dropout=0.5, dtype=torch.float64, **options).eval()
    together = model(pack_sequence(sequences, enforce_sorted=False))
    alone = torch.cat([model(one.unsqueeze(1)) for one in sequences])
    torch.testing.assert_close(together, alone)
    model.train()
    assert not torch.equal(model(sequences[0].unsqueeze(1)), model(sequences[0].unsqueeze(1)))  # dropout
    together.square().sum().backward()
    assert all(p.grad is not None for p in model.core.parameters() if p.requires_grad)


def test_the_head_reads_each_direction_at_its_end():
    model = build("lstm", 3, 2, hidden_size=4, bidirectional=True)
    x = torch.randn(6, 5, 3)
    states = model.core(x)[0]
    expected = model.head(torch.cat([states[-1, :, :4], states[0, :, 4:]], 1))
    torch.testing.assert_close(model(x), expected)


def test_a_budget_counts_what_the_head_reads():
    plain, wide = (build("gru", 3, 7, hidden_size=8, pool=pool) for pool in ("mean", "summary"))
    assert count_parameters(wide) - count_parameters(plain) == 2 * 8 * 7
    assert count_parameters(build("lstm", 3, 7, parameters=9000, pool="summary", depth=2)) <= 9000


def test_pool_and_layers_that_there_are_not():
    for wrong in ({"pool": "max"}, {"dropout": 2.0}, {"depth": 0}, {"depth": 1000}):
        with pytest.raises(ArgumentError, match=f"Expected {next(iter(wrong))}"):
            build("lstm", 3, 2, **wrong)
    with pytest.raises(ArgumentError, match="goru has no bidirectional"):
        build("goru", 3, 2, bidirectional=True)
