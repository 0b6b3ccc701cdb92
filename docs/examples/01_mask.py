"""
What a mask is worth
====================

Most tags are missing from most tables. Here a random share of all pairs of package and
tag is known. One model learns from the known pairs only; the other takes every unknown
pair for a "no", as software without masks must.
"""

import matplotlib.pyplot as plt

from tagwise import LEML
from tagwise.data import hide_labels, load_dataset
from tagwise.metrics import precision_at_k

X, Y, X_test, Y_test = load_dataset("debtags-sample")
shares = [0.05, 0.1, 0.2, 0.4, 0.7]
masked, taken_for_no = [], []

for share in shares:
    known = hide_labels(Y, share, random_state=0)
    listed = Y.multiply(known).tocsr()  # the tags that can be seen
    model = LEML(rank=80, reg=1.0, random_state=0)
    labels, _ = model.fit(X, listed, observed=known).predict_topk(X_test, k=1)
    masked.append(precision_at_k(Y_test, labels, k=1))
    labels, _ = model.fit(X, listed).predict_topk(X_test, k=1)
    taken_for_no.append(precision_at_k(Y_test, labels, k=1))

# %%
# The fewer pairs are known, the more a mask is worth.

figure, axis = plt.subplots(figsize=(6.4, 4), layout="constrained")
axis.plot(shares, masked, "o-", label="learns from known pairs only")
axis.plot(shares, taken_for_no, "o--", label="takes unknown for “no”")
axis.fill_between(shares, taken_for_no, masked, alpha=0.12)
axis.set(xlabel="share of pairs that is known", ylabel="P@1", xlim=(0, 0.75))
axis.legend(frameon=False, loc="lower right")
axis.grid(alpha=0.3)
