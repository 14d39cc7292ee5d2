"""Multiple imputation: draw clear records from disguised records several times and combine the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.schema import Variable
from masquerade.core.tally import Tally
from masquerade.core.util.display import Shown
from masquerade.stats._tables import Names, names_of, schema_of, table_of
from masquerade.stats.missing_values import check_missing, missing_notes

if TYPE_CHECKING:
    import pandas as pd

Codes = NDArray[np.intp]
ImputedMissing = Literal["answered", "category", "at-random"]
FEWEST = 2


@runtime_checkable
class ImputingTally(Tally, Protocol):
    """A source of records that can draw their true values."""

    def impute(
        self, over: Sequence[str], m: int, *, prior: float = 0.5, seed: int = 0
    ) -> list[dict[str, Any]]:
        """Return `m` draws of the true category codes of the variables `over`, for each record.

        Parameters
        ----------
        over : sequence of str
            Variables to draw jointly.
        m : int
            Number of draws.
        prior : float, default 0.5
            Parameter of the Dirichlet prior of the cell probabilities.
        seed : int, default 0
            Seed of the draws.

        Returns
        -------
        list of dict
            Codes by variable, one dictionary per draw.
        """


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pooled(Shown):
    """Estimates from several imputations, pooled by Rubin's rules.

    Attributes
    ----------
    terms : tuple of str
        Names of the estimates.
    values : array
        Means of the estimates over the imputations.
    within : array
        Means of the variances of the estimates.
    between : array
        Variances of the estimates between imputations.
    m : int
        Number of imputations.
    level : float
        Confidence level of the intervals.

    Examples
    --------
    >>> pooled = mq.stats.rubin([[0.30], [0.34], [0.32]], [[0.01], [0.01], [0.01]], terms=["pills"])
    >>> pooled.params.round(2).to_dict(), pooled.missing.round(2).to_dict()
    ({'pills': 0.32}, {'pills': 0.05})
    """

    result_name: ClassVar[str] = "Pooled"
    terms: tuple[str, ...]
    values: Floats
    within: Floats
    between: Floats
    m: int
    level: float = 0.95

    @property
    def heading(self) -> str:
        """Return the number of imputations."""
        return f"Combined from {self.m} imputations"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the confidence level and the rules."""
        level = f"{100 * self.level:g}%"
        return (f"({level} intervals, Rubin's rules; missing: the fraction of missing information)",)

    @property
    def params(self) -> pd.Series:
        """Return the combined estimates."""
        return self._series(self.values)

    @property
    def bse(self) -> pd.Series:
        """Return the standard errors √T, where T = W + (1 + 1/m)B."""
        return self._series(np.sqrt(self._total))

    @property
    def df(self) -> pd.Series:
        """Return the degrees of freedom; infinite where all imputations agree."""
        return self._series(self._df)

    @property
    def missing(self) -> pd.Series:
        """Return the fraction of missing information, (1 + 1/m)B/T."""
        total = np.where(self._total > 0, self._total, 1.0)
        return self._series((1 + 1 / self.m) * self.between / total)

    @property
    def pvalues(self) -> pd.Series:
        """Return the p-values against 0, by the t distribution."""
        from scipy.special import stdtr  # noqa: PLC0415  (scipy is slow to import)

        return self._series(2 * stdtr(self._df, -np.abs(self.tvalues.to_numpy())))

    @property
    def tvalues(self) -> pd.Series:
        """Return the estimates over their standard errors."""
        return self._series(self.values / np.where(self._total > 0, np.sqrt(self._total), np.nan))

    def conf_int(self, level: float | None = None) -> pd.DataFrame:
        """Return confidence intervals, by the t distribution."""
        import pandas as pd  # noqa: PLC0415
        from scipy.special import stdtrit  # noqa: PLC0415  (scipy is slow to import)

        half = stdtrit(self._df, (1 + (level or self.level)) / 2) * np.sqrt(self._total)
        ends = {"lower": self.values - half, "upper": self.values + half}
        return pd.DataFrame(ends, index=list(self.terms))

    def to_frame(self) -> pd.DataFrame:
        """Return a frame with one row per term."""
        import pandas as pd  # noqa: PLC0415

        ends = self.conf_int()
        columns = {"term": list(self.terms), "estimate": self.values, "stderr": np.sqrt(self._total)}
        columns |= {"t": self.tvalues.to_numpy(), "df": self._df, "p_value": self.pvalues.to_numpy()}
        columns |= {"lower": ends["lower"].to_numpy(), "upper": ends["upper"].to_numpy()}
        return pd.DataFrame(columns | {"missing": self.missing.to_numpy()})

    @property
    def _total(self) -> Floats:
        return self.within + (1 + 1 / self.m) * self.between

    @property
    def _df(self) -> Floats:
        spread = (1 + 1 / self.m) * self.between
        ratio = np.divide(self.within, spread, out=np.full_like(spread, np.inf), where=spread > 0)
        return np.asarray((self.m - 1) * (1 + ratio) ** 2)

    def _series(self, values: Floats) -> pd.Series:
        import pandas as pd  # noqa: PLC0415

        return pd.Series(values, index=list(self.terms))


