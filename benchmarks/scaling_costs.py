"""What a fit on a cluster costs: units, calls and bytes of its steps, constants fitted on runs, and larger clusters.

A step is divided into one task per worker at the most, whatever it is divided by: rows in shards, labels in blocks, or
the columns of W and H. So a fit has at most as many tasks as it has steps times workers.
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
COLUMNS, PRODUCTS = 4, 1e8
"""Columns of W and H, and multiplications of X with them, that a task has at the least."""


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

    ``units`` are flops or visited numbers that at most ``parts`` workers share, ``repeated`` those of the same kind
    that each of them does; ``each`` those of another kind that every worker does, ``once`` those that the workers of
    each machine share. A fit makes the step ``calls`` times. Bytes are of all calls: ``shared`` ones go from the client
    to every machine, ``returned`` ones come back, ``kept`` ones go from the machine that made them to all others, and
    of ``exchanged`` ones each machine gets its share.
    """

    name: str
    functions: tuple[str, ...]
    units: float
    calls: float = 1
    parts: float = np.inf
    repeated: float = 0.0
    each: float = 0.0
    once: float = 0.0
    shared: float = 0.0
    returned: float = 0.0
    kept: float = 0.0
    exchanged: float = 0.0

    def work(self, workers: float) -> float:
        """Units of all workers together."""
        return self.units + self.repeated * min(workers, self.parts)


def client_products(s: Shape) -> float:
    """Multiplications of W and H with k×k matrices, which the client makes: rotations, solutions, orthonormal bases."""
    return (s.rounds + 3) * (s.d + s.L) * s.k**2


