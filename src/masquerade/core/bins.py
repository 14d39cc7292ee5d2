"""Bins of numbers, recognized by their labels: "[0, 10)", the last "[90, 100]", open bins "(-inf, 0)"."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.schema import Category, Variable

BIN = re.compile(r"^([\[(])(-?[0-9.]+(?:e[-+]?[0-9]+)?|-inf), (-?[0-9.]+(?:e[-+]?[0-9]+)?|inf)([\])])$")


def bin_ends(label: Category) -> tuple[float, float] | None:
    """Return the limits of a bin from its label; None if the label is not a bin.

    >>> bin_ends("[0, 2.5)"), bin_ends("(-inf, 3)"), bin_ends("yes")
    ((0.0, 2.5), (-inf, 3.0), None)
    """
    found = BIN.match(label) if isinstance(label, str) else None
    if found is None:
        return None
    try:
        low, high = float(found[2]), float(found[3])
    except ValueError:
        return None
    return (low, high) if low < high else None


def bin_edges(variable: Variable) -> tuple[Floats, Floats] | None:
    """Return the lower and upper limits of a variable's bins; None unless all answers are bins.

    Missing categories have no limits: NaN.
    """
    nowhere = (np.nan, np.nan)
    ends = [nowhere if label in variable.missing else bin_ends(label) for label in variable.categories]
    known = [pair for pair in ends if pair is not None]
    if len(known) < len(ends):
        return None
    return np.array([low for low, _ in known]), np.array([high for _, high in known])


def bin_codes(numbers: Floats, variable: Variable) -> NDArray[np.intp]:
    """Return the code of the bin that contains each number; −1 if no bin does.

    >>> bin_codes(np.array([0, 9.9, 10, 20, 21]), Variable("age", ("[0, 10)", "[10, 20]", "unknown")))
    array([ 0,  0,  1,  1, -1])
    """
    codes = np.full(len(numbers), -1, dtype=np.intp)
    for code, label in enumerate(variable.categories):
        ends = bin_ends(label)
        if ends is not None:
            low = numbers >= ends[0] if str(label).startswith("[") else numbers > ends[0]
            high = numbers <= ends[1] if str(label).endswith("]") else numbers < ends[1]
            codes[low & high & (codes < 0)] = code
    return codes
