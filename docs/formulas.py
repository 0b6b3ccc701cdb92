"""Formulas as docutils' converter to MathML understands them."""

import re

# Brackets of MathML grow by themselves.
SIZES = re.compile(r"\\[bB]igg?[lr]?(?![a-z])")
# TeX takes one digit for the numerator and one for the denominator; the converter takes both for the numerator.
DIGITS = re.compile(r"\\([td]?frac)\s*(\d)(\d)")


def for_mathml(formula: str) -> str:
    """The TeX of a formula, rewritten so that the converter draws what TeX would."""
    formula = DIGITS.sub(r"\\\1{\2}{\3}", SIZES.sub("", formula))
    return formula.replace(r"\top", r"{\mathrm{T}}")
