"""The page of benchmarks/mse.py: its figures beside the paper's, and what they fall short of."""

from __future__ import annotations

# Tables 2 and 3 of the paper: precision, recall, F1, accuracy in percent, CPU seconds; for BR, ML-kNN and MSE.
PAPER = {
    "yahoo-arts": ((76, 25, 26, 24, 46.8), (62, 7, 25, 6, 77.6), (35, 40, 31, 28, 11.7)),
    "yahoo-education": ((69, 27, 28, 26, 50.1), (58, 6, 31, 5, 99.8), (41, 35, 32, 29, 12.6)),
    "yahoo-recreation": ((84, 23, 23, 22, 53.2), (70, 9, 23, 8, 112), (41, 49, 36, 30, 19.1)),
    "yahoo-science": ((79, 19, 19, 19, 84.9), (59, 4, 20, 4, 139), (31, 39, 29, 26, 20.1)),
    "yahoo-business": ((87, 74, 76, 71, 28.9), (68, 9, 70, 8, 93.2), (84, 82, 78, 78, 13.5)),
    "enron": ((51, 28, 35, 24, 77.1), (51, 7, 46, 5, 527), (44, 50, 40, 28, 271)),
    "medical": ((2, 26, 5, 2, 4.88), (75, 7, 48, 6, 22.8), (36, 90, 45, 26, 7.5)),
    "slashdot": ((11, 22, 14, 10, 140), (71, 10, 31, 8, 708), (38, 61, 37, 27, 175)),
    "scene": ((55, 67, 66, 63, 4.19), (78, 62, 69, 54, 14.3), (61, 85, 70, 68, 3.62)),
    "emotions": ((55, 53, 51, 42, 0.68), (68, 28, 41, 22, 0.66), (40, 100, 52, 37, 0.01)),
    "genbase": ((5, 39, 9, 5, 1.99), (100, 50, 92, 50, 9.38), (83, 96, 86, 70, 8.62)),
    "corel5k": ((2, 20, 4, 2, 2240), (62, 1, 3, 0.9, 2106), (9, 11, 8, 5, 1054)),
    "mediamill-small": ((69, 35, 43, 33, 120141), (41, 6, 54, 5, 5713), (58, 78, 53, 37, 1155)),
}
NOTES = {
    "slashdot": "the paper's split is not to be had; a random one",
    "mediamill-small": "2,500 of 43,907 rows: not the paper's set",
}
# The aim was at most 2 points below the paper on the Yahoo sets, and these figures on the two small ones.
FLOORS = {
    "scene": (0.67, 0.62),
    "emotions": (0.52, 0.38),
    **{
        name: (PAPER[name][2][2] / 100 - 0.02, PAPER[name][2][3] / 100 - 0.02)
        for name in PAPER
        if name.startswith("yahoo-")
    },
}
BR_PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)


def shortfalls(tables: list[dict]) -> list[str]:
    """Where MSE misses what it should reach, or is hardly better than a constant; computed from the figures."""
    lines = []
    for r in tables:
        constant = r["most frequent label"]
        figures = {metric: (r["MSE"][metric], constant[metric]) for metric in ("f1", "accuracy")}
        for (metric, (ours, base)), floor in zip(figures.items(), FLOORS.get(r["dataset"], (0, 0))):
            name = "F1" if metric == "f1" else metric
            if ours < floor:
                lines.append(
                    f"- **{r['dataset']} misses its floor in {name}**: {ours:.4f}, where {floor:.2f} was to be "
                    f"reached; the most frequent label alone has {base:.4f}."
                )
            if ours <= base:
                lines.append(
                    f"- **{r['dataset']} is not better than the most frequent label in {name}**: {ours:.4f} against "
                    f"{base:.4f}."
                )
    if lines:
        lines = ["## What is missed", "", *lines, ""]
    return lines


