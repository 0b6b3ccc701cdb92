"""What a fit on a cluster costs: flops, bytes and tasks of its steps, constants fitted on runs, and larger clusters.

A fit is a list of steps (:func:`steps_of`) as functions of the shape of the data, of the parts and of the workers. The
same list is fitted to what was measured (:func:`fitted`) and evaluated for clusters that are not at hand
(:func:`simulated`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import nnls

# As in tagwise.distributed: results that one task adds up, and bytes of a block of columns of W and of rankers' rows.
FAN_IN, COLUMN_BYTES, RANKER_BYTES = 8, 1 << 24, 1 << 28
# Numbers of a block of systems of REML.
SYSTEM_NUMBERS = 1 << 22
# Workers that Dask lets fetch from one at a time, by default.
AT_A_TIME = 10
# Work of a search that does not depend on the labels, as so many of them: results/growth.md, series of labels.
SEARCH = 70_000
# Iterations of the spectral start, and how many validation rows come to the client at most.
POWER_ROUNDS, VALIDATION_ROWS = 2, 5_000
NUMBER = 4


@dataclass(frozen=True)
class Shape:
    """Rows, features, labels, stored entries of X and Y, rank; rounds, and steps of conjugate gradients in each.

    ``systems`` is Σ s(s + 1)/2 over labels with supports of s features, ``cubes`` Σ s³/6; ``negatives`` the wrong
    proposals per row that rankers learn from.
    """

    n: float
    d: float
    L: float
    z: float
    y: float
    k: float
    rounds: float = 10
    cg: float = 5
    systems: float = 0
    cubes: float = 0
    negatives: float = 100

    @property
    def row_bytes(self) -> float:
        """Of the features of a row."""
        return 8 * self.z / self.n


@dataclass(frozen=True)
class Step:
    """One step of a fit, over all of its rounds.

    ``units`` are flops or visited numbers, spread over at most ``width`` tasks at a time; ``received`` the bytes that a
    worker receives, ``busiest`` those that the busiest worker sends, ``moved`` those of all workers, ``client`` those
    that pass the scheduler from or to the client; ``waits`` how often the client waits.
    """

    name: str
    units: float = 0.0
    width: float = math.inf
    tasks: float = 0.0
    received: float = 0.0
    busiest: float = 0.0
    moved: float = 0.0
    client: float = 0.0
    waits: float = 0.0
    functions: tuple[str, ...] = ()


def tree_tasks(p: float) -> int:
    """Tasks that add up p results."""
    count, left = 0, math.ceil(p)
    while left > 1:
        groups = math.ceil(left / FAN_IN)
        count += groups - (left % FAN_IN == 1)
        left = groups
    return count


def tree_levels(p: float) -> int:
    """How often results are added up until one is left."""
    return 0 if p <= 1 else math.ceil(math.log(p) / math.log(FAN_IN) - 1e-9)


def broadcast(n_bytes: float, w: float, holders: float = 1) -> dict[str, float]:
    """Of so many bytes, in equal blocks that different workers hold, from them to all workers.

    Workers that are turned away by a busy one ask those that have been served; each serves ten at a time.
    """
    if w <= 1:
        return {}
    generations = math.ceil(math.log(w) / math.log(AT_A_TIME + 1))
    sent = min(w - 1, AT_A_TIME * generations)
    share = math.ceil(holders / w) / holders
    return {"received": n_bytes * (w - 1) / w, "busiest": n_bytes * share * sent, "moved": n_bytes * (w - 1)}


def reduction(n_bytes: float, p: float, w: float, blocks: float = 1) -> dict[str, float]:
    """Of p results of so many bytes each, cut into blocks that are added up apart."""
    if w <= 1 or p <= 1:
        return {}
    sent = sum(math.ceil(p / FAN_IN**level) for level in range(tree_levels(p)))
    moved = n_bytes * sent * (1 - 1 / w)
    # The worker that adds up a group receives all of it; with many blocks, all workers are such.
    alone = n_bytes / blocks * min(FAN_IN, p) * tree_levels(p)
    return {"received": max(alone, moved / w), "busiest": moved / w, "moved": moved}


def joined(name: str, *transfers: dict[str, float], **more: Any) -> Step:
    """A step with several transfers, one after the other."""
    sums: dict[str, float] = {}
    for transfer in transfers:
        for key, value in transfer.items():
            sums[key] = sums.get(key, 0.0) + value
    times = more.pop("times", 1.0)
    scaled = {key: times * value for key, value in {**sums, **more}.items() if isinstance(value, (int, float))}
    rest = {key: value for key, value in more.items() if not isinstance(value, (int, float))}
    if "width" in scaled:
        scaled["width"] = more["width"]
    return Step(name, **scaled, **rest)


# ---------------------------------------------------------------------- steps of models


def low_rank_steps(s: Shape, p: float, w: float, label_bytes: float = math.inf) -> list[Step]:
    """Of LEML with squared loss and all labels known, and of REML's low rank.

    The sums that H follows from are made in one block; ``label_bytes`` says what smaller ones would cost.
    """
    dk, Lk = s.d * s.k * NUMBER, s.L * s.k * NUMBER
    # W is cut into whole columns.
    per_block = max(1, int(COLUMN_BYTES // (s.d * NUMBER)))
    c = math.ceil(s.k / per_block)
    b = max(1, math.ceil(Lk / label_bytes))
    trees, R, t = tree_tasks(p), s.rounds, s.rounds * s.cg
    spectral = 2 * POWER_ROUNDS + 2
    return [
        Step("checks and shards", units=s.z + s.y, tasks=6 * p + 4 * trees, waits=5, functions=("shard_of_part",)),
        joined(
            "spectral start",
            broadcast((dk + Lk) / 2, w),
            reduction((dk + Lk) / 2, p, w),
            times=spectral,
            units=(2 * s.z + 2 * s.y) * s.k,
            width=p,
            tasks=p + trees,
            client=dk + Lk,
            waits=1,
            functions=("start_feature_side", "start_label_side", "start_from_noise"),
        ),
        joined(
            "W: slope",
            broadcast(dk + Lk, w, c),
            reduction(dk, p, w, c),
            times=R,
            units=(4 * s.z + 2 * s.y) * s.k + 2 * s.n * s.k**2,
            width=c * p,
            tasks=c * (p + trees + 2),
            client=2 * dk + Lk,
            waits=1,
            functions=("gradient",),
        ),
        joined(
            "W: conjugate gradients",
            broadcast(dk, w, c),
            reduction(dk, p, w, c),
            times=t,
            units=4 * s.z * s.k,
            width=c * p,
            tasks=c * (p + trees + 4),
            waits=1,
            functions=("gram_of_rows_times",),
        ),
        Step(
            "W: vectors",
            units=t * 12 * s.d * s.k,
            width=c,
            functions=("column_start", "curved", "column_sums", "column_move", "direction_of", "step_of"),
        ),
        joined(
            "H",
            broadcast(dk, w),
            reduction(Lk, p, w, b),
            times=R,
            units=(2 * s.z + 2 * s.y) * s.k + s.n * s.k**2,
            width=p,
            tasks=p + b * trees,
            client=dk + Lk,
            waits=1,
            functions=("label_sums",),
        ),
        Step(
            "adding up",
            units=(t + R) * p * s.d * s.k + R * p * s.L * s.k + spectral * p * (s.d + s.L) / 2 * s.k,
            width=max(1.0, c * p / FAN_IN),
            functions=("total",),
        ),
    ]


def support_steps(s: Shape, p: float, w: float, system_numbers: float = SYSTEM_NUMBERS) -> list[Step]:
    """Of REML's sparse part."""
    blocks = max(1.0, math.ceil(s.systems / system_numbers))
    trees, R = tree_tasks(p), s.rounds
    Uk = s.d * s.k * NUMBER
    per_label = s.y * s.z / s.n
    return [
        Step(
            "XᵀX of frequent features",
            units=s.z * s.z / s.n,
            width=p,
            tasks=3 * p + 2 * trees,
            waits=3,
            functions=("support_ridge",),
        ),
        joined(
            "supports",
            broadcast(2 * Uk, w),
            reduction(8 * per_label / p, p, w, blocks),
            times=R,
            units=2 * per_label * s.k,
            width=blocks * p,
            tasks=blocks * (2 * p + 2 * trees + 3) + 2 * p + 2 * trees,
            client=3 * Uk + s.L * s.k * NUMBER,
            waits=3,
            functions=("candidates_of", "slopes_of", "supports_of", "gram_times", "loss_of"),
        ),
        joined(
            "systems",
            reduction(s.systems * NUMBER, p, w, blocks),
            times=R,
            units=p * s.systems,
            width=blocks * p,
            tasks=blocks * (p + trees + 1),
            client=s.systems**0.5 * s.L**0.5 * 12,
            functions=("systems_of",),
        ),
        Step("solutions", units=R * s.cubes, width=blocks, functions=("solution_of",)),
        Step("adding up", units=R * p * s.systems, width=blocks * max(1.0, p / FAN_IN), functions=("total",)),
    ]


