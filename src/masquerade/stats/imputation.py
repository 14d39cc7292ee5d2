"""Multiple imputation: disguised records made into clear ones several times, and the results combined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.tally import Tally
from masquerade.core.util.display import Shown
from masquerade.stats._tables import Names, names_of, schema_of

if TYPE_CHECKING:
    import pandas as pd

FEWEST = 2


@runtime_checkable
class ImputingTally(Tally, Protocol):
    """A source of records that can draw truths for them."""

    def imputed(
        self, over: Sequence[str], m: int, *, prior: float = 0.5, seed: int = 0
    ) -> list[dict[str, Any]]:
        """Return category codes of some variables for every record, drawn m times."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pooled(Shown):
    """Estimates from several imputations, combined by Rubin's rules.

    `within` is the mean of their variances, `between` the variance of their estimates; `values` the means.

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
        """Return what was combined, in a line."""
        return f"Combined from {self.m} imputations"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return by which rules."""
        return (f"({100 * self.level:g}% intervals, Rubin's rules; missing: the share of what is not known)",)

    @property
    def params(self) -> pd.Series:
        """Return the combined estimates."""
        return self._series(self.values)

    @property
    def bse(self) -> pd.Series:
        """Return their standard errors: √T, T = W + (1 + 1/m)B."""
        return self._series(np.sqrt(self._total))

    @property
    def df(self) -> pd.Series:
        """Return the degrees of freedom (m − 1)(1 + W/((1 + 1/m)B))², infinite where nothing varies."""
        return self._series(self._df)

    @property
    def missing(self) -> pd.Series:
        """Return the share of the variance that comes from not knowing the truth: (1 + 1/m)B/T."""
        total = np.where(self._total > 0, self._total, 1.0)
        return self._series((1 + 1 / self.m) * self.between / total)

    @property
    def pvalues(self) -> pd.Series:
        """Return the p-values of being 0, by the t-distribution."""
        from scipy.special import stdtr  # noqa: PLC0415  (scipy is slow to import)

        scale = np.where(self._total > 0, np.sqrt(self._total), np.nan)
        return self._series(2 * stdtr(self._df, -np.abs(self.values) / scale))

    def conf_int(self, level: float | None = None) -> pd.DataFrame:
        """Return the ends of intervals, by the t-distribution."""
        import pandas as pd  # noqa: PLC0415
        from scipy.special import stdtrit  # noqa: PLC0415  (scipy is slow to import)

        half = stdtrit(self._df, (1 + (level or self.level)) / 2) * np.sqrt(self._total)
        ends = {"lower": self.values - half, "upper": self.values + half}
        return pd.DataFrame(ends, index=list(self.terms))

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each term."""
        import pandas as pd  # noqa: PLC0415

        ends = self.conf_int()
        columns = {"term": list(self.terms), "estimate": self.values, "stderr": np.sqrt(self._total)}
        columns |= {"df": self._df, "p_value": self.pvalues.to_numpy()}
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
    """Frames of clear records, each drawn from what the reports tell; all of them together say how much.

    One alone pretends to know the truth: analyse every frame and combine, as `pooled` does. They tell no more
    about a person than the report does, which they were drawn from.

    >>> policy = mq.data.students_policy()
    >>> source = mq.tally(mq.disguise(mq.data.students(), policy), policy)
    >>> drawn = mq.stats.impute(source, m=5)
    >>> share = drawn.pooled(lambda frame: ([(frame["pills"] == "yes").mean()], [0.0003]))
    >>> share.m, len(share.params)
    (5, 1)
    """

    frames: tuple[pd.DataFrame, ...]

    def __len__(self) -> int:
        """Return how many frames there are."""
        return len(self.frames)

    def __iter__(self) -> Iterator[pd.DataFrame]:
        """Go through the frames."""
        return iter(self.frames)

    def pooled(self, analysis: Callable[[pd.DataFrame], Any], level: float = 0.95) -> Pooled:
        """Run an analysis on every frame and combine by Rubin's rules.

        It returns a pair (estimates, variances), numbers or lists, or a fitted model with `params` and `bse`
        as those of statsmodels.
        """
        found = [_figures(analysis(frame)) for frame in self.frames]
        return rubin([each[0] for each in found], [each[1] for each in found], found[0][2], level)


def impute(
    source: Tally, over: Names | None = None, m: int = 20, *, prior: float = 0.5, seed: int = 0
) -> Imputations:
    """Return m frames of clear records, drawn from what disguised records tell: proper multiple imputation.

    For tools that need records; where there is a function of tables, that is more precise and quicker. All
    variables of the later analysis must be in `over` (all of the source unless named), the clear ones too:
    what is left out is taken to be unrelated. Beyond a few variables the posterior is too large, and is
    refused. Every frame has shares of its own, drawn from their posterior distribution with the Dirichlet
    `prior`: frames from one best guess of them would show too little doubt. Repeatable by its `seed`.

    Reference: Rubin (1987). Error: `benchmarks/statistics_coverage.py imputation` measures it.

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
        raise InputError(f"One imputation shows no doubt: let 'm' be at least {FEWEST}, better 20. Got {m}.")
    names = tuple(schema) if over is None else names_of(over)
    for name in names:
        schema[name]
    import pandas as pd  # noqa: PLC0415  (frames are made here)

    drawn = source.imputed(names, m, prior=prior, seed=seed)
    return Imputations(
        tuple(
            pd.DataFrame(
                {name: np.array(schema[name].categories, dtype=object)[codes[name]] for name in names}
            ).infer_objects()
            for codes in drawn
        )
    )


