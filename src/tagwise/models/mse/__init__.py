"""The estimator :class:`tagwise.MSE` and its steps."""

from __future__ import annotations

from tagwise.models.mse.mse import MSE

__all__ = ["MSE"]
