"""Which associations a set of records can show at all: the power of a test for every pair of variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import chi_square_point
from masquerade.core.errors import InputError
from masquerade.core.plots.drawing import Dots, dot_plot
from masquerade.core.query import Query
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.core.util.display import Shown

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SMALL, MEDIUM, LARGE = 0.1, 0.3, 0.5  # sizes φ of associations (Cohen 1988)
MOST_CELLS = 400
MOST_PAIRS = 2000


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VisiblePairs(Shown):
    """The least association that a test detects in these records, for every pair of variables.

    Attributes
    ----------
    pairs : tuple of (str, str)
        Pairs of variables.
    least : ndarray
        Least φ that is detected with the requested power; infinite if no possible association is.
    medium : ndarray
        Power to detect an association of φ = 0.3, NaN if it is impossible with these margins.
    largest : ndarray
        Largest φ that the margins allow, if the variables rise or fall together.
    n : int
        Number of records.
    power : float
        Requested power.
    level : float
        Level of each test, corrected for the number of pairs.
    omitted : tuple of str
        Pairs that cannot be counted, each with the reason.

    Examples
    --------
    >>> from masquerade.plan import visible_pairs
    >>> result = visible_pairs(mq.tally(mq.data.students()), ["exams", "pills"])
    >>> result.pairs, result.least.round(3).tolist()
    ((('exams', 'pills'),), [0.111])
    """

    result_name: ClassVar[str] = "VisiblePairs"
    percent: ClassVar[tuple[str, ...]] = ("power_medium",)
    pairs: tuple[tuple[str, str], ...]
    least: Floats
    medium: Floats
    largest: Floats
    n: int
    power: float
    level: float
    omitted: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        """Return the title and the number of records."""
        return f"Associations that these records can show, n = {self.n:,}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the meaning of the numbers, and the pairs that show nothing."""
        blind = [f"{a} – {b}" for (a, b), phi in zip(self.pairs, self.least, strict=True) if phi == math.inf]
        tests = f"a test at {self.level:.2g}, which is {self.level * len(self.pairs):.0%} corrected"
        sizes = f"{SMALL:g} for a small, {MEDIUM:g} for a medium and {LARGE:g} for a large association"
        notes = [
            f"(least φ: detected with power {self.power:.0%} by {tests} for {len(self.pairs)} pairs)",
            f"(power medium: of φ = {MEDIUM:g}; φ is {sizes})",
        ]
        if blind:
            listed = ", ".join(blind[:10]) + (f" and {len(blind) - 10} more" if len(blind) > 10 else "")
            notes.append(
                f"No test can show an association, even if one variable rises with the other: {listed}."
            )
        if len(blind) < len(self.pairs):
            notes.append("An association weaker than the least φ may exist without being found.")
        return (*notes, *self.omitted)

    def to_frame(self) -> pd.DataFrame:
        """Return a frame: first, second, least_phi, power_medium, largest_phi, shows."""
        import pandas as pd  # noqa: PLC0415  (needed for frames only)

        return pd.DataFrame(
            {
                "first": [a for a, _ in self.pairs],
                "second": [b for _, b in self.pairs],
                "least_phi": self.least,
                "power_medium": self.medium,
                "largest_phi": self.largest,
                "shows": [describe_size(phi) for phi in self.least],
            }
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the least detectable φ of every pair, with a line at a medium association."""
        values = np.where(np.isfinite(self.least), self.least, np.nan)
        labels = [f"{a} – {b}" for a, b in self.pairs]
        xlabel = f"least φ detected with power {self.power:.0%}"
        return dot_plot(labels, {"": Dots(values)}, ax, xlabel=xlabel, title=self.heading, mark=MEDIUM)


def describe_size(phi: float) -> str:
    """Return the sizes of associations that are detected, from the least detected φ.

    >>> describe_size(0.08), describe_size(0.4), describe_size(float("inf"))
    ('small associations', 'large associations', 'nothing')
    """
    for limit, size in ((SMALL, "small"), (MEDIUM, "medium"), (LARGE, "large")):
        if phi <= limit:
            return f"{size} associations"
    return "nothing" if phi == math.inf else "only very large associations"


def visible_pairs(
    source: Tally, variables: Sequence[str] | None = None, *, power: float = 0.8, level: float = 0.05
) -> VisiblePairs:
    """Compute which associations between pairs of variables these records can show at all.

    Parameters
    ----------
    source : Tally
        Records, disguised or clear.
    variables : sequence of str, optional
        Variables whose pairs are examined. By default all.
    power : float, default 0.8
        Probability with which an association must be detected.
    level : float, default 0.05
        Level of the tests of all pairs together; each test has a level corrected by their number.

    Returns
    -------
    VisiblePairs
        The least detected association of every pair.

    Raises
    ------
    InputError
        If a variable is unknown, there are fewer than two, or no pair can be counted.

    Notes
    -----
    Formula: an association φ changes the table by δ, towards the table in which both variables rise together
    as far as their margins allow, or one falls as the other rises. With the gradients L of N_ij − N_i·N_·j/N
    at the estimated margins, the statistic has the non-centrality (Lᵀδ)ᵀ(LᵀCL)⁻¹(Lᵀδ), where C is the
    covariance of the estimated counts. On clear records this is nφ².
    Reference: Cohen (1988); Rao & Scott (1981).
    Cost: one query per pair.
    Error: C is estimated. The approximation is for many records per report.

    Examples
    --------
    >>> from masquerade.plan import visible_pairs
    >>> print(visible_pairs(mq.tally(mq.data.students()), ["exams", "pills", "sleep"]))
    Associations that these records can show, n = 600
    first second least_phi power_medium largest_phi               shows
    exams  pills    0.1287       100.0%      0.5163 medium associations
    exams  sleep    0.1317       100.0%      0.7129 medium associations
    pills  sleep    0.1460       100.0%      0.7243 medium associations
    (least φ: detected with power 80% by a test at 0.017, which is 5% corrected for 3 pairs)
    (power medium: of φ = 0.3; φ is 0.1 for a small, 0.3 for a medium and 0.5 for a large association)
    An association weaker than the least φ may exist without being found.
    """
    names = tuple(source.schema) if variables is None else tuple(variables)
    for name in names:
        source.schema[name]
    if not 0 < power < 1 or not 0 < level < 1:
        raise InputError("'power' and 'level' must be between 0 and 1, such as 0.8 and 0.05.")
    candidates = list(combinations(dict.fromkeys(names), 2))
    if not candidates:
        raise InputError("There must be at least two variables: an association is between two.")
    if len(candidates) > MOST_PAIRS:
        raise InputError(
            f"{len(candidates):,} pairs are too many (at most {MOST_PAIRS:,}): name fewer variables."
        )
    omitted, counted = [], []
    for pair in candidates:
        shape = source.schema.shape(pair)
        if source.check([Query(by=pair)]):
            omitted.append(f"{pair[0]} – {pair[1]} cannot be counted together.")
        elif min(shape) < 2 or math.prod(shape) > MOST_CELLS:
            omitted.append(f"{pair[0]} – {pair[1]} has {math.prod(shape):,} cells and is not examined.")
        else:
            counted.append(pair)
    if not counted:
        raise InputError("No pair of these variables can be counted.")
    tables = source.answer([Query(by=pair) for pair in counted])
    each = level / len(counted)
    rows = [_examine(table, power, each) for table in tables]
    least, medium, largest = (np.array(column) for column in zip(*rows, strict=True))
    n = max(table.n for table in tables)
    return VisiblePairs(tuple(counted), least, medium, largest, n, power, each, tuple(omitted))


def _examine(table: CountTable, power: float, level: float) -> tuple[float, float, float]:
    """Return the least detected φ, the power at a medium φ, and the largest possible φ."""
    from scipy import optimize, stats  # noqa: PLC0415  (slow to import)

    from masquerade.plan.power import largest_association  # noqa: PLC0415  (loads SciPy)

    margins = [_shares(table.values.sum(axis=1 - axis)) for axis in (0, 1)]
    change, largest = largest_association(*margins)
    unit = noncentrality(table, margins, change)
    freedom = (len(margins[0]) - 1) * (len(margins[1]) - 1)
    threshold = chi_square_point(level, freedom)

    def detected(centre: float) -> float:
        return float(stats.ncx2.sf(threshold, freedom, max(centre, 1e-12)))

    centre = float(optimize.brentq(lambda c: detected(c) - power, 1e-9, 1e7))
    least = math.sqrt(centre / unit) if unit > 0 else math.inf
    medium = detected(unit * MEDIUM**2) if largest >= MEDIUM else math.nan
    return (least if least <= largest else math.inf), medium, largest


def _shares(counts: Floats) -> Floats:
    """Return positive shares near the estimated ones, so that no category is impossible."""
    positive = np.maximum(counts, 0.0) + 0.5
    return np.asarray(positive / positive.sum())


def noncentrality(table: CountTable, margins: Sequence[Floats], change: Floats) -> float:
    """Return the non-centrality of the test of independence at φ = 1 along a direction of tables."""
    rows, columns = table.values.shape
    total = float(table.total)
    if not total > 0:
        return 0.0
    gradients = np.zeros((rows - 1, columns - 1, rows, columns))
    for i in range(rows - 1):
        for j in range(columns - 1):
            one = np.outer(margins[0], margins[1])[i, j] * np.ones((rows, columns))
            one[i, :] -= margins[1][j]
            one[:, j] -= margins[0][i]
            one[i, j] += 1.0
            gradients[i, j] = one
    flat = gradients.reshape(-1, rows, columns)
    moved = total * flat.reshape(len(flat), -1) @ change.ravel()
    spread = table.covariance.between(flat, flat)
    return float(moved @ np.linalg.pinv((spread + spread.T) / 2, hermitian=True) @ moved)
