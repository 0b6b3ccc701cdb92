"""
A learning curve with feedback
==============================

A model that has seen few texts suggests five tags for each new one; somebody says which
are right. Afterwards exactly these pairs are known. Answers about five tags drawn at
random teach far less: a suggestion asks about what is likely.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

from tagwise import BinaryRelevance
from tagwise.data import load_dataset
from tagwise.metrics import precision_at_k

X, Y, X_test, Y_test = load_dataset("debtags-sample")
start, step, rounds = 400, 500, 5
n_labels = Y.shape[1]
chance = np.random.default_rng(0)


def learn(asked):
    """Fit on the first rows, whose tags are all known, and on answers on others."""
    answers = sp.csr_matrix(
        (np.ones(asked.size), asked.ravel(), np.arange(0, asked.size + 1, 5)),
        shape=(len(asked), n_labels),
    )
    known = sp.vstack([np.ones((start, n_labels)), answers], format="csr")
    rows = known.shape[0]
    return BinaryRelevance().fit(
        X[:rows], Y[:rows], observed=known
    )  # what Y says outside of `known` is never looked at


curves = {}
for way in ("answers about five suggestions", "answers about five random tags"):
    asked = np.empty((0, 5), dtype=np.int64)
    model = learn(asked)
    curves[way] = [precision_at_k(Y_test, model.predict_topk(X_test, k=5), k=5)]
    for _ in range(rounds):
        new = X[start + len(asked) : start + len(asked) + step]
        if way == "answers about five suggestions":
            questions = model.predict_topk(new, k=5)[0]
        else:
            questions = np.array(
                [chance.choice(n_labels, 5, replace=False) for _ in range(step)]
            )
        asked = np.vstack([asked, np.sort(questions, axis=1)])
        model = learn(asked)
        curves[way].append(precision_at_k(Y_test, model.predict_topk(X_test, k=5), k=5))

# %%
# Every round adds answers about 500 texts.

figure, axis = plt.subplots(figsize=(6.4, 4), layout="constrained")
for way, values in curves.items():
    axis.plot(start + step * np.arange(rounds + 1), values, "o-", label=way)
axis.set(xlabel="texts that were answered for", ylabel="P@5 on other texts")
axis.legend(frameon=False)
axis.grid(alpha=0.3)
