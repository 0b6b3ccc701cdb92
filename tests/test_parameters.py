"""Constructor parameters that are declared once: constructor, checks and documentation of every model."""

import inspect
from functools import partial
from typing import Annotated, Literal

import pytest

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.parameters import Count, Positive, Seed, check_parameters, parameters
from tagwise.registry import MODELS
from tagwise.validation import check_integer


@parameters
class Base:
    size: Count = 3
    share: Annotated[int, partial(check_integer, maximum=9)] = 1


@parameters
class Example(Base):
    """An example.

    Parameters
    ----------
    kind : {"a", "b"}
        Any.
    random_state : int
        Its own words.

    Notes
    -----
    None.
    """

    kind: Literal["a", "b"] = "a"
    most: Count | None = None
    reg: Positive | Literal["auto"] = 1.0
    deep: bool = False
    random_state: Seed = 0
    n_jobs: int | None = None


def test_the_constructor_stores_what_is_declared_those_of_the_base_first():
    names = ["size", "share", "kind", "most", "reg", "deep", "random_state", "n_jobs"]
    assert list(inspect.signature(Example).parameters) == names
    assert vars(Example(7, kind="b")) == {**{name: getattr(Example, name) for name in names}, "size": 7, "kind": "b"}


def test_checks_follow_the_declared_types():
    for good in ({}, {"most": None}, {"most": 2}, {"reg": "auto"}, {"reg": 0.5}, {"kind": "b"}, {"n_jobs": "any"}):
        check_parameters(Example(**good))
    for name, value, words in [
        ("size", 0, "at least 1"),
        ("share", 10, "at most 9"),
        ("kind", "c", "one of 'a', 'b'"),
        ("most", 0, "at least 1"),
        ("most", "x", "a whole number"),
        ("reg", 0, "above 0"),
        ("reg", "best", "a number"),
        ("reg", None, "a number"),
        ("deep", 1, "True or False"),
        ("random_state", "x", "None, a whole number"),
    ]:
        with pytest.raises((InvalidInputError, InvalidTypeError), match=f"{name} must .*{words}"):
            check_parameters(Example(**{name: value}))


def test_shared_documentation_fills_in_for_what_a_class_does_not_document():
    section = Example.__doc__.partition("----------\n")[2].partition("Notes")[0]
    assert section.index("Its own words.") < section.index("n_jobs : int or None\n    Threads, as in joblib.")
    assert section.count("random_state") == 1
    assert "verbose" not in section


def test_every_parameter_of_every_model_is_documented():
    for info in MODELS:
        model = info.load_class()
        section = inspect.getdoc(model).partition("Parameters\n----------\n")[2].partition("\n\n")[0]
        entries = [line.partition(" : ")[0] for line in section.splitlines() if not line.startswith(" ")]
        documented = [name for entry in entries for name in entry.split(", ")]
        assert sorted(documented) == sorted(set(inspect.signature(model).parameters)), info.class_name