def steps_of(model: str, s: Shape) -> list[Step]:
    """All steps of LEML with squared loss and all labels known, or of Cascade."""
    dk, Lk = s.d * s.k * NUMBER, s.L * s.k * NUMBER
    columns = max(1.0, min(s.k // COLUMNS, s.z * s.k // PRODUCTS))
    by_X, by_Y = 2 * s.z * s.k, 2 * s.y * s.k
    start, turns = ("label_side_of_noise", "label_side_of_labels", "forget_start"), s.rounds * s.cg
    W, H = ("products_of_columns", "moved_columns"), ("label_side_of_columns", "label_system")
    low_rank = [
        Step("start", start, 6 * (by_X + by_Y), 4, columns, kept=3 * Lk),
        Step(
            "W",
            W,
            s.rounds * (2 * by_X + by_Y) + turns * 2 * by_X,
            turns + s.rounds,
            columns,
            repeated=s.rounds * 2 * (s.L + s.d) * s.k**2,
            kept=s.rounds * dk,
        ),
        Step("H", H, s.rounds * (2 * by_X + by_Y + 2 * s.n * s.k**2), 2 * s.rounds, columns, kept=s.rounds * Lk),
    ]
    if model == "LEML":
        return low_rank
    per_row, weights = s.z / s.n, 8 * min((s.systems * s.L) ** 0.5, s.y * s.z / s.n)
    pairs = s.n * s.negatives + s.y
    return [
        *low_rank,
        Step("loss", ("on_shard",), 2 * (by_X + by_Y), 2, shared=Lk),
        Step(
            "supports",
            ("support_block",),
            s.y * per_row * s.k + s.systems + s.cubes,
            each=s.z,
            once=s.z * per_row,
            shared=Lk,
            returned=weights,
        ),
        Step(
            "wrong proposals",
            ("mistakes_of_shard",),
            s.n * (s.L + SEARCH),
            each=weights / 8,
            shared=8 * (s.z + s.y) + dk + Lk + weights,
            exchanged=4 * s.n * s.negatives,
        ),
        Step("rankers", ("rankers_of_block",), pairs * per_row, shared=5 * s.y, returned=weights),
        Step("prototypes", ("label_prototypes",), s.y * per_row, 2, shared=10 * s.y, returned=8 * 50 * min(s.L, s.y)),
        Step("co-occurrence", ("cooccurrence_counts",), s.y * s.y / s.n, 2, returned=8 * s.y * s.y / s.n / 2),
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
    names = ("n", "d", "L", "z", "y", "k", "rounds", "systems", "cubes")
    taken, ended = (
        cell.get("steps", {}).get(name, {}).get("tasks", 1) for name in ("products_of_columns", "moved_columns")
    )
    return Shape(**{name: float(cell[name]) for name in names}, cg=taken / ended)


def tasks_of(model: str, s: Shape, workers: float) -> float:
    """Number of tasks of a fit."""
    return sum(step.calls * min(workers, step.parts) for step in steps_of(model, s))


def fitted(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Constants that miss the CPU seconds of runs least, relatively, none of them negative.

    Seconds per unit of each step come from the CPU seconds of its tasks; those per task and byte from what workers,
    scheduler and client took beside; those per product from what the client took beside tasks and bytes.
    """
    units: dict[str, tuple[float, ...]] = {}
    by_run = [{step.name: step for step in steps_of(run["model"], shape_of(run))} for run in runs]
    for name in dict.fromkeys(name for steps in by_run for name in steps):
        rows = []
        for run, steps in zip(runs, by_run):
            step = steps.get(name)
            seconds = sum(run["steps"].get(one, {}).get("compute", 0.0) for one in step.functions) if step else 0.0
            if step and seconds > 0:
                rows.append(
                    (step.work(run["workers"]) / seconds, step.each * run["workers"] / seconds, step.once / seconds)
                )
        if rows:
            units[name] = tuple(map(float, nnls(np.array(rows), np.ones(len(rows)))[0]))
    moved = np.array([run["bytes_shared"] + run["bytes_returned"] for run in runs], dtype=float)
    tasks = np.array([run["tasks"] for run in runs], dtype=float)
    products = np.array([client_products(shape_of(run)) for run in runs])
    inside = np.array([sum(own["compute"] for own in run["steps"].values()) for run in runs])
    workers, client, scheduler = (
        np.array([run[f"{who}_cpu"] for run in runs]) for who in ("worker", "client", "scheduler")
    )
    beside = np.maximum(workers - inside, 1e-2) + scheduler
    per_task, per_byte = nnls(np.column_stack([tasks, moved]) / beside[:, None], np.ones(len(runs)))[0]
    here = nnls(np.column_stack([tasks, moved, products]) / client[:, None], np.ones(len(runs)))[0]
    names = ("worker_task", "worker_byte", "client_task", "client_byte", "client_product")
    return {"units": units, **dict(zip(names, map(float, (per_task, per_byte, *here))))}


def simulated(model: str, s: Shape, workers: int, constants: dict[str, Any], link: float = LINK) -> dict[str, float]:
    """Seconds of a fit by what they go to; nothing overlaps.

    Machines have 16 workers each, and files on storage that gives every machine all of its link.
    """
    machines = -(-workers // WORKERS_OF_A_MACHINE)
    steps, out = steps_of(model, s), {}
    of = defaultdict(lambda: (0.0, 0.0, 0.0), constants["units"])
    out["computing"] = sum(of[step.name][0] * step.units / workers for step in steps)
    idle = sum(of[step.name][0] * step.units * (1 / min(workers, step.parts) - 1 / workers) for step in steps)
    out["columns, fewer than workers"] = idle
    own = sum(of[step.name][0] * step.repeated + of[step.name][1] * step.each for step in steps)
    out["what every worker makes"] = own + sum(
        of[step.name][2] * step.once / min(workers, WORKERS_OF_A_MACHINE) for step in steps
    )
    shared = 8 * s.z + 8 * s.y + sum(step.shared for step in steps)
    back, kept = sum(step.returned for step in steps), sum(step.kept for step in steps)
    exchanged = sum(step.exchanged for step in steps)
    out["data and model, to each machine"] = 2 * shared / link
    out["between workers"] = (kept * (1 + 1 / machines) + 2 * exchanged / machines) / link
    out["results, to the client"] = (back + kept) / link
    tasks = tasks_of(model, s, workers)
    client = constants["client_task"] * tasks + constants["client_byte"] * (shared + back + kept)
    out["the client"] = client + constants["client_product"] * client_products(s)
    out["tasks"] = tasks * constants["worker_task"] / workers
    return out


def alone(model: str, s: Shape, constants: dict[str, Any]) -> float:
    """Seconds of the same fit by one thread, without a cluster."""
    steps, of = steps_of(model, s), defaultdict(lambda: (0.0, 0.0, 0.0), constants["units"])
    computing = sum(
        seconds * amount for step in steps for seconds, amount in zip(of[step.name], (step.units, step.each, step.once))
    )
    return computing + constants["client_product"] * client_products(s)
