"""The estimator :class:`tagwise.Cascade` and its steps."""

from __future__ import annotations

from tagwise.models.cascade.cascade import Cascade

__all__ = ["Cascade"]
