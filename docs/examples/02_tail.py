"""
Low rank against low rank plus sparse on the tail
=================================================

A low rank describes tags that occur together. A rare tag with words of its own does not
fit into it; REML adds a few weights per tag for these. Recall by how often a tag occurs
in training shows where they help.
"""

import matplotlib.pyplot as plt
import numpy as np

from tagwise import LEML, REML
from tagwise.data import load_dataset

X, Y, X_test, Y_test = load_dataset("debtags-sample")
models = {
    "LEML, low rank": LEML(rank=40, random_state=0),
    "REML, low rank plus sparse": REML(rank=40, random_state=0),
}
frequency = np.asarray(Y.sum(axis=0)).ravel()
groups = [(4, 8), (8, 16), (16, 32), (32, 64), (64, 256), (256, 10_000)]


def recall_by_frequency(labels):
    """The share of a group's true pairs that is among the first five suggestions."""
    rows, found = np.repeat(np.arange(len(labels)), labels.shape[1]), labels.ravel()
    hits = np.asarray(Y_test[rows, found]).ravel() > 0
    hit_frequency, true_frequency = frequency[found[hits]], frequency[Y_test.indices]
    return [
        np.sum((hit_frequency >= low) & (hit_frequency < high))
        / np.sum((true_frequency >= low) & (true_frequency < high))
        for low, high in groups
    ]


recalls = {
    name: recall_by_frequency(model.fit(X, Y).predict_topk(X_test, k=5)[0])
    for name, model in models.items()
}

# %%
# Both find frequent tags; only the sparse part finds the rare ones.

figure, axis = plt.subplots(figsize=(6.8, 4), layout="constrained")
places = np.arange(len(groups))
for shift, (name, values) in zip((-0.2, 0.2), recalls.items(), strict=True):
    axis.bar(places + shift, values, width=0.38, label=name)
axis.set_xticks(
    places,
    [
        f"{low} to {high - 1}" if high < 10_000 else f"{low} and more"
        for low, high in groups
    ],
)
axis.set(xlabel="training rows that have the tag", ylabel="recall among the first five")
axis.legend(frameon=False)
