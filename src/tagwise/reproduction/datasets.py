"""The data of a cell: a set by its name, or one generated from the sizes in the configuration."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import scipy.sparse as sp

from tagwise.data import available_datasets, hide_labels, load_dataset, make_low_rank_plus_sparse
from tagwise.exceptions import DatasetNotFoundError
from tagwise.reproduction.configuration import Study

__all__ = ["Split", "check_at_hand", "load_split", "mask_of"]


class Split(NamedTuple):
    """Training and test rows."""

    X: sp.csr_matrix
    Y: sp.csr_matrix
    X_test: sp.csr_matrix
    Y_test: sp.csr_matrix


def check_at_hand(studies: list[Study], names: set[str]) -> None:
    """Refuse to start where a data set is missing, before any work is done."""
    made = {name for study in studies for name in study.generated}
    missing = sorted(names - made - set(available_datasets()))
    if missing:
        raise DatasetNotFoundError(
            f"Data sets that are needed are not at hand: {', '.join(missing)}. Set the environment variable "
            "TAGWISE_DATA to the folder that holds them; reproduction/README.md lists them."
        )


def load_split(study: Study, name: str) -> Split:
    """The data set; the last one is kept in memory, as cells come by data set."""
    recipe = study.generated.get(name)
    return _named(name) if recipe is None else _made(name, tuple(sorted(recipe.items())))


def mask_of(Y: sp.csr_matrix, settings: dict[str, Any], seed: int) -> sp.csr_matrix | None:
    """Ω for the setting ``known`` (a share such as "20%"); None where all labels are known."""
    known = settings.get("known", "100%")
    share = float(str(known).rstrip("%")) / 100
    return None if share >= 1 else hide_labels(Y, share, random_state=seed)


@lru_cache(maxsize=1)
def _named(name: str) -> Split:
    data = load_dataset(name)
    return Split(data.X_train, data.Y_train, data.X_test, data.Y_test)


@lru_cache(maxsize=1)
def _made(name: str, recipe: tuple[tuple[str, Any], ...]) -> Split:
    sizes = dict(recipe)
    train, test, seed = sizes.pop("train_rows"), sizes.pop("test_rows"), sizes.pop("seed", 0)
    problem = make_low_rank_plus_sparse(train + test, random_state=seed, **sizes)
    return Split(problem.X[:train], problem.Y[:train], problem.X[train:], problem.Y[train:])
