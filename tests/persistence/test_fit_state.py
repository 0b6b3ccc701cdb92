"""The declared state of a fit: what is saved, what comes back, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise import LEML
from tagwise.persistence.fit_state import (
    State,
    StateParts,
    array,
    count,
    each,
    flag,
    generator,
    matrix,
    model,
    nested,
    real,
    sparse,
    unsaved,
    value,
)


def require_names(found):
    if not isinstance(found, list):
        raise ValueError("names must be a list")


@dataclass
class Inner(State):
    H: np.ndarray = array("L", "k")
    rows: np.ndarray = unsaved()


@dataclass
class Group(State):
    members: np.ndarray = array("m", dtype=np.int64)
    embedding: np.ndarray = array("m", 2)
    good: bool = flag()


@dataclass
class Whole(State):
    W: np.ndarray = array("d", "k")
    S: sp.csr_matrix = sparse("d", "L")
    either: np.ndarray | sp.csr_matrix = matrix(None, 2)
    inner: Inner = nested(Inner)
    groups: list[Group] = each(Group)
    rng: np.random.Generator = generator()
    names: list[str] = value(require_names)
    given: object = unsaved()
    best: Inner | None = nested(Inner, optional=True)
    fall: float = real(default=0.0)
    done: int = count(1, "max_iter", default=0)
    failed: int = count(0, "done", default=0)
    ended: bool = flag(default=False)

    def check(self):
        if self.ended and not self.done:
            raise ValueError("ended before it began")


KNOWN = {"d": 4, "L": 3, "dtype": np.float64, "max_iter": 5}


def whole():
    S = sp.random(4, 3, 0.5, format="csr", random_state=0)
    groups = [Group(np.arange(n), np.ones((n, 2)), n > 1) for n in (1, 3)]
    state = Whole(np.ones((4, 2)), S, np.ones((1, 2)), Inner(np.zeros((3, 2)), None), groups, np.random.default_rng(3),
                  ["a"], None)  # fmt: skip
    state.rng.integers(9, dtype=np.int32)  # leaves half a word
    state.done, state.ended = 2, True
    return state


def parts():
    found = whole().to_parts()
    return StateParts(dict(found.arrays), dict(found.values))


def test_everything_comes_back():
    state, saved = whole(), parts()
    found = Whole.from_parts(saved, KNOWN | {"given": "handed in"})
    np.testing.assert_array_equal(found.W, state.W)
    assert (found.S != state.S).nnz == 0
    np.testing.assert_array_equal(found.inner.H, state.inner.H)
    assert [group.good for group in found.groups] == [False, True]
    assert [len(group.embedding) for group in found.groups] == [1, 3]
    assert found.rng.integers(2**31, size=9).tolist() == state.rng.integers(2**31, size=9).tolist()
    assert (found.names, found.done, found.failed, found.fall, found.ended) == (["a"], 2, 0, 0.0, True)
    assert found.best is None
    assert found.given == "handed in"
    assert found.inner.rows is None
    found.W += 1
    np.testing.assert_array_equal(saved.arrays["W"], state.W)


def test_what_is_not_declared_is_not_saved():
    saved = parts()
    assert not {"given", "inner.rows"} & (set(saved.arrays) | set(saved.values))
    assert {"inner.H", "groups.0.members", "groups.1.embedding"} <= set(saved.arrays)


def test_an_optional_state_comes_back():
    state = whole()
    state.best = Inner(np.full((3, 2), 7.0), None)
    assert Whole.from_parts(state.to_parts(), KNOWN).best.H[0, 0] == 7


def test_a_fitted_model_comes_back():
    @dataclass
    class Stage(State):
        proposer: LEML = model()

    X, Y = np.eye(4), np.eye(4)
    fitted = LEML(rank=2, tol=0.5).fit(X, Y)
    saved = Stage(fitted).to_parts()
    found = Stage.from_parts(saved, {"proposer": LEML(rank=2, tol=0.5)}).proposer
    np.testing.assert_array_equal(found.label_factors_, fitted.label_factors_)
    del saved.arrays["proposer.label_factors_"]
    with pytest.raises(ValueError, match="tensors missing"):
        Stage.from_parts(saved, {"proposer": LEML(rank=2, tol=0.5)})


UNSORTED = sp.csr_matrix((np.ones(2), [1, 0], [0, 2, 2, 2, 2]), shape=(4, 3))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("W", np.ones((4, 3))),
        ("W", np.ones((5, 2))),
        ("W", np.ones(4)),
        ("W", np.ones((4, 2), dtype=np.float32)),
        ("W", np.full((4, 2), np.nan)),
        ("W", sp.csr_matrix(np.ones((4, 2)))),
        ("S", np.ones((4, 3))),
        ("S", UNSORTED),
        ("S", sp.csr_matrix(np.full((4, 3), np.inf))),
        ("either", np.ones((2, 3))),
        ("inner.H", np.ones((3, 1))),
        ("inner.more", np.ones((3, 1))),
        ("best.H", np.ones((3, 2))),
        ("more", np.ones(1)),
        ("groups.0.embedding", np.ones((2, 2))),
        ("groups.7.members", np.arange(2)),
        ("groups.x", np.arange(2)),
        ("rng", np.ones(6)),
        ("rng", np.full(6, 2**40, dtype=np.uint64)),
    ],
)
def test_wrong_arrays_are_refused(name, wrong):
    saved = parts()
    saved.arrays[name] = wrong
    with pytest.raises((ValueError, KeyError)):
        Whole.from_parts(saved, KNOWN)


@pytest.mark.parametrize("name", sorted(whole().to_parts().arrays))
def test_missing_arrays_are_refused(name):
    saved = parts()
    del saved.arrays[name]
    with pytest.raises((ValueError, KeyError)):
        Whole.from_parts(saved, KNOWN)


@pytest.mark.parametrize("name", sorted(whole().to_parts().values))
def test_missing_values_are_refused(name):
    saved = parts()
    del saved.values[name]
    with pytest.raises(ValueError, match=name):
        Whole.from_parts(saved, KNOWN)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("fall", float("inf")),
        ("fall", True),
        ("fall", "1"),
        ("done", 6),
        ("done", 0),
        ("done", 1.5),
        ("failed", 3),
        ("ended", 1),
        ("names", "a"),
        ("best", {}),
        ("best", "text"),
        ("inner", None),
        ("inner", {"more": 1}),
        ("groups", {}),
        ("groups", [1]),
        ("groups", [{"good": True}]),
        ("groups", [{"good": True}, {"good": "yes"}]),
        ("more", 1),
    ],
)
def test_wrong_values_are_refused(name, wrong):
    saved = parts()
    saved.values[name] = wrong
    with pytest.raises((ValueError, TypeError, KeyError)):
        Whole.from_parts(saved, KNOWN)


def test_fields_that_contradict_each_other_are_refused():
    @dataclass
    class Rounds(State):
        done: int = count(0, 9)
        ended: bool = flag()

        def check(self):
            if self.ended and not self.done:
                raise ValueError("ended before it began")

    with pytest.raises(ValueError, match="ended before it began"):
        Rounds.from_parts(Rounds(0, True).to_parts(), {})