def markdown(report: dict) -> str:
    machine = report["machine"]
    lines = [
        "# MSE",
        "",
        f"Made by `benchmarks/mse.py` on {machine['cores']} cores with {report['threads']} threads, seed 0. Parameters "
        "of MSE are chosen on training rows only, and so is the penalty of BR (squared hinge): the one of highest F1 "
        f"in the same 3 folds among {', '.join(f'{reg:g}' for reg in BR_PENALTIES)}. ML-kNN has 30 neighbours. "
        "Training of MSE stops at tol 0.01 unless another is named. "
        '"Most frequent" predicts the most frequent label of the training rows for every row. In percent; ours, then '
        "the paper's in brackets.",
        "",
        "| data set | rank, λ, δ | precision | recall | F1 | accuracy | most frequent F1 | most frequent acc. | BR λ | "
        "BR F1 | BR acc. | ML-kNN F1 | ML-kNN acc. |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in report["tables"]:
        p, br, knn = PAPER[r["dataset"]][2], PAPER[r["dataset"]][0], PAPER[r["dataset"]][1]
        chosen = r["parameters"]
        parameters = f"{chosen.get('decomposition', 'brp')} {chosen['subspace_rank']:g}, {chosen['reg']:g}, "
        parameters += f"{chosen['threshold']:.2g}" + (f" (tol {chosen['tol']:g})" if "tol" in chosen else "")
        star = "*" if r["dataset"] in NOTES else ""
        cells = [
            f"{100 * r['MSE'][metric]:.0f} ({value:g})"
            for metric, value in zip(("precision", "recall", "f1", "accuracy"), p)
        ]
        cells += [f"{100 * r['most frequent label'][metric]:.0f}" for metric in ("f1", "accuracy")]
        cells += [
            f"{r['BR_penalty']:g}",
            f"{100 * r['BR']['f1']:.0f} ({br[2]})",
            f"{100 * r['BR']['accuracy']:.0f} ({br[3]})",
        ]
        cells += [f"{100 * r['ML-kNN']['f1']:.0f} ({knn[2]})", f"{100 * r['ML-kNN']['accuracy']:.0f} ({knn[3]:g})"]
        lines.append(f"| {r['dataset']}{star} | {parameters} | {' | '.join(cells)} |")
    lines += ["", *(f"\\* {name}: {note}." for name, note in NOTES.items()), ""]
    lines += [*shortfalls(report["tables"]), "## Seconds", ""]
    lines += [
        "Training and prediction together, all methods in the same run, and how many times as long as MSE the others "
        "take; in brackets the same ratio of the paper's seconds. Choosing parameters is not included. The machine was "
        "shared.",
        "",
        "| data set | MSE fit | MSE predict | BR / MSE | ML-kNN / MSE | scikit-multilearn's ML-kNN / MSE |",
        "|---|---|---|---|---|---|",
    ]
    for r in report["tables"]:
        total = {
            key: line["fit_seconds"] + line["predict_seconds"]
            for key, line in r.items()
            if isinstance(line, dict) and "fit_seconds" in line
        }
        br, knn, mse = (row[4] for row in PAPER[r["dataset"]])
        ratios = [f"{total['BR'] / total['MSE']:.2f} ({br / mse:.2g})"]
        ratios += [f"{total['ML-kNN'] / total['MSE']:.2f} ({knn / mse:.2g})"]
        theirs = total.get("scikit-multilearn")
        ratios += ["" if theirs is None else f"{theirs / total['MSE']:.1f}"]
        seconds = f"{r['MSE']['fit_seconds']:.2f} | {r['MSE']['predict_seconds']:.2f}"
        lines.append(f"| {r['dataset']} | {seconds} | {' | '.join(ratios)} |")
    lines += [
        "",
        "## Prediction against plain numpy",
        "",
        "Group lasso of all test rows to the same duality gap, one thread: numpy steps on all rows at once.",
        "",
        "| data set | configuration | rows | rank | directions | λ | ours, s | proximal gradient | accelerated |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['dataset']} | {r['why']} | {r['rows']:,} | {r['subspace_rank']:g} | {r['atoms']:,} | {r['reg']:g} | "
        f"{r['seconds']:.3f} | {r['proximal_ratio']:.0f}× | "
        f"{r['accelerated_ratio']:.0f}× |"
        for r in report["prediction"]
    ]
    lines += [
        "",
        "## Bilateral random projection against scikit-learn",
        "",
        "2,000×1,000, rank 20 and 10 more; mean spectral norm of the error over 10 draws; one thread.",
        "",
        "| spectrum | method | error | best possible | bound of theorem 3 | ms |",
        "|---|---|---|---|---|---|",
    ]
    for r in report["projection"]:
        bound = "" if r["bound"] is None else f"{r['bound']:.4g}"
        lines.append(
            f"| {r['spectrum']} | {r['method']} | {r['error']:.4g} | {r['best_possible']:.4g} | {bound} | "
            f"{1e3 * r['seconds']:.1f} |"
        )
    return "\n".join(lines) + "\n"
