"""``tagwise inspect``: what is in a model folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.filesize import decimal

from tagwise import Tagger, load
from tagwise.cli.options import POSITIVE, Given, option, verb
from tagwise.cli.output import show, show_json, show_table
from tagwise.cli.rows import find_tag, tags_of
from tagwise.exceptions import ExplanationError
from tagwise.inspection import heaviest_features, nearest_labels
from tagwise.inspection.calibration import probability_maps
from tagwise.progress import counted
from tagwise.store.folder import folder_bytes, storable_parameters
from tagwise.text.suggestion import title_of

_FREQUENCIES = ("0", "1", "2-4", "5-9", "10-99", "100-999", "1000+")
_LEAST = (0, 1, 2, 5, 10, 100, 1000)
_BARS = "▁▂▃▄▅▆▇█"


@verb(
    "model",
    option("--tag", "Show this tag: its frequency, the words that speak for it, the tags most like it."),
    option("--top", "Length of the lists.", default=10, type=POSITIVE),
    "--json",
    examples=(
        "tagwise inspect tagger",
        "tagwise inspect tagger --tag gardening",
        "tagwise inspect tagger --tag gardening --top 30 --json",
    ),
)
def command(given: Given) -> None:
    """Show what is in MODEL: sizes, frequencies of tags, the course of the fit; or all about one tag."""
    model, tag, top = given.model, given.tag, given.top
    fitted = load(model)
    inner = fitted.model_ if isinstance(fitted, Tagger) else fitted
    found = _overview(model, fitted, inner, top) if tag is None else _tag(fitted, inner, tag, top)
    if given.as_json:
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
    training = dict(fitted.training_)
    counts, calibration = training.pop("tag_rows"), fitted.calibration_
    order = np.argsort(-counts, kind="stable")
    places = np.searchsorted(_LEAST, counts, side="right") - 1
    frequencies = dict(zip(_FREQUENCIES, np.bincount(places, minlength=len(_LEAST)).tolist()))
    found |= {
        "reason": fitted.choice_.reason,
        "training": training,
        "frequencies": [{"rows": name, "tags": n} for name, n in frequencies.items() if n or name != "0"],
        "most_frequent": [_counted(fitted, label) for label in order[:top].tolist()],
        "least_frequent": [_counted(fitted, label) for label in order[::-1][:top].tolist()],
        "named_tags": sum(tag in fitted.names_ for tag in fitted.tags_),
        "probabilities": probability_maps(inner, calibration) is not None,
        "calibration": None,
    }
    if calibration is not None:
        found["calibration"] = {name: getattr(calibration, name) for name in ("target", "k", "rows")}
        found["calibration"]["expected_error"] = calibration.reliability.error
    return found


def _counted(tagger: Tagger, label: int) -> dict[str, Any]:
    return {**_named(tagger.tags_[label], tagger.names_), "rows": int(tagger.training_["tag_rows"][label])}


def _named(tag: str, names: Mapping[str, str]) -> dict[str, Any]:
    """A tag for JSON, with its name where it has one."""
    return {"tag": tag, "name": names[tag]} if tag in names else {"tag": tag}


def _show_overview(found: dict[str, Any]) -> None:
    show(f"{found['folder']}: {decimal(found['bytes'])}, {found['class']}")
    show("Parameters: " + ", ".join(f"{name}={value}" for name, value in found["parameters"].items()))
    if "training" in found:
        _show_training(found)
    else:
        show(f"{found['features']:,} features, {found['tags']:,} labels.")
    if not (history := found["iterations"]):
        return
    show()
    values = [float(info["objective"]) for info in history]
    low, spread = min(values), (max(values) - min(values)) or 1.0
    curve = "".join(_BARS[int((value - low) / spread * 7)] for value in values[:: 1 + len(values) // 80])
    show(f"Objective over {counted(len(values), 'iteration')}{': ' + curve if len(values) > 1 else ''}")
    shown = history if len(history) <= 12 else [*history[:6], *history[-6:]]
    rows = [[info["iteration"], f"{info['objective']:.6g}", f"{info['seconds']:.1f}"] for info in shown]
    columns = ["iteration", "objective", "seconds"]
    if all("validation" in info for info in shown):
        columns.append("nDCG@5, %, rare tags kept in training")
        rows = [[*row, f"{100 * info['validation']:.1f}"] for row, info in zip(rows, shown)]
    show_table("", columns, rows)


def _show_training(found: dict[str, Any]) -> None:
    training, calibration = found["training"], found["calibration"]
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
    _show_list("Tags by frequency", ("rows", "tags"), found["frequencies"])
    _show_list("Most frequent tags", ("tag", "rows"), found["most_frequent"])
    _show_list("Rarest tags", ("tag", "rows"), found["least_frequent"])
    show()
    if calibration is not None:
        show(
            f"Calibrated on {counted(calibration['rows'], 'validation row')} for {calibration['target']} F1; "
            f"probabilities are off by {100 * calibration['expected_error']:.1f} points on average."
        )
    else:
        probabilities = "probabilities of its own" if found["probabilities"] else "scores but no probabilities"
        show(f"Not calibrated: {probabilities}, no thresholds (train --validation).")


def _tag(fitted: Any, inner: Any, wanted: str, top: int) -> dict[str, Any]:
    tags = tags_of(inner)
    names = fitted.names_ if isinstance(fitted, Tagger) else {}
    tag = find_tag(wanted, tags, names)
    label, found, words = tags.index(tag), _named(tag, names), None
    if isinstance(fitted, Tagger):
        words = fitted.features_.feature_names
        found |= {"rows": int(fitted.training_["tag_rows"][label]), "training_rows": fitted.training_["rows"]}
        if fitted.calibration_ is not None:
            found["threshold"] = float(fitted.calibration_.thresholds[label])
    try:
        heaviest, nearest = heaviest_features(inner, label, top), nearest_labels(inner, label, top)
    except ExplanationError as error:
        return {**found, "words": None, "nearest": None, "why_not": str(error)}
    found["words"] = [
        {"word": words[feature] if words else f"feature {feature}", "weight": float(weight)}
        for feature, weight in zip(*heaviest)
    ]
    found["nearest"] = [{**_named(tags[other], names), "cosine": float(cosine)} for other, cosine in zip(*nearest)]
    return found


def _show_tag(found: dict[str, Any]) -> None:
    rows = f" in {found['rows']:,} of {found['training_rows']:,} training rows" if "rows" in found else ""
    show(f"{title_of(found['tag'], found.get('name'))}{rows}")
    if "threshold" in found:
        show(f"Threshold: {found['threshold']:.4f}")
    if found["words"] is None:
        show(found["why_not"])
        return
    _show_list("Words that speak for it most", ("word", "weight"), found["words"])
    _show_list("Tags most like it (cosine of their weights)", ("tag", "cosine"), found["nearest"])


def _show_list(title: str, columns: tuple[str, str], entries: list[dict[str, Any]]) -> None:
    rows = []
    for entry in entries:
        value = entry[columns[1]]
        name = title_of(entry["tag"], entry.get("name")) if columns[0] == "tag" else entry[columns[0]]
        rows.append([name, f"{value:.3f}" if isinstance(value, float) else value])
    show()
    show_table(title, columns, rows)
