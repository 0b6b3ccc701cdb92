"""The estimator :class:`tagwise.LEML` and its steps."""

from __future__ import annotations

from tagwise.models.leml.leml import LEML

__all__ = ["LEML"]
