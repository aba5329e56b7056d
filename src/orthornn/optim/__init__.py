"""Optimizers that stay on the Stiefel manifold, and parameter groups for them."""

from . import recipes
from .attachment import attach
from .groups import param_groups
from .joint import JointOptimizer
from .rmsprop import CayleyRMSprop
from .sgd import CayleySGD

__all__ = ["CayleyRMSprop", "CayleySGD", "JointOptimizer", "attach", "param_groups", "recipes"]
