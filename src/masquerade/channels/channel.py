"""A channel: the exact rational probabilities of the reports of each truth."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from masquerade.channels import measures
from masquerade.channels.sampled_channel import SampledChannel
from masquerade.core.axes import Floats
from masquerade.core.errors import ChannelError, SingularChannel
from masquerade.core.util.formatting import log_gamma
from masquerade.estimate.inverse import estimable, generalised_map, unbiased_map

if TYPE_CHECKING:
    from masquerade.core.schema import Category, Variable
    from masquerade.kernels.draw import DrawTable

T = TypeVar("T")
LARGEST_DENOMINATOR = 2**62
DENOMINATOR = 2**32  # denominator of rows that were rounded
MOST_ENTRIES = 2**22  # largest number of entries of a matrix: 2,048 categories
MOST_OPERATIONS = 2**24  # most operations on exact numbers to build a channel
MOST_SMALL_OPERATIONS = 2**30  # the same limit for 64-bit numbers


@dataclass(frozen=True, eq=False)
class Channel:
    """P[l, m] = P(report m | truth l), stored as integer weights of the possible reports of each truth.

    `outcomes[l]` lists the possible reports of truth l, `weights[l]` their integer weights. Short rows are
    padded with zeros. The probabilities of a row are its weights divided by their sum. `labels` names the
    reports if they are not the truths themselves. With several `columns`, a report is a combination of their
    labels, the first column varying slowest. Build a channel with the functions of `masquerade.channels`.

    >>> channel = mq.channels.symmetric(3, "0.4")
    >>> channel.gamma, round(channel.epsilon, 3)
    (Fraction(3, 1), 1.099)
    >>> [str(chance) for chance in channel.row(0).values()]
    ['3/5', '1/5', '1/5']
    >>> round(channel.vulnerability(), 3), channel.is_singular
    (0.6, False)
    """

    outcomes: NDArray[np.int32]
    weights: NDArray[np.int64]
    reports: int
    labels: tuple[Category, ...] | None = None
    columns: tuple[Variable, ...] = ()

    def __post_init__(self) -> None:
        for array in (self.outcomes, self.weights):
            array.flags.writeable = False
        if self.labels is not None and not len(set(self.labels)) == len(self.labels) == self.reports:
            raise ChannelError(f"A channel with {self.reports} reports needs as many different labels.")
        if self.columns and math.prod(map(len, self.columns)) != self.reports:
            raise ChannelError(
                f"The columns of a channel with {self.reports} reports must have as many combinations."
            )

    @property
    def truths(self) -> int:
        """Return K, the number of truths."""
        return len(self.weights)

    @cached_property
    def denominators(self) -> NDArray[np.int64]:
        """Return the sum of the weights of every row."""
        return np.asarray(self.weights.sum(axis=1))

    def row(self, truth: int) -> dict[int, Fraction]:
        """Return the exact probabilities of the possible reports of one truth."""
        total = int(self.denominators[truth])
        pairs = zip(self.outcomes[truth].tolist(), self.weights[truth].tolist(), strict=True)
        return {report: Fraction(weight, total) for report, weight in pairs if weight}

    @property
    def rows(self) -> tuple[tuple[Fraction, ...], ...]:
        """Return the whole matrix as exact fractions."""
        return tuple(map(tuple, self._exact_rows(lambda chance: chance)))

    @property
    def row_texts(self) -> list[list[str]]:
        """Return the whole matrix as text of exact fractions, as policy files write it."""
        return self._exact_rows(str)

    def _exact_rows(self, convert: Callable[[Fraction], T]) -> list[list[T]]:
        """Return the matrix with every entry converted; equal entries of a row are converted once."""
        self.check_size()
        zero, rows = convert(Fraction(0)), list[list[T]]()
        for outcomes, weights, total in zip(
            self.outcomes, self.weights, self.denominators.tolist(), strict=True
        ):
            values, positions = np.unique(weights, return_inverse=True)
            chances = np.empty(len(values), dtype=object)
            chances[:] = [convert(Fraction(weight, total)) for weight in values.tolist()]
            row = np.full(self.reports, zero, dtype=object)
            possible = weights > 0  # padding repeats a report with weight 0
            row[outcomes[possible]] = chances[positions[possible]]
            rows.append(row.tolist())
        return rows

    @cached_property
    def matrix(self) -> Floats:
        """Return P in floating point (K × M)."""
        self.check_size()
        dense = np.zeros((self.truths, self.reports))
        np.add.at(dense, (np.arange(self.truths)[:, None], self.outcomes), self.weights)
        dense /= self.denominators[:, None]
        dense.flags.writeable = False
        return dense

    @cached_property
    def inverse(self) -> Floats:
        """Return G (M × K) with P·G = I; raise `SingularChannel` if no such G exists."""
        result = np.eye(self.truths) if self.is_identity else unbiased_map(self.matrix)
        result.flags.writeable = False
        return result

    @cached_property
    def is_singular(self) -> bool:
        """Return True if the counts of some truths cannot be distinguished."""
        if self.is_identity:
            return False
        try:
            self.inverse  # noqa: B018  (computed to see whether it exists, and kept)
        except SingularChannel:
            return True
        return False

    @cached_property
    def generalised_inverse(self) -> Floats:
        """Return G (M × K), the map from reports to all counts that they determine, for P of any rank.

        G equals `inverse` if that exists. For a query with summing matrix L, the estimate is unbiased if and
        only if P·G·L = L: see `tells`.
        """
        result = generalised_map(self.matrix)
        result.flags.writeable = False
        return result

    def tells(self, sizes: Sequence[int], keep: Sequence[int]) -> bool:
        """Return True if the table of the variables at `keep` can be estimated from joint reports.

        Parameters
        ----------
        sizes : sequence of int
            Number of categories of each variable disguised together.
        keep : sequence of int
            Indices of the variables of the table.

        Returns
        -------
        bool
            True if an unbiased estimate exists.
        """
        cells = lump(tuple(sizes), tuple(keep))
        summing = np.zeros((self.truths, math.prod(sizes[i] for i in keep)))
        summing[np.arange(self.truths), cells] = 1.0
        return estimable(self.matrix, self.generalised_inverse @ summing, summing)

    @cached_property
    def rank(self) -> int:
        """Return the number of linearly independent rows of P."""
        return int(np.linalg.matrix_rank(self.matrix, rtol=1e-12 * self.truths))

    @cached_property
    def is_identity(self) -> bool:
        """Return True if every truth is reported unchanged."""
        own = (self.outcomes == np.arange(self.truths)[:, None]) | (self.weights == 0)
        return self.truths == self.reports and bool(own.all())

    @cached_property
    def sampled_channel(self) -> SampledChannel | None:
        """Return the channels of the samples if the first report column is a random group, None otherwise.

        The group must be assigned independently of the truth. The groups of a survey design are samples whose
        sizes are known, and need not be estimated.
        """
        if len(self.columns) < 2:
            return None
        groups = len(self.columns[0])
        group = self.outcomes // (self.reports // groups)
        weights = np.zeros((self.truths, groups), dtype=np.int64)
        np.add.at(weights, (np.arange(self.truths)[:, None], group), self.weights)
        common = np.gcd.reduce(weights, axis=1, keepdims=True)
        if np.any(weights // common != weights[0] // common[0]):
            return None
        return SampledChannel.of_groups(self.matrix, groups)

    @cached_property
    def gamma(self) -> Fraction | float:
        """Return γ = max over reports m and truths l1, l2 of P[l1, m]/P[l2, m], exactly; inf if unbounded."""
        return measures.gamma(self, tuple(range(self.truths)))

    @property
    def epsilon(self) -> float:
        """Return ln γ, the parameter of local differential privacy."""
        return log_gamma(self.gamma)

    @cached_property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """Return the groups of truths that reports distinguish with certainty; a single group if none are."""
        return measures.blocks(self)

    @cached_property
    def gamma_within(self) -> Fraction | float:
        """Return the largest γ among the truths of one block, if the block itself is known."""
        return max(measures.gamma(self, block) for block in self.blocks)

    def entropy(self, prior: Sequence[float] | None = None) -> float:
        """Return H(X | report) in bits under a prior (uniform by default)."""
        return measures.conditional_entropy(self.matrix, prior)

    def k_anonymity(
        self, prior: Sequence[float] | None = None, threshold: float = 0.0
    ) -> measures.ProbabilisticAnonymity:
        """Return the probabilistic k-anonymity of the reports, (K_p, Dist_K).

        Parameters
        ----------
        prior : sequence of float, optional
            Distribution of the truths. By default uniform.
        threshold : float, optional
            Truths whose posterior probability is at most this are not counted.

        Returns
        -------
        ProbabilisticAnonymity
            The smallest number of possible truths of a report, and the largest distance of their posterior
            distribution from uniform, in bits.

        Notes
        -----
        Formula and reference: `measures.k_anonymity`.
        """
        return measures.k_anonymity(self.matrix, prior, threshold)

    def vulnerability(self, prior: Sequence[float] | None = None) -> float:
        """Return the probability that the best guess from the report is right."""
        return measures.bayes_vulnerability(self.matrix, prior)

    @property
    def capacity(self) -> float:
        """Return the multiplicative Bayes capacity Σ_m max_l P[l, m].

        It is the largest factor by which a report can raise the chance of a right guess, over all priors.
        """
        return float(self.matrix.max(axis=0).sum())

    def then(self, second: Channel) -> Channel:
        """Return this channel followed by another: reports of the first are truths of the second."""
        if self.reports != second.truths:
            raise ChannelError(
                f"A channel with {self.reports} reports cannot be followed by one for {second.truths} truths."
            )
        operations = self.truths * self.reports * second.reports
        if operations > MOST_SMALL_OPERATIONS:
            check_cost(operations)
        scale = math.lcm(*np.unique(second.denominators).tolist())
        onward = _full_weights(second, [scale // total for total in second.denominators.tolist()])
        own = _full_weights(self)
        most = int(self.weights.max()) * max(map(max, onward)) * self.reports
        if most < 2**63:
            product = np.array(own, dtype=np.int64) @ np.array(onward, dtype=np.int64)
        else:
            check_cost(operations, scale.bit_length() + 62)
            product = np.array(own, dtype=object) @ np.array(onward, dtype=object)
        labels = second.labels or (self.labels if second.truths == second.reports else None)
        return from_weights(product.tolist(), labels)

    def marginal(
        self, sizes: Sequence[int], report_sizes: Sequence[int], keep: Sequence[int]
    ) -> Channel | None:
        """Return the channel of a subset of the variables disguised together, if it exists.

        Parameters
        ----------
        sizes : sequence of int
            Number of categories of each variable.
        report_sizes : sequence of int
            Number of labels of each report column.
        keep : sequence of int
            Indices of the variables to keep.

        Returns
        -------
        Channel or None
            None if the report on these variables also depends on the others.

        Notes
        -----
        Formula: the channel Q of the kept variables exists if P·L = L·Q for the summing matrices L (P is
        lumpable).
        Reference: Ma (2006), Proposition 7.2 for symmetric channels; checked here for any channel.
        Cost: O(truths · truths kept), computed once.
        """
        truth_lump = lump(tuple(sizes), tuple(keep))
        report_lump = lump(tuple(report_sizes), tuple(keep))
        kept_truths = math.prod(sizes[i] for i in keep)
        kept_reports = math.prod(report_sizes[i] for i in keep)
        summed = np.zeros((self.truths, kept_reports), dtype=np.int64)
        np.add.at(summed, (np.arange(self.truths)[:, None], report_lump[self.outcomes]), self.weights)
        divisor = np.gcd.reduce(np.concatenate([summed, self.denominators[:, None]], axis=1), axis=1)
        summed //= divisor[:, None]
        first = np.zeros(kept_truths, dtype=np.int64)
        first[truth_lump[::-1]] = np.arange(self.truths)[::-1]
        if not np.array_equal(summed, summed[first[truth_lump]]):
            return None
        return dense(summed[first])

    @cached_property
    def draw_table(self) -> DrawTable:
        """Return the integer thresholds that the sampler uses."""
        from masquerade.kernels.draw import draw_table  # noqa: PLC0415  (numba loads when something is drawn)

        return draw_table(self.outcomes, self.weights, self.reports)

    @cached_property
    def fingerprint(self) -> str:
        """Return a SHA-256 hash of the exact probabilities, the same for all forms of the channel."""
        digest = hashlib.sha256(f"{self.truths}x{self.reports};".encode())
        texts: dict[tuple[int, int], str] = {}  # few distinct probabilities occur often
        for outcomes, weights, total in zip(self.outcomes, self.weights, self.denominators, strict=True):
            whole = int(total)
            row = sorted((r, w) for r, w in zip(outcomes.tolist(), weights.tolist(), strict=True) if w)
            for _, weight in row:
                if (weight, whole) not in texts:
                    texts[weight, whole] = str(Fraction(weight, whole))
            digest.update((",".join([f"{r}:{texts[w, whole]}" for r, w in row]) + ";").encode())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        """Two channels are equal if they give the same probabilities and labels."""
        return (
            isinstance(other, Channel)
            and self.labels == other.labels
            and self.columns == other.columns
            and self.fingerprint == other.fingerprint
        )

    def __hash__(self) -> int:
        """Hash by the probabilities."""
        return hash((self.fingerprint, self.labels, self.columns))

    def __repr__(self) -> str:
        """Show the size, γ and, if small, the rows."""
        shown = f"Channel({self.truths}×{self.reports}, γ={float(self.gamma):.4g})"
        if self.truths * self.reports > 36:
            return shown
        return shown + "".join("\n  " + "  ".join(f"{p!s:>8}" for p in row) for row in self.rows)

    def check_size(self) -> None:
        """Raise ChannelError if the full matrix would be too large."""
        if self.truths * self.reports > MOST_ENTRIES:
            raise ChannelError(
                f"A matrix of {self.truths:,} truths × {self.reports:,} reports is too large to write out; "
                "split the variables into smaller groups."
            )


@lru_cache(maxsize=1024)
def lump(sizes: tuple[int, ...], keep: tuple[int, ...]) -> NDArray[np.int64]:
    """Return, for every joint code of variables of these sizes, the joint code of the kept variables."""
    codes = np.unravel_index(np.arange(math.prod(sizes)), sizes)
    kept = tuple(codes[i] for i in keep)
    return np.ravel_multi_index(kept, tuple(sizes[i] for i in keep)) if keep else np.zeros_like(codes[0])


def dense(weights: NDArray[np.integer[Any]], labels: Iterable[Category] | None = None) -> Channel:
    """Return the channel of a full matrix of integer weights."""
    truths, reports = weights.shape
    outcomes = np.broadcast_to(np.arange(reports, dtype=np.int32), (truths, reports)).copy()
    return Channel(outcomes, weights.astype(np.int64), reports, None if labels is None else tuple(labels))


def check_cost(operations: int, bits: int = 64) -> None:
    """Raise ChannelError if this number of operations on exact numbers of `bits` bits would take too long."""
    if operations > MOST_OPERATIONS or operations * (1024**2 + bits**2) > MOST_OPERATIONS * 1024**2:
        much = f"{operations:,}" if operations < 10**15 else "more than 10^15"
        raise ChannelError(
            f"This channel would take {much} operations on numbers of {bits:,} bits to build; use fewer "
            "categories, fewer variables together, or probabilities with fewer digits."
        )


def _full_weights(channel: Channel, factors: Sequence[int] | None = None) -> list[list[int]]:
    """Return the weights as a full matrix of Python integers, each row times its factor."""
    channel.check_size()
    full = []
    for truth, (outcomes, weights) in enumerate(
        zip(channel.outcomes.tolist(), channel.weights.tolist(), strict=True)
    ):
        factor = 1 if factors is None else factors[truth]
        row = [0] * channel.reports
        for report, weight in zip(outcomes, weights, strict=True):
            row[report] += weight * factor
        full.append(row)
    return full


def from_rows(
    rows: Sequence[Mapping[int, Fraction]], reports: int, labels: Iterable[Category] | None = None
) -> Channel:
    """Return the channel whose row l gives report m with probability rows[l][m]; rows must sum to one."""
    listed = []
    for truth, row in enumerate(rows):
        scale = math.lcm(*(chance.denominator for chance in row.values()))
        weights = {m: chance.numerator * (scale // chance.denominator) for m, chance in row.items()}
        if any(weight < 0 for weight in weights.values()):
            raise ChannelError(f"Row {truth + 1} of the channel has a negative probability.")
        if sum(weights.values()) != scale:
            total = sum(row.values(), Fraction(0))
            raise ChannelError(
                f"Row {truth + 1} of the channel sums to {float(total):.10g}, not to 1"
                + (" (write thirds as '1/3')." if abs(total - 1) < Fraction(1, 1000) else ".")
            )
        listed.append(weights)
    return from_sparse(listed, reports, labels)


def from_weights(rows: Sequence[Sequence[int]], labels: Iterable[Category] | None = None) -> Channel:
    """Return the channel whose row l gives report m in proportion to the whole number rows[l][m]."""
    return from_sparse([dict(enumerate(row)) for row in rows], len(rows[0]) if rows else 0, labels)


def from_sparse(
    rows: Sequence[Mapping[int, int]], reports: int, labels: Iterable[Category] | None = None
) -> Channel:
    """Return the channel with these integer weights in lowest terms, rounded if they exceed 62 bits."""
    entries = [sorted((report, weight) for report, weight in row.items() if weight) for row in rows]
    width = max(map(len, entries), default=0)
    if not width or not min(map(len, entries)):
        raise ChannelError("A channel needs at least one truth and one report.")
    outcomes = np.zeros((len(rows), width), dtype=np.int32)
    weights = np.zeros((len(rows), width), dtype=np.int64)
    for truth, row in enumerate(entries):
        divisor = math.gcd(*(weight for _, weight in row))
        reduced = [weight // divisor for _, weight in row]
        if sum(reduced) > LARGEST_DENOMINATOR:
            if len(rows) * reports > MOST_ENTRIES:
                raise ChannelError("Probabilities of a channel of this size need fewer digits.")
            return rounded_weights([[row.get(m, 0) for m in range(reports)] for row in rows], labels)
        outcomes[truth, : len(row)] = [report for report, _ in row]
        weights[truth, : len(row)] = reduced
    return Channel(outcomes, weights, reports, None if labels is None else tuple(labels))


def round_rows(rows: Sequence[Sequence[Fraction]], labels: Iterable[Category] | None = None) -> Channel:
    """Return a channel with denominator 2³² near `rows` whose γ is not larger.

    Impossible reports stay impossible and possible reports stay possible. If rounding alone would raise γ,
    the rows are first mixed with a small share of the uniform distribution, about 2⁻³²/(γ−1) per report. If γ
    is too near 1 for this to help, all rows become equal.
    """
    scale = math.lcm(*(chance.denominator for row in rows for chance in row))
    return rounded_weights([[int(chance * scale) for chance in row] for row in rows], labels)


def rounded_weights(rows: Sequence[Sequence[int]], labels: Iterable[Category] | None) -> Channel:
    """Return `round_rows` of integer rows, each divided by its sum."""
    names = None if labels is None else tuple(labels)
    totals = [sum(row) for row in rows]
    whole = math.lcm(*totals)
    check_cost(32 * len(rows) * len(rows[0]), whole.bit_length())
    same = [[weight * (whole // total) for weight in row] for row, total in zip(rows, totals, strict=True)]
    bound = _largest_ratio(same)
    sliver = 0
    while 2 * sliver * len(rows[0]) <= DENOMINATOR:
        if sliver and bound < math.inf:
            lifted, total = [_lift_row(row, whole, sliver) for row in same], whole * DENOMINATOR
        else:
            lifted, total = same, whole
        result = dense(np.array([_integer_weights(row, total) for row in lifted], dtype=np.int64), names)
        if result.gamma <= bound:
            return result
        sliver = max(1, 2 * sliver)
    average = [sum(column) for column in zip(*same, strict=True)]
    return dense(np.array([_integer_weights(average, whole * len(rows))] * len(rows), dtype=np.int64), names)


def _largest_ratio(rows: Sequence[Sequence[int]]) -> Fraction | float:
    best = Fraction(1)
    for column in zip(*rows, strict=True):
        if max(column) > 0:
            if min(column) == 0:
                return math.inf
            best = max(best, Fraction(max(column), min(column)))
    return best


def _lift_row(row: Sequence[int], whole: int, sliver: int) -> list[int]:
    """Return `lift` in integers: `row` is over `whole`, `sliver` over 2³², the result over their product."""
    keep = DENOMINATOR - sliver * sum(1 for weight in row if weight)
    return [keep * weight + sliver * whole if weight else 0 for weight in row]


def lift(row: Sequence[Fraction], sliver: Fraction) -> list[Fraction]:
    """Return a row mixed with the uniform distribution over its possible reports; each gets `sliver`."""
    possible = sum(1 for chance in row if chance)
    keep = 1 - sliver * possible
    return [keep * chance + sliver if chance else chance for chance in row]


def _integer_weights(row: Sequence[int], whole: int) -> list[int]:
    """Return integers near row·2³²/whole with the sum 2³² (largest remainders); no possible report gets 0."""
    exact = [weight * DENOMINATOR for weight in row]
    weights = [max(value // whole, 1) if value else 0 for value in exact]
    left = [value - weight * whole for value, weight in zip(exact, weights, strict=True)]
    order = [i for i in sorted(range(len(row)), key=left.__getitem__, reverse=True) if exact[i]]
    short = DENOMINATOR - sum(weights)
    for i in order[: max(short, 0)]:
        weights[i] += 1
    if short < 0:
        weights[max(range(len(row)), key=weights.__getitem__)] += short
    return weights
