import numpy as np
import pytest

from tagwise.exceptions import InvalidInputError
from tagwise.losses import LOSSES, as_probability, get_loss

SCORES = np.array([-40.0, -3.1, -1.2, -0.3, 0.0, 0.2, 0.9, 1.4, 2.5, 40.0])
STEP = 1e-6


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_losses_are_convex_with_the_derivatives_of_central_differences(loss, label):
    target = loss.targets(np.full(len(SCORES), label))
    assert (loss.value(target, SCORES) >= 0).all()
    assert (loss.second(target, SCORES) >= 0).all()
    first = (loss.value(target, SCORES + STEP) - loss.value(target, SCORES - STEP)) / (2 * STEP)
    np.testing.assert_allclose(loss.first(target, SCORES), first, atol=2e-6 * np.maximum(1, np.abs(SCORES)).max())
    second = (loss.first(target, SCORES + STEP) - loss.first(target, SCORES - STEP)) / (2 * STEP)
    np.testing.assert_allclose(loss.second(target, SCORES), second, atol=1e-5)


def test_codings_and_known_values():
    labels = np.array([0.0, 1.0])
    np.testing.assert_array_equal(get_loss("squared").targets(labels), [0, 1])
    np.testing.assert_array_equal(get_loss("logistic").targets(labels), [-1, 1])
    np.testing.assert_array_equal(get_loss("squared_hinge").targets(labels), [-1, 1])
    one = np.ones(1)
    assert get_loss("squared").value(one, np.array([0.0]))[0] == 0.5
    assert get_loss("logistic").value(one, np.array([0.0]))[0] == pytest.approx(np.log(2))
    assert get_loss("squared_hinge").value(one, np.array([0.0]))[0] == 1.0


def test_logistic_neither_overflows_nor_loses_the_far_ends():
    far = np.array([-1e4, 1e4])
    loss = get_loss("logistic")
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_allclose(loss.value(np.ones(2), far), [1e4, 0])
        np.testing.assert_allclose(loss.first(np.ones(2), far), [-1, 0])


def test_unknown_losses_are_named():
    for name in ("hinge", "Squared", None, 3):
        with pytest.raises(InvalidInputError, match="loss must be one of 'squared', 'logistic', 'squared_hinge'"):
            get_loss(name)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_rate_is_the_inverse_of_the_best_constant(loss):
    rates = np.array([0.001, 0.2, 0.5, 0.77, 0.999])
    np.testing.assert_allclose(loss.rate(loss.constant(rates)), rates, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_estimates_of_probabilities_stay_between_0_and_1_in_their_order(dtype):
    estimates = np.array([-1e6, -2, -0.1, 0, 5e-5, 1e-4, 0.3, 0.5, 0.9999, 0.99995, 1], dtype=dtype)
    found = as_probability(estimates)
    assert found.dtype == dtype
    assert (np.diff(found) > 0).all()
    assert 0 < found[0] < found[-1] < 1
    np.testing.assert_array_equal(found[5:9], estimates[5:9])
    np.testing.assert_allclose(found + as_probability(1 - estimates), 1, atol=1e-7)
