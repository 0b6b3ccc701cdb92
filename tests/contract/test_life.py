"""Random lives of models: fits, labels and rows that come and go, folders; against a reference of plain arrays."""

import tempfile
import warnings
from itertools import count

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tagwise import LEML, REML, BinaryRelevance, Cascade, load
from tagwise.exceptions import TagwiseWarning

N_FEATURES, MOST_LABELS = 12, 12
SMALL = {"rank": 3, "support": 5, "shortlist": 4, "hard_negatives": 3}
MODELS = {
    "LEML": LEML(rank=3, max_iter=3, updatable=True),
    "REML": REML(rank=3, sparse_part="support", support=5, max_iter=3, updatable=True),
    "Cascade": Cascade(**SMALL, max_iter=2, updatable=True),
    "BinaryRelevance": BinaryRelevance(updatable=True),
}
SEEDS = st.integers(0, 10**6)


def rows(seed, n_rows):
    return sp.random(n_rows, N_FEATURES, 0.4, format="csr", random_state=seed, dtype=np.float32)


def some_labels(seed, X, n_labels):
    """Labels that depend on the features; every one has a row with it and one without."""
    rng = np.random.default_rng(seed)
    Y = (X @ rng.standard_normal((N_FEATURES, n_labels)) > 0.4).astype(np.float32)
    Y[0], Y[1] = 1, 0
    return Y


