"""Seeded random numbers inside compiled loops: one small state a stream, the same numbers on every machine.

numpy's generators cannot be passed into compiled code that runs without the GIL on many streams at once. A stream is an
array of one uint64, advanced by SplitMix64 (Steele, Lea, Flood 2014); streams of different numbers are unrelated.
"""

from __future__ import annotations

import numpy as np

from tagwise.kernels.compiled import compiled

__all__ = ["mixed_bits", "next_below", "next_bits", "random_stream"]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_HALF_WORD = np.uint64(32)


@compiled(inner=True)
def mixed_bits(bits):
    """A hash of 64 bits, each of which depends on all of ``bits``."""
    bits += _STEP
    bits = (bits ^ (bits >> _SHIFTS[0])) * _FIRST_FACTOR
    bits = (bits ^ (bits >> _SHIFTS[1])) * _SECOND_FACTOR
    return bits ^ (bits >> _SHIFTS[2])


@compiled(inner=True)
def next_bits(stream):
    """64 random bits; advances the stream."""
    bits = mixed_bits(stream[0])
    stream[0] += _STEP
    return bits


@compiled(inner=True)
def random_stream(seed, number):
    """The stream of that number under a seed, both whole numbers from 0."""
    stream = np.empty(1, dtype=np.uint64)
    stream[0] = np.uint64(seed)
    stream[0] = next_bits(stream) ^ (np.uint64(number) * _SECOND_FACTOR)
    next_bits(stream)
    return stream


@compiled(inner=True)
def next_below(stream, limit):
    """A whole number from 0 to ``limit`` − 1, for limits below 2³²; uneven by at most one part in 2³²/limit."""
    return np.int64(((next_bits(stream) >> _HALF_WORD) * np.uint64(limit)) >> _HALF_WORD)
