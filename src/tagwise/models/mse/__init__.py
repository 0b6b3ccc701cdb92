"""The estimator :class:`tagwise.MSE`."""

from tagwise.models.mse.mse import MSE

__all__ = ["MSE"]