class Life(RuleBasedStateMachine):
    """One model; ``X``, ``Y``, ``known`` and ``names`` are all that it has been told."""

    kind = ""

    @initialize(seed=SEEDS, n_labels=st.integers(4, 8), masked=st.booleans())
    def fit(self, seed, n_labels, masked):
        self.X = rows(seed, 40)
        self.Y = some_labels(seed, self.X, n_labels)
        self.known = np.random.default_rng(seed).random(self.Y.shape) < 0.7 if masked else np.ones(self.Y.shape, bool)
        self.known[:2] = True
        self.asked = rows(seed + 1, 9)
        self.numbers = count()
        self.names = [str(label) for label in range(n_labels)]
        self.model = type(MODELS[self.kind])(**MODELS[self.kind].get_params())
        self.quietly(self.model.fit, self.X, self.Y, self.known if masked else None).rename_labels(self.names)

    def quietly(self, call, *arguments):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TagwiseWarning)
            return call(*arguments)

    def take_names(self, many):
        self.names += [f"new {next(self.numbers)}" for _ in range(many)]
        self.model.rename_labels(self.names)

    def scores(self):
        return self.model.decision_function(self.asked)

    @rule(seed=SEEDS, many=st.integers(1, 2))
    def add_labels(self, seed, many):
        if len(self.names) + many > MOST_LABELS:
            return
        before, new = self.scores(), some_labels(seed, self.X, many)
        self.quietly(self.model.add_labels, None, new)
        self.take_names(many)
        self.Y, self.known = np.hstack([self.Y, new]), np.hstack([self.known, np.ones(new.shape, bool)])
        if self.kind != "Cascade":  # where labels compete for a place in the shortlist
            np.testing.assert_allclose(self.scores()[:, : before.shape[1]], before, atol=1e-5)

    @rule(data=st.data())
    def remove_labels(self, data):
        if len(self.names) < 5:
            return
        gone = data.draw(st.lists(st.integers(0, len(self.names) - 1), min_size=1, max_size=2, unique=True))
        before = np.delete(self.scores(), gone, axis=1)
        self.model.remove_labels(gone)
        self.forget(gone)
        if self.kind != "Cascade":
            np.testing.assert_allclose(self.scores(), before, atol=1e-5)

    @rule(data=st.data())
    def merge_labels(self, data):
        if len(self.names) < 4:
            return
        gone, into = data.draw(st.lists(st.integers(0, len(self.names) - 1), min_size=2, max_size=2, unique=True))
        self.quietly(self.model.merge_labels, [gone], into)
        have = (self.Y * self.known)[:, [gone, into]].max(axis=1)
        self.known[:, into] = (have > 0) | self.known[:, [gone, into]].all(axis=1)
        self.Y[:, into] = have
        self.forget([gone])

    def forget(self, gone):
        self.Y, self.known = (np.delete(array, gone, axis=1) for array in (self.Y, self.known))
        self.names = [name for label, name in enumerate(self.names) if label not in gone]

    @rule(data=st.data(), name=st.text("abc", min_size=5, max_size=9))
    def rename(self, data, name):
        old = data.draw(st.sampled_from(self.names))
        if name in self.names:
            return
        before = self.scores()
        self.model.rename_labels({old: name})
        self.names[self.names.index(old)] = name
        assert (self.scores() == before).all()

    @rule(seed=SEEDS, n_rows=st.integers(2, 30), new_labels=st.integers(0, 1), masked=st.booleans())
    def update(self, seed, n_rows, new_labels, masked):
        if self.X.shape[0] > 150 or len(self.names) + new_labels > MOST_LABELS:
            return
        X = rows(seed, n_rows)
        Y = some_labels(seed, X, len(self.names) + new_labels)
        known = np.random.default_rng(seed).random(Y.shape) < 0.8 if masked else np.ones(Y.shape, bool)
        known[0, 0] = True
        complete = self.model.kept_complete_[:, None]
        self.quietly(self.model.update, X, Y, known if masked else None)
        self.take_names(new_labels)
        self.X = sp.vstack([self.X, X], format="csr")
        self.Y = np.vstack([np.pad(self.Y, ((0, 0), (0, new_labels))), Y])
        # Labels that are new are off in earlier rows, where all labels of the row were known.
        earlier = np.hstack([self.known, np.repeat(complete, new_labels, axis=1)])
        self.known = np.vstack([earlier, known])

    @rule(mapped=st.booleans())
    def save_and_load(self, mapped):
        with tempfile.TemporaryDirectory() as folder:
            self.model.save(folder)
            loaded = load(folder, mapped=mapped)
        assert (loaded.decision_function(self.asked) == self.scores()).all()
        assert loaded.get_params() == self.model.get_params()
        self.model = loaded

    @invariant()
    def knows_what_it_was_told(self):
        model = self.model
        assert model.n_labels_ == len(model.classes_) == len(self.names)
        assert model.label_names_ == self.names
        np.testing.assert_array_equal(model.kept_features_.toarray(), self.X.toarray())
        np.testing.assert_array_equal(model.kept_labels_.toarray(), self.Y * self.known)
        known = model.kept_observed_.toarray().astype(bool) | model.kept_complete_[:, None]
        np.testing.assert_array_equal(known, self.known)

    @invariant()
    def answers_from_its_scores(self):
        scores = self.scores()
        assert np.isfinite(scores).all()
        labels, best = self.model.predict_topk(self.asked, k=3)
        expected = np.argsort(-scores, axis=1, kind="stable")[:, :3]
        if self.kind != "Cascade":
            np.testing.assert_array_equal(labels, expected)
        np.testing.assert_allclose(best, np.take_along_axis(scores, labels, axis=1), atol=1e-5)
        hidden = sp.csr_matrix((np.ones(9), (np.arange(9), labels[:, 0])), shape=scores.shape)
        np.testing.assert_array_equal(self.model.predict_topk(self.asked, k=2, exclude=hidden)[0], labels[:, 1:])
        np.testing.assert_array_equal(self.model.predict(self.asked), scores >= 0)

    @invariant()
    def is_solved_where_nothing_is_pending(self):
        """Labels of BinaryRelevance are those of a fit to all rows, however they came about."""
        if self.kind != "BinaryRelevance" or (self.Y * self.known).sum() == self.known.sum():
            return
        fresh = self.quietly(BinaryRelevance().fit, self.X, self.Y, self.known)
        solved = self.model.pending_ == 0
        expected = fresh.decision_function(self.asked)[:, solved]
        np.testing.assert_allclose(self.scores()[:, solved], expected, atol=2e-3)


@pytest.mark.parametrize("kind", MODELS)
def test_a_random_life(kind):
    limits = settings(
        max_examples=4,
        stateful_step_count=8,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(type(kind, (Life,), {"kind": kind}), settings=limits)
