"""Truth models of survey designs: lie and cheater detection, lists, unrelated questions, covariates.

A truth is a combination of categories of the disguised covariates, of variables reported together with the
outcome, and of the outcome. The model of the truth is a product of components, each with its own predictors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.schema import Variable
from masquerade.stats.regression.truth_models import (
    BetaBinomialItems,
    BinaryOutcome,
    BinomialItems,
    CumulativeLogit,
    Link,
    MultinomialLogit,
    NormalDensity,
    Part,
    PoissonCounts,
    Product,
    TruthModel,
)

Items = Literal["auto", "binomial", "binomial-free", "beta-binomial", "multinomial", "multinomial-free"]
ITEMS: tuple[Items, ...] = (
    "auto",
    "binomial",
    "binomial-free",
    "beta-binomial",
    "multinomial",
    "multinomial-free",
)
Codes = NDArray[np.intp]
Names = tuple[str, ...]
Terms = tuple[Names, Floats]  # the names and the columns of a predictor


@dataclass(frozen=True, slots=True)
class TruthCells:
    """All combinations of the categories of some variables, the last varying fastest."""

    variables: tuple[Variable, ...]

    @property
    def size(self) -> int:
        """Return the number of combinations."""
        return prod(map(len, self.variables))

    def codes(self, name: str) -> Codes:
        """Return the category code of a variable in every combination."""
        shape = tuple(map(len, self.variables))
        place = [variable.name for variable in self.variables].index(name)
        return np.asarray(np.indices(shape)[place].ravel() if shape else np.zeros(1), dtype=np.intp)

    def find_unanswered(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """Return True for every combination in which an answer to one of the variables is missing."""
        result = np.zeros(self.size, dtype=bool)
        for variable in self.variables:
            if variable.name in names and variable.missing:
                result |= ~np.isin(self.codes(variable.name), variable.answered_codes)
        return result

    def joint_codes(self, names: Sequence[str]) -> Codes:
        """Return the joint code of several variables in every combination."""
        sizes = [len(variable) for variable in self.variables if variable.name in names]
        each = [self.codes(variable.name) for variable in self.variables if variable.name in names]
        return np.asarray(np.ravel_multi_index(each, sizes), dtype=np.intp)


@dataclass(slots=True)
class ModelBuilder:
    """Builder of a truth model: its components, their predictors and the names of the coefficients."""

    truths: int
    parts: list[Part] = field(default_factory=list)
    designs: list[Floats] = field(default_factory=list)
    index: list[Codes] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def add(self, model: TruthModel, codes: Codes, predictors: Sequence[Terms]) -> None:
        """Add a component; each predictor has its own coefficients."""
        first = len(self.designs)
        for names, design in predictors:
            self.index.append(np.arange(len(self.names), len(self.names) + len(names)))
            self.designs.append(design)
            self.names += names
        self.parts.append(Part(model, tuple(range(first, len(self.designs))), codes))

    def add_ordinal(self, codes: Codes, labels: Names, terms: Terms) -> None:
        """Add proportional odds: a cut point between neighbouring categories, and shared coefficients."""
        names, X = terms
        cuts = [f"{a} | {b}" for a, b in pairwise(labels)]
        first, start = len(self.designs), len(self.names)
        shared = np.arange(start + len(cuts), start + len(cuts) + len(names))
        ones = np.ones((*X.shape[:-1], 1))
        for cut in range(len(cuts)):
            self.designs.append(np.concatenate([ones, -X], axis=-1))
            self.index.append(np.concatenate([[start + cut], shared]))
        self.names += [*cuts, *names]
        model = CumulativeLogit(len(labels))
        self.parts.append(Part(model, tuple(range(first, len(self.designs))), codes))

    def build(self) -> TruthModel:
        """Return the model; a single component is returned without a product."""
        first = self.parts[0]
        is_flat = all(design.ndim == 2 for design in self.designs)
        if len(self.parts) == 1 and is_flat and np.array_equal(first.codes, np.arange(self.truths)):
            return first.model
        return Product(tuple(self.parts), self.truths, len(self.designs))


@dataclass(frozen=True, slots=True)
class OutcomeSets:
    """Categories of a yes/no outcome: those that mean yes, and those that form the denominator."""

    yes: tuple[int, ...]
    among: tuple[int, ...]
    labels: Names

    def text(self, codes: Sequence[int]) -> str:
        """Return the labels of the given categories as one text."""
        return ", ".join(self.labels[code] for code in codes)


class NuisanceTerms(Protocol):
    """A function that builds the terms of a nuisance predictor."""

    def __call__(self, labels: Sequence[str], *, is_constant: bool = False) -> Terms:
        """Return the terms that `nuisance` gives for one of the labels.

        Without such terms, return an intercept if `is_constant`, otherwise the terms of the formula.
        """


def add_yes_no(  # noqa: PLR0917  (all belong together)
    builder: ModelBuilder,
    codes: Codes,
    sets: OutcomeSets,
    link: Link,
    terms: Terms,
    nuisance: NuisanceTerms,
) -> None:
    """Add P(yes | among) with the formula's terms, and the shares of all other categories as nuisance.

    In the stochastic lie detector, yes is {yes, lying}, and the share of yes in this set is the honesty t.
    In cheater detection, the other categories are {no, cheat}, or the denominator is only {yes, no}.
    """
    rest = [code for code in sets.among if code not in sets.yes]
    outside = [code for code in range(len(sets.labels)) if code not in sets.among]
    if not rest:
        raise InputError(f"Nothing is left to compare {sets.text(sets.yes)} with.")
    builder.add(
        BinaryOutcome(link), recode(codes, {**dict.fromkeys(sets.yes, 0), **dict.fromkeys(rest, 1)}), [terms]
    )
    if outside:
        member = {**dict.fromkeys(sets.among, 0), **dict.fromkeys(outside, 1)}
        found = nuisance([sets.labels[code] for code in outside])
        builder.add(BinaryOutcome(), recode(codes, member), [_prefix(sets.text(sets.among), found)])
    for split, is_constant in ((sets.yes, True), (rest, False), (outside, False)):
        if len(split) < 2:
            continue
        found = nuisance([sets.labels[code] for code in split], is_constant=is_constant)
        model = MultinomialLogit(len(split), len(split) - 1)
        inner = {code: place for place, code in enumerate(split)}
        each = [_prefix(f"{sets.labels[code]} | {sets.text(split)}", found) for code in split[:-1]]
        builder.add(model, recode(codes, inner), each)


def add_outcome(
    builder: ModelBuilder,
    kind: str,
    codes: Codes,
    outcome: Variable,
    terms: Terms,
    *,
    base: int = 0,
    is_top_coded: bool = False,
) -> None:
    """Add a multinomial, ordinal or Poisson outcome."""
    names, X = terms
    labels = tuple(map(str, outcome.categories))
    if kind == "multinomial":
        others = [code for code in range(len(labels)) if code != base]
        each = [(tuple(f"{labels[code]}: {name}" for name in names), X) for code in others]
        builder.add(MultinomialLogit(len(labels), base), codes, each)
    elif kind == "proportional odds":
        builder.add_ordinal(codes, labels, terms)
    else:
        builder.add(PoissonCounts(len(labels), is_top_coded), codes, [terms])


def add_normal(builder: ModelBuilder, y: Floats, codes: Codes, terms: Terms, label: str = "log sd") -> None:
    """Add the normal density of a clear outcome, for the truths whose code is 0."""
    ones = np.ones((len(y), 1))
    builder.add(NormalDensity(y), codes, [terms, ((label,), ones)])


def add_absence(builder: ModelBuilder, codes: Codes, outcome: Variable, terms: Terms) -> None:
    """Add the probability that an outcome is missing, and the shares of the missing categories."""
    absent = [code for code in range(len(outcome)) if code not in outcome.answered_codes]
    member = dict.fromkeys(outcome.answered_codes, 1) | dict.fromkeys(absent, 0)
    builder.add(BinaryOutcome(), recode(codes, member), [_prefix(f"{outcome.name} is missing", terms)])
    if len(absent) > 1:
        constant = (("Intercept",), np.ones((len(terms[1]), 1)))
        each = [_prefix(str(outcome.categories[code]), constant) for code in absent[1:]]
        builder.add(
            MultinomialLogit(len(absent)),
            recode(codes, dict(zip(absent, range(len(absent)), strict=True))),
            each,
        )


def add_free_outcome(
    builder: ModelBuilder, label: str, codes: Codes, outcome: Variable, terms: Terms
) -> None:
    """Add a separate distribution of the outcome for the truths in which a covariate is missing."""
    each = [_prefix(f"{label} = {category}", terms) for category in outcome.categories[1:]]
    builder.add(MultinomialLogit(len(outcome)), codes, each)


def add_items(
    builder: ModelBuilder,
    variable: Variable,
    cell_codes: tuple[Codes, Codes],
    items: Items,
    terms: Terms,
) -> None:
    """Add the number of items of a list experiment.

    Parameters
    ----------
    builder : ModelBuilder
        Model to add to.
    variable : Variable
        The number of items, 0, 1, …, J.
    cell_codes : tuple of arrays
        Number of items, and category of the sensitive answer, for every truth.
    items : str
        Distribution. With "-free", it may differ by the sensitive answer.
    terms : tuple
        Names and columns of the predictors.
    """
    size, constant = len(variable), (("Intercept",), np.ones((len(terms[1]), 1)))
    codes, outcome = cell_codes
    groups = [(variable.name, codes)]
    if items.endswith("-free"):
        groups = [
            (f"{variable.name} of answer {code + 1}", np.where(outcome == code, codes, -1))
            for code in np.unique(outcome)
        ]
    for name, own in groups:
        if items.startswith("binomial"):
            builder.add(BinomialItems(size), own, [_prefix(name, terms)])
        elif items == "beta-binomial":
            each = [_prefix(name, terms), _prefix(f"{name} overdispersion", constant)]
            builder.add(BetaBinomialItems(size), own, each)
        else:
            each = [_prefix(f"{name} = {label}", terms) for label in variable.categories[1:]]
            builder.add(MultinomialLogit(size), own, each)


def add_categories(builder: ModelBuilder, codes: Codes, labels: Sequence[str], terms: Terms) -> None:
    """Add the distribution of hidden categories: of disguised covariates or of an unrelated question."""
    each = [_prefix(label, terms) for label in labels[1:]]
    builder.add(MultinomialLogit(len(labels)), codes, each)


def are_counts(variable: Variable) -> bool:
    """Return True if the categories are 0, 1, 2, …"""
    return list(variable.categories) == list(range(len(variable)))


def _prefix(text: str, terms: Terms) -> Terms:
    return tuple(f"{text}: {name}" for name in terms[0]), terms[1]


def recode(codes: Codes, places: Mapping[int, int]) -> Codes:
    """Return the codes mapped by `places`; −1 for codes that `places` does not map."""
    return np.array([places.get(int(code), -1) for code in codes], dtype=np.intp)
