"""The names that tasks had before their data and their objective were values of their own."""

from __future__ import annotations

import re

import pytest
import torch

from orthornn.learn.tasks import Adding
from orthornn.learn.tasks.task import _FORMER


def test_what_a_task_had_before_still_works_and_says_its_new_name():
    task = Adding(T=6, validation_size=5, test_size=5)
    for name, (where, found) in _FORMER.items():
        if name not in ("classes", "baselines", "plain_baselines"):  # of tables, and functions of abilities
            with pytest.warns(DeprecationWarning, match=rf"Adding\.{name} is {re.escape(where)} now"):
                former = getattr(task, name)
            assert former == found(task) or callable(former)
    with pytest.warns(DeprecationWarning, match=r"Adding\.train_batch is"):
        before = task.train_batch(3, 4, 0)
    assert all(torch.equal(*pair) for pair in zip(before, task.problem().train(3, 4, 0)))
    with pytest.warns(DeprecationWarning, match=r"plain_baselines\(task\)"):
        assert task.plain_baselines() == []
    for name in ("classes", "never"):
        assert not hasattr(task, name)