def ranker_blocks(s: Shape, p: float) -> int:
    """Blocks of labels that rankers are learnt in."""
    pairs, n_bytes = s.y + s.n * s.negatives, s.n * s.row_bytes
    return max(math.ceil(p), math.ceil(s.row_bytes * pairs / RANKER_BYTES) if n_bytes > RANKER_BYTES else 0)


def cascade_steps(s: Shape, p: float, w: float) -> list[Step]:
    """Of what follows the proposer; the fusion is learnt at the client."""
    blocks, trees = ranker_blocks(s, p), tree_tasks(p)
    per_row = s.negatives + s.y / s.n
    # A row goes to a block once, however many of its labels are there.
    copies = s.n * blocks * -math.expm1(-per_row / blocks)
    on = s.n * blocks * -math.expm1(-s.y / s.n / blocks)
    model = (s.d + s.L) * s.k * NUMBER + 8 * (s.systems * s.L) ** 0.5
    away = 1 - 1 / w

    def shuffle(rows: float, pairs: float) -> dict[str, float]:
        moved = (rows * s.row_bytes + 4 * pairs) * away
        return {"received": moved / min(w, blocks), "busiest": moved / w, "moved": moved}

    weights = 8 * s.y * s.z / s.n
    return [
        joined(
            "wrong proposals",
            broadcast(model, w),
            units=s.n * (s.L + SEARCH),
            width=p,
            tasks=2 * p,
            client=model,
            waits=1,
            functions=("mistakes",),
        ),
        joined(
            "rows to blocks of labels",
            shuffle(copies, s.n * per_row),
            shuffle(on, s.y),
            units=(copies + on) * s.z / s.n,
            width=p,
            tasks=3 * p + trees + 2 * p * blocks,
            waits=1,
            functions=("block_rows", "ranker_rows", "unit_rows_of", "pair_counts"),
        ),
        Step(
            "rankers",
            units=(s.n * s.negatives + s.y) * s.z / s.n,
            width=blocks,
            tasks=blocks,
            client=min(weights, 8 * s.d * s.L),
            waits=1,
            functions=("rankers_of",),
        ),
        Step(
            "prototypes",
            units=s.y * s.z / s.n,
            width=blocks,
            tasks=blocks,
            client=8 * 50 * min(s.L, s.y),
            waits=1,
            functions=("prototypes_of",),
        ),
        joined(
            "counts and positives",
            reduction(12 * s.y * s.y / s.n / 2 / p, p, w),
            units=s.y * s.y / s.n,
            width=p,
            tasks=8 * p + 3 * trees,
            client=8 * s.y + 12 * s.y * s.y / s.n / 2 + VALIDATION_ROWS * s.row_bytes,
            waits=4,
            functions=("cooccurrence_of", "positives_of", "rows_of_part", "feature_counts_of"),
        ),
    ]


