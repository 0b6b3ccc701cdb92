"""How pictures of the gallery look: in the colours of the reports."""

from typing import Any


def house_style(conf: dict[str, Any], name: str) -> None:
    """Called by sphinx-gallery before every example."""
    import matplotlib.pyplot as plt

    plt.rcParams["axes.prop_cycle"] = plt.cycler(color=["#2166ac", "#d9711c", "#2f8f6b", "#8a56ac", "#b83b5e"])
    plt.rcParams["figure.dpi"] = plt.rcParams["savefig.dpi"] = 110