@dataclass(frozen=True, slots=True, eq=False)
class Imputations:
    """Frames of clear records drawn from disguised records.

    A single frame hides the uncertainty about the truth: analyse every frame and combine the results with
    `pool`. The frames reveal no more about a person than the report they were drawn from.

    Examples
    --------
    >>> policy = mq.data.students_policy()
    >>> source = mq.tally(mq.disguise(mq.data.students(), policy), policy)
    >>> drawn = mq.stats.impute(source, m=5)
    >>> share = drawn.pool(lambda frame: ([(frame["pills"] == "yes").mean()], [0.0003]))
    >>> share.m, len(share.params)
    (5, 1)
    """

    frames: tuple[pd.DataFrame, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.frames)

    def __iter__(self) -> Iterator[pd.DataFrame]:
        """Iterate over the frames."""
        return iter(self.frames)

    def pool(self, analysis: Callable[[pd.DataFrame], Any], level: float = 0.95) -> Pooled:
        """Run an analysis on every frame and combine the results by Rubin's rules.

        Parameters
        ----------
        analysis : callable
            Takes a frame. Returns a pair (estimates, variances) of numbers or lists, or a fitted model with
            `params` and `bse` as in statsmodels.
        level : float, default 0.95
            Confidence level of the intervals.

        Returns
        -------
        Pooled
            Combined estimates.
        """
        results = [_estimates_of(analysis(frame)) for frame in self.frames]
        return rubin([each[0] for each in results], [each[1] for each in results], results[0][2], level)


def impute(
    source: Tally,
    over: Names | None = None,
    m: int = 20,
    *,
    missing: ImputedMissing = "answered",
    given: Names = (),
    prior: float = 0.5,
    seed: int = 0,
) -> Imputations:
    """Draw `m` frames of clear records from disguised records (proper multiple imputation).

    Use it for tools that need records. If `masquerade.stats` has a function for the analysis, that function
    is more precise and faster.

    Parameters
    ----------
    source : Tally
        Source of records in memory, ``mq.tally(frame, policy)``.
    over : str or iterable of str, optional
        Variables to impute jointly; by default all. Include all variables of the later analysis, also the
        clear variables: omitted variables are treated as unrelated. The joint posterior limits this to a few
        variables.
    m : int, default 20
        Number of frames.
    missing : {"answered", "category", "at-random"}, default "answered"
        "answered" leaves missing answers empty (None), "category" keeps them as categories, and "at-random"
        draws them from the answers of people with the same categories of the variables in `given`.
    given : str or iterable of str, optional
        Variables that missing answers depend on, for "at-random". They are imputed as well.
    prior : float, default 0.5
        Parameter of the Dirichlet prior of the cell probabilities.
    seed : int, default 0
        Seed of the draws: equal seeds give equal frames.

    Returns
    -------
    Imputations
        `m` frames with one row per record, and notes on missing answers.

    Raises
    ------
    InputError
        If the source has no records in memory, `m` is below 2, or the joint table is too large.

    Notes
    -----
    Each frame uses its own cell probabilities, drawn from their posterior. Frames drawn from one best
    estimate would understate the uncertainty. Missing answers are drawn by the approximate Bayesian bootstrap
    within each combination of the variables in `given`: donors are drawn from the answers, then the missing
    answers from the donors.
    Reference: Rubin (1987); Rubin & Schenker (1986).
    Error: measured by `benchmarks/statistics_coverage.py imputation`.

    Examples
    --------
    >>> policy = mq.data.students_policy()
    >>> source = mq.tally(mq.disguise(mq.data.students(), policy), policy)
    >>> drawn = mq.stats.impute(source, m=5)
    >>> [frame.shape for frame in drawn]
    [(600, 4), (600, 4), (600, 4), (600, 4), (600, 4)]
    """
    schema = schema_of(source)
    if not isinstance(source, ImputingTally):
        raise InputError("Imputations need a source of records in memory: mq.tally(frame, policy).")
    if m < FEWEST:
        raise InputError(
            f"'m' must be at least {FEWEST}, better 20, to show the uncertainty. Got {m} instead."
        )
    drivers = names_of(given)
    check_missing(missing, drivers)
    if missing not in get_args(ImputedMissing):
        raise InputError("Bounds exist for shares, means and quantiles; imputations need an assumption.")
    names = tuple(schema) if over is None else tuple(dict.fromkeys([*names_of(over), *drivers]))
    for name in names:
        schema[name]
    import pandas as pd  # noqa: PLC0415  (slow to import)

    drawn = source.impute(names, m, prior=prior, seed=seed)
    absent = [schema[name] for name in names if schema[name].missing]
    if missing == "at-random":
        generator = np.random.default_rng([seed, m, 1])
        for codes in drawn:
            cells = _cells_of([codes[name] for name in drivers])
            for variable in absent:
                if variable.name not in drivers:
                    codes[variable.name] = _draw_answers(variable, codes[variable.name], cells, generator)
    labels = {name: _labels_of(schema[name], missing) for name in names}
    notes = [
        note
        for variable in absent
        for note in missing_notes(table_of(source, (variable.name,)), missing, drivers)
    ]
    frames = [pd.DataFrame({name: labels[name][codes[name]] for name in names}) for codes in drawn]
    return Imputations(tuple(frame.infer_objects() for frame in frames), tuple(notes))


