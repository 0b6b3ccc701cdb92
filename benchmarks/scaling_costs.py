"""What a fit on a cluster costs: units, calls and bytes of its steps, constants fitted on runs, and larger clusters.

A step is divided into one task per worker, whatever it is divided by: rows in shards, or labels in blocks. So a fit has
as many tasks as it has steps times workers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

NUMBER = 4
# Work of a search that does not depend on the labels, as so many of them: results/growth.md, series of labels.
SEARCH = 70_000
LINK = 10e9 / 8
"""Bytes per second of a link of 10 Gbit/s."""
WORKERS_OF_A_MACHINE = 16


@dataclass(frozen=True)
class Shape:
    """Rows, features, labels, stored entries of X and Y, rank, rounds, and steps of conjugate gradients in each.

    ``systems`` is Σ s(s + 1)/2 over labels with supports of s features, ``cubes`` Σ s³/6; ``negatives`` the wrong
    proposals per row that rankers learn from.
    """

    n: float
    d: float
    L: float
    z: float
    y: float
    k: float
    rounds: float = 1
    cg: float = 1
    systems: float = 0
    cubes: float = 0
    negatives: float = 100


@dataclass(frozen=True)
class Step:
    """A step of a fit, over all of its rounds.

    ``units`` are flops or visited numbers that workers share; ``each`` those that are not divided. A fit
    makes the step ``calls`` times; each time the client shares ``shared`` bytes with every machine, and gets
    ``returned`` bytes from all workers together, and ``summed`` from each of them.
    """

    name: str
    functions: tuple[str, ...]
    units: float
    calls: float = 1
    each: float = 0.0
    shared: float = 0.0
    returned: float = 0.0
    summed: float = 0.0


def steps_of(model: str, s: Shape) -> list[Step]:
    """All steps of LEML with squared loss and all labels known, or of Cascade."""
    dk, Lk = s.d * s.k * NUMBER, s.L * s.k * NUMBER
    products = 2 * (s.z + s.y) * s.k
    turns = s.rounds * s.cg
    spectral = ("spectral_noise_of_rows", "spectral_features_of_rows", "spectral_labels_of_rows")
    low_rank = [
        Step("start", spectral, 6 * products, 6, shared=(dk + Lk) / 2, summed=(dk + Lk) / 2),
        Step("W: gradient", ("gradient_of_rows",), 2 * s.rounds * products, s.rounds, shared=dk + Lk, summed=dk),
        Step("W: curvature", ("curvature_of_rows",), 4 * s.z * s.k * turns, turns, shared=dk, summed=dk),
        Step("H: sums", ("label_sums_of_rows",), s.rounds * products, s.rounds, summed=Lk),
    ]
    if model == "LEML":
        return low_rank
    per_row, weights = s.z / s.n, 8 * min((s.systems * s.L) ** 0.5, s.y * s.z / s.n)
    pairs = s.n * s.negatives + s.y
    return [
        *low_rank,
        Step("loss", ("squared_loss_of_rows",), 2 * products, 2, shared=Lk),
        Step(
            "supports",
            ("support_block",),
            s.y * per_row * s.k + s.systems + s.cubes,
            each=s.z * per_row,
            shared=dk + Lk + 8 * s.z,
            returned=weights,
        ),
        Step(
            "wrong proposals",
            ("wrong_proposals",),
            s.n * (s.L + SEARCH),
            shared=dk + Lk + weights,
            returned=5 * s.n * s.negatives,
        ),
        Step("rankers", ("rankers_of_block",), pairs * per_row, shared=5 * pairs, returned=weights),
        Step("prototypes", ("label_prototypes",), s.y * per_row, shared=5 * s.y, returned=8 * 50 * min(s.L, s.y)),
        Step("co-occurrence", ("cooccurrence_counts",), s.y * s.y / s.n, returned=8 * s.y * s.y / s.n / 2),
    ]


def support_sums(counts: np.ndarray, per_row: float, support: int = 200) -> tuple[float, float]:
    """Σ s(s + 1)/2 and Σ s³/6 of labels with so many positive rows; s is at most what these rows hold."""
    sides = np.minimum(support, np.asarray(counts, dtype=np.float64) * per_row)
    return float((sides * (sides + 1) / 2).sum()), float((sides**3 / 6).sum())


def power_law_counts(L: float, y: float, exponent: float = 0.8, most: int = 1_000_000) -> tuple[np.ndarray, float]:
    """Positives of labels whose frequencies fall by a power law; of so many labels each stands for ``weight`` ones."""
    ranks = min(int(L), most)
    weight = L / ranks
    places = (np.arange(ranks) + 0.5) * weight
    counts = places**-exponent
    return counts * (y / weight / counts.sum()), weight


def shape_of(cell: dict[str, Any]) -> Shape:
    """The shape of a measured run."""
    return Shape(**{name: float(cell[name]) for name in ("n", "d", "L", "z", "y", "k", "rounds", "systems", "cubes")})


def tasks_of(model: str, s: Shape, workers: float) -> float:
    """Number of tasks of a fit."""
    return workers * sum(step.calls for step in steps_of(model, s))


def fitted(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Constants that miss the CPU seconds of runs least, relatively, none of them negative.

    Seconds per unit of each step come from the CPU seconds of its tasks; those per task and byte from what workers,
    scheduler and client took beside; those per pair of a Cascade from what its client took beside tasks and bytes.
    """
    units: dict[str, tuple[float, float]] = {}
    by_run = [{step.name: step for step in steps_of(run["model"], shape_of(run))} for run in runs]
    for name in dict.fromkeys(name for steps in by_run for name in steps):
        rows = []
        for run, steps in zip(runs, by_run):
            step = steps.get(name)
            seconds = sum(run["steps"].get(one, {}).get("compute", 0.0) for one in step.functions) if step else 0.0
            if step and seconds > 0:
                rows.append((step.units / seconds, step.each * run["workers"] / seconds))
        if rows:
            shared, each = nnls(np.array(rows), np.ones(len(rows)))[0]
            units[name] = float(shared), float(each)
    moved = np.array([run["bytes_shared"] + run["bytes_returned"] for run in runs], dtype=float)
    tasks = np.array([run["tasks"] for run in runs], dtype=float)
    pairs = np.array([run["y"] + run["n"] * 100 if run["model"] == "Cascade" else 0 for run in runs], dtype=float)
    inside = np.array([sum(own["compute"] for own in run["steps"].values()) for run in runs])
    workers, client, scheduler = (
        np.array([run[f"{who}_cpu"] for run in runs]) for who in ("worker", "client", "scheduler")
    )
    beside = np.maximum(workers - inside, 1e-2) + scheduler
    per_task, per_byte = nnls(np.column_stack([tasks, moved]) / beside[:, None], np.ones(len(runs)))[0]
    here = nnls(np.column_stack([tasks, moved, pairs]) / client[:, None], np.ones(len(runs)))[0]
    names = ("worker_task", "worker_byte", "client_task", "client_byte", "client_pair")
    return {"units": units, **dict(zip(names, map(float, (per_task, per_byte, *here))))}


