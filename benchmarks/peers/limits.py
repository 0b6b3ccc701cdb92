"""Sizes beyond which a plug-in leaves a problem out, in words. Needs only the standard library."""

from __future__ import annotations


def too_many_weights(shape: tuple[int, int, int], most: int) -> str | None:
    """Why a dense weight for each pair of feature and label is too much, or None."""
    _, features, labels = shape
    if features * labels <= most:
        return None
    return (
        f"left out: one model for each of {labels:,} labels, dense, is {features * labels:,} weights, "
        f"above this plug-in's {most:,}"
    )
