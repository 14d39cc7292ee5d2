"""How well classifiers do, as results that show themselves: a measure, a confusion matrix, a calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.plots.drawing import Dots, dot_plot, new_axes
from masquerade.core.plots.palette import ESTIMATE, LINE
from masquerade.core.report_moments import Spread, score_interval
from masquerade.core.schema import Category, Variable
from masquerade.core.table import cell_frame
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import category_text, printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, repr=False)
class Measure(Printed):
    """How well a classifier does by one measure: an estimate, which may lie outside its range.

    >>> source = mq.tally(mq.data.students())
    >>> found = mq.evaluate.balanced_accuracy(mq.learn.naive_bayes(source, "sleep", ["pills"]), source)
    >>> found.name, round(float(found.value), 3)
    ('balanced accuracy', 0.655)
    """

    name: str
    value: float
    stderr: float
    n: int

    def conf_int(self, level: float = 0.95) -> tuple[float, float]:
        """Return a normal interval."""
        half = two_sided_quantile(level) * self.stderr
        return self.value - half, self.value + half

    def summary(self) -> str:
        """Return it as text."""
        return f"{self.name} {self.value:.4f} ± {self.stderr:.4f} (n = {self.n:,})"


@dataclass(frozen=True, slots=True, repr=False)
class Accuracy(Printed):
    """The share of records that are predicted right: unbiased, so it may lie outside [0, 1].

    >>> source = mq.tally(mq.data.students())
    >>> found = mq.evaluate.accuracy(mq.learn.naive_bayes(source, "sleep"), source)
    >>> round(found.value, 3), round(found.stderr, 3), found.n
    (0.733, 0.018, 600)
    """

    value: float
    stderr: float
    n: int
    warning: str | None = None
    spread: Spread | None = None
    total: float = 1.0

    def conf_int(self, level: float = 0.95) -> tuple[float, float]:
        """Return a score interval on the reports: see `masquerade.core.report_moments.score_interval`.

        Wilson's on clear records, Clopper's and Pearson's where few records tell; a normal one where the
        source tells a standard error only.
        """
        z = two_sided_quantile(level)
        if self.spread is None:
            return self.value - z * self.stderr, self.value + z * self.stderr
        gaps = score_interval(np.zeros(()), self.spread, z)
        return self.value + float(gaps.lower) / self.total, self.value + float(gaps.upper) / self.total

    @printable
    def summary(self) -> str:
        """Return the accuracy as text."""
        text = f"accuracy {self.value:.4f} ± {self.stderr:.4f} (n = {self.n:,})"
        return text if self.warning is None else f"{text}\n{self.warning}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Confusion(Printed):
    """Which true classes are predicted as which: shares of all records, rows true, columns predicted.

    >>> source = mq.tally(mq.data.students())
    >>> found = mq.evaluate.confusion(mq.learn.naive_bayes(source, "sleep", ["pills"]), source)
    >>> found.shares.round(2).tolist()
    [[0.14, 0.2], [0.07, 0.59]]
    """

    target: Variable
    shares: Floats
    stderr: Floats
    balanced: Measure

    @printable
    def summary(self) -> str:
        """Return the matrix as text."""
        frame = self.to_frame().to_string(index=False, float_format=lambda x: f"{x:.4f}")
        return f"Confusion of {self.target.name}: {self.balanced.summary()}\n{frame}"

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: true, predicted, share, stderr."""
        axes = [Variable(name, self.target.categories) for name in ("true", "predicted")]
        return cell_frame(axes, share=self.shares, stderr=self.stderr)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the shares with intervals, a row for each true class, colours for what was predicted."""
        half = two_sided_quantile(0.95) * self.stderr
        series = {
            f"{label}": Dots(self.shares[:, i], (self.shares - half)[:, i], (self.shares + half)[:, i])
            for i, label in enumerate(self.target.categories)
        }
        rows = [f"true: {label}" for label in self.target.categories]
        return dot_plot(rows, series, ax, xlabel="share of records, 95% intervals", legend="predicted")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Calibration(Printed):
    """Of rows with a predicted probability, how many are of the class? A row for each bin of predictions.

    >>> source = mq.tally(mq.data.students())
    >>> model = mq.learn.naive_bayes(source, "sleep", ["pills"])
    >>> found = mq.evaluate.calibration(model, source, positive="bad", bins=2)
    >>> found.predicted.round(2).tolist(), found.observed.round(2).tolist()
    ([0.25, 0.75], [0.25, 0.67])
    """

    positive: Category
    predicted: Floats
    observed: Floats
    stderr: Floats
    records: Floats

    @printable
    def summary(self) -> str:
        """Return the bins as text."""
        frame = self.to_frame().to_string(index=False, float_format=lambda x: f"{x:.4f}")
        return f"Calibration of P({category_text(self.positive)})\n{frame}"

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: predicted, observed, stderr, records."""
        import pandas as pd  # noqa: PLC0415  (a frame is asked for here)

        columns = ("predicted", "observed", "stderr", "records")
        return pd.DataFrame({name: getattr(self, name) for name in columns})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what was observed with intervals against what was predicted; honest ones lie on the line."""
        axes = new_axes(4.8, 4.4) if ax is None else ax
        axes.plot([0, 1], [0, 1], color=LINE, linewidth=1)
        half = two_sided_quantile(0.95) * self.stderr
        axes.errorbar(self.predicted, self.observed, yerr=half, fmt="o", color=ESTIMATE, elinewidth=1.5)
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.15, 1.15))
        axes.set_xlabel("predicted probability")
        axes.set_ylabel("share that is of the class, 95% intervals")
        axes.spines[["top", "right"]].set_visible(False)
        return axes
