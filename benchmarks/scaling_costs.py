"""What a fit on a cluster costs: units, calls and bytes of its steps, constants fitted on runs, and larger clusters.

A step is divided into one task per worker at the most, whatever it is divided by: rows in shards, or labels in blocks.
So a fit has at most as many tasks as it has steps times workers. The low rank is a sum over shards of rows where these
have enough entries per feature; elsewhere the client makes it, with its threads.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from tagwise.models.leml.steps import _LEAST_ENTRIES

NUMBER = 4
# Work of a search that does not depend on the labels, as so many of them: results/growth.md, series of labels.
SEARCH = 70_000
LINK = 10e9 / 8
"""Bytes per second of a link of 10 Gbit/s."""
WORKERS_OF_A_MACHINE = 16
"""Also threads of the client."""


@dataclass(frozen=True)
class Shape:
    """Rows, features, labels, stored entries of X and Y, rank, rounds, and steps of conjugate gradients in each.

    ``systems`` is Σ s(s + 1)/2 over labels with supports of s features, ``cubes`` Σ s³/6; ``negatives`` the wrong
    proposals per row that rankers learn from; ``least`` the entries per feature of a shard for sums over rows.
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
    least: float = _LEAST_ENTRIES


@dataclass(frozen=True)
class Step:
    """A step of a fit, over all of its rounds.

    ``units`` are flops or visited numbers that at most ``parts`` workers share, and ``blas`` flops of dense products
    that they share too, which take less time each; ``repeated`` are such flops of every part. Work of another kind is
    ``each``, which every worker does, and ``once``, which the workers of each machine share. A fit makes the step
    ``calls`` times. Bytes are of all calls: ``shared`` ones go from the client to every machine, ``returned`` ones come
    back from all parts together and ``summed`` ones from each part, and of ``exchanged`` ones each machine gets its
    share.
    """

    name: str
    functions: tuple[str, ...]
    units: float
    calls: float = 1
    parts: float = np.inf
    blas: float = 0.0
    repeated: float = 0.0
    each: float = 0.0
    once: float = 0.0
    shared: float = 0.0
    returned: float = 0.0
    summed: float = 0.0
    exchanged: float = 0.0

    def workers(self, workers: float) -> float:
        """Workers that have a part; 0 where the client makes the step."""
        return workers if self.parts == np.inf else min(workers, self.parts) * (min(workers, self.parts) > 1)

    def work(self, workers: float) -> tuple[float, float, float, float]:
        """Work of all workers together: units, dense flops, what each of them does, and what is done once."""
        return self.units, self.blas + self.repeated * self.workers(workers), self.each * workers, self.once


def client_products(s: Shape, threads: int = 1) -> float:
    """Work of the client on L×k matrices in float64, in products with k×k ones: one per round solves the labels.

    A QR decomposition, of which the start has three, takes as long as four products, at ranks 16 and 100, and has one
    thread.
    """
    return (s.rounds / threads + 3 * 4) * s.L * s.k**2


def client_entries(model: str, s: Shape) -> float:
    """Stored entries of X, Y and what comes back that the client of a Cascade splits, turns and puts together."""
    return s.z + s.y + sum(step.returned for step in steps_of(model, s)) / 8 if model == "Cascade" else 0.0


