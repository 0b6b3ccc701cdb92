"""The estimator :class:`tagwise.REML` and its steps."""

from __future__ import annotations

from tagwise.models.reml.reml import REML

__all__ = ["REML"]
