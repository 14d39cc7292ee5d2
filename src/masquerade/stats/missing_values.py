"""How statistics treat missing answers: omit them, count them, bound them, or assume they are at random."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.missing_shares import MissingShare, missing_shares
from masquerade.core.schema import Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.stats._tables import Where, table_of

Missing = Literal["answered", "category", "at-random", "bounds"]
MissingOrAll = Literal["answered", "category"]
BOUNDS = ("lowest", "highest")
TAKEN = {
    "answered": "Only people who answered are counted.",
    "category": "Missing answers are counted as categories of their own.",
    "at-random": "Missing answers are assumed to be at random given {given}.",
    "bounds": "Nothing is assumed: missing answers may be any answer.",
}


def check_missing(missing: str, given: Sequence[str]) -> None:
    """Raise InputError unless `missing` is a known method, with `given` exactly if it is "at-random"."""
    if missing not in get_args(Missing):
        raise InputError(
            f"'missing' must be 'answered', 'category', 'at-random' or 'bounds'. Got {missing!r} instead."
        )
    if bool(given) != (missing == "at-random"):
        raise InputError(
            "missing='at-random' needs the variables that missing answers depend on, for example "
            "given=['age']. Without such variables, use missing='answered'."
        )


def check_missing_or_all(missing: str, what: str) -> None:
    """Raise InputError, with advice, unless `missing` is 'answered' or 'category'."""
    if missing in get_args(MissingOrAll):
        return
    advice = {
        "at-random": "'answered' is right if missing answers depend only on the variables that groups and "
        "strata are made of: name those variables in 'given'.",
        "bounds": "There are bounds for shares, means and quantiles.",
    }.get(missing, "")
    raise InputError(f"{what} takes missing='answered' or 'category'. Got {missing!r}. {advice}".rstrip())


def missing_notes(
    table: CountTable, missing: str, given: Sequence[str] = (), names: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Describe the shares of missing answers, with their errors, and the method that was used.

    Without `names`, the last variable of the table is described.
    """
    return join_notes([missing_shares(table, table.names[-1:] if names is None else names)], missing, given)


def join_notes(
    shares: Iterable[Sequence[MissingShare]], missing: str, given: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return a note on the missing shares of several tables, each variable once; empty without shares."""
    texts = {share.name: share.text for some in shares for share in some}
    if not texts:
        return ()
    return (" ".join([*texts.values(), TAKEN[missing].format(given=", ".join(given))]),)


class TableOfAnswers(NamedTuple):
    """A table with or without missing categories, and a note that states which."""

    table: CountTable
    notes: tuple[str, ...]


def table_of_answers(
    data: Tally | CountTable, names: Sequence[str], where: Where, missing: str, what: str
) -> TableOfAnswers:
    """Return the table of the named variables, among people who answered all of them or among all people."""
    check_missing_or_all(missing, what)
    return restrict_table(table_of(data, names, where), missing)


def restrict_table(table: CountTable, missing: str) -> TableOfAnswers:
    """Return a table without its missing categories, unless they are counted, and a note."""
    notes = missing_notes(table, missing, names=table.names)
    return TableOfAnswers(table.drop_missing() if missing == "answered" else table, notes)


def answers_only(variable: Variable) -> Variable:
    """Return a variable without its missing categories."""
    return Variable(variable.name, variable.answers)


class StandardisedShares(NamedTuple):
    """Shares of the answers if missing answers are at random, and the gradient of each share in the cells."""

    values: Floats
    gradients: Floats  # answers × cells of the table


def standardise(table: CountTable, lead: tuple[int, ...]) -> StandardisedShares:
    """Return the shares of the answers in one group, standardised over what missing answers depend on.

    Parameters
    ----------
    table : CountTable
        Axes: groups, then the variables that missing answers depend on, then the variable itself.
    lead : tuple of int
        Index of the group.

    Notes
    -----
    Formula: P(k) = Σ_d N_d/N · N_dk/A_d over the combinations d of the given variables, where A_d is the
    number of people in d who answered. It holds if missing answers depend on d alone, even if d is disguised,
    because the table counts true combinations. With R_dk = N_dk/A_d, the derivative in N_dj is
    (R_dk − P_k)/N, plus N_d/(N·A_d)·(1[j = k] − R_dk) if j is an answer.
    """
    variable = table.axes[-1]
    answered = np.array(variable.answered_codes)
    cells = table.values[lead].reshape(-1, len(variable))
    totals, answers = cells.sum(axis=1), cells[:, answered].sum(axis=1)
    whole = totals.sum()
    # combinations that hardly occur get no weight, because their share of answers cannot be estimated
    usable = (totals > 1e-9 * max(whole, 1.0)) & (answers > 0)
    whole = totals[usable].sum()
    ratio = np.where(usable[:, None], cells[:, answered] / np.where(usable, answers, 1.0)[:, None], 0.0)
    weight = np.where(usable, totals / whole, 0.0)
    values = weight @ ratio
    gradients = np.zeros((len(answered), *cells.shape))
    for place, code in enumerate(answered):
        own = np.where(usable, (ratio[:, place] - values[place]) / whole, 0.0)
        gradients[place] = own[:, None]
        scale = np.where(usable, weight / np.where(usable, answers, 1.0), 0.0)
        gradients[place][:, answered] -= (scale * ratio[:, place])[:, None]
        gradients[place][:, code] += scale
    full = np.zeros((len(answered), *table.values.shape))
    for place in range(len(answered)):
        full[place][lead] = gradients[place].reshape(table.values.shape[len(lead) :])
    return StandardisedShares(values, full)
