"""The state of a generator as numbers."""

import numpy as np
import pytest

from tagwise.randomness import generator_words, random_generator, set_generator


@pytest.mark.parametrize("half_used", [False, True])
def test_a_generator_continues_from_its_words(half_used):
    rng = random_generator(7)
    rng.permutation(100)
    if half_used:  # the other half of a 64-bit draw waits for the next 32-bit one
        rng.integers(2**32, dtype=np.uint32)
    words = generator_words(rng)
    assert words.shape == (6,)
    assert words.dtype == np.uint64
    other = random_generator(0)
    set_generator(other, words)
    for draw in (lambda g: g.integers(2**32, size=3, dtype=np.uint32), lambda g: g.standard_normal(5)):
        np.testing.assert_array_equal(draw(rng), draw(other))


@pytest.mark.parametrize("place", [4, 5])
def test_words_that_are_no_state(place):
    words = generator_words(random_generator(7))
    words[place] = 2**40
    with pytest.raises(ValueError, match="not the state of a generator"):
        set_generator(random_generator(0), words)
