"""Records of a complex survey: strata, clusters and replicate weights, with design-based errors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.axes import Floats
from masquerade.core.covariance import FactorCovariance
from masquerade.core.errors import InputError, Refusal, SchemaError, did_you_mean
from masquerade.core.likelihood_rows import LikelihoodRows, SurveyDesign
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable
from masquerade.core.util.formatting import counted
from masquerade.estimate.evidence import GaussianEvidence
from masquerade.frames.file_reader import Batches, open_batches
from masquerade.frames.native import columns_of
from masquerade.sources.records import Records
from masquerade.sources.tally import tally

Method = Literal["bootstrap", "jackknife", "brr"]
METHODS: tuple[Method, ...] = ("bootstrap", "jackknife", "brr")


class SurveyRecords:
    """A `Tally` over records of a complex survey, disguised or clear.

    Shares of such tables are Hájek's: estimated numbers over the estimated number of people.

    Parameters
    ----------
    data : frame or path
        Records.
    policy : Policy, optional
        Policy that disguised the records. Without it they are clear.
    weights : str, optional
        Column of survey weights. Without it, every record has weight 1.
    strata : str, optional
        Column of the stratum.
    clusters : str, optional
        Column of the primary sampling unit.
    fpc : str, optional
        Column with the number of units of the stratum in the population (clusters, or people if `clusters` is
        not given), for the finite-population correction.
    replicates : sequence of str, optional
        Columns of replicate weights, instead of strata, clusters and fpc.
    method : {"bootstrap", "brr", "jackknife"}, optional
        Method of the replicates.
    scale : float, optional
        Factor of the squared deviations of replicates. Without it, 1/R (bootstrap, brr) or (R − 1)/R
        (jackknife). For Fay's method (brr) with factor f, give 1/(R(1 − f)²).
    schema : Schema or Policy, optional
        Categories of clear records.

    Raises
    ------
    InputError
        If the columns do not describe a design.

    Notes
    -----
    Formula: Σ_h (1 − f_h) n_h/(n_h − 1) Σ_c (z_hc − z̄_h)(z_hc − z̄_h)ᵀ over clusters c of stratum h, z the
    sums of weight times unbiased indicators, f_h = n_h/N_h; for replicates scale·Σ_r (N̂_r − N̂)(N̂_r − N̂)ᵀ.
    A finite-population correction applies to the draw of people only, not to the variance of the disguise.
    Reference: Cochran (1977); Binder (1983); Wolter (2007) for replicates; Hájek (1971).
    Error: intervals use the normal distribution. With fewer than about thirty clusters they are too short.

    >>> students = mq.data.students().assign(weight=2.5)
    >>> schema = mq.data.students_policy().schema
    >>> source = mq.SurveyRecords(students, weights="weight", strata="exams", schema=schema)
    >>> source.answer([mq.Query(by="pills")])[0].total
    1500.0
    """

    def __init__(
        self,
        data: Any,
        policy: Policy | None = None,
        *,
        weights: str | None = None,
        strata: str | None = None,
        clusters: str | None = None,
        fpc: str | None = None,
        replicates: Sequence[str] = (),
        method: Method = "bootstrap",
        scale: float | None = None,
        schema: Schema | Policy | None = None,
    ) -> None:
        if replicates and (strata or clusters or fpc):
            raise InputError("Replicate weights already contain the design: omit strata, clusters and fpc.")
        if replicates and weights is None:
            raise InputError(
                "Replicate weights need the weights of the full sample: name their column ('weights')."
            )
        if isinstance(replicates, str) or method not in METHODS:
            raise InputError(
                f"'replicates' must list columns, and 'method' be one of {', '.join(METHODS)}. Got "
                f"{method!r}."
            )
        extra = [name for name in (weights, strata, clusters, fpc, *replicates) if name is not None]
        if policy is None and schema is None:
            raise InputError("Clear records of a survey need a 'schema' that lists their categories.")
        with ExitStack() as stack:
            if isinstance(data, (str, PathLike)):
                data = stack.enter_context(open_batches(str(data), []))
            columns = _columns(data, extra)
            self.records: Records = tally(data, policy, schema=schema, weights=weights, engine="memory")
        self.schema, self.guarantee, self.n = self.records.schema, self.records.guarantee, self.records.n
        self.clusters = _unit_numbers(columns, clusters, self.n)
        self.strata = (
            np.zeros(self.n, dtype=np.intp) if strata is None else _unit_numbers(columns, strata, self.n)
        )
        self.fraction = self._fractions(None if fpc is None else _floats(columns[fpc], fpc))
        self.replicates = [_floats(columns[name], name) for name in replicates]
        count = max(len(self.replicates), 1)
        self.scale = (
            scale if scale is not None else (count - 1) / count if method == "jackknife" else 1 / count
        )

    def __repr__(self) -> str:
        """Return the number of records and the variables as text."""
        return f"SurveyRecords({self.n:,} records, {self.schema!r})"

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of queries."""
        return self.records.check(queries)

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch, with design-based errors."""
        return [
            self._with_design(query, table)
            for query, table in zip(queries, self.records.answer(queries), strict=True)
        ]

    def likelihood_rows(self, over: Sequence[str]) -> LikelihoodRows:
        """Return P(report | truth) of every record, for the truths of the named variables."""
        return self.records.likelihood_rows(over)

    def indicators(self, over: Sequence[str]) -> Floats:
        """Return the contribution of every record to each cell of `over`, with its survey weight."""
        return self.records.indicators(over)

    @property
    def survey_design(self) -> SurveyDesign:
        """Return the design by which people were drawn."""
        return SurveyDesign(self.clusters, self.strata, self.fraction, tuple(self.replicates), self.scale)

    def _with_design(self, query: Query, table: CountTable) -> CountTable:
        names = (*query.by, *(name for name, _ in query.where))
        gains = self.records.indicators(names).reshape(self.n, *self.schema.shape(names))
        at: tuple[Any, ...] = tuple(self.schema[name].code(label) for name, label in query.where)
        cells = gains[(..., *at)].reshape(self.n, -1)
        if self.replicates:
            own = self.records.weights
            safe = np.where(own > 0, own, 1.0) if own is not None else np.ones(self.n)
            each = np.stack([(weights / safe) @ cells for weights in self.replicates])
            rows = np.sqrt(self.scale) * (each - cells.sum(axis=0))
        else:
            rows = self._linearise(cells, table)
        covariance = FactorCovariance(
            rows.reshape(-1, *table.values.shape), table.covariance, tuple(query.by)
        )
        return CountTable(table.axes, table.values, table.n, GaussianEvidence.of(table.values, covariance))

    def _linearise(self, cells: Floats, table: CountTable) -> Floats:
        """Return rows whose squares sum to the variance between the clusters of every stratum."""
        count = int(self.clusters.max(initial=-1)) + 1
        sums = np.zeros((count, cells.shape[1]))
        np.add.at(sums, self.clusters, cells)
        of = np.zeros(count, dtype=np.intp)
        of[self.clusters] = self.strata
        sizes = np.bincount(of)
        means = np.zeros((len(sizes), cells.shape[1]))
        np.add.at(means, of, sums)
        means /= np.maximum(sizes, 1)[:, None]
        factor = np.sqrt((1 - self.fraction) * sizes / np.maximum(sizes - 1, 1))
        rows = factor[of][:, None] * (sums - means[of])
        if not np.any(self.fraction):
            return np.asarray(rows)
        # the disguise is independent for each person: its variance gets no finite-population correction
        share = float(np.average(self.fraction[self.strata]))
        given = table.covariance.dense(kind="given_records")
        values, vectors = np.linalg.eigh(given)
        return np.concatenate([rows, np.sqrt(np.maximum(share * values, 0.0))[:, None] * vectors.T])

    def _fractions(self, sizes: Floats | None) -> Floats:
        """Return the sampling fraction of every stratum. Raise InputError if a stratum has one cluster."""
        pairs = np.unique(np.stack([self.strata, self.clusters]), axis=1)
        counts = np.bincount(pairs[0], minlength=int(self.strata.max(initial=0)) + 1)
        if len(np.unique(pairs[1])) < pairs.shape[1]:
            raise InputError(
                "A cluster is in two strata: give the clusters of each stratum their own numbers."
            )
        lonely = int(np.count_nonzero(counts == 1))
        if lonely:
            raise InputError(
                f"{counted(lonely, 'stratum', 'strata')} with only one cluster: the variance is unknown. "
                "Merge strata."
            )
        if sizes is None:
            return np.zeros(len(counts))
        whole = np.zeros(len(counts))
        whole[self.strata] = sizes
        if np.any(whole[self.strata] != sizes) or np.any(whole < counts):
            raise InputError(
                "The column 'fpc' must have one number per stratum: its units in the population, at least "
                "as many "
                "as were drawn."
            )
        return np.asarray(counts / np.maximum(whole, 1))


def _columns(data: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return columns of a frame or of opened files."""
    if isinstance(data, Batches):
        batches = list(data.select(names))
        return {name: [value for part in batches for value in part[name].to_pylist()] for name in names}
    frame = columns_of(data)
    missing = [name for name in names if name not in frame]
    if missing:
        raise SchemaError(f"Unknown column {missing[0]!r}.{did_you_mean(missing[0], list(frame))}")
    return {name: frame[name].to_pylist() for name in names}


def _unit_numbers(columns: dict[str, Any], name: str | None, rows: int) -> NDArray[np.intp]:
    """Return the number of each record's unit. If no column is named, each record is its own unit."""
    if name is None:
        return np.arange(rows)
    values = [str(value) for value in columns[name]]
    return np.asarray(np.unique(values, return_inverse=True)[1], dtype=np.intp)


def _floats(values: Sequence[Any], name: str) -> Floats:
    try:
        found = np.array([float(value) for value in values])
    except (TypeError, ValueError):
        raise InputError(f"Column {name!r} must contain numbers, none missing.") from None
    if not np.isfinite(found).all() or np.any(found < 0):
        raise InputError(f"Column {name!r} must contain finite numbers of at least 0.")
    return found
