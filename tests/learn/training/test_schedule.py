"""The rate of every update, against its formula."""

from __future__ import annotations

import math

import pytest
import torch

from orthornn.learn.training import ScheduleConfig
from orthornn.learn.training.schedule import make_scheduler

STEPS = 31


def rates(config, steps=STEPS, first=(0.2, 0.03)):
    """The rates of two groups in every update, and what an update after the last would have."""
    groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in first]
    optimizer = torch.optim.SGD(groups)
    scheduler, found = make_scheduler(optimizer, config, steps, False), []
    for _ in range(steps + 1):
        found.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    for one, other in found:  # one factor for all groups
        assert other == pytest.approx(one * first[1] / first[0], abs=1e-12)
    return [one / first[0] for one, _ in found]


def cosine(share, end):
    return end + (1 - end) * (1 + math.cos(math.pi * share)) / 2


FACTORS = {
    ScheduleConfig(): lambda t: 1.0,
    ScheduleConfig("step"): lambda t: 0.1 ** (t // 10),  # every third of 31 updates
    ScheduleConfig("step", factor=0.5, every=7): lambda t: 0.5 ** (t // 7),
    ScheduleConfig("exponential"): lambda t: 0.1 ** (t / 10),
    ScheduleConfig("exponential", factor=0.3, every=4): lambda t: 0.3 ** (t / 4),
    ScheduleConfig("cosine"): lambda t: cosine(t / STEPS, 0),
    ScheduleConfig("cosine", factor=0.2): lambda t: cosine(t / STEPS, 0.2),
    ScheduleConfig("linear"): lambda t: 1 - t / STEPS,
    ScheduleConfig("linear", factor=0.4): lambda t: 1 - 0.6 * t / STEPS,
}


@pytest.mark.parametrize("config", FACTORS, ids=str)
def test_every_rate_is_that_of_its_formula(config):
    assert rates(config) == pytest.approx([FACTORS[config](t) for t in range(STEPS + 1)], abs=1e-9)


@pytest.mark.parametrize("name", ["constant", "step", "cosine", "linear"])
@pytest.mark.parametrize("warmup", [1, 6])
def test_a_warmup_rises_from_a_hundredth_and_the_rest_takes_what_is_left(name, warmup):
    left = STEPS - warmup
    after = {
        "constant": lambda t: 1.0,
        "step": lambda t: 0.1 ** (t // (left // 3)),
        "cosine": lambda t: cosine(t / left, 0.1),
        "linear": lambda t: 1 - 0.9 * t / left,
    }[name]
    rise = [0.01 + 0.99 * t / warmup for t in range(warmup)]
    found = rates(ScheduleConfig(name, warmup=warmup, factor=None if name == "constant" else 0.1))
    assert found == pytest.approx(rise + [after(t) for t in range(left + 1)], abs=1e-9)


@pytest.mark.parametrize("higher_is_better", [False, True])
@pytest.mark.parametrize("offset", [0, -4, -6, -20])
def test_a_plateau_is_no_improvement_of_the_metric(higher_is_better, offset):
    """The same for metrics of either sign, and where one is zero."""
    group = [{"params": [torch.zeros(1, requires_grad=True)], "lr": 1.0}]
    scheduler = make_scheduler(torch.optim.SGD(group), ScheduleConfig("plateau", 0.5, 2), STEPS, higher_is_better)
    found: list[float] = []
    for metric in (1, 2, 3, 4, 4, 4, 4, 5, 6, 3, 3, 3):
        scheduler.step(offset + (metric if higher_is_better else 10 - metric))
        found.append(scheduler.get_last_lr()[0])
    assert found == [1, 1, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.25]
    default = make_scheduler(torch.optim.SGD(group), ScheduleConfig("plateau"), STEPS, higher_is_better)
    assert (default.factor, default.patience) == (0.1, 10)


@pytest.mark.parametrize("name", ["step", "exponential", "cosine", "linear"])
@pytest.mark.parametrize("steps", [1, 2])
def test_a_run_of_one_update_has_a_rate(name, steps):
    assert rates(ScheduleConfig(name, warmup=0), steps)[0] == 1.0
    assert all(math.isfinite(rate) for rate in rates(ScheduleConfig(name, warmup=3), steps))
