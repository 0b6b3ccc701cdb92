"""
In a pipeline and a grid search
===============================

Models are scikit-learn estimators with sparse labels in and out: they end a pipeline,
are searched by ``GridSearchCV``, and are scored by tagwise's metrics.
"""

import matplotlib.pyplot as plt
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from tagwise import LEML
from tagwise.data import load_dataset
from tagwise.metrics import scorer

data = load_dataset("debtags-sample")
pipeline = Pipeline(
    [
        ("words", TfidfVectorizer(sublinear_tf=True, min_df=2)),
        ("model", LEML(random_state=0)),
    ]
)
grid = {"model__rank": [20, 40, 80], "model__reg": [1.0, 3.0, 10.0]}
search = GridSearchCV(
    pipeline, grid, scoring=scorer("precision_at_5"), cv=2, refit=True
)
search.fit(data.texts_train, data.Y_train)
print(search.best_params_)
print(f"P@5 on the test texts: {search.score(data.texts_test, data.Y_test):.3f}")

# %%
# The whole grid at a glance.

scores = search.cv_results_["mean_test_score"].reshape(len(grid["model__rank"]), -1)
figure, axis = plt.subplots(figsize=(5.4, 4), layout="constrained")
image = axis.imshow(scores, cmap="Blues", origin="lower")
axis.set_xticks(range(scores.shape[1]), grid["model__reg"])
axis.set_yticks(range(scores.shape[0]), grid["model__rank"])
axis.set(xlabel="reg", ylabel="rank")
for row, line in enumerate(scores):
    for column, score in enumerate(line):
        dark = score > (scores.min() + scores.max()) / 2
        axis.text(
            column,
            row,
            f"{score:.3f}",
            ha="center",
            va="center",
            color="white" if dark else "black",
        )
figure.colorbar(image, label="P@5, mean of two folds")
