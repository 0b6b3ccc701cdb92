"""What PLST and ML-CSSP share: a ridge regression onto k numbers a row, from which all labels are made linearly."""

from __future__ import annotations

from typing import Any

from tagwise.models.factor_model import FactorModel
from tagwise.randomness import check_random_state
from tagwise.validation import check_integer, check_real

__all__ = ["LabelSpaceModel"]


class LabelSpaceModel(FactorModel):
    """k targets made of the labels are regressed on the features; the parameters of both and their checks."""

    def __init__(
        self,
        rank: int = 100,
        reg: float = 1.0,
        normalize: bool = True,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.rank = rank
        self.reg = reg
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_integer(self.rank, "rank", minimum=1)
        check_real(self.reg, "reg", minimum=0, open_minimum=True)
        check_random_state(self.random_state)
