"""The reliability diagram of stated probabilities."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from tagwise.exceptions import InvalidInputError, TagwiseError
from tagwise.inspection.reliability import ReliabilityBins
from tagwise.persistence.atomic import atomic_stream

__all__ = ["plot_reliability"]

_METADATA = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}


def plot_reliability(bins: ReliabilityBins, path: str | PathLike[str], *, title: str = "Reliability") -> None:
    """Draw the observed share of right tags over the stated probability, and how many pairs each bin has.

    Parameters
    ----------
    bins : ReliabilityBins
        Such as ``tagger.calibration_.reliability`` or what ``tagger.reliability(texts, tags)`` gives.
    path : path
        The file, ``.svg`` or ``.png``; it is replaced in one step, and the same bins make the same bytes.
    title : str

    Raises
    ------
    TagwiseError
        matplotlib is not installed.
    """
    target = Path(path)
    kind = target.suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise InvalidInputError(f"path must end in .svg or .png; found {str(path)!r}.")
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        raise TagwiseError("Plots need matplotlib; install it with: pip install 'tagwise[plots]'.") from None
    from matplotlib.figure import Figure

    some = bins.count > 0
    # svg.hashsalt: ids in the file would be random otherwise.
    with mpl.rc_context({"svg.hashsalt": "tagwise"}):
        drawing = Figure(figsize=(5, 6))
        diagram, histogram = drawing.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        diagram.plot([0, 1], [0, 1], "--", color="grey", label="as stated")
        diagram.plot(bins.predicted[some], bins.observed[some], marker="o", label="observed")
        diagram.set(ylabel="share that is right", title=title, xlim=(0, 1), ylim=(0, 1))
        diagram.legend(loc="upper left")
        diagram.grid(alpha=0.3)
        width = 1 / len(bins.count)
        histogram.bar((np.arange(len(bins.count)) + 0.5) * width, bins.count, width=0.9 * width)
        histogram.set_yscale("symlog")
        histogram.set(xlabel="stated probability", ylabel="pairs")
        histogram.set_ylim(bottom=0)
        drawing.tight_layout()
        with atomic_stream(target) as stream:
            drawing.savefig(stream, format=kind, dpi=100, metadata=_METADATA[kind])
