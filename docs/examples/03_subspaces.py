"""
What a label's subspace looks like
==================================

MSE splits the rows into one low-rank part per label. The directions of a label's part
are weighted words, and can be read.
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

from tagwise import MSE
from tagwise.data import load_dataset

data = load_dataset("debtags-sample")
names = [
    "game::strategy",
    "game::puzzle",
    "sound::player",
    "web::browser",
    "field::biology",
    "mail::smtp",
]
Y = data.Y_train[:, [data.label_names.index(name) for name in names]]
rows = np.flatnonzero(np.diff(Y.indptr))  # packages that have one of these tags
X = data.X_train[rows]
# Words that most texts have tell nothing.
told = np.flatnonzero(X.getnnz(axis=0) < 0.2 * len(rows))
model = MSE(subspace_rank=3, decomposition="svd", random_state=0).fit(
    X[:, told], Y[rows]
)

# %%
# The strongest direction of each label is what its rows have in common. These are its
# eight heaviest words.

figure, axes = plt.subplots(2, 3, figsize=(9, 5), layout="constrained")
for label, (axis, name) in enumerate(zip(axes.flat, names, strict=True)):
    strongest = model.explain(
        label, feature_names=[data.feature_names[word] for word in told], top=8
    )[0]
    words, weights = zip(*reversed(strongest.features), strict=True)
    axis.barh(words, weights)
    axis.set_title(name, fontsize=10)
    axis.tick_params(labelsize=9)
    axis.spines[["top", "right"]].set_visible(False)

# %%
# Labels whose subspaces lie close to each other are hard to tell apart. The cosine of
# the smallest angle between two of them is 1 if they share a direction, and 0 if they
# have nothing in common: the two kinds of games are nearest.

starts = model.subspace_starts_
bases = [model.subspaces_[start:stop] for start, stop in pairwise(starts)]
cosines = np.array(
    [[np.linalg.norm(one @ other.T, ord=2) for other in bases] for one in bases]
)
np.fill_diagonal(cosines, np.nan)

figure, axis = plt.subplots(figsize=(5.2, 4.4), layout="constrained")
image = axis.imshow(cosines, vmin=0, cmap="Blues")
axis.set_xticks(range(len(names)), names, rotation=40, ha="right")
axis.set_yticks(range(len(names)), names)
for row, column in np.argwhere(~np.isnan(cosines)):
    cosine = cosines[row, column]
    axis.text(
        column,
        row,
        f"{cosine:.2f}",
        ha="center",
        va="center",
        color="white" if cosine > 0.18 else "black",
        size=8,
    )
figure.colorbar(image, label="cosine of the smallest angle")
