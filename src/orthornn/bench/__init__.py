"""Timing against torch's own recurrent layers, on this machine."""

from __future__ import annotations

from .step import step_seconds

__all__ = ["step_seconds"]
