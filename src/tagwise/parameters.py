"""Constructor parameters, declared once: a class lists them with type and default, as a dataclass does.

.. code-block:: python

    @parameters
    class KNN(StoredRows):
        n_neighbors: Count = 30
        similarity_power: Annotated[float, partial(check_real, minimum=0)] = 4.0

The constructor, the checks before any work (:func:`check_parameters`), and the documentation of parameters that many
models share (:data:`SHARED`) follow.
"""

from __future__ import annotations

import inspect
import numbers
import types
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np

from tagwise.exceptions import InvalidInputError, InvalidTypeError
from tagwise.validation import check_choice, check_flag, check_integer, check_real, integer_text

if TYPE_CHECKING:
    from typing import dataclass_transform
else:  # typing has it from Python 3.11 on

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        return lambda decorator: decorator


__all__ = [
    "SHARED",
    "Count",
    "NonNegative",
    "Positive",
    "RandomState",
    "Seed",
    "Share",
    "check_parameters",
    "check_random_state",
    "parameters",
    "random_generator",
]

T = TypeVar("T")

Count = Annotated[int, partial(check_integer, minimum=1)]
"""A whole number of at least 1."""
Positive = Annotated[float, partial(check_real, minimum=0, open_minimum=True)]
"""A number above 0."""
NonNegative = Annotated[float, partial(check_real, minimum=0)]
"""A number of at least 0."""
Share = Annotated[float, partial(check_real, minimum=0, maximum=1)]
"""A number from 0 to 1."""
Seed = Annotated[Any, lambda value, name: check_random_state(value)]
"""A seed, a generator, or None."""

SHARED = {
    "reg": "float\n    λ > 0.",
    "positive_weight": 'float, array (L,) or "propensity"\n'
    "    ω of a positive relative to a negative: one number, one per label, or the inverse propensities\n"
    "    of Jain et al. 2016. Larger weights favour rare labels, and suit data in which only positives are\n"
    "    trustworthy.",
    "fit_intercept": "bool\n    Whether b is learnt (else 0).",
    "normalize": "bool\n    Scale rows of X to unit length, at fit and at prediction.",
    "updatable": "bool\n    Keep the training rows in the model and its folder, so that :meth:`update` can learn\n"
    "    further ones and :meth:`merge_labels` can merge labels (docs/updating.md).",
    "dense_weight": "float\n    Factor of a dense block of features (:class:`~tagwise.data.FeatureBlocks`), after\n"
    "    its rows are scaled.",
    "n_jobs": "int or None\n    Threads, as in joblib. The result is bit-identical for every number.",
    "random_state": "int, Generator, RandomState or None\n    Seeds all that is drawn.",
    "verbose": "int\n    1 shows progress on standard error.",
}
"""Documentation of parameters with one meaning in many models, for classes that do not document their own."""


@dataclass_transform(eq_default=False)
def parameters(cls: type[T]) -> type[T]:
    """Make the annotated attributes of a class the parameters of its constructor, which stores them."""
    made = dataclass(eq=False, repr=False)(cls)
    head, heading, rest = inspect.cleandoc(made.__doc__ or "").partition("Parameters\n----------\n")
    if heading:
        entries, gap, rest = rest.partition("\n\n")
        documented = {name for line in entries.splitlines() for name in line.partition(" : ")[0].split(", ")}
        shared = [name for name in SHARED if name in inspect.signature(made.__init__).parameters]
        entries += "".join(f"\n{name} : {SHARED[name]}" for name in shared if name not in documented)
        made.__doc__ = head + heading + entries + gap + rest
    return made


def check_parameters(model: Any) -> None:
    """Raise for the first parameter of ``model`` that its declared type does not allow."""
    for name, kind in _kinds(type(model)).items():
        _check(kind, getattr(model, name), name)


def _kinds(cls: type) -> dict[str, Any]:
    """The declared types of the parameters of a class, by name, those of its bases first."""
    names = [field.name for field in fields(cls)] if is_dataclass(cls) else []
    declared = {}
    for base in reversed(cls.__mro__ if names else ()):
        if "__dataclass_params__" in vars(base):
            declared.update(inspect.get_annotations(base, eval_str=True))
    return {name: declared[name] for name in names}


def _check(kind: Any, value: Any, name: str) -> None:
    origin, options = get_origin(kind), get_args(kind)
    if kind is bool:
        check_flag(value, name)
    elif origin is Literal:
        check_choice(value, name, options)
    elif origin is Annotated:
        for check in kind.__metadata__:
            check(value, name)
    elif origin in (Union, types.UnionType):
        plain = [choice for option in options if get_origin(option) is Literal for choice in get_args(option)]
        if (value is None and type(None) in options) or (isinstance(value, str) and value in plain):
            return
        checked = [option for option in options if option is bool or get_origin(option) is Annotated]
        for option in checked:
            _check(option, value, name)


# ---------------------------------------------------------------------- one rule for every random_state


_WORD = 2**64 - 1

RandomState = int | np.random.Generator | np.random.RandomState | None


def random_generator(random_state: Any) -> np.random.Generator:
    """A generator from a seed.

    None gives fresh randomness; a ``Generator`` is used (and advanced) itself; from a ``RandomState``, numpy's older
    kind that scikit-learn passes around, a seed is drawn.
    """
    if random_state is None or isinstance(random_state, np.random.Generator):
        return np.random.default_rng(random_state)
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(int(random_state.randint(np.iinfo(np.int32).max)))
    if isinstance(random_state, (bool, np.bool_)) or not isinstance(random_state, numbers.Integral):
        raise InvalidTypeError(
            "random_state must be None, a whole number, a numpy.random.Generator or a numpy.random.RandomState; "
            f"found {random_state!r}."
        )
    if not 0 <= int(random_state) <= _WORD:
        raise InvalidInputError(f"random_state must be from 0 to 2^64 - 1; found {integer_text(random_state)}.")
    return np.random.default_rng(int(random_state))


def check_random_state(random_state: Any) -> None:
    """Raise for what cannot seed a generator, without drawing from a ``RandomState``."""
    if not isinstance(random_state, np.random.RandomState):
        random_generator(random_state)
