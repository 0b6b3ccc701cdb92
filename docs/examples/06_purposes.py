"""
Choosing for P@k or for rare tags
=================================

The five most probable tags have the best precision, and they are mostly frequent tags.
Where scores are probabilities, other purposes need no other fit: ``optimise=`` chooses
the five tags that serve them best.
"""

import matplotlib.pyplot as plt
import numpy as np

from tagwise import Cascade
from tagwise.data import load_dataset
from tagwise.metrics import coverage_at_k, inverse_propensity, precision_at_k, psp_at_k

X, Y, X_test, Y_test = load_dataset("debtags-sample")
model = Cascade(random_state=0).fit(X, Y)
weights = inverse_propensity(Y)

found = {
    purpose: model.predict_topk(X_test, k=5, optimise=purpose)[0]
    for purpose in ("precision", "psp", "macro_f1")
}
measured = {
    "P@5\n": lambda labels: precision_at_k(Y_test, labels, k=5),
    "PSP@5\n(rare tags weigh more)": lambda labels: psp_at_k(
        Y_test, labels, k=5, inverse_propensity=weights
    ),
    "share of the tags\nfound anywhere": lambda labels: coverage_at_k(
        Y_test, labels, k=5
    ),
}

# %%
# Each purpose wins by its own measure, and what it costs in precision can be seen at
# once.

figure, axis = plt.subplots(figsize=(7.4, 4), layout="constrained")
places = np.arange(len(measured))
for shift, (purpose, labels) in zip((-0.27, 0, 0.27), found.items(), strict=True):
    bars = axis.bar(
        places + shift,
        [measure(labels) for measure in measured.values()],
        width=0.25,
        label=f'optimise="{purpose}"',
    )
    axis.bar_label(bars, fmt="%.2f", fontsize=8, padding=2)
axis.set_xticks(places, measured)
axis.set_ylim(0, 1.2)
axis.legend(frameon=False, loc="upper left", ncols=3, fontsize=9)
axis.spines[["top", "right"]].set_visible(False)
