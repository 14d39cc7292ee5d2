"""Disguised reports aggregated under DAP: a Prio3 histogram as a source of counts.

People disguise their answers by the policy, on their own devices. A report is one cell of the joint table of
all reported variables, and the index of the cell is the measurement of a ``Prio3Histogram`` task. Aggregators
that do not collude learn nothing about a report. The collector learns only the histogram, which gives the
same estimates as the individual reports. This module does not aggregate; Janus, Daphne and others do. The
input is a collector's result as JSON::

    {"masquerade_dap": 1, "policy": "<sha256>", "vdaf": "Prio3Histogram", "report_count": 9, "counts": […]}

or, instead of `counts`, the decrypted aggregate shares in hexadecimal digits with the number of the VDAF
draft that they follow: ``"draft": 18, "shares": ["…", "…"]``. A share is a vector of elements of Field128,
each in 16 bytes, little-endian, as in the test vectors of the VDAF drafts. Shares of any other form give
counts that do not add up to the number of reports, and are refused.

Aggregators may add noise of their own before they send their shares. A result of version 2 states it::

    {"masquerade_dap": 2, …, "draft": 20, "shares": […], "report_count": 3000, "noised_by": 2,
     "dp_strategy": {"dp_strategy": "PureDpDiscreteLaplace", "budget": {"epsilon": [[1], [2]]}}}

`noised_by` is the number of aggregators that added noise, and `dp_strategy` has the form that Janus writes: ε
is a fraction of two numbers, each given by its digits to base 2³², the lowest first. Sums may then be
negative, and need not add up to the number of reports. The estimates correct for the disguise; their standard
errors include the noise.

Reports of bits, as `mq.channels.unary_encoding` makes them, may be summed as ``Prio3SumVec`` or
``Prio3MultihotCountVec`` instead: one sum per bit, which gives the table of each bit alone.

Reference: draft-irtf-cfrg-vdaf §7.4.4, draft-ietf-ppm-dap; the noise of libprio-rs (flp/types/dp.rs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import exp, expm1, inf, isqrt, prod, sqrt
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from masquerade.channels.policy import Policy, policy_of
from masquerade.core.axes import AxisMaps, Floats
from masquerade.core.errors import FileError, InputError, Refusal
from masquerade.core.linear_covariance import CovariancePart
from masquerade.core.query import Query
from masquerade.core.schema import Category
from masquerade.core.table import CountTable
from masquerade.core.tally import raise_refusals
from masquerade.core.util.json_text import read_json
from masquerade.protocols.people.questions import Counts, Question
from masquerade.sources.people.count_rounds import KnownCounts
from masquerade.sources.report_tally import observed_by

VDAF: Final = "Prio3Histogram"
DRAFTS: Final = range(12, 21)  # VDAF drafts whose shares can be read
FIELD: Final = 2**66 * 4611686018427387897 + 1  # the modulus of Field128
BYTES: Final = 16
MOST_CELLS: Final = 10_000
MOST_REPORTS: Final = 2**53
MOST_SHARES: Final = 16
KEYS: Final = {"masquerade_dap", "policy", "vdaf", "report_count", "counts", "draft", "shares"}
NOISE_KEYS: Final = {"noised_by", "dp_strategy"}
FIELD64: Final = 2**32 * 4294967295 + 1  # the modulus of Field64
MOST_DIGITS: Final = 4  # digits of 32 bits in the numerator or denominator of ε
BEYOND_CHANCE: Final = 6.0  # tolerated difference of sums and reports, in standard deviations of the noise


class _Field(NamedTuple):
    """A field of VDAF: its modulus, and the bytes of an element."""

    modulus: int
    size: int


FIELDS: Final = {
    "Prio3Count": _Field(FIELD64, 8),
    "Prio3Sum": _Field(FIELD64, 8),
    "Prio3SumVec": _Field(FIELD, BYTES),
    "Prio3SumVecWithMultiproof": _Field(FIELD64, 8),
    "Prio3Histogram": _Field(FIELD, BYTES),
    "Prio3MultihotCountVec": _Field(FIELD, BYTES),
}
SCALARS: Final = {"Prio3Count", "Prio3Sum"}
BITS: Final = ("Prio3SumVec", "Prio3MultihotCountVec")  # one sum per bit of a report
LAPLACE, NO_NOISE = "PureDpDiscreteLaplace", "NoDifferentialPrivacy"


@dataclass(frozen=True, slots=True)
class DapSums:
    """The sums of a Prio3 aggregation, and the standard error of each sum due to the aggregators' noise.

    Attributes
    ----------
    vdaf : str
        Type of the aggregation.
    values : array
        Sums of the measurements; noise can make them negative.
    stderr : float
        Standard deviation of the noise of each sum, 0 without noise.
    report_count : int
        Number of reports.
    epsilon : float
        ε of a report against anyone who sees the sums, if one noising aggregator is honest.

    Examples
    --------
    >>> result = {"masquerade_dap": 2, "vdaf": "Prio3Count", "report_count": 9, "noised_by": 0, "counts": [4]}
    >>> mq.interop.dap_sums(result).values.tolist()
    [4.0]
    """

    vdaf: str
    values: Floats
    stderr: float
    report_count: int
    epsilon: float


class NoisedCounts(KnownCounts):
    """Counts of reports, with noise of known variance that aggregators added to each cell."""

    def __init__(self, policy: Policy, question: Question, table: Counts, n: int, variance: float) -> None:
        super().__init__(policy, {question: table}, n)
        self._variance: Any = KnownCounts(policy, {question: np.full(table.shape, variance)}, n)

    def noise_parts(self, query: Query) -> tuple[CovariancePart, ...]:
        """Return the variance of the noise in the observed cells of a query.

        The variance of a weighted sum of cells is the sum of their variances times the squared weights.
        """
        parts = []
        for part in self._variance.parts(1):
            [(plan, sums)] = observed_by(part, [part.layout.plan(query)])
            none = np.zeros_like(sums.squares)
            parts.append(CovariancePart(sums.squares, plan.maps, none, 6 * sums.squares**2, (0.0, 0.0)))
        return tuple(parts)


class BitCounts(KnownCounts):
    """Sums of bits as a source: the table of each bit alone, with the noise of aggregators.

    Examples
    --------
    >>> town = mq.Variable("town", ["Ulm", "Trier", "Jena"])
    >>> policy = mq.channels.unary_encoding(town, gamma=3)
    >>> result = {"masquerade_dap": 1, "policy": policy.id, "vdaf": "Prio3MultihotCountVec"}
    >>> source = mq.interop.from_dap(result | {"report_count": 900, "counts": [300, 275, 325]}, policy)
    >>> [source.answer([mq.Query(where={name: True})])[0].values.item() for name in policy.schema]
    [300.0, 200.0, 400.0]
    """

    def __init__(self, policy: Policy, sums: Sequence[int], n: int, variance: float) -> None:
        tables = {
            Question.about([name], {}, policy.observed): np.array([count, n - count], dtype=np.int64)
            for name, count in zip(policy.observed, sums, strict=True)
        }
        super().__init__(policy, tables, n)
        self._variance = variance

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return a refusal for each query about several bits: only sums of single bits were collected."""
        refusals = super().check(queries)
        reason = "The sums are of each bit alone: query one variable at a time."
        return refusals + [Refusal("not_counted", reason, it) for it in queries if len(it.names) > 1]

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch, each query from the table of its bit."""
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        raise_refusals(self.check(queries))
        names = [next(iter(query.names), next(iter(self.schema))) for query in queries]
        tables = super().answer([Query(by=(name,)) for name in names])
        return [
            table.select(dict(query.where)).marginal(query.by)
            for query, table in zip(queries, tables, strict=True)
        ]

    def noise_parts(self, query: Query) -> tuple[CovariancePart, ...]:
        """Return the variance of the noise in the sum of a bit.

        Noise that is added to the count of true is subtracted from the count of false.
        """
        if not self._variance:
            return ()
        (part,) = self.parts(1)
        (axis_map,) = part.layout.plan(query).maps.maps
        matrix = np.eye(2) if axis_map.matrix is None else axis_map.matrix
        maps = AxisMaps((2,), (replace(axis_map, matrix=matrix[:1] - matrix[1:]),))
        variance = np.array([self._variance])
        return (CovariancePart(variance, maps, np.zeros(1), 6 * variance**2, (0.0, 0.0)),)


def to_dap(policy: Policy, vdaf: str = VDAF) -> dict[str, Any]:
    """Return the parameters of the DAP task that collects reports of a policy.

    Parameters
    ----------
    policy : Policy
        Policy of the reports.
    vdaf : str, default "Prio3Histogram"
        Type of the task. For reports of bits also "Prio3SumVec" or "Prio3MultihotCountVec".

    Returns
    -------
    dict
        Type and length of the VDAF, and the meaning of its cells. A person's report is one cell: their
        reports of all `variables`, the last varying fastest. If the reports are bits, it is the list of
        the bits of all `variables`, 1 for true.

    Raises
    ------
    InputError
        If the reports have more than 10,000 cells, or are not bits although `vdaf` sums bits.

    Examples
    --------
    >>> task = mq.interop.to_dap(mq.data.students_policy())
    >>> task["vdaf"], task["length"]
    ('Prio3Histogram', 24)
    """
    length = _length(policy, vdaf)
    return {
        "vdaf": vdaf,
        "length": length,
        **({"max_measurement": 1} if vdaf == "Prio3SumVec" else {}),
        **({"max_weight": length} if vdaf == "Prio3MultihotCountVec" else {}),
        "chunk_length": max(1, isqrt(length - 1) + 1),
        "policy": policy.id,
        "variables": {one.name: list(one.categories) for one in policy.observed.variables},
    }


def dap_cell(policy: Policy, reports: Mapping[str, Category]) -> int:
    """Return the measurement of a person's reports: the index of their cell in `to_dap`.

    Parameters
    ----------
    policy : Policy
        Policy of the reports.
    reports : mapping of str to category
        Reports by variable.

    Returns
    -------
    int
        Index of the cell.

    Raises
    ------
    InputError
        If a report is missing.

    Examples
    --------
    >>> person = {"exams": "few", "year": 2, "pills": "no", "sleep": "good"}
    >>> mq.interop.dap_cell(mq.data.students_policy(), person)
    7
    """
    missing = [name for name in policy.observed if name not in reports]
    if missing:
        raise InputError(f"There is no report of {missing[0]!r}.")
    codes = [one.code(reports[one.name]) for one in policy.observed.variables]
    return int(np.ravel_multi_index(codes, policy.observed.shape(policy.observed)))


def from_dap(values: object, policy: Policy | str | Path) -> KnownCounts:
    """Return a collector's result as a source of counts.

    Parameters
    ----------
    values : mapping
        The result as plain JSON values.
    policy : Policy, str or Path
        Policy of the reports, or its file.

    Returns
    -------
    KnownCounts
        Source of counts.

    Raises
    ------
    InputError
        If the result is not valid, or belongs to a different policy.

    Examples
    --------
    >>> policy = mq.Policy.build({"pills": ["yes", "no"]}, {"pills": mq.channels.binary("0.25")})
    >>> result = {"masquerade_dap": 1, "policy": policy.id, "vdaf": "Prio3Histogram"}
    >>> source = mq.interop.from_dap(result | {"report_count": 1000, "counts": [400, 600]}, policy)
    >>> source.answer([mq.Query(by="pills")])[0].values.round(6).tolist()
    [300.0, 700.0]
    """
    loaded = policy_of(policy)
    checked = _check_keys(values)
    vdaf = checked.get("vdaf")
    if vdaf not in (VDAF, *BITS):
        raise InputError(
            f"'vdaf' must be {VDAF} or, for bits, {' or '.join(BITS)}; dap_sums reads other types."
        )
    if checked.get("policy") != loaded.id:
        raise InputError("the result is of another policy: 'policy' must be the sha256 of this one.")
    length, n = _length(loaded, str(vdaf)), _report_count(checked.get("report_count"), "report_count")
    counts, noise = _sums(checked, str(vdaf), length), _noise(checked, str(vdaf), length, 1)
    if len(counts) != length:
        raise InputError(f"the result must have {length:,} cells. Got {len(counts):,} instead.")
    slack = BEYOND_CHANCE * sqrt(length * noise.variance)
    if vdaf in BITS:
        if any(not -slack <= count <= n + slack for count in counts):
            raise InputError("a sum of bits is not possible with this 'report_count' and noise.")
        return BitCounts(loaded, counts, n, noise.variance)
    if abs(sum(counts) - n) > slack or any(not -slack <= count <= n + slack for count in counts):
        raise InputError("the cells of the histogram do not add up to 'report_count'.")
    shape = loaded.observed.shape(loaded.observed)
    table: Counts = np.array(counts, dtype=np.int64).reshape(shape)
    question = Question.about(loaded.observed, {}, loaded.observed)
    if noise.variance:
        return NoisedCounts(loaded, question, table, n, noise.variance)
    return KnownCounts(loaded, {question: table}, n)


def dap_sums(values: object, length: int = 1, max_measurement: int = 1) -> DapSums:
    """Return the sums in a collector's result for any type of Prio3, with the standard error of their noise.

    Parameters
    ----------
    values : mapping
        The result as plain JSON values; it needs no policy.
    length : int, default 1
        Number of sums of the task.
    max_measurement : int, default 1
        Largest measurement of a Prio3Sum or Prio3SumVec, which scales the noise.

    Returns
    -------
    DapSums
        The sums. For a histogram, `from_dap` returns more.

    Raises
    ------
    InputError
        If the result is not valid.

    Examples
    --------
    >>> task = {"masquerade_dap": 2, "vdaf": "Prio3SumVec", "report_count": 100, "noised_by": 2}
    >>> noise = {"dp_strategy": "PureDpDiscreteLaplace", "budget": {"epsilon": [[1], [1]]}}
    >>> sums = mq.interop.dap_sums(task | {"counts": [40, -3], "dp_strategy": noise}, length=2)
    >>> sums.values.tolist(), round(sums.stderr, 2)
    ([40.0, -3.0], 3.96)
    """
    checked = _check_keys(values)
    vdaf = checked.get("vdaf")
    if not isinstance(vdaf, str) or vdaf not in FIELDS:
        raise InputError(f"'vdaf' must be one of {', '.join(FIELDS)}.")
    if length < 1 or length > MOST_CELLS or (vdaf in SCALARS and length != 1):
        raise InputError(f"'length' must be from 1 to {MOST_CELLS:,}, and 1 for {' and '.join(SCALARS)}.")
    if max_measurement < 1:
        raise InputError("'max_measurement' must be a whole number, at least 1.")
    n = _report_count(checked.get("report_count"), "report_count")
    sums, noise = _sums(checked, str(vdaf), length), _noise(checked, str(vdaf), length, max_measurement)
    if len(sums) != length:
        raise InputError(f"the result must have {length:,} sums. Got {len(sums):,} instead.")
    slack, most = BEYOND_CHANCE * sqrt(length * noise.variance), n * max_measurement
    if any(not -slack <= one <= most + slack for one in sums):
        raise InputError("a sum is not possible with this 'report_count' and noise.")
    return DapSums(str(vdaf), np.array(sums, dtype=float), sqrt(noise.variance), n, noise.epsilon)


def _check_keys(values: object) -> Mapping[str, Any]:
    """Return a result whose version and keys are known."""
    if not isinstance(values, Mapping) or not _is_number(values.get("masquerade_dap"), [1, 2]):
        raise InputError("not a DAP result: it must have 'masquerade_dap': 1 or 2.")
    has_noise = values["masquerade_dap"] == 2
    unknown = sorted(str(key) for key in values.keys() - KEYS - (NOISE_KEYS if has_noise else set()))
    if unknown:
        raise InputError(f"{unknown[0]!r} is not a key of a DAP result.")
    if has_noise and not _is_number(values.get("noised_by"), range(MOST_SHARES + 1)):
        raise InputError("'noised_by' must be the number of aggregators that added noise, 0 for none.")
    if ("counts" in values) == ("shares" in values):
        raise InputError("a result must have either 'counts' or 'shares'.")
    return values


def _sums(values: Mapping[str, Any], vdaf: str, length: int) -> list[int]:
    """Return the sums of a result; with noise, a field element above half of the modulus is negative."""
    may_be_negative = values.get("noised_by", 0) > 0
    if "shares" not in values:
        return _count_list(values["counts"], may_be_negative=may_be_negative)
    if not _is_number(values.get("draft"), DRAFTS):
        raise InputError(
            f"'draft' must be the draft of VDAF that the shares follow, {DRAFTS[0]} to {DRAFTS[-1]}."
        )
    sums = unshard(_shares(values["shares"]), length, FIELDS[vdaf])
    modulus = FIELDS[vdaf].modulus
    return [one - modulus if may_be_negative and one > modulus // 2 else one for one in sums]


class _Noise(NamedTuple):
    """Variance of the noise that all aggregators add to one sum, and ε of the noise of one aggregator."""

    variance: float
    epsilon: float


def _noise(values: Mapping[str, Any], vdaf: str, length: int, max_measurement: int) -> _Noise:
    """Return the noise that a result states.

    Formula: each noising aggregator adds noise from the discrete Laplace distribution with scale t = Δ/ε to
    every sum, where Δ is the most that one report can change all sums together. Its variance is 2q/(1−q)²
    with q = exp(−1/t).
    """
    noised_by, strategy = values.get("noised_by", 0), values.get("dp_strategy")
    name = strategy.get("dp_strategy") if isinstance(strategy, Mapping) else None
    if noised_by == 0:
        if strategy is not None and name != NO_NOISE:
            raise InputError("'dp_strategy' states noise, but 'noised_by' is 0: no aggregator added it.")
        return _Noise(0.0, inf)
    if name != LAPLACE:
        raise InputError(f"'dp_strategy' must be {LAPLACE}: the variance of other noise is not known here.")
    vector = max_measurement * length
    sensitivities = {"Prio3Histogram": 2, "Prio3SumVec": vector, "Prio3SumVecWithMultiproof": vector}
    sensitivity = sensitivities.get(vdaf)
    if sensitivity is None:
        raise InputError(f"{vdaf} has no strategy for noise. These have one: {', '.join(sensitivities)}.")
    epsilon = _epsilon(strategy)
    scale = sensitivity / float(epsilon)
    q = exp(-1 / scale)
    return _Noise(noised_by * 2 * q / expm1(-1 / scale) ** 2, float(epsilon))


def _epsilon(strategy: Any) -> Fraction:
    """Return ε from the digits to base 2³² of its numerator and denominator."""
    budget = strategy.get("budget")
    parts = budget.get("epsilon") if isinstance(budget, Mapping) and set(budget) == {"epsilon"} else None
    if set(strategy) != {"dp_strategy", "budget"} or not isinstance(parts, list) or len(parts) != 2:
        raise InputError("'budget' must have 'epsilon', two lists of digits to base 2^32.")
    numbers = []
    for digits in parts:
        if (
            not isinstance(digits, list)
            or not 1 <= len(digits) <= MOST_DIGITS
            or any(type(digit) is not int or not 0 <= digit < 2**32 for digit in digits)
        ):
            raise InputError("'epsilon' must be two lists of 1 to 4 digits to base 2^32.")
        numbers.append(sum(digit << (32 * i) for i, digit in enumerate(digits)))
    if 0 in numbers or not 1e-6 <= numbers[0] / numbers[1] <= 1e3:
        raise InputError("'epsilon' must be between 1e-6 and 1000.")
    return Fraction(numbers[0], numbers[1])


def read_dap(path: str | Path, policy: Policy | str | Path) -> KnownCounts:
    """Read a collector's result from a JSON file as a source of counts.

    Parameters
    ----------
    path : str or Path
        File to read.
    policy : Policy, str or Path
        Policy of the reports, or its file.

    Returns
    -------
    KnownCounts
        Source of counts.

    Raises
    ------
    FileError
        If the file is not a valid result, or belongs to a different policy.

    Examples
    --------
    >>> import json, pathlib
    >>> policy = mq.Policy.build({"pills": ["yes", "no"]}, {"pills": mq.channels.binary("0.25")})
    >>> result = {"masquerade_dap": 1, "policy": policy.id, "vdaf": "Prio3Histogram", "report_count": 1000}
    >>> _ = pathlib.Path("sums.json").write_text(json.dumps(result | {"counts": [400, 600]}))
    >>> mq.interop.read_dap("sums.json", policy).answer([mq.Query(by="pills")])[0].values.round(6).tolist()
    [300.0, 700.0]
    """
    values = read_json(Path(path))
    try:
        return from_dap(values, policy)
    except InputError as error:
        raise FileError(f"{path}: {error}") from None


def unshard(shares: Sequence[bytes], length: int, field: _Field = FIELDS[VDAF]) -> list[int]:
    """Return the sums of aggregate shares, cell by cell, in the field of their type."""
    modulus, size = field
    if len(shares) < 2:
        raise InputError("a result must have the shares of at least two aggregators.")
    if any(len(share) != size * length for share in shares):
        raise InputError(f"a share of {length:,} cells must have {size * length:,} bytes.")
    elements = [
        [int.from_bytes(share[at : at + size], "little") for at in range(0, len(share), size)]
        for share in shares
    ]
    if any(element >= modulus for share in elements for element in share):
        raise InputError(f"a share contains a number outside Field{8 * size}.")
    return [sum(cell) % modulus for cell in zip(*elements, strict=True)]


def _length(policy: Policy, vdaf: str) -> int:
    """Return the length of the task: the number of cells of all reports, or of bits."""
    if vdaf == VDAF:
        return _cells(policy)
    if vdaf not in BITS:
        raise InputError(f"'vdaf' must be {VDAF}, {' or '.join(BITS)}.")
    if any(one.categories != (True, False) for one in policy.observed.variables) or policy.strata:
        raise InputError(f"{vdaf} sums bits: each report must be true or false, as in a unary encoding.")
    return len(policy.observed)


def _cells(policy: Policy) -> int:
    length = prod(policy.observed.shape(policy.observed))
    if length > MOST_CELLS:
        raise InputError(
            f"A histogram has at most {MOST_CELLS:,} cells; the reports of this policy have {length:,}."
        )
    return length


def _is_number(value: object, among: Sequence[int]) -> bool:
    """Return True if the value is one of these whole numbers: true and 1.0 do not count as 1."""
    return type(value) is int and value in among


def _report_count(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST_REPORTS:
        raise InputError(f"{name!r} must be a whole number from 1 to {MOST_REPORTS:,}.")
    return value


def _count_list(values: object, *, may_be_negative: bool = False) -> list[int]:
    if not isinstance(values, list) or len(values) > MOST_CELLS:
        raise InputError(f"'counts' must be a list of at most {MOST_CELLS:,} whole numbers.")
    if any(isinstance(one, bool) or not isinstance(one, int) or abs(one) > MOST_REPORTS for one in values):
        raise InputError("'counts' must be whole numbers.")
    if not may_be_negative and any(one < 0 for one in values):
        raise InputError("'counts' must be whole numbers of 0 or more: without noise nothing is below 0.")
    return values


def _shares(values: object) -> list[bytes]:
    if not isinstance(values, list) or not 2 <= len(values) <= MOST_SHARES:
        raise InputError(f"'shares' must be a list of 2 to {MOST_SHARES} texts.")
    try:
        return [bytes.fromhex(one) for one in values]
    except (TypeError, ValueError):
        raise InputError("'shares' must be texts of hexadecimal digits.") from None
