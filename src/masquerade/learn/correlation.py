"""Correlations of variables from two-way tables, and clusters of correlated variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from masquerade.core.answered_tally import MissingAnswers, missing_answers_of, people_who_answered
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.core.schema import Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import printable
from masquerade.learn.model_file import missing_lines

if TYPE_CHECKING:
    import pandas as pd

Scores = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Correlations(Printed):
    """Correlations of all pairs of variables. Estimates may exceed 1.

    Attributes
    ----------
    names : tuple of str
        The variables.
    values : ndarray
        Square matrix of correlations.
    stderr : ndarray
        Standard errors of the correlations; 0 on the diagonal.
    n : int
        Number of records.
    missing : MissingAnswers or None
        Shares of missing answers, and how they were treated.

    Examples
    --------
    >>> found = mq.learn.correlations(mq.tally(mq.data.students()), ["exams", "pills", "sleep"])
    >>> found.values.round(2).tolist()
    [[1.0, 0.22, -0.08], [0.22, 1.0, -0.36], [-0.08, -0.36, 1.0]]
    """

    names: tuple[str, ...]
    values: Floats
    stderr: Floats
    n: int
    missing: MissingAnswers | None = None

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: first, second, correlation, stderr; one row per pair."""
        import pandas as pd  # noqa: PLC0415  (learners load pandas only when a frame is asked for)

        pairs = list(combinations(range(len(self.names)), 2))
        return pd.DataFrame(
            {
                "first": [self.names[i] for i, _ in pairs],
                "second": [self.names[j] for _, j in pairs],
                "correlation": [self.values[pair] for pair in pairs],
                "stderr": [self.stderr[pair] for pair in pairs],
            }
        )

    def clusters(self, count: int) -> tuple[tuple[str, ...], ...]:
        """Return the variables in `count` clusters of correlated variables.

        Formula: average linkage over the distances 1 − |r|; negative values, due to noise, count as 0.
        Reference: Sokal & Michener (1958).
        """
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= len(self.names):
            raise InputError(f"'count' must be from 1 to {len(self.names)}. Got {count!r} instead.")
        if len(self.names) == 1:
            return (self.names,)
        from scipy.cluster.hierarchy import fcluster, linkage  # noqa: PLC0415  (slow to load)

        rows, columns = np.triu_indices(len(self.names), 1)
        distances = np.maximum(1 - np.abs(self.values[rows, columns]), 0.0)
        numbers = fcluster(linkage(distances, "average"), count, "maxclust").tolist()
        found: dict[int, list[str]] = {}
        for name, number in zip(self.names, numbers, strict=True):
            found.setdefault(number, []).append(name)
        return tuple(tuple(names) for names in found.values())

    @printable
    def summary(self) -> str:
        """Return the pairs as text, the strongest first."""
        frame = self.to_frame()
        order = frame["correlation"].abs().sort_values(ascending=False).index
        body = frame.loc[order].to_string(index=False, float_format=lambda x: f"{x:.4f}")
        title = f"Correlations of {len(self.names)} variables, n = {self.n:,}"
        return "\n".join([title, body, *missing_lines(self.missing)])


def correlations(
    source: Tally, names: Sequence[str] | None = None, scores: Scores | None = None
) -> Correlations:
    """Estimate the correlations of variables from their two-way tables.

    Parameters
    ----------
    source : Tally
        Any source of counts, including projections.
    names : sequence of str, optional
        Variables. Without it, all.
    scores : mapping of str to sequence of float, optional
        Numbers of the categories of a variable. Without scores, numeric categories keep their values, and two
        categories count as 0 and 1.

    Returns
    -------
    Correlations
        Correlation and standard error of every pair, among the people who answered both variables.

    Raises
    ------
    InputError
        If a variable has no numbers or does not vary, or there are no records.

    Notes
    -----
    Formula: r = Σ p_xy u_x v_y with u, v the standardized scores. Up to the means, this is the inner product
    of two ±1 columns, which a projection preserves.
    Reference: Meng, Sivakumar & Kargupta (2004) §2, for the Gram matrix of columns.
    Cost: one table per pair.
    Error: by the delta method, of u_x v_y − r(u_x² + v_y²)/2 under the table's covariance.

    Examples
    --------
    >>> print(mq.learn.correlations(mq.tally(mq.data.students()), ["exams", "pills", "sleep"]).summary())
    Correlations of 3 variables, n = 600
    first second  correlation  stderr
    pills  sleep      -0.3600  0.0409
    exams  pills       0.2210  0.0382
    exams  sleep      -0.0776  0.0407
    """
    source = people_who_answered(source)
    chosen = tuple(source.schema if names is None else dict.fromkeys(names))
    if len(chosen) < 2:
        raise InputError("Correlations need at least two variables.")
    numbers = {name: _scores_of(source.schema[name], scores) for name in chosen}
    pairs = list(combinations(range(len(chosen)), 2))
    tables = source.answer([Query(by=(chosen[i], chosen[j])) for i, j in pairs])
    values, stderr = np.eye(len(chosen)), np.zeros((len(chosen), len(chosen)))
    for (i, j), table in zip(pairs, tables, strict=True):
        values[i, j], stderr[i, j] = _correlation(table, numbers[chosen[i]], numbers[chosen[j]])
        values[j, i], stderr[j, i] = values[i, j], stderr[i, j]
    return Correlations(chosen, values, stderr, tables[0].n, missing_answers_of(source))


def _scores_of(variable: Variable, scores: Scores | None) -> Floats:
    given = (scores or {}).get(variable.name)
    if given is None:
        labels = variable.categories
        if all(isinstance(label, (int, float)) and not isinstance(label, bool) for label in labels):
            given = [float(label) for label in labels]
        elif len(labels) == 2:
            given = [0.0, 1.0]
        else:
            raise InputError(
                f"{variable.name!r} has {len(labels)} categories that are not numbers: give 'scores'."
            )
    found = np.asarray(given, dtype=float)
    if found.shape != (len(variable),) or not np.all(np.isfinite(found)):
        raise InputError(f"The scores of {variable.name!r} must be {len(variable)} numbers.")
    return found


def _correlation(table: CountTable, first: Floats, second: Floats) -> tuple[float, float]:
    if not table.total > 0:
        raise InputError("There are no records to correlate.")
    shares = table.values / table.total
    sides = []
    for share, score, name in zip(
        (shares.sum(axis=1), shares.sum(axis=0)), (first, second), table.names, strict=True
    ):
        centred = score - share @ score
        variance = float(share @ centred**2)
        if variance <= 0:
            raise InputError(f"{name!r} has no positive estimated variance, so it has no correlation.")
        sides.append(centred / np.sqrt(variance))
    u, v = sides[0][:, None], sides[1][None, :]
    r = float((shares * u * v).sum())
    slopes = (u * v - r * (u**2 + v**2) / 2) / table.total
    return r, float(np.sqrt(max(table.covariance.quadratic(slopes), 0.0)))
