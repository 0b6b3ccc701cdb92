"""Fits that are interrupted and resume from a checkpoint to the very same bits."""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest
from comparison import assert_same_bits
from interrupted_fits import CASES, FULL, MASK, MASKED, X, Y, interrupt_fit, maker

from tagwise import LEML, REML, Cascade, load
from tagwise.baselines import KNN
from tagwise.exceptions import ConvergenceWarning, InvalidInputError
from tagwise.models import binary_relevance
from tagwise.store import Checkpoint, read_model

pytestmark = pytest.mark.filterwarnings("ignore::tagwise.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def _several_batches(monkeypatch):
    monkeypatch.setattr(binary_relevance, "_MOST_LABELS", 4)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoint"


def resume(model, data, checkpoint):
    """The fitted model and the iterations that it still took."""
    seen = []
    model.fit(*data, checkpoint=checkpoint, callback=lambda iteration, info: seen.append(iteration))
    return model, seen


# ---------------------------------------------------------------------- the same bits


@pytest.mark.parametrize("name", CASES)
def test_interrupted_after_any_iteration(name, folder):
    make, data = maker(name)
    whole = make().fit(*data)
    for after in range(1, whole.n_iter_ + 1):
        checkpoint = Checkpoint(folder)
        interrupt_fit(make(), after, data, checkpoint)
        resumed, seen = resume(make(), data, checkpoint)
        assert_same_bits(whole, resumed)
        # What the last iteration of these adds to the states before is not a state of its own.
        last = after == whole.n_iter_ and name.startswith(("REML-parts", "LEML-closed"))
        assert seen == list(range(after + (not last), whole.n_iter_ + 1))
        np.testing.assert_array_equal(whole.decision_function(data[0]), resumed.decision_function(data[0]))
        checkpoint.discard()


def test_validation_rows_are_asked_once(folder, monkeypatch):
    """An interrupt behind the fusion does not repeat the five cascades that it was learnt from."""

    def make():
        return Cascade(rank=3, support=5, shortlist=6, max_iter=1, validation_fraction=0.2)

    whole, fits, original = make().fit(*FULL), [], REML._fit

    def counted(self, problem, progress):
        fits.append(problem.n_rows)
        if len(fits) == 6:
            raise KeyboardInterrupt
        original(self, problem, progress)

    monkeypatch.setattr(REML, "_fit", counted)
    with pytest.raises(KeyboardInterrupt):
        make().fit(*FULL, checkpoint=Checkpoint(folder))
    resumed = make().fit(*FULL, checkpoint=Checkpoint(folder))
    assert len(fits) == 7
    assert len(set(fits[:5])) == 1
    assert fits[0] < fits[5] == fits[6]
    assert_same_bits(whole, resumed)


@pytest.mark.parametrize("name", ["LEML-squared-mask", "REML-support", "REML-parts", "WSABIE", "SLEEC", "FastXML"])
def test_threads_may_change_in_between(name, folder):
    make, data = maker(name)
    interrupt_fit(make(n_jobs=2), 1, data, Checkpoint(folder))
    assert_same_bits(make().fit(*data), make(n_jobs=3).fit(*data, checkpoint=Checkpoint(folder)))


def test_the_last_iterations_are_repeated_where_checkpoints_are_rare(folder):
    make, data = maker("REML-admm")
    interrupt_fit(make(), 3, data, Checkpoint(folder, every=2))
    resumed, seen = resume(make(), data, Checkpoint(folder, every=2))
    assert seen == [3, 4]
    assert_same_bits(make().fit(*data), resumed)


@pytest.mark.parametrize("name", ["LEML-squared", "Cascade"])
def test_a_fit_that_is_stopped_again_and_again_resumes_as_well(name, folder):
    make, data = maker(name)
    short = make().fit(*data, checkpoint=Checkpoint(folder), callback=lambda iteration, info: iteration == 2)
    assert short.n_iter_ == 2
    interrupt_fit(make(), 3, data, Checkpoint(folder))
    assert_same_bits(make().fit(*data), make().fit(*data, checkpoint=Checkpoint(folder)))


def test_an_error_of_the_callback_is_not_blamed_on_the_checkpoint(folder):
    """In a resumed fit, an error about the data would be; here hours of work would be thrown away for nothing."""
    make, data = maker("LEML-squared")
    interrupt_fit(make(), 2, data, Checkpoint(folder))

    fails = Mock(side_effect=InvalidInputError("of the callback's own."))
    with pytest.raises(InvalidInputError, match=r"^of the callback's own\.$"):
        make().fit(*data, checkpoint=Checkpoint(folder), callback=fails)
    assert_same_bits(make().fit(*data), make().fit(*data, checkpoint=Checkpoint(folder)))


def test_a_warm_start_resumes_from_its_checkpoint(folder, tmp_path):
    make, data = maker("LEML-squared")
    make(max_iter=1, warm_start=True).fit(*data).save(tmp_path / "model")
    whole, started = load(tmp_path / "model"), load(tmp_path / "model")
    for model in (whole, started):
        model.set_params(max_iter=4)
    interrupt_fit(started, 2, data, Checkpoint(folder))
    assert_same_bits(whole.fit(*data), started.fit(*data, checkpoint=Checkpoint(folder)))
    with pytest.raises(InvalidInputError, match="feature_factors_ has other values"):
        whole.fit(*data, checkpoint=Checkpoint(folder))
    with pytest.raises(InvalidInputError, match="feature_factors_ is None and was"):
        make(warm_start=True).fit(*data, checkpoint=Checkpoint(folder))


# ---------------------------------------------------------------------- what a resumed fit tells


def test_history_goes_on_and_progress_says_so(folder, capsys):
    make, data = maker("LEML-logistic")
    interrupt_fit(make(verbose=1), 2, data, Checkpoint(folder))
    assert "checkpoint" not in capsys.readouterr().err
    before = read_model(folder).values["history"]
    resumed = make(verbose=1).fit(*data, checkpoint=Checkpoint(folder))
    told = capsys.readouterr().err
    assert f"resumes from the checkpoint in {folder}, 2 of 4 iterations done" in told
    assert told.count("iteration ") == 2
    assert resumed.history_[:2] == before
    seconds = [info["seconds"] for info in resumed.history_]
    assert seconds == sorted(seconds)
    assert [info["iteration"] for info in resumed.history_] == [1, 2, 3, 4]


def test_a_resumed_fit_still_warns(folder):
    make, data = maker("REML-support")
    interrupt_fit(make(), 4, data, Checkpoint(folder))
    with pytest.warns(ConvergenceWarning, match="max_iter=4"):
        make().fit(*data, checkpoint=Checkpoint(folder))


# ---------------------------------------------------------------------- another fit


def test_another_fit_is_refused_and_leaves_the_checkpoint(folder):
    make, own = maker("LEML-squared-mask")
    interrupt_fit(make(), 2, own, Checkpoint(folder))
    for model, data, sentence in (
        (make(reg=2.0), MASKED, r"reg is 2\.0 and was 1\.0"),
        (make(random_state=1), MASKED, "random_state is 1 and was 0"),
        (make(positive_weight=np.full(9, 2.0)), MASKED, "positive_weight is an array of float64, 9 and was 1.0"),
        (make(), FULL, "observed is None and was"),
        (make(), (X, Y, 1 - MASK.toarray()), "observed has other values"),
        (make(), (X[:150], Y[:150], MASK[:150]), "X is CSR of float.., 150×24 and was CSR of float.., 160×24"),
        (make(), (X, Y[:, ::-1], MASK), "Y has other values"),
        (KNN(), FULL, "the model is KNN and was LEML"),
    ):
        with pytest.raises(InvalidInputError, match=sentence):
            model.fit(*data, checkpoint=Checkpoint(folder))
    assert_same_bits(make().fit(*own), make(verbose=0, n_jobs=2).fit(*own, checkpoint=Checkpoint(folder)))


def test_weights_of_rows_belong_to_a_checkpoint(folder):
    make, data = maker("LEML-squared")
    weights = np.random.default_rng(4).random(data[0].shape[0])
    make().fit(*data, sample_weight=weights, checkpoint=Checkpoint(folder), callback=lambda *_: True)
    for other in (None, weights[::-1]):
        with pytest.raises(InvalidInputError, match="sample_weight"):
            make().fit(*data, sample_weight=other, checkpoint=Checkpoint(folder))
    resumed = make().fit(*data, sample_weight=weights, checkpoint=Checkpoint(folder))
    assert_same_bits(make().fit(*data, sample_weight=weights), resumed)


def test_fits_that_cannot_be_kept_are_refused_and_leave_no_folder(folder):
    for model, words in (
        (LEML(random_state=None), "random_state to be a whole number"),
        (LEML(random_state=np.random.default_rng(0)), "random_state to be a whole number"),
        (LEML(random_state=np.random.RandomState(0)), "random_state to be a whole number"),
        (LEML(kernel=lambda A, B: A @ B.T), "kernel is a function"),
        (LEML(positive_weight=np.ones(3)), "positive_weight has shape"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            model.fit(*FULL, checkpoint=Checkpoint(folder))
        assert not folder.exists()
