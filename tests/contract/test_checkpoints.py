"""Every model takes a checkpoint; interrupted and fitted again, it ends as if it had never been interrupted."""

import pytest
from comparison import assert_same_bits
from interrupted_fits import interrupt_fit

from tagwise.exceptions import InvalidTypeError
from tagwise.store import Checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path / "checkpoint")


def test_a_fit_with_a_checkpoint_is_the_fit_without_and_is_not_done_again(make, fitted, problem, checkpoint):
    whole = make().fit(*problem, checkpoint=checkpoint)
    assert_same_bits(whole, fitted)
    again = make().fit(*problem, checkpoint=checkpoint)
    assert_same_bits(whole, again)
    if checkpoint.exists():
        assert again.history_[0]["seconds"] == whole.history_[0]["seconds"]
    checkpoint.discard()
    assert not checkpoint.folder.exists()


def test_interrupted_after_the_first_iteration_and_fitted_again(make, fitted, problem, checkpoint):
    model = make()
    interrupt_fit(model, 1, problem, checkpoint)
    assert not hasattr(model, "n_iter_")
    assert_same_bits(make().fit(*problem, checkpoint=checkpoint), fitted)


def test_interrupted_with_a_mask_and_fitted_again(make, mask, problem, checkpoint):
    interrupt_fit(make(), 1, (*problem, mask), checkpoint)
    assert_same_bits(make().fit(*problem, mask, checkpoint=checkpoint), make().fit(*problem, mask))


@pytest.mark.of_base
def test_what_is_no_checkpoint(make, problem):
    with pytest.raises(InvalidTypeError, match="checkpoint must be"):
        make().fit(*problem, checkpoint="folder")
