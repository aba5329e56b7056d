"""The training loss of a batch, and its penalties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ... import penalties
from ...errors import ArgumentError
from ...modules import OrthogonalRNN, Transition
from ...modules.tracing import tracing
from ..tasks import Batch, Objective
from .config import PenaltyConfig

_NONE = PenaltyConfig()


def penalized_loss(
    model: nn.Module,
    objective: Objective,
    batch: Batch,
    config: PenaltyConfig,
    forward: Callable[[Any], Tensor] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return (the task's loss, the sum of the penalties or None if all strengths are 0): scalars, not yet added.

    forward: How to call the model. Default: directly.
    """
    forward = model if forward is None else forward
    if config == _NONE:
        return objective.loss(forward(batch.inputs), batch.targets), None
    if not (config.norm_stabilizer or config.gradient_norm):
        prediction = forward(batch.inputs)
        loss = objective.loss(prediction, batch.targets)
        return loss, _on_weights(model, config) + _smoothing(objective, prediction, batch.targets, loss, config)
    networks = {name: module for name, module in model.named_modules() if isinstance(module, OrthogonalRNN)}
    with tracing(networks) as notes:
        prediction = forward(batch.inputs)
        loss = objective.loss(prediction, batch.targets)
    traces = [trace for noted in notes.values() for trace in noted]
    if any(trace.layout.is_ragged for trace in traces):
        raise ArgumentError(
            "the penalties norm_stabilizer and gradient_norm compare neighboring steps of sequences of one length; "
            "this batch has several. Set them to 0, or let a batch have one length (characters: batching='equal', "
            "--batching equal)."
        )
    extra = _on_weights(model, config) + _smoothing(objective, prediction, batch.targets, loss, config)
    if config.norm_stabilizer:
        for trace in traces:
            extra = extra + penalties.norm_stabilizer(trace.states.to(trace.h0.dtype), trace.h0, config.norm_stabilizer)
    if config.gradient_norm:
        deltas = torch.autograd.grad(loss, [trace.projected for trace in traces], retain_graph=True)
        for trace, delta in zip(traces, deltas):
            extra = extra + penalties.gradient_norm(trace, delta, config.gradient_norm)
    return loss, extra


def _smoothing(
    objective: Objective, prediction: Tensor, targets: Any, loss: Tensor, config: PenaltyConfig
) -> Tensor | float:
    """Return the term that smoothed labels add to a cross-entropy: a share of its distance to the one of spread
    targets.
    """
    if not config.label_smoothing:
        return 0.0
    check_smoothing(objective, targets)
    return config.label_smoothing * (objective.spread_loss(prediction, targets) - loss)


def check_smoothing(objective: Objective, targets: Any) -> None:
    """Raise ArgumentError unless the targets of a batch are classes that can be smoothed."""
    if not objective.has_classes(targets):
        raise ArgumentError(
            f"Expected a task with one class per sequence for label_smoothing, but got {objective.name}. Set it to 0."
        )


def check_penalties(model: nn.Module, config: PenaltyConfig) -> None:
    """Raise ArgumentError for a penalty on something that the model does not have."""
    transitions = [module for module in model.modules() if isinstance(module, Transition)]
    spectra = [transition for transition in transitions if "spectrum" in transition.method.names]
    networks = [module for module in model.modules() if isinstance(module, OrthogonalRNN)]
    of_spectrum = "a spectrum (spectral with a margin other than 0)"
    for name, found, needed in (
        ("soft_orthogonality", transitions, "a recurrent matrix"),
        ("weight_decay", transitions, "a recurrent matrix"),
        ("input_decay", _input_weights(model), "input weights"),
        ("readout_decay", _readout_matrices(model), "a readout"),
        ("spectrum_prior", spectra, of_spectrum),
        ("norm_stabilizer", networks, "an OrthogonalRNN"),
        ("gradient_norm", networks, "an OrthogonalRNN"),
    ):
        strength = getattr(config, name)
        if strength and not found:
            raise ArgumentError(
                f"Expected the penalty {name} only for a model with {needed}, but got {strength:g} for one without. Set it "
                f"to 0, or choose another model."
            )


def _on_weights(model: nn.Module, config: PenaltyConfig) -> Tensor:
    total = torch.zeros((), device=next(model.parameters()).device)
    transitions = [module for module in model.modules() if isinstance(module, Transition)]
    if config.soft_orthogonality or config.weight_decay:
        for transition in transitions:
            W = transition.matrix()
            if config.soft_orthogonality:
                total = total + penalties.soft_orthogonality(W, config.soft_orthogonality)
            if config.weight_decay:
                total = total + penalties.weight_decay(W, config.weight_decay)
    for strength, matrices in (
        (config.input_decay, _input_weights(model)),
        (config.readout_decay, _readout_matrices(model)),
    ):
        if strength:
            total = total + sum(penalties.weight_decay(matrix, strength) for matrix in matrices)
    if config.spectrum_prior:
        for transition in transitions:
            if "spectrum" in transition.method.names:
                s = transition.method.singular_values(*transition.free())  # type: ignore[operator]
                total = total + penalties.spectrum_prior(s, config.spectrum_prior)
    return total


def _input_weights(model: nn.Module) -> list[Tensor]:
    """Return the input weights of every layer and direction as matrices; complex ones with their parts as columns."""
    named = (entry for entry in model.named_parameters() if not entry[0].startswith("head."))
    return [weight.flatten(1) for name, weight in named if name.rpartition(".")[2].startswith("weight_ih")]


def _readout_matrices(model: nn.Module) -> list[Tensor]:
    head = getattr(model, "head", None)
    modules = () if head is None else head.modules()
    return [module.weight for module in modules if isinstance(module, nn.Linear)]