def simulated(model: str, s: Shape, workers: int, constants: dict[str, Any], link: float = LINK) -> dict[str, float]:
    """Seconds of a fit by what they go to; nothing overlaps.

    Machines have 16 workers each. All that is shared or comes back passes the link of the client, once per machine.
    """
    machines = max(1, workers // WORKERS_OF_A_MACHINE)
    steps, out = steps_of(model, s), {}
    of = defaultdict(lambda: (0.0, 0.0), constants["units"])
    out["computing"] = sum(of[step.name][0] * step.units for step in steps) / workers
    out["what is made once"] = sum(of[step.name][1] * step.each for step in steps)
    data = 8 * s.z + 8 * s.y
    shared = data + sum(step.calls * step.shared for step in steps)
    back = sum(step.calls * (step.returned + workers * step.summed) for step in steps)
    out["data and model, to each machine"] = shared * machines / link
    out["results, to the client"] = back / link
    pairs = s.y + s.n * s.negatives if model == "Cascade" else 0.0
    client = constants["client_task"] * tasks_of(model, s, workers) + constants["client_byte"] * (shared + back)
    out["the client"] = client + constants["client_pair"] * pairs
    out["tasks"] = tasks_of(model, s, workers) * constants["worker_task"] / workers
    return out


def alone(model: str, s: Shape, constants: dict[str, Any]) -> float:
    """Seconds of the same fit by one thread, without a cluster."""
    steps, of = steps_of(model, s), defaultdict(lambda: (0.0, 0.0), constants["units"])
    computing = sum(of[step.name][0] * step.units + of[step.name][1] * step.each for step in steps)
    return computing + constants["client_pair"] * (s.y + s.n * s.negatives if model == "Cascade" else 0.0)