def rubin(
    estimates: Sequence[Any],
    variances: Sequence[Any],
    terms: Sequence[str] | None = None,
    level: float = 0.95,
) -> Pooled:
    """Combine the estimates and variances of several imputations, one row for each.

    Formula: the mean of the estimates; T = W + (1 + 1/m)B with the mean W of the variances and the variance B
    of the estimates; t with (m − 1)(1 + W/((1 + 1/m)B))² degrees of freedom.
    Reference: Rubin (1987); Rubin & Schenker (1986).

    >>> pooled = mq.stats.rubin([[0.30], [0.34], [0.32]], [[0.01], [0.01], [0.01]], terms=["pills"])
    >>> print(pooled)
    Combined from 3 imputations
     term estimate stderr     df p_value  lower  upper missing
    pills   0.3200 0.1026 780.12  0.0019 0.1185 0.5215  0.0506
    (95% intervals, Rubin's rules; missing: the share of what is not known)
    """
    values, squares = (
        np.array([np.atleast_1d(row) for row in rows], float) for rows in (estimates, variances)
    )
    if len(values) < FEWEST or values.shape != squares.shape or values.ndim != 2:
        raise InputError("Rubin's rules take as many variances as estimates, from at least 2 imputations.")
    if np.any(squares < 0) or not np.isfinite(values).all() or not np.isfinite(squares).all():
        raise InputError("Estimates must be finite numbers, and variances none below 0.")
    names = tuple(terms) if terms is not None else tuple(f"term {i}" for i in range(1, values.shape[1] + 1))
    if len(names) != values.shape[1]:
        raise InputError(f"{values.shape[1]} estimates need as many terms. Got {len(names)}.")
    return Pooled(
        names, values.mean(axis=0), squares.mean(axis=0), values.var(axis=0, ddof=1), len(values), level
    )


def _figures(found: Any) -> tuple[Any, Any, list[str] | None]:
    if hasattr(found, "params") and hasattr(found, "bse"):
        names = getattr(found.params, "index", None)
        return np.asarray(found.params), np.asarray(found.bse) ** 2, None if names is None else list(names)
    estimates, variances = found
    return estimates, variances, None
