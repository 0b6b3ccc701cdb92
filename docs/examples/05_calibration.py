"""
Calibration and thresholds
==========================

A score ranks; a decision needs to know how sure to be. Rows that the fit did not see
turn scores into probabilities, and find a threshold per tag.
"""

import matplotlib.pyplot as plt
import numpy as np

from tagwise import LEML, Tagger
from tagwise.data import load_dataset

data = load_dataset("debtags-sample")
tags = [[data.label_names[label] for label in row.indices] for row in data.Y_train]
test_tags = [[data.label_names[label] for label in row.indices] for row in data.Y_test]

tagger = Tagger(LEML(rank=80, random_state=0)).fit(data.texts_train[:4000], tags[:4000])
before = tagger.evaluate(data.texts_test, test_tags).metrics
tagger.calibrate(data.texts_train[4000:], tags[4000:], target="micro")
after = tagger.evaluate(data.texts_test, test_tags).metrics
bins = tagger.reliability(data.texts_test, test_tags)
print(f"expected calibration error on the test texts: {bins.error:.3f}")

# %%
# On the left, what is said to be likely is as often right: the points lie on the
# diagonal. Their size is the number of suggestions. On the right, decisions with one
# threshold for all tags, and with those that the other rows have found.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.plot([0, 1], [0, 1], color="grey", linewidth=1)
left.scatter(
    bins.predicted,
    bins.observed,
    s=300 * np.sqrt(bins.count / bins.count.max()),
    alpha=0.7,
)
left.set(
    xlabel="predicted probability",
    ylabel="share that is right",
    xlim=(0, 1),
    ylim=(0, 1),
    aspect="equal",
)

metrics = ["micro-F1", "macro-F1", "example-F1"]
places = np.arange(len(metrics))
right.bar(
    places - 0.2,
    [before[name] for name in metrics],
    width=0.38,
    label="score of 0 or more",
)
right.bar(
    places + 0.2,
    [after[name] for name in metrics],
    width=0.38,
    label="calibrated thresholds",
)
right.set_xticks(places, metrics)
right.set_ylim(0, 0.8)
right.legend(frameon=False, loc="upper left")
right.spines[["top", "right"]].set_visible(False)