def low_rank(s: Shape, losses: int = 0) -> Step:
    """The spectral start, all rounds of W and H, and losses, for squared loss with all labels known."""
    dk, Lk = s.d * s.k * NUMBER, s.L * s.k * NUMBER
    by_X, by_Y, by_rank, turns = 2 * s.z * s.k, 2 * s.y * s.k, 2 * s.n * s.k**2, s.rounds * s.cg
    # The start takes a product with X six times, and with Y five times of these. In a round the gradient finds XW of
    # the step before; W's k×k products in it and in each step of conjugate gradients are those of XW with HᵀH.
    return Step(
        "low rank",
        ("on_shard",),
        (6 + 2 * turns + 2 * s.rounds) * by_X + (5 + 2 * s.rounds + losses) * by_Y,
        6 + turns + 2 * s.rounds + losses,
        max(1, s.z // (s.least * s.d)),
        blas=(turns + 2 * s.rounds + losses) * by_rank,
        repeated=s.rounds * 2 * s.L * s.k**2,
        shared=3 * dk + 2 * Lk + (turns + s.rounds + 1) * dk + s.rounds * Lk,
        summed=3 * (dk + Lk) + (turns + s.rounds) * dk + s.rounds * Lk,
    )


def steps_of(model: str, s: Shape) -> list[Step]:
    """All steps of LEML with squared loss and all labels known, or of Cascade."""
    if model != "Cascade":
        return [low_rank(s)]
    dk, Lk = s.d * s.k * NUMBER, s.L * s.k * NUMBER
    per_row, weights = s.z / s.n, 8 * min((s.systems * s.L) ** 0.5, s.y * s.z / s.n)
    pairs = s.n * s.negatives + s.y
    return [
        low_rank(s, losses=2),
        Step(
            "supports",
            ("support_block",),
            s.y * per_row * s.k + s.systems + s.cubes,
            each=s.z,
            once=s.z * per_row,
            shared=dk + Lk,
            returned=weights,
        ),
        Step(
            "wrong proposals",
            ("mistakes_of_shard",),
            s.n * (s.L + SEARCH),
            each=weights / 8,
            # Of X only the values: those of the fit are scaled, and the places are there already.
            shared=4 * s.z + 8 * s.y + weights,
            exchanged=4 * s.n * s.negatives,
        ),
        Step("rankers", ("rankers_of_block",), pairs * per_row, shared=5 * s.y, returned=weights),
        Step(
            "prototypes",
            ("label_prototypes",),
            s.y * per_row,
            2,
            # The second time with the validation rows too.
            shared=8 * s.z + 10 * s.y,
            returned=8 * 50 * min(s.L, s.y),
        ),
        Step(
            "co-occurrence",
            ("cooccurrence_counts",),
            s.y * s.y / s.n,
            2,
            shared=16 * s.y,
            returned=8 * s.y * s.y / s.n / 2,
        ),
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
    names = ("n", "d", "L", "z", "y", "k", "rounds", "cg", "systems", "cubes", "least")
    return Shape(**{name: float(cell[name]) for name in names if name in cell})


def tasks_of(model: str, s: Shape, workers: float) -> float:
    """Number of tasks of a fit."""
    return sum(step.calls * step.workers(workers) for step in steps_of(model, s))


def bytes_of_steps(model: str, s: Shape, workers: float) -> tuple[float, float, float]:
    """Bytes that go to each machine, come back to the client, and go from some workers to others."""
    steps = steps_of(model, s)
    divided = [step for step in steps if step.workers(workers)]
    shared = 8 * s.z + 8 * s.y + sum(step.shared for step in divided)
    back = sum(step.returned + step.summed * step.workers(workers) for step in divided)
    return shared, back, sum(step.exchanged for step in divided)


def fitted(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Constants that miss the CPU seconds of runs least, relatively, none of them negative.

    Seconds per unit of each step come from the CPU seconds of its tasks; those per task and byte from what workers,
    scheduler and client took beside; those per product, entry and fusion, which has a limited number of rows, and how
    long the client takes for a step that workers take a second for, from what the client took beside tasks and bytes.
    """
    units: dict[str, tuple[float, ...]] = {}
    by_run = [{step.name: step for step in steps_of(run["model"], shape_of(run))} for run in runs]
    for name in dict.fromkeys(name for steps in by_run for name in steps):
        rows = []
        for run, steps in zip(runs, by_run):
            step = steps.get(name)
            seconds = sum(run["steps"].get(one, {}).get("compute", 0.0) for one in step.functions) if step else 0.0
            if step and seconds > 0:
                rows.append([amount / seconds for amount in step.work(run["workers"])])
        if rows:
            units[name] = tuple(map(float, nnls(np.array(rows), np.ones(len(rows)))[0]))
    moved = np.array([run["bytes_shared"] + run["bytes_returned"] for run in runs], dtype=float)
    tasks = np.array([run["tasks"] for run in runs], dtype=float)
    products = np.array([client_products(shape_of(run)) for run in runs])
    entries = np.array([client_entries(run["model"], shape_of(run)) for run in runs])
    rank = np.array([low_rank_of_client(run["model"], shape_of(run), run["workers"], units) for run in runs])
    inside = np.array([sum(own["compute"] for own in run["steps"].values()) for run in runs])
    workers, client, scheduler = (
        np.array([run[f"{who}_cpu"] for run in runs]) for who in ("worker", "client", "scheduler")
    )
    beside, some = np.maximum(workers - inside, 1e-2) + scheduler, tasks > 0
    columns = np.column_stack([tasks, moved])[some] / beside[some, None]
    per_task, per_byte = nnls(columns, np.ones(len(columns)))[0]
    fusion = entries > 0
    parts = {"task": tasks, "byte": moved, "product": products, "entry": entries, "fusion": fusion, "rank": rank}
    here = nnls(np.column_stack(list(parts.values())) / client[:, None], np.ones(len(runs)))[0]
    names = ("worker_task", "worker_byte", *(f"client_{name}" for name in parts))
    return {"units": units, **dict(zip(names, map(float, (per_task, per_byte, *here))))}


def low_rank_of_client(model: str, s: Shape, workers: float, units: dict[str, tuple[float, ...]]) -> float:
    """Seconds of the low rank where the client makes it, as workers would take; else 0."""
    step = steps_of(model, s)[0]
    if step.workers(workers) or step.name not in units:
        return 0.0
    sparse, blas, *_ = units[step.name]
    return sparse * step.units + blas * (step.blas + step.repeated)


def simulated(model: str, s: Shape, workers: int, constants: dict[str, Any], link: float = LINK) -> dict[str, float]:
    """Seconds of a fit by what they go to; nothing overlaps.

    Machines have 16 workers each, the client has 16 threads, and files are on storage that gives every machine all of
    its link.
    """
    machines = -(-workers // WORKERS_OF_A_MACHINE)
    rank, *steps = steps_of(model, s)
    of = defaultdict(lambda: (0.0,) * 4, constants["units"])
    out = {"blocks and shards": sum(of[step.name][0] * step.units / workers for step in steps)}
    here, parts = low_rank_of_client(model, s, workers, of), rank.workers(workers)
    out["low rank"] = constants["client_rank"] * here / WORKERS_OF_A_MACHINE
    if parts:
        sparse, blas, *_ = of[rank.name]
        out["low rank"] = (sparse * rank.units + blas * rank.blas) / parts + blas * rank.repeated
    out["what every worker makes"] = sum(
        of[step.name][2] * step.each + of[step.name][3] * step.once / min(workers, WORKERS_OF_A_MACHINE)
        for step in steps
    )
    shared, back, exchanged = bytes_of_steps(model, s, workers)
    out["data and model, to each machine"] = 2 * shared / link
    out["between workers"] = 2 * exchanged / machines / link
    out["results, to the client"] = back / link
    tasks = tasks_of(model, s, workers)
    client = constants["client_task"] * tasks + constants["client_byte"] * (shared + back)
    out["client, one thread"] = client + client_own(model, s, constants, WORKERS_OF_A_MACHINE)
    out["tasks"] = tasks * constants["worker_task"] / workers
    return out


def without_cluster(model: str, s: Shape, constants: dict[str, Any]) -> dict[str, float]:
    """Seconds of the same fit by the threads of one machine, by what they go to."""
    threads, of = WORKERS_OF_A_MACHINE, defaultdict(lambda: (0.0,) * 4, constants["units"])
    steps = steps_of(model, s)[1:]
    out = {"blocks and shards": sum(of[step.name][0] * step.units / threads for step in steps)}
    out["low rank"] = constants["client_rank"] * low_rank_of_client(model, s, 1, of) / threads
    shared = sum(of[step.name][2] * step.each + of[step.name][3] * step.once for step in steps)
    out["what every worker makes"] = shared / threads
    out["client, one thread"] = client_own(model, s, constants, threads)
    return out


def alone(model: str, s: Shape, constants: dict[str, Any]) -> float:
    """Seconds of the same fit by one thread, without a cluster."""
    steps, of = steps_of(model, s)[1:], defaultdict(lambda: (0.0,) * 4, constants["units"])
    computing = sum(
        seconds * amount
        for step in steps
        for seconds, amount in zip(of[step.name], (step.units, step.blas, step.each, step.once))
    )
    computing += constants["client_rank"] * low_rank_of_client(model, s, 1, of)
    return computing + client_own(model, s, constants)


def client_own(model: str, s: Shape, constants: dict[str, Any], threads: int = 1) -> float:
    """Seconds of what is not divided, with or without a cluster: nearly all of it has one thread."""
    entries = constants["client_entry"] * client_entries(model, s) + constants["client_fusion"] * (model == "Cascade")
    return entries + constants["client_product"] * client_products(s, threads)
