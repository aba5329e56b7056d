"""Tables and figures."""

from __future__ import annotations

from .table import Column, Table

__all__ = ["Column", "Table"]