def steps_of(
    model: str, s: Shape, p: float, w: float, *, label_bytes: float = math.inf, system_numbers: float = SYSTEM_NUMBERS
) -> list[Step]:
    """All steps of a fit."""
    if model == "LEML":
        return low_rank_steps(s, p, w, label_bytes)
    if model == "REML":
        return [*low_rank_steps(s, p, w, label_bytes), *support_steps(s, p, w, system_numbers)]
    if model == "Cascade":
        proposer = replace(s, rounds=1, cg=1)
        # Labels that the validation rows add much to are learnt twice: more tasks, and units that the constants hold.
        later = [*support_steps(proposer, p, w, system_numbers), *cascade_steps(s, p, w)]
        return [*low_rank_steps(proposer, p, w, label_bytes), *(replace(step, tasks=2 * step.tasks) for step in later)]
    raise ValueError(f"no costs of {model}")


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


# ---------------------------------------------------------------------- constants


def shape_of(cell: dict[str, Any]) -> Shape:
    """Of a measured run; steps of conjugate gradients are those that were made."""
    rounds = max(cell["rounds"], 1)
    moves = cell["steps"].get("column_move", {}).get("tasks", 0)
    per_block = max(1, int(COLUMN_BYTES // (cell["d"] * NUMBER)))
    blocks = math.ceil(cell["k"] / per_block)
    sizes = {name: float(cell[name]) for name in ("n", "d", "L", "z", "y", "k")}
    return Shape(
        **sizes,
        rounds=rounds,
        cg=moves / rounds / blocks,
        systems=cell["systems"],
        cubes=cell["cubes"],
    )


def measured_compute(cell: dict[str, Any], step: Step) -> float:
    """Seconds that workers spent in the functions of a step."""
    return sum(cell["steps"].get(name, {}).get("compute", 0.0) for name in step.functions)


def by_name(steps: Iterable[Step]) -> dict[str, Step]:
    """Steps of one name together: their units."""
    found: dict[str, Step] = {}
    for step in steps:
        old = found.get(step.name)
        found[step.name] = (
            step if old is None else replace(step, units=old.units + step.units, tasks=old.tasks + step.tasks)
        )
    return found


def fitted(cells: list[dict[str, Any]], cores: int) -> dict[str, Any]:
    """Constants by least squares of relative errors, none of them negative, and what they say of each run.

    Seconds per unit of each step come from the CPU seconds of tasks, those per task and byte of scheduler, client and
    workers from the CPU seconds of their processes, those per wait of the client from what is left of the time of the
    whole fit: only these depend on what else the machine does.
    """
    lists = [steps_of(cell["model"], shape_of(cell), cell["p"], cell["workers"]) for cell in cells]
    grouped = [by_name(steps) for steps in lists]
    units: dict[str, float] = {}
    for name in dict.fromkeys(name for steps in grouped for name in steps):
        pairs = [
            (steps[name].units, measured_compute(cell, steps[name]))
            for cell, steps in zip(cells, grouped)
            if name in steps
        ]
        ratio = np.array([size / seconds for size, seconds in pairs if size and seconds > 0])
        if len(ratio):
            units[name] = float(ratio.sum() / (ratio**2).sum())

    def of(name: str) -> np.ndarray:
        return np.array([cell[name] for cell in cells], dtype=float)

    in_tasks = np.array([sum(own["compute"] for own in cell["steps"].values()) for cell in cells])
    busy = {
        "scheduler": (of("scheduler_cpu"), of("from_client") + of("from_scheduler")),
        "client": (of("client_cpu"), of("from_client") + of("from_scheduler")),
        "worker": (np.maximum(of("worker_cpu") - in_tasks, 1e-3), of("from_workers")),
    }
    constants: dict[str, Any] = {"units": units}
    for who, (seconds, passed) in busy.items():
        found, _ = nnls(np.column_stack([of("tasks"), passed]) / seconds[:, None], np.ones(len(cells)))
        constants[f"{who}_task"], constants[f"{who}_byte"] = map(float, found)
    compute = np.array([sum(units.get(name, 0.0) * step.units for name, step in steps.items()) for steps in grouped])
    handled = {who: constants[f"{who}_task"] * of("tasks") + constants[f"{who}_byte"] * busy[who][1] for who in busy}
    # All of it shares the cores, but what the client does is waited for.
    shared = (compute + handled["worker"]) / np.minimum(of("workers"), cores)
    known = shared + handled["client"] + handled["scheduler"]
    waits = np.array([sum(step.waits for step in steps) for steps in lists])
    seconds = of("seconds")
    found, _ = nnls((waits / seconds)[:, None], (seconds - known) / seconds)
    constants["wait"] = float(found[0])
    expected = known + constants["wait"] * waits
    constants["runs"] = [
        {
            **{name: cell[name] for name in ("model", "share", "workers", "tasks", "seconds")},
            "tasks_expected": float(sum(step.tasks for step in steps)),
            "expected": float(expected[place]),
            "cpu": float(sum(cell[f"{who}_cpu"] for who in busy)),
            "cpu_expected": float(compute[place] + sum(part[place] for part in handled.values())),
            "compute": float(in_tasks[place]),
            "compute_expected": float(compute[place]),
        }
        for place, (cell, steps) in enumerate(zip(cells, lists))
    ]
    return constants


# ---------------------------------------------------------------------- larger clusters

KINDS = ("computing", "between workers", "through the client", "tasks")
LINK = 10e9 / 8
"""Bytes per second of a link of 10 Gbit/s, each way."""


def simulated(
    model: str, s: Shape, p: float, w: float, constants: dict[str, Any], link: float = LINK, **more: Any
) -> dict[str, dict[str, float]]:
    """Seconds of each step: computing, between workers, through client and scheduler, and tasks at the scheduler.

    Steps follow each other, and so do the parts of a step: nothing overlaps.
    """
    per_task = max(constants["scheduler_task"], constants["client_task"])
    # A message is made and read by processors, and what passes the scheduler is so twice.
    own_byte, client_byte = (1 / link + constants[f"{who}_byte"] for who in ("worker", "client"))
    out: dict[str, dict[str, float]] = {}
    for step in steps_of(model, s, p, w, **more):
        own = out.setdefault(step.name, dict.fromkeys(KINDS, 0.0))
        unit = constants["units"].get(step.name, 0.0)
        own["computing"] += unit * step.units / max(1.0, min(w, step.width))
        own["between workers"] += max(step.received, step.busiest) * own_byte
        own["through the client"] += step.client * (client_byte + 1 / link) + step.waits * constants["wait"]
        own["tasks"] += step.tasks * per_task
    return out


def rows_worth_a_part(s: Shape, constants: dict[str, Any], link: float = LINK) -> float:
    """Rows at which the products of a part take as long as it takes to send its d×k sums and to add them up."""
    units = constants["units"]
    per_number = units["adding up"] + NUMBER * (1 / link + constants["worker_byte"])
    return s.d * per_number / (4 * s.z / s.n * units["W: conjugate gradients"])


def parts_of(s: Shape, w: float, part_bytes: float = 1 << 28) -> int:
    """One per worker, or more where they would be larger than files should be."""
    return max(int(w), math.ceil(8 * (s.z + s.y) / part_bytes))


def at_the_client(s: Shape) -> dict[str, float]:
    """Bytes that the client holds at once, by what they are; co-occurring pairs counted as if none repeated."""
    return {
        "factors, and as much on their way": 3 * (s.d + s.L) * s.k * NUMBER,
        "positives of Cascade": 8 * s.y,
        "co-occurring labels of Cascade, at most": 12 * s.y * s.y / s.n / 2,
    }


def total_seconds(steps: dict[str, dict[str, float]]) -> float:
    """Of all steps."""
    return sum(sum(own.values()) for own in steps.values())


def memory_per_worker(s: Shape, p: float, w: float) -> dict[str, float]:
    """Bytes on a worker that has its share of the parts: its rows (as given, and as columns), and sums on their way."""
    rows = 2 * 8 * s.z + 2 * 8 * s.y
    return {
        "rows": rows / min(w, p),
        "sums": (FAN_IN + p / w) * min(s.d * s.k * NUMBER, COLUMN_BYTES) + s.L * s.k * NUMBER * (1 + p / w),
        "factors": 2 * (s.d + s.L) * s.k * NUMBER,
    }
