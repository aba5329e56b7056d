"""The common part of the estimators: their parameters, training, and the outputs of the trained network."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._checks import check_integer, check_number
from ..lab.systems import Model, model_named
from ..lab.tasks.sequences import Ragged
from ..lab.tasks.splits import divided
from ..lab.training import OptimizerConfig, RunConfig, ScheduleConfig
from ..lab.training.trainer import Trainer
from .arrays_task import ArraysTask
from .sequences import sequences_of

_EVALUATED = 256  # sequences at once
_BUDGET = 12_000  # parameters, where no width is given
_OPTIONS: dict[str, Any] = {"pool": "mean"}  # of any network; see docs/results/own_data.md
_OWN_OPTIONS: dict[str, dict[str, Any]] = {"blocks": {"decay": True}}


class SequenceEstimator(BaseEstimator):
    """The common part of the estimators, and their parameters."""

    _in_order: ClassVar[bool] = False  # the last sequences are those for validation
    _dropout: ClassVar[float | None] = None

    def __init__(
        self,
        model: str = "blocks",
        *,
        hidden_size: int | None = None,
        options: dict[str, Any] | None = None,
        steps: int = 600,
        lr: float = 3e-3,
        batch_size: int = 32,
        clip_norm: float | None = 1.0,
        validation_share: float = 0.15,
        patience: int | None = 10,
        layout: Literal["ntc", "nct"] = "ntc",
        random_state: int | None = 0,
    ) -> None:
        self.model = model
        self.hidden_size = hidden_size
        self.options = options
        self.steps = steps
        self.lr = lr
        self.batch_size = batch_size
        self.clip_norm = clip_norm
        self.validation_share = validation_share
        self.patience = patience
        self.layout = layout
        self.random_state = random_state

    def _fit(
        self,
        sequences: list[np.ndarray],
        targets: Tensor,
        outputs: int,
        strata: list[int] | None = None,
        *,
        known: int = 0,
        past: Sequence[int] = (),
    ) -> np.ndarray:
        """Train, and return which sequences were for validation.

        past: For each output the channel that is its own past; see ArraysTask for `known`.
        """
        check_integer("steps", self.steps, 1)
        check_integer("batch_size", self.batch_size, 1)
        check_number("validation_share", self.validation_share, 0, 0.9)
        seed = int(np.random.randint(2**31)) if self.random_state is None else int(self.random_state)  # noqa: NPY002
        held = round(self.validation_share * len(sequences))
        which = np.arange(len(sequences))
        parts = {"train": which, "validation": which}
        if held >= 2 and len(sequences) - held >= 2 and self._in_order:
            parts = {"train": which[: len(which) - held], "validation": which[len(which) - held :]}
        elif held >= 2 and len(sequences) - held >= 2:
            parts = divided(which, {"train": len(which) - held, "validation": held}, seed, strata)
        stacked = np.concatenate([sequences[i] for i in parts["train"]])
        self.mean_ = stacked.mean(0)
        deviation = stacked.std(0)
        self.deviation_ = np.where(deviation > 0, deviation, 1.0)
        lengths = np.array([len(one) for one in sequences])
        rows = self._scaled(np.concatenate(sequences))
        factors = [(place, float(self.deviation_[place] / self.target_deviation_[place])) for place in past]
        task = ArraysTask(rows, lengths, targets, parts, outputs, known, factors)
        batch = min(self.batch_size, len(parts["train"]))
        every = max(10, len(parts["train"]) // batch)
        config = RunConfig(
            task=task,
            model=self._model(),
            optimizer=OptimizerConfig("adamw", lr=self.lr, decoupled_decay=0.05, clip_norm=self.clip_norm),
            schedule=ScheduleConfig("cosine", warmup=min(50, self.steps // 10)),
            steps=self.steps,
            batch_size=batch,
            seed=seed,
        )
        state = torch.get_rng_state()
        try:
            trainer = Trainer(config)
            best, stale, kept = float("inf"), 0, None
            if trainer.warm:
                best = trainer.evaluate(task.validation(_EVALUATED))["loss"]
                kept = copy.deepcopy(trainer.model.state_dict())
            for step in range(1, self.steps + 1):
                trainer.update()
                if step % every and step != self.steps:
                    continue
                loss = trainer.evaluate(task.validation(_EVALUATED))["loss"]
                stale += 1
                if loss < best:
                    best, stale, kept = loss, 0, copy.deepcopy(trainer.model.state_dict())
                if self.patience is not None and stale >= self.patience:
                    break
        finally:
            torch.set_rng_state(state)
        if kept is not None:
            trainer.model.load_state_dict(kept)
        self.network_ = trainer.model.eval()
        self.validation_loss_ = best
        self.n_iter_ = trainer.step
        self.n_channels_in_ = rows.shape[1]
        return parts["validation"]

    def _model(self) -> Model:
        """The network: the given options before those of the default."""
        size = {"parameters": _BUDGET} if self.hidden_size is None else {"hidden_size": self.hidden_size}
        usual = {**_OPTIONS, **({} if self._dropout is None else {"dropout": self._dropout})}
        return model_named(self.model, **{**size, **usual, **_OWN_OPTIONS.get(self.model, {}), **(self.options or {})})

    def _scaled(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(((rows - self.mean_) / self.deviation_).astype(np.float32))

    def _outputs(self, X: Any) -> np.ndarray:
        """Return the network's outputs for each sequence, (n, O) float64."""
        check_is_fitted(self, "network_")
        sequences = sequences_of(X, self.layout)
        self._check_width(X)
        if sequences[0].shape[1] != self.n_channels_in_:
            raise ValueError(
                f"Expected {self.n_channels_in_} channels, as in fit, but got {sequences[0].shape[1]}. Give those of "
                f"fit."
            )
        return self._outputs_of(sequences)

    @torch.no_grad()
    def _outputs_of(self, sequences: list[np.ndarray]) -> np.ndarray:
        found = []
        lengths = np.array([len(one) for one in sequences])
        for start in range(0, len(sequences), _EVALUATED):
            own = slice(start, start + _EVALUATED)
            index = Ragged(lengths[own]).steps(np.arange(len(lengths[own])))
            found.append(self.network_(index.take(self._scaled(np.concatenate(sequences[own])))))
        return torch.cat(found).double().numpy()

    def _remember_width(self, X: Any) -> None:
        """Set scikit-learn's own count of features where X is a matrix: then all sequences have one length."""
        self.n_features_in_ = int(np.shape(X)[1]) if not isinstance(X, (list, tuple)) and np.ndim(X) == 2 else None

    def _check_width(self, X: Any) -> None:
        width = getattr(self, "n_features_in_", None)
        if width is not None and not isinstance(X, (list, tuple)) and np.ndim(X) == 2 and np.shape(X)[1] != width:
            raise ValueError(
                f"X has {np.shape(X)[1]} features, but {type(self).__name__} is expecting {width} features as input. "
                f"Give sequences of other lengths as a list."
            )
