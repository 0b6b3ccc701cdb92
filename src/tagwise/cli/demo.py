"""``tagwise demo``: the main job on the bundled sample, from texts to suggested tags."""

from __future__ import annotations

import time

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tagwise import LEML
from tagwise.cli.evaluate import show_rankings
from tagwise.cli.options import Given, option, verb
from tagwise.cli.output import show_json
from tagwise.data import Dataset, load_dataset
from tagwise.metrics import inverse_propensity, ranking_report

_EXAMPLES = 10


@verb(
    option("--rank", "Rank of the model.", default=80),
    option("--reg", "Penalty of the model.", default=1.0),
    option("--max-iter", "Largest number of rounds of the fit.", default=10),
    "--jobs",
    "--seed",
    "--json",
    examples=("tagwise demo", "tagwise demo --rank 40 --jobs 2", "tagwise demo --json"),
)
def command(given: Given) -> None:
    """Train on the bundled sample of Debian packages and show what comes out."""
    console = Console(highlight=False, quiet=given.as_json)
    started = time.perf_counter()
    data = load_dataset("debtags-sample")
    loaded = time.perf_counter()
    rows, labels = data.Y_train.shape
    console.print(
        f"[bold]debtags-sample[/bold]: descriptions of Debian packages, {rows:,} to learn from and "
        f"{data.X_test.shape[0]:,} to test on, {data.X_train.shape[1]:,} words, {labels} tags, "
        f"{data.Y_train.nnz / rows:.1f} tags per package."
    )
    model = LEML(
        rank=given.rank, reg=given.reg, max_iter=given.max_iter, n_jobs=given.jobs, random_state=given.seed, verbose=1
    )
    model.fit(data.X_train, data.Y_train)
    fitted = time.perf_counter()
    top, _ = model.predict_topk(data.X_test, k=5)
    predicted = time.perf_counter()

    report = ranking_report(data.Y_test, top, ks=(1, 3, 5), inverse_propensity=inverse_propensity(data.Y_train))
    if given.as_json:
        shown = {"rows": rows, "test_rows": len(top), "tags": labels, "rounds": model.n_iter_}
        show_json({**shown, "fit_seconds": fitted - loaded, "metrics": report})
        return
    show_rankings("On the test packages, in percent", report, (1, 3, 5), ("P", "nDCG", "PSP"))
    examples = np.random.default_rng(given.seed).permutation(data.X_test.shape[0])[:_EXAMPLES]
    _show_examples(console, data, top, examples)
    console.print(
        f"Features {loaded - started:.1f} s, fit {fitted - loaded:.1f} s ({model.n_iter_} rounds; the first run also "
        f"compiles the kernels), top 5 of {len(top):,} packages {predicted - fitted:.2f} s, "
        f"{time.perf_counter() - started:.1f} s in all."
    )


def _show_examples(console: Console, data: Dataset, top: np.ndarray, examples: np.ndarray) -> None:
    names = data.label_names or []
    texts = data.texts_test or []
    table = Table(title="Test packages (green: predicted and true)", title_justify="left", show_lines=True)
    for column in ("package", "predicted tags", "true tags that were not predicted"):
        table.add_column(column, overflow="fold")
    for row in examples:
        true = data.Y_test.indices[data.Y_test.indptr[row] : data.Y_test.indptr[row + 1]].tolist()
        predicted = [label for label in top[row].tolist() if label >= 0]
        table.add_row(
            escape(texts[row].split("\n", 1)[0]),
            "\n".join(
                f"[green]{escape(names[label])}[/green]" if label in true else escape(names[label])
                for label in predicted
            ),
            "\n".join(escape(names[label]) for label in true if label not in predicted),
        )
    console.print(table)
