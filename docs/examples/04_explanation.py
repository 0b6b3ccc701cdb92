"""
Reading an explanation
======================

Why does a text get a tag? Where scores are linear, every word has an exact share in
them: its value in the text times its weight for the tag. With the intercept, the shares
add up to the score.
"""

import matplotlib.pyplot as plt

from tagwise import BinaryRelevance, Tagger
from tagwise.data import load_dataset

data = load_dataset("debtags-sample")
tags = [[data.label_names[label] for label in row.indices] for row in data.Y_train]
tagger = Tagger(BinaryRelevance()).fit(data.texts_train, tags)

text = (
    "a chess program with a graphical board, "
    "which plays over the network against other people"
)
suggestions = tagger.suggest([text], top=6, explain=6)[0]
for suggestion in suggestions:
    print(f"{suggestion.score:+.2f}  {suggestion.tag}")

# %%
# Bars to the right speak for the tag, bars to the left against it. The base rate is how
# likely the tag is without any word.

figure, axes = plt.subplots(2, 3, figsize=(10, 5.6), layout="constrained", sharex=True)
for axis, suggestion in zip(axes.flat, suggestions, strict=True):
    parts = [(word.word, word.contribution) for word in suggestion.why] + [
        ("(base rate)", suggestion.intercept)
    ]
    words, contributions = zip(*reversed(parts), strict=True)
    axis.barh(
        words,
        contributions,
        color=["#2f7fd6" if part > 0 else "#e08a1e" for part in contributions],
    )
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_title(suggestion.tag, fontsize=10)
    axis.spines[["top", "right", "left"]].set_visible(False)
for axis in axes[1]:
    axis.set_xlabel("contribution to the score")

# %%
# A tag can also be asked by itself which words it listens to.

for word, weight in tagger.words_of("game::board:chess", top=5):
    print(f"{weight:+.2f}  {word}")
