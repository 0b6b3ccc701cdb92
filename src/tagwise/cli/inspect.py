"""``tagwise inspect``: what is in a model folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from tagwise import Tagger, load
from tagwise.cli.options import examples, json_option
from tagwise.cli.output import show, show_json, show_table, size_text
from tagwise.cli.rows import find_tag
from tagwise.exceptions import ExplanationError
from tagwise.inspection import heaviest_features, nearest_labels
from tagwise.inspection.calibration import probability_maps
from tagwise.persistence.folder import folder_bytes
from tagwise.persistence.loading import storable_parameters
from tagwise.progress import counted
from tagwise.text.suggestion import title_of

__all__ = ["command"]

_FREQUENCIES = ((0, 0), (1, 1), (2, 4), (5, 9), (10, 99), (100, 999), (1000, None))
_BARS = "▁▂▃▄▅▆▇█"


@click.command(
    epilog=examples(
        "tagwise inspect tagger",
        "tagwise inspect tagger --tag gardening",
        "tagwise inspect tagger --tag gardening --top 30 --json",
    )
)
@click.argument("model")
@click.option("--tag", help="Show this tag: its frequency, the words that speak for it, the tags most like it.")
@click.option("--top", default=10, show_default=True, type=click.IntRange(min=1), help="Length of the lists.")
@json_option
def command(model: str, tag: str | None, top: int, as_json: bool) -> None:
    """Show what is in MODEL: sizes, frequencies of tags, the course of the fit; or all about one tag."""
    fitted = load(model)
    inner = fitted.model_ if isinstance(fitted, Tagger) else fitted
    found = _overview(model, fitted, inner, top) if tag is None else _tag(fitted, inner, tag, top)
    if as_json:
        show_json(found)
    elif tag is None:
        _show_overview(found)
    else:
        _show_tag(found)


def _overview(path: str, fitted: Any, inner: Any, top: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "folder": path,
        "bytes": folder_bytes(path),
        "class": type(inner).__name__,
        "parameters": storable_parameters(inner.get_params(deep=False)),
        "features": inner.n_features_in_,
        "tags": inner.n_labels_,
        "iterations": inner.history_,
    }
    if not isinstance(fitted, Tagger):
        return found
    training = fitted.training_
    counts = training["tag_rows"]
    order = sorted(range(len(counts)), key=lambda place: (-int(counts[place]), place))
    found |= {
        "reason": fitted.choice_.reason,
        "training": {name: value for name, value in training.items() if name != "tag_rows"},
        "frequencies": [
            {
                "rows": f"{low}" if high == low else f"{low}+" if high is None else f"{low}-{high}",
                "tags": int(((counts >= low) & (counts <= (counts.max() if high is None else high))).sum()),
            }
            for low, high in _FREQUENCIES
            if high != 0 or (counts == 0).any()
        ],
        **{
            name: [{**_named(fitted.tags_[place], fitted.names_), "rows": int(counts[place])} for place in places]
            for name, places in (("most_frequent", order[:top]), ("least_frequent", order[::-1][:top]))
        },
        "named_tags": sum(tag in fitted.names_ for tag in fitted.tags_),
        "probabilities": probability_maps(inner, fitted.calibration_) is not None,
        "calibration": None,
    }
    if (calibration := fitted.calibration_) is not None:
        found["calibration"] = {**calibration.to_parts()[0], "expected_error": calibration.reliability.error}
    return found


def _named(tag: str, names: Mapping[str, str]) -> dict[str, Any]:
    """A tag for JSON, with its name where it has one."""
    return {"tag": tag, "name": names[tag]} if tag in names else {"tag": tag}


def _show_overview(found: dict[str, Any]) -> None:
    show(f"{found['folder']}: {size_text(found['bytes'])}, {found['class']}")
    show("Parameters: " + ", ".join(f"{name}={value}" for name, value in found["parameters"].items()))
    if "reason" in found:
        training = found["training"]
        show(f"Model: {found['reason']}")
        others = training["features"] - training["words"]
        grams = f" and {others:,} other features" if others else ""
        show(
            f"Trained on {counted(training['rows'], 'row')} with {counted(training['words'], 'word')}{grams}, "
            f"{counted(training['tags'], 'tag')}, {training['assignments'] / training['rows']:.2f} tags per row, in "
            f"{training['seconds']:.1f} s."
        )
        if training["known_pairs"] is not None:
            share = training["known_pairs"] / (training["rows"] * training["tags"])
            show(f"{training['known_pairs']:,} pairs of row and tag were known, {share:.1%} of all.")
        show()
        _show_list("Tags by frequency", ("rows", "tags"), found["frequencies"])
        for name, title in (("most_frequent", "Most frequent tags"), ("least_frequent", "Rarest tags")):
            show()
            _show_list(title, ("tag", "rows"), found[name])
        show()
        calibration = found["calibration"]
        if calibration is None:
            probabilities = "probabilities of its own" if found["probabilities"] else "scores but no probabilities"
            show(f"Not calibrated: {probabilities}, no thresholds (train --validation).")
        else:
            show(
                f"Calibrated on {counted(calibration['rows'], 'validation row')} for {calibration['target']} F1; "
                f"probabilities are off by {100 * calibration['expected_error']:.1f} points on average."
            )
    else:
        show(f"{found['features']:,} features, {found['tags']:,} labels.")
    _show_iterations(found["iterations"])


def _show_iterations(history: list[dict[str, Any]]) -> None:
    if not history:
        return
    values = [float(info["objective"]) for info in history]
    show()
    low, spread = min(values), (max(values) - min(values)) or 1.0
    heights = [int((value - low) / spread * (len(_BARS) - 1)) for value in values[:: 1 + len(values) // 80]]
    curve = ": " + "".join(_BARS[height] for height in heights) if len(values) > 1 else ""
    show(f"Objective over {counted(len(values), 'iteration')}{curve}")
    shown = history if len(history) <= 12 else [*history[:6], *history[-6:]]
    rows = [[info["iteration"], f"{info['objective']:.6g}", f"{info['seconds']:.1f}"] for info in shown]
    columns = ["iteration", "objective", "seconds"]
    if all("validation" in info for info in shown):
        columns.append("nDCG@5, %, rare tags kept in training")
        rows = [[*row, f"{100 * info['validation']:.1f}"] for row, info in zip(rows, shown)]
    show_table("", columns, rows)


def _tag(fitted: Any, inner: Any, tag: str, top: int) -> dict[str, Any]:
    names = inner.label_names_ or [str(label) for label in range(inner.n_labels_)]
    called = fitted.names_ if isinstance(fitted, Tagger) else {}
    tag = find_tag(tag, names, called)
    label = names.index(tag)
    found = _named(tag, called)
    features = None
    if isinstance(fitted, Tagger):
        found["rows"] = int(fitted.training_["tag_rows"][label])
        found["training_rows"] = fitted.training_["rows"]
        features = fitted.features_.feature_names
        if fitted.calibration_ is not None:
            found["threshold"] = float(fitted.calibration_.thresholds[label])
    try:
        words, weights = heaviest_features(inner, label, top)
        near, cosines = nearest_labels(inner, label, top)
    except ExplanationError as error:
        return {**found, "words": None, "nearest": None, "why_not": str(error)}
    found["words"] = [
        {"word": features[word] if features else f"feature {word}", "weight": float(weight)}
        for word, weight in zip(words, weights)
    ]
    found["nearest"] = [
        {**_named(names[other], called), "cosine": float(cosine)} for other, cosine in zip(near, cosines)
    ]
    return found


def _show_tag(found: dict[str, Any]) -> None:
    rows = f" in {found['rows']:,} of {found['training_rows']:,} training rows" if "rows" in found else ""
    show(f"{title_of(found['tag'], found.get('name'))}{rows}")
    if "threshold" in found:
        show(f"Threshold: {found['threshold']:.4f}")
    if found["words"] is None:
        show(found["why_not"])
        return
    show()
    _show_list("What speaks for it most", ("word", "weight"), found["words"])
    show()
    _show_list("Tags most like it (cosine of their weights)", ("tag", "cosine"), found["nearest"])


def _show_list(title: str, columns: tuple[str, str], entries: list[dict[str, Any]]) -> None:
    titles = (
        {**entry, "tag": title_of(entry["tag"], entry.get("name"))} if "tag" in entry else entry for entry in entries
    )
    cells = ([entry[column] for column in columns] for entry in titles)
    show_table(title, columns, [[name, f"{value:.3f}" if isinstance(value, float) else value] for name, value in cells])
