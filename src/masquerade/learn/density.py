"""Densities from counts over the bins of a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from masquerade.core.answered_tally import MissingAnswers, missing_answers_of, people_who_answered
from masquerade.core.axes import Floats
from masquerade.core.bins import bin_ends
from masquerade.core.errors import InputError
from masquerade.core.evidence import Projection
from masquerade.core.intervals import ratio_errors
from masquerade.core.plots.drawing import new_axes, shorten_label
from masquerade.core.plots.palette import ESTIMATE
from masquerade.core.query import Query
from masquerade.core.schema import Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import printable
from masquerade.learn.model_file import missing_lines

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Density(Printed):
    """A density that is constant within bins.

    Attributes
    ----------
    name : str
        The variable.
    edges : ndarray
        Edges of the bins.
    values : ndarray
        Density in each bin.
    stderr : ndarray
        Standard error of each density.
    n : int
        Number of records.
    missing : MissingAnswers or None
        Shares of missing answers, and how they were treated.

    Examples
    --------
    >>> import pandas as pd
    >>> ages = pd.DataFrame({"age": ["[0, 20)", "[20, 60]", "[20, 60]", "[20, 60]"]})
    >>> density = mq.learn.reconstructed_density(mq.tally(ages), "age")
    >>> density.at([10, 30]).tolist()
    [0.0125, 0.01875]
    """

    name: str
    edges: Floats
    values: Floats
    stderr: Floats
    n: int
    missing: MissingAnswers | None = None

    def at(self, points: Sequence[float] | Floats) -> Floats:
        """Return the density at the given points; 0 outside the bins."""
        x = np.asarray(points, dtype=float)
        place = np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, len(self.values) - 1)
        inside = (x >= self.edges[0]) & (x <= self.edges[-1])
        return np.where(inside, self.values[place], 0.0)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: low, high, density, stderr; one row per bin."""
        import pandas as pd  # noqa: PLC0415  (learners load pandas only when a frame is asked for)

        return pd.DataFrame(
            {"low": self.edges[:-1], "high": self.edges[1:], "density": self.values, "stderr": self.stderr}
        )

    @printable
    def summary(self) -> str:
        """Return the density as text."""
        body = self.to_frame().to_string(index=False, float_format=lambda x: f"{x:.4g}")
        title = f"Density of {self.name}: {len(self.values)} bins, n = {self.n:,}"
        return "\n".join([title, body, *missing_lines(self.missing)])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the density as steps with a band of two standard errors; return the matplotlib axes."""
        axes = new_axes(6.4, 3.6) if ax is None else ax
        axes.stairs(self.values, self.edges, color=ESTIMATE, linewidth=1.6, label="density")
        axes.stairs(
            self.values + 2 * self.stderr,
            self.edges,
            baseline=self.values - 2 * self.stderr,
            fill=True,
            color=ESTIMATE,
            alpha=0.2,
            label="± 2 standard errors",
        )
        axes.set(xlabel=shorten_label(self.name), ylabel="density")
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        return axes


def reconstructed_density(
    source: Tally, name: str, edges: Sequence[float] | None = None, nonnegative: Projection | None = None
) -> Density:
    """Estimate the density of a binned number from counts.

    Parameters
    ----------
    source : Tally
        Source of counts.
    name : str
        The variable.
    edges : sequence of float, optional
        Edges of the bins. Without them, they are read from the labels ("[0, 10)", …).
    nonnegative : str, optional
        Projection of the counts, see `CountTable.nonnegative`. Without it, the density is unbiased and may be
        negative.

    Returns
    -------
    Density
        Density and standard error of each bin.

    Raises
    ------
    InputError
        If the edges are unknown or not increasing, or there are no records.

    Notes
    -----
    Formula: f(x) = N̂_k/(n·width_k) for x in bin k; Var by the delta method for the ratio N̂_k/Σ N̂.
    Reference: Ma (2006), §2.5 and Fig. 6.3, whose estimate lacks the division by the width.
    Cost: one query.
    Error: unbiased for the mean density within each bin; standard errors refer to the unbiased counts.

    Examples
    --------
    >>> import pandas as pd
    >>> ages = pd.DataFrame({"age": ["[0, 20)", "[20, 60]", "[20, 60]", "[20, 60]"]})
    >>> mq.learn.reconstructed_density(mq.tally(ages), "age").values.tolist()
    [0.0125, 0.01875]
    """
    source = people_who_answered(source)
    (table,) = source.answer([Query(by=(name,))])
    return replace(density_of(table, edges, nonnegative), missing=missing_answers_of(source))


def density_of(
    table: CountTable, edges: Sequence[float] | None = None, nonnegative: Projection | None = None
) -> Density:
    """Return the density of a table over the bins of one number."""
    if len(table.axes) != 1:
        raise InputError(f"A density needs the table of one variable. Got {len(table.axes)} instead.")
    (variable,) = table.axes
    cuts = label_edges(variable) if edges is None else np.asarray(edges, dtype=float)
    if cuts is None:
        raise InputError(f"{variable.name!r} has no labels such as '[0, 10)': give 'edges'.")
    if cuts.shape != (len(variable) + 1,) or not np.all(np.isfinite(cuts)) or np.any(np.diff(cuts) <= 0):
        raise InputError(
            f"The density of {variable.name!r} needs {len(variable) + 1} finite, increasing 'edges'."
        )
    if not table.total > 0:
        raise InputError(f"There are no records of {variable.name!r} to reconstruct a density from.")
    counts = (table if nonnegative is None else table.nonnegative(nonnegative)).values
    share = table.values / table.total
    stderr = ratio_errors(share, table.within((variable.name,)), np.asarray(table.total)).stderr
    widths = np.diff(cuts)
    return Density(variable.name, cuts, counts / (table.total * widths), stderr / widths, table.n)


def label_edges(variable: Variable) -> Floats | None:
    """Return the edges of a variable whose labels are consecutive bins; None if they are not."""
    ends = [bin_ends(label) for label in variable.categories]
    known = [pair for pair in ends if pair is not None]
    if len(known) < len(ends) or any(a[1] != b[0] for a, b in pairwise(known)):
        return None
    return np.array([known[0][0], *(high for _, high in known)])


def category_numbers(variable: Variable) -> Floats | None:
    """Return the numbers of the categories: themselves, or the midpoints of bins; None if they have none."""
    edges = label_edges(variable)
    if edges is not None:
        return (edges[:-1] + edges[1:]) / 2 if np.all(np.isfinite(edges)) else None
    try:
        numbers = [float(label) for label in variable.categories]
    except ValueError:
        return None
    return np.array(numbers) if all(map(math.isfinite, numbers)) else None