def _labels_of(variable: Variable, missing: ImputedMissing) -> NDArray[np.object_]:
    """Return the labels of a column; None for a missing answer unless it is a category."""
    absent = () if missing == "category" else variable.missing
    return np.array([None if label in absent else label for label in variable.categories], dtype=object)


def _cells_of(columns: Sequence[Any]) -> Codes:
    """Return one number per record, equal for records with the same codes in all columns."""
    _, cells = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return np.asarray(cells, dtype=np.intp).ravel()


def _draw_answers(variable: Variable, codes: Codes, cells: Codes, generator: np.random.Generator) -> Codes:
    """Return codes in which missing answers are replaced by answers of people in the same cell."""
    is_missing = ~np.isin(codes, variable.answered_codes)
    result = np.array(codes)
    for cell in np.unique(cells[is_missing]):
        own = cells == cell
        donors, blanks = codes[own & ~is_missing], np.flatnonzero(own & is_missing)
        if len(donors):  # in a cell without answers, the missing answers stay missing
            pool = generator.choice(donors, len(donors))
            result[blanks] = generator.choice(pool, len(blanks))
    return result


def rubin(
    estimates: Sequence[Any],
    variances: Sequence[Any],
    terms: Sequence[str] | None = None,
    level: float = 0.95,
) -> Pooled:
    """Combine the estimates and variances of several imputations by Rubin's rules.

    Parameters
    ----------
    estimates : sequence
        Estimates, one row per imputation.
    variances : sequence
        Variances of the estimates, in the same shape.
    terms : sequence of str, optional
        Names of the estimates.
    level : float, default 0.95
        Confidence level of the intervals.

    Returns
    -------
    Pooled
        Combined estimates.

    Raises
    ------
    InputError
        If shapes differ, there are fewer than two imputations, or a variance is negative.

    Notes
    -----
    Formula: the mean of the estimates; T = W + (1 + 1/m)B with the mean W of the variances and the variance B
    of the estimates; t with (m − 1)(1 + W/((1 + 1/m)B))² degrees of freedom.
    Reference: Rubin (1987); Rubin & Schenker (1986).

    Examples
    --------
    >>> pooled = mq.stats.rubin([[0.30], [0.34], [0.32]], [[0.01], [0.01], [0.01]], terms=["pills"])
    >>> print(pooled)
    Combined from 3 imputations
     term estimate stderr      t     df p_value  lower  upper missing
    pills   0.3200 0.1026 3.1179 780.12  0.0019 0.1185 0.5215  0.0506
    (95% intervals, Rubin's rules; missing: the fraction of missing information)
    """
    values, squares = (
        np.array([np.atleast_1d(row) for row in rows], float) for rows in (estimates, variances)
    )
    if len(values) < FEWEST or values.shape != squares.shape or values.ndim != 2:
        raise InputError("Rubin's rules need a variance for each estimate, from at least 2 imputations.")
    if np.any(squares < 0) or not np.isfinite(values).all() or not np.isfinite(squares).all():
        raise InputError("Estimates must be finite numbers, and variances finite and not negative.")
    names = tuple(terms) if terms is not None else tuple(f"term {i}" for i in range(1, values.shape[1] + 1))
    if len(names) != values.shape[1]:
        raise InputError(f"{values.shape[1]} estimates need {values.shape[1]} terms. Got {len(names)}.")
    return Pooled(
        names, values.mean(axis=0), squares.mean(axis=0), values.var(axis=0, ddof=1), len(values), level
    )


def _estimates_of(result: Any) -> tuple[Any, Any, list[str] | None]:
    if hasattr(result, "params") and hasattr(result, "bse"):
        names = getattr(result.params, "index", None)
        return np.asarray(result.params), np.asarray(result.bse) ** 2, None if names is None else list(names)
    estimates, variances = result
    return estimates, variances, None
