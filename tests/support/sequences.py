"""Random sequences with classes that their last step decides, and a network that learns within a second."""

from __future__ import annotations

import numpy as np

X = np.random.default_rng(6).standard_normal((48, 9, 2))
Y = np.where(X[:, -1, 0] > 0, "up", "down")
SMALL = {"model": "lstm", "hidden_size": 4, "steps": 6, "batch_size": 8}
