"""Construction of the likelihood of the reports from a source and a formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, SchemaError, did_you_mean
from masquerade.core.likelihood_rows import LikelihoodRows
from masquerade.core.schema import Category, Schema, Variable
from masquerade.stats._tables import category_of, scores_of
from masquerade.stats.missing_values import answers_only
from masquerade.stats.regression import designs
from masquerade.stats.regression.designs import Items, ModelBuilder, OutcomeSets, Terms, TruthCells
from masquerade.stats.regression.formula import Formula, Scores, TermsMatrix, variables_in
from masquerade.stats.regression.likelihood import RegressionLikelihood
from masquerade.stats.regression.missing_truths import absence_of
from masquerade.stats.regression.terms_maker import (
    PER_CELL,
    ModelOptions,
    TermsMaker,
    clear_frame,
    merge_rows,
)

if TYPE_CHECKING:
    import pandas as pd

Codes = NDArray[np.intp]
MOST_NUMBERS = 1 << 27  # most rows times truths in memory
MOST_HIDDEN = 64  # most combinations of disguised covariates
FEW_CELLS = 12  # with at most this many cells of clear covariates, each has its own distribution of items


class NotByLikelihood(InputError):
    """Raised if a regression has no likelihood of reports; the corrected score may be used instead."""


@dataclass(frozen=True, slots=True, eq=False)
class Covariates:
    """The covariates of a fit, and the conversion of their values to terms.

    Attributes
    ----------
    variables : tuple of Variable
        Covariates that are variables of the source.
    clear : tuple of str
        Covariates given as columns in addition to the source.
    matrix : TermsMatrix
        Design matrix of the terms.
    reference, scores : mappings
        Reference categories and scores of the variables.
    frame : DataFrame
        Clear covariates of the rows of the likelihood.
    weights : array
        Number of records of each row.
    hidden : tuple of str
        Disguised covariates.
    truths : tuple of Variable
        Disguised covariates with all their truths, including missing answers.
    """

    variables: tuple[Variable, ...]
    clear: tuple[str, ...]
    matrix: TermsMatrix
    reference: Mapping[str, Category]
    scores: Scores | None
    frame: pd.DataFrame
    weights: Floats
    hidden: tuple[str, ...]
    truths: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A likelihood, and the meaning of its coefficients: the terms of the formula, then nuisance terms."""

    likelihood: RegressionLikelihood
    terms: tuple[str, ...]
    nuisance: tuple[str, ...]
    starts: tuple[Floats, ...]
    covariates: Covariates
    outcome: str
    labels: tuple[str, ...]
    n: int
    row_of: Codes
    notes: tuple[str, ...]
    items: Items | None = None
    outcome_codes: Codes | None = None
    sets: OutcomeSets | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The outcome: a disguised variable, or clear codes or numbers."""

    name: str
    variable: Variable | None
    codes: Codes | None = None
    numbers: Floats | None = None


def build_problem(  # noqa: PLR0917  (a problem has these inputs)
    formula: Formula,
    schema: Schema,
    rows: LikelihoodRows,
    clear: pd.DataFrame,
    options: ModelOptions,
    groups: Sequence[Codes] = (),
) -> Problem:
    """Return the likelihood of a regression.

    Parameters
    ----------
    formula : Formula
        Outcome and terms.
    schema : Schema
        Variables of the source.
    rows : LikelihoodRows
        Chances of the reports over the variables of the formula.
    clear : DataFrame
        Columns in addition to the source, one row per record.
    options : ModelOptions
        Type of regression and its settings.
    groups : sequence of arrays, optional
        Codes of the records, such as their clusters. Records with different codes are not merged.

    Returns
    -------
    Problem
        The likelihood. Equal rows are merged.

    Raises
    ------
    NotByLikelihood
        If the corrected score is needed.
    """
    if not rows.n:
        raise InputError("A regression needs records.")
    outcome = _resolve_outcome(formula, schema, rows, clear, options)
    named = tuple(dict.fromkeys([*formula.names, *options.given]))
    hidden = tuple(name for name in named if name in rows.names and name != formula.outcome)
    absences = tuple(absence_of(name) for name in hidden if absence_of(name) in rows.names)
    extras = tuple(name for name in rows.names if name not in (*hidden, *absences, formula.outcome))
    if any(name not in rows.dealt for name in extras):
        raise NotByLikelihood(f"{', '.join(extras)} were reported jointly with the outcome.")
    needed = _needed_names(formula, options)
    frame, keys = clear_frame(needed, schema, rows, clear, options)
    rows_at, row_of, counts = merge_rows(
        rows,
        [
            *keys,
            *([] if outcome.codes is None else [outcome.codes]),
            *([] if outcome.numbers is None else [np.unique(outcome.numbers, return_inverse=True)[1]]),
            *groups,
        ],
        may_merge=not formula.learns_from_data and rows.weights is None,
    )
    frame = frame.iloc[rows_at].reset_index(drop=True)
    cells = TruthCells(
        (
            *(schema[name] for name in (*hidden, *absences, *extras)),
            *([] if outcome.variable is None else [outcome.variable]),
        )
    )
    if len(rows_at) * cells.size > MOST_NUMBERS or _count_combinations(schema, hidden) > MOST_HIDDEN:
        raise NotByLikelihood("there are too many combinations of disguised categories.")
    chances, channels = _chances(rows, rows_at, (*hidden, *absences, *extras), outcome, schema)
    maker = TermsMaker(schema, frame, hidden, cells, options)
    matrix, X = maker.make(formula.terms, with_intercept=options.kind != "proportional odds")
    builder = ModelBuilder(cells.size)
    unanswered = cells.find_unanswered(hidden)
    sets = _add_model(builder, outcome, cells, (matrix.names, X), maker, formula.labels, rows_at, unanswered)
    terms = tuple(name for name in builder.names if name != "log sd")
    _add_missing(builder, cells, hidden, absences, outcome, (matrix.names, X), maker, rows_at, rows.n)
    items = _add_nuisance(builder, cells, hidden, extras, outcome, (matrix.names, X), maker, rows.n)
    maker.check_nuisance()
    weights = counts if rows.weights is None else rows.weights * rows.n / rows.weights.sum()
    likelihood = RegressionLikelihood(
        chances,
        builder.build(),
        tuple(builder.designs),
        tuple(builder.index),
        weights,
        channels,
        rows.design_of[rows_at] if channels else None,
        options.has_penalty,
    )
    if options.has_penalty and not channels:
        raise InputError(
            "Jeffreys' penalty sums over all possible reports: there must be few, and none may be numbers."
        )
    terms = terms if sets is None else terms[: len(matrix.names)]
    starts = _starts(
        builder, outcome, options.kind, len(terms), is_mixture=bool(extras) or len(terms) < len(builder.names)
    )
    if options.kind == "logistic" and options.link == "log":
        starts = tuple(_start_below_zero(start, X) for start in starts)
    reference = dict(options.reference or {})
    used = Covariates(
        tuple(answers_only(schema[name]) for name in formula.names if name in schema),
        tuple(name for name in formula.names if name not in schema),
        matrix,
        reference,
        options.scores,
        frame,
        weights,
        tuple(name for name in hidden if name in formula.names),
        tuple(schema[name] for name in hidden if name in formula.names),
    )
    labels = () if outcome.variable is None else tuple(map(str, outcome.variable.answers))
    text = formula.outcome if sets is None else f"{formula.outcome} = {sets.text(sets.yes)}"
    if sets is not None and options.among and len(sets.among) < len(sets.labels):
        text += f" among {sets.text(sets.among)}"
    notes = _notes(options, outcome, hidden, extras, items)
    return Problem(
        likelihood,
        terms,
        tuple(builder.names[len(terms) :]),
        starts,
        used,
        text,
        labels,
        rows.n,
        row_of,
        notes,
        items,
        None if outcome.variable is None else cells.codes(outcome.name),
        sets,
    )


def _needed_names(formula: Formula, options: ModelOptions) -> tuple[str, ...]:
    """Return the variables of the formula and of the nuisance terms."""
    more = [name for terms in (options.nuisance or {}).values() for name in _nuisance_names(terms)]
    given = [name for name in options.given if name != formula.outcome]
    return tuple(dict.fromkeys([*formula.names, *more, *given]))


def _nuisance_names(terms: str) -> tuple[str, ...]:
    return variables_in(terms.partition("~")[2].strip() or terms.strip())


def names_of_formula(formula: Formula, options: ModelOptions, schema: Schema) -> tuple[str, ...]:
    """Return the variables of the source that a regression reads."""
    names = (*_needed_names(formula, options), formula.outcome)
    return tuple(name for name in dict.fromkeys(names) if name in schema)


def _resolve_outcome(
    formula: Formula, schema: Schema, rows: LikelihoodRows, clear: pd.DataFrame, options: ModelOptions
) -> Outcome:
    """Return the outcome: a hidden or clear variable of the source, or a clear column."""
    name, kind = formula.outcome, options.kind
    if name in schema:
        variable = schema[name]
        if name in rows.names:
            if kind == "linear":
                raise NotByLikelihood(
                    "a disguised number has no density: least squares of its scores is used."
                )
            _check_counts(variable, options)
            return Outcome(name, variable)
        codes = rows.known[name]
        if kind == "linear":
            numbers = scores_of(variable, (options.scores or {}).get(name))[0]
            return Outcome(name, None, None, numbers[codes])
        _check_counts(variable, options)
        return Outcome(name, variable, codes)
    if name not in clear.columns:
        raise SchemaError(f"There is no variable {name!r} for {formula.text!r}.{did_you_mean(name, schema)}")
    values = clear[name]
    if values.isna().any():
        raise InputError(f"Column {name!r} has missing values: remove such records.")
    if kind == "linear":
        return Outcome(name, None, None, np.asarray(values, dtype=float))
    variable, codes = _variable_of(name, values, kind)
    return Outcome(name, variable, codes)


def _check_counts(variable: Variable, options: ModelOptions) -> None:
    if options.kind != "poisson":
        return
    if variable.name in (options.scores or {}) or not designs.are_counts(answers_only(variable)):
        raise NotByLikelihood("a Poisson likelihood needs the categories 0, 1, 2, …")


def _variable_of(name: str, values: pd.Series, kind: str) -> tuple[Variable, Codes]:
    """Return a clear column as a variable, with the codes of its rows."""
    found = np.asarray(values)
    if found.dtype.kind == "f" and np.all(found == np.round(found)):
        found = found.astype(np.int64)
    if kind == "poisson":
        if found.dtype.kind not in "iu" or found.min() < 0:
            raise InputError(f"A Poisson regression needs counts; column {name!r} has other values.")
        return Variable(name, tuple(range(int(found.max()) + 1))), found.astype(np.intp)
    labels, codes = np.unique(found if found.dtype.kind in "iub" else found.astype(str), return_inverse=True)
    plain = [int(label) if found.dtype.kind in "iu" else str(label) for label in labels]
    if kind == "logistic" and plain == [0, 1]:
        plain = ["0", "1"]
    return Variable(name, tuple(plain)), np.asarray(codes, dtype=np.intp)


def _count_combinations(schema: Schema, names: Sequence[str]) -> int:
    return int(np.prod([len(schema[name]) for name in names], dtype=np.int64))


def _chances(
    rows: LikelihoodRows,
    rows_at: Codes,
    hidden: Sequence[str],
    outcome: Outcome,
    schema: Schema,
) -> tuple[Floats, tuple[Floats, ...]]:
    """Return P(report | truth) of the rows, and the channels, over (hidden, outcome)."""
    is_hidden = outcome.codes is None and outcome.variable is not None
    order = [*hidden, *([outcome.name] if is_hidden else [])]
    turned = rows.widen(order, [len(schema[name]) for name in order]) if order else rows
    chances = turned.chances[turned.report[rows_at]]
    if outcome.codes is None or outcome.variable is None:
        return chances, turned.channels if outcome.numbers is None else ()
    size = len(outcome.variable)
    seen = np.eye(size)[outcome.codes[rows_at]]
    wide = chances[:, :, None] * seen[:, None, :]
    channels = tuple(np.asarray(np.kron(channel, np.eye(size))) for channel in turned.channels)
    return wide.reshape(len(rows_at), -1), channels


def _add_model(  # noqa: PLR0917  (all belong together)
    builder: ModelBuilder,
    outcome: Outcome,
    cells: TruthCells,
    terms: Terms,
    maker: TermsMaker,
    labels: Sequence[str],
    rows_at: Codes,
    unanswered: NDArray[np.bool_],
) -> OutcomeSets | None:
    """Add the model of the outcome for the truths in which no covariate is missing.

    Return the categories of a yes/no outcome.
    """
    if outcome.variable is None:
        assert outcome.numbers is not None  # noqa: S101  (for the type checker)
        designs.add_normal(builder, outcome.numbers[rows_at], np.where(unanswered, -1, 0), terms)
        return None
    codes, options = np.where(unanswered, -1, cells.codes(outcome.name)), maker.options
    if options.kind == "logistic":
        sets = outcome_sets(outcome.variable, labels, options.among)
        designs.add_yes_no(builder, codes, sets, options.link, terms, maker.nuisance(terms))
        return sets
    if labels:
        raise InputError(
            f"A {options.kind} regression uses all categories of {outcome.name!r}: omit [{labels[0]}]."
        )
    answers = answers_only(outcome.variable)
    if len(answers) < 2:
        raise InputError(f"{outcome.name!r} has one category: there is nothing to explain.")
    base = (options.reference or {}).get(outcome.name)
    designs.add_outcome(
        builder,
        options.kind,
        designs.recode(codes, {code: i for i, code in enumerate(outcome.variable.answered_codes)}),
        answers,
        terms,
        base=0 if base is None else answers.code(base),
        is_top_coded=outcome.codes is None,
    )
    return None


def outcome_sets(variable: Variable, labels: Sequence[str], among: Sequence[Category]) -> OutcomeSets:
    """Return the categories that mean yes, and the categories of the denominator."""
    names = tuple(map(str, variable.categories))

    def code_of(label: Category) -> int:
        found = [code for code, name in enumerate(names) if name.lower() == str(label).strip().lower()]
        return found[0] if found else variable.code(label)

    yes = tuple(code_of(label) for label in labels)
    if not yes:
        yes = (variable.answered_codes[category_of(answers_only(variable), None)],)
    kept = tuple(sorted(code_of(label) for label in among)) or variable.answered_codes
    if not set(yes) <= set(kept):
        raise InputError(f"'among' must contain {', '.join(names[code] for code in yes)}.")
    return OutcomeSets(yes, kept, names)


def _add_missing(  # noqa: PLR0917  (all belong together)
    builder: ModelBuilder,
    cells: TruthCells,
    hidden: Sequence[str],
    absences: Sequence[str],
    outcome: Outcome,
    terms: Terms,
    maker: TermsMaker,
    rows_at: Codes,
    n: int,
) -> None:
    """Add models of missing outcomes, and of outcomes where a covariate is missing."""
    variable, numbers = outcome.variable, outcome.numbers
    unanswered, joint = cells.find_unanswered(hidden), cells.joint_codes(hidden) if hidden else np.zeros(0)
    codes = np.zeros(cells.size, dtype=np.intp) if variable is None else cells.codes(outcome.name)
    if variable is not None and variable.missing and maker.options.kind != "logistic":
        designs.add_absence(builder, np.where(unanswered, -1, codes), variable, terms)
    for cell in np.unique(joint[unanswered]) if unanswered.any() else ():
        own = np.where(joint == cell, codes, -1)
        label = f"{outcome.name} where missing {int(cell) + 1}"
        if variable is not None:
            free = maker.clear_terms(len(variable) - 1, n)
            designs.add_free_outcome(builder, label, own, variable, free)
        elif numbers is not None:
            names, X = maker.clear_terms(2, n)
            free = tuple(f"{label}: {name}" for name in names), X
            designs.add_normal(builder, numbers[rows_at], own, free, f"{label}: log sd")
    for name, absence in zip([h for h in hidden if absence_of(h) in absences], absences, strict=True):
        extra = np.eye(len(variable))[codes][None, :, 1:] if variable is not None else None
        if numbers is not None:
            extra = numbers[rows_at][:, None]
        assert extra is not None  # noqa: S101  (an outcome is a variable or numbers)
        why = maker.absence_terms(name, outcome.name, extra)
        ways = [f"{name}: {way}" for way in maker.schema[absence].categories]
        designs.add_categories(builder, cells.codes(absence), ways, why)


def _add_nuisance(  # noqa: PLR0917  (all belong together)
    builder: ModelBuilder,
    cells: TruthCells,
    hidden: Sequence[str],
    extras: Sequence[str],
    outcome: Outcome,
    terms: Terms,
    maker: TermsMaker,
    n: int,
) -> Items | None:
    """Add models of the variables that were reported with the outcome, and of disguised covariates."""
    chosen: Items | None = None
    for name in extras:
        variable = maker.schema[name]
        if designs.are_counts(variable) and len(variable) > 1 and outcome.variable is not None:
            chosen = _choose_items(maker, len(variable), n)
            own = maker.nuisance(terms)([name])
            cell_codes = cells.codes(name), cells.codes(outcome.name)
            designs.add_items(builder, variable, cell_codes, chosen, own)
        else:
            own = maker.nuisance(terms)([name], is_constant=True)
            named = [f"{name} = {label}" for label in variable.categories]
            designs.add_categories(builder, cells.codes(name), named, own)
    if hidden:
        size = _count_combinations(maker.schema, hidden)
        codes = cells.joint_codes(hidden)
        numbered = [f"{', '.join(hidden)} {place + 1}" for place in range(size)]
        designs.add_categories(builder, codes, numbered, maker.clear_terms(size - 1, n))
    return chosen


def _choose_items(maker: TermsMaker, size: int, n: int) -> Items:
    """Return the distribution of items: free in each cell if the cells are few, else binomial."""
    if maker.options.items != "auto":
        return maker.options.items
    cells = 1 if not len(maker.frame.columns) else len(maker.frame.drop_duplicates())
    is_free = not maker.hidden and cells <= FEW_CELLS and n >= PER_CELL * 2 * cells * (size + 1)
    return "multinomial" if is_free else "binomial"


def _starts(
    builder: ModelBuilder, outcome: Outcome, kind: str, terms: int, *, is_mixture: bool
) -> tuple[Floats, ...]:
    """Return the starting points: equal probabilities, and further points for mixtures (ℓ is not concave)."""
    zeros = np.zeros(len(builder.names))
    if outcome.numbers is not None:
        spread = float(np.std(outcome.numbers)) or 1.0
        zeros[0] = float(np.mean(outcome.numbers)) if builder.names[0] == "Intercept" else 0.0
        for place, name in enumerate(builder.names):
            if name.endswith("log sd"):
                zeros[place] = np.log(spread)
            elif " where missing " in name and name.endswith("Intercept"):
                zeros[place] = float(np.mean(outcome.numbers))
    if kind == "proportional odds" and outcome.variable is not None:
        size = len(outcome.variable.answers)
        even = np.arange(1, size) / size
        zeros[: len(even)] = np.log(even / (1 - even))
        return (zeros,)
    if not is_mixture or outcome.numbers is not None:
        return (zeros,)
    rare = zeros.copy()
    rare[0] = -1.0
    turned = np.zeros_like(zeros)
    turned[:terms] = 0.3 * (-1.0) ** np.arange(terms)
    return zeros, rare, turned


def _start_below_zero(start: Floats, X: Floats) -> Floats:
    """Return a start at which a log link gives probabilities of about exp(−1), which must stay below 1."""
    flat = X.reshape(-1, X.shape[-1])
    result = start.copy()
    result[: X.shape[-1]] = np.linalg.lstsq(flat, np.full(len(flat), -1.0), rcond=None)[0]
    return result


def _notes(
    options: ModelOptions,
    outcome: Outcome,
    hidden: Sequence[str],
    extras: Sequence[str],
    items: Items | None,
) -> tuple[str, ...]:
    """Return the assumptions of the model that a reader must know."""
    notes = []
    if options.kind == "multinomial" and outcome.variable is not None:
        base = (options.reference or {}).get(outcome.name, outcome.variable.answers[0])
        notes.append(f"Compared with {base}.")
    if items is not None:
        shared = "" if items.endswith("-free") else ", the same for both answers"
        notes.append(f"Items of the list: {items.removesuffix('-free')}{shared}.")
    others = [name for name in extras if name not in (options.nuisance or {})]
    if others and items is None:
        notes.append(f"{', '.join(others)}: independent of the outcome given the covariates.")
    if hidden:
        notes.append(f"Disguised covariates: {', '.join(hidden)}; their distribution is estimated as well.")
    if options.kind == "poisson" and outcome.codes is None and outcome.variable is not None:
        notes.append(f"{outcome.variable.answers[-1]} represents itself and all larger counts.")
    return tuple(notes)
