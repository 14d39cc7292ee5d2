"""Missing answers in regressions: omit records, or model the missing answers.

A disguised missing answer is one more truth. With missing="answered", the outcome follows the formula only
where all truths are answers; elsewhere it has its own distribution. With missing="at-random", the truth
consists of the answer and, separately, of whether it is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.likelihood_rows import LikelihoodRows, hide_known
from masquerade.core.missing_shares import MissingShare, missing_shares
from masquerade.core.schema import Schema, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.stats._tables import Where, table_of
from masquerade.stats.missing_values import answers_only, check_missing, join_notes
from masquerade.stats.regression.formula import Formula

if TYPE_CHECKING:
    import pandas as pd

    from masquerade.stats.regression.terms_maker import ModelOptions

Codes = NDArray[np.intp]
RegressionMissing = Literal["answered", "at-random"]
ANSWERED = "answered"


def absence_of(name: str) -> str:
    """Return the name of the hidden variable that states whether an answer is missing."""
    return f"{name} is missing"


def complete_records(
    rows: LikelihoodRows, schema: Schema, clear: pd.DataFrame, names: Sequence[str]
) -> Codes | None:
    """Return the records whose reports and clear columns show an answer; None if these are all records."""
    is_complete = np.ones(rows.n, dtype=bool)
    for name in names:
        if name in rows.known and schema[name].missing:
            is_complete &= np.isin(rows.known[name], schema[name].answered_codes)
        elif name not in schema and name in clear.columns:
            is_complete &= clear[name].notna().to_numpy()
    return None if is_complete.all() else np.flatnonzero(is_complete)


def recode_known(rows: LikelihoodRows, schema: Schema, names: Sequence[str]) -> tuple[LikelihoodRows, Schema]:
    """Remove the missing categories of known variables, if no row has a missing answer in them."""
    known, variables = dict(rows.known), {variable.name: variable for variable in schema.variables}
    for name in names:
        if name in known and schema[name].missing:
            place = np.zeros(len(schema[name]), dtype=np.intp)
            place[list(schema[name].answered_codes)] = np.arange(len(schema[name].answered_codes))
            known[name], variables[name] = place[known[name]], answers_only(schema[name])
    return replace(rows, known=known), Schema(variables.values())


def split_missing(
    rows: LikelihoodRows, schema: Schema, names: Sequence[str]
) -> tuple[LikelihoodRows, Schema]:
    """Return rows over the answer of each variable and, separately, whether it is missing.

    Formula: P(report | answer k, not missing) = P(report | k), and for every k,
    P(report | answer k, missing) = P(report | missing). A clear missing answer is a row of ones over the
    answers.
    """
    variables = {variable.name: variable for variable in schema.variables}
    sizes = {name: len(variable) for name, variable in variables.items()}
    for name in names:
        variable = schema[name]
        if not variable.missing:
            continue
        if name in rows.known:
            if not np.isin(rows.known[name], variable.answered_codes).all():
                rows = hide_known(rows, [name], sizes)
            else:
                rows, answered = recode_known(rows, Schema(variables.values()), [name])
                variables = {each.name: each for each in answered.variables}
                continue
        place = rows.names.index(name)
        absent = [code for code in range(len(variable)) if code not in variable.answered_codes]
        shape = (*rows.shape[:place], len(variable.answered_codes), *rows.shape[place + 1 :], 1 + len(absent))
        chances = _split_axis(rows.chances.reshape(-1, *rows.shape), 1 + place, variable, absent)
        other = Variable(absence_of(name), (ANSWERED, *map(str, variable.missing)))
        variables[name], variables[other.name] = answers_only(variable), other
        rows = replace(
            rows,
            names=(*rows.names, other.name),
            shape=shape,
            chances=np.ascontiguousarray(chances.reshape(len(chances), -1)),
            channels=(),  # the chance of a missing report depends on more than the answer
        )
    return rows, Schema(variables.values())


def _split_axis(chances: Floats, axis: int, variable: Variable, absent: Sequence[int]) -> Floats:
    """Return chances over the answers and, on a new last axis, over "answered" and each missing category."""
    answers = chances.take(list(variable.answered_codes), axis=axis)
    ways = [np.broadcast_to(chances.take([code], axis=axis), answers.shape) for code in absent]
    return np.stack([answers, *ways], axis=-1)


def check_given(given: Sequence[str], outcome: str, names: Sequence[str], schema: Schema) -> None:
    """Raise InputError if missing outcomes depend on the outcome or on variables outside the formula."""
    others = [name for name in given if name not in names and name != outcome]
    if outcome in schema and schema[outcome].missing and (others or outcome in given):
        named = ", ".join(others or [outcome])
        raise InputError(
            f"{outcome!r} itself may be missing: its missing answers can depend only on variables of the "
            f"formula. Add {named} to the formula, or omit it from 'given'."
        )


def check_regression_missing(missing: str, given: Sequence[str]) -> None:
    """Raise InputError, with an alternative, if regressions do not support a treatment of missing answers."""
    if missing == "category":
        raise InputError(
            "A missing answer is not a category of a regression: use missing='answered' to omit it. To "
            "compare people who did not answer, use mq.stats.shares(source, 'y', by='x')."
        )
    if missing == "bounds":
        raise InputError("There are bounds for shares, means and quantiles, not for regressions.")
    check_missing(missing, given)


def leave_out_missing(  # noqa: PLR0917  (all belong together)
    rows: LikelihoodRows,
    schema: Schema,
    clear: pd.DataFrame,
    kept: NDArray[np.intp] | None,
    names: Sequence[str],
    formula: Formula,
    options: ModelOptions,
) -> tuple[LikelihoodRows, Schema, pd.DataFrame, NDArray[np.intp] | None]:
    """Omit records that are known to be incomplete, and split truths whose missing answers are modelled.

    Returns
    -------
    tuple
        Rows of the likelihood, schema, clear columns, and the indices of the records that were kept.
    """
    columns = [name for name in (formula.outcome, *formula.names, *options.given) if name not in schema]
    unsure = [name for name in names if name != formula.outcome] if options.given else []
    sure = [name for name in (*names, *columns) if name not in unsure]
    if options.given:
        check_given(options.given, formula.outcome, formula.names, schema)
    complete = complete_records(rows, schema, clear, sure)
    if complete is not None:
        rows, clear = rows.take(complete), clear.iloc[complete].reset_index(drop=True)
        kept = complete if kept is None else kept[complete]
    rows, schema = recode_known(rows, schema, sure)
    rows, schema = split_missing(rows, schema, unsure)
    return rows, schema, clear, kept


def missing_note(  # noqa: PLR0917  (all belong together)
    data: Tally | CountTable,
    formula: Formula,
    schema: Schema,
    clear: pd.DataFrame,
    where: Where,
    missing: str,
    options: ModelOptions,
) -> tuple[str, ...]:
    """Return a note on the missing answers to the variables of a regression."""
    names = (*formula.names, formula.outcome)
    asked = [name for name in names if name in schema and schema[name].missing and name not in (where or {})]
    shares = [missing_shares(table_of(data, (name,), where), (name,)) for name in asked]
    for name in names:
        if name in clear.columns and name not in schema and clear[name].isna().any():
            share = float(clear[name].isna().mean())
            error = float(np.sqrt(share * (1 - share) / len(clear)))
            shares.append((MissingShare(name, ("empty",), share, error),))
    return join_notes(shares, missing, options.given)
