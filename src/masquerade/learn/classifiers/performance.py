"""Performance of classifiers: measures, confusion matrices, calibration and threshold curves, with plots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.intervals import keep_inside
from masquerade.core.plots.drawing import Dots, dot_plot, new_axes
from masquerade.core.plots.palette import CATEGORIES, ESTIMATE, GRID, LINE, MUTED
from masquerade.core.report_moments import ReportSpread, score_interval
from masquerade.core.schema import Category, Variable
from masquerade.core.table import cell_frame
from masquerade.core.util.display import Printed, Shown, html_of, plain_rows
from masquerade.core.util.formatting import category_text, printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class Figure(NamedTuple):
    """An estimate with its standard error and the limits of its interval."""

    value: float
    stderr: float
    lower: float
    upper: float

    def within(self) -> Figure:
        """Return the figure with an interval within [0, 1]."""
        lower, upper = keep_inside(*(np.array([end]) for end in (self.value, self.lower, self.upper)))
        return self._replace(lower=float(lower[0]), upper=float(upper[0]))


@dataclass(frozen=True, slots=True, repr=False)
class Measure(Printed):
    """A measure of a classifier. The estimate may be outside the range of the measure.

    Attributes
    ----------
    name : str
        Name of the measure.
    value : float
        The estimate.
    stderr : float
        Standard error of the estimate.
    n : int
        Number of test records.

    Examples
    --------
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
        """Return a normal confidence interval."""
        half = two_sided_quantile(level) * self.stderr
        return self.value - half, self.value + half

    def summary(self) -> str:
        """Return the measure as text."""
        return f"{self.name} {self.value:.4f} ± {self.stderr:.4f} (n = {self.n:,})"


@dataclass(frozen=True, slots=True, repr=False)
class Accuracy(Printed):
    """Share of records that are predicted correctly. Unbiased, so it may be outside [0, 1].

    Attributes
    ----------
    value : float
        The estimate.
    stderr : float
        Standard error of the estimate.
    n : int
        Number of test records.
    warning : str or None
        The warning, if the estimate is too uncertain.
    spread : ReportSpread or None
        Moments of the reports, for score intervals.
    total : float
        Total weight of the records.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> found = mq.evaluate.accuracy(mq.learn.naive_bayes(source, "sleep"), source)
    >>> round(found.value, 3), round(found.stderr, 3), found.n
    (0.733, 0.018, 600)
    """

    value: float
    stderr: float
    n: int
    warning: str | None = None
    spread: ReportSpread | None = None
    total: float = 1.0

    def conf_int(self, level: float = 0.95) -> tuple[float, float]:
        """Return a score interval on the reports: see `masquerade.core.report_moments.score_interval`.

        It is Wilson's interval on clear records, and Clopper and Pearson's where few records are informative.
        If the source reports only a standard error, it is a normal interval.
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
    """Confusion matrix: shares of all records, rows true, columns predicted.

    Attributes
    ----------
    target : Variable
        The predicted variable.
    shares : ndarray
        Share of records by true and predicted class.
    stderr, lower, upper : ndarray
        Standard errors of the shares, and limits of their 95% intervals.
    balanced : Measure or None
        The balanced accuracy; None if a class has no records.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> found = mq.evaluate.confusion(mq.learn.naive_bayes(source, "sleep", ["pills"]), source)
    >>> found.shares.round(2).tolist()
    [[0.14, 0.2], [0.07, 0.59]]
    """

    target: Variable
    shares: Floats
    stderr: Floats
    lower: Floats
    upper: Floats
    balanced: Measure | None

    @printable
    def summary(self) -> str:
        """Return the matrix as text."""
        frame = self.to_frame().to_string(index=False, float_format=lambda x: f"{x:.4f}")
        balanced = "" if self.balanced is None else f": {self.balanced.summary()}"
        return f"Confusion of {self.target.name}{balanced}\n{frame}"

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: true, predicted, share, stderr, lower, upper."""
        axes = [Variable(name, self.target.categories) for name in ("true", "predicted")]
        return cell_frame(axes, share=self.shares, stderr=self.stderr, lower=self.lower, upper=self.upper)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the shares with intervals, one row per true class and one colour per predicted class."""
        series = {
            f"{label}": Dots(self.shares[:, i], self.lower[:, i], self.upper[:, i])
            for i, label in enumerate(self.target.categories)
        }
        rows = [f"true: {label}" for label in self.target.categories]
        return dot_plot(rows, series, ax, xlabel="share of records, 95% intervals", legend="predicted")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Calibration(Printed):
    """Observed share of a class by bins of its predicted probability.

    Attributes
    ----------
    positive : category
        The class.
    predicted : ndarray
        Mean predicted probability in each bin.
    lowest, highest : ndarray
        Lowest and highest predicted probability in each bin.
    observed : ndarray
        Estimated share of the class in each bin.
    stderr, lower, upper : ndarray
        Standard errors of the shares, and limits of their intervals.
    records : ndarray
        Estimated number of records in each bin.
    level : float
        Confidence level of the intervals.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> model = mq.learn.naive_bayes(source, "sleep", ["pills"])
    >>> found = mq.evaluate.calibration(model, source, positive="bad", bins=2)
    >>> found.predicted.round(2).tolist(), found.observed.round(2).tolist()
    ([0.25, 0.66], [0.25, 0.67])
    """

    positive: Category
    predicted: Floats
    lowest: Floats
    highest: Floats
    observed: Floats
    stderr: Floats
    lower: Floats
    upper: Floats
    records: Floats
    level: float = 0.95

    @printable
    def summary(self) -> str:
        """Return the bins as text."""
        frame = self.to_frame().to_string(index=False, float_format=lambda x: f"{x:.4f}")
        return f"Calibration of P({category_text(self.positive)})\n{frame}"

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: predicted, lowest, highest, observed, stderr, lower, upper, records."""
        import pandas as pd  # noqa: PLC0415  (needed for frames only)

        columns = ("predicted", "lowest", "highest", "observed", "stderr", "lower", "upper", "records")
        return pd.DataFrame({name: getattr(self, name) for name in columns})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw observed shares with intervals against predicted probabilities, and the line of equality."""
        axes = new_axes(4.8, 4.4) if ax is None else ax
        axes.plot([0, 1], [0, 1], color=LINE, linewidth=1)
        ends = np.abs(np.stack([self.observed - self.lower, self.upper - self.observed]))
        axes.errorbar(self.predicted, self.observed, yerr=ends, fmt="o", color=ESTIMATE, elinewidth=1.5)
        top = min(1.0, 1.1 * float(np.nanmax([*self.predicted, *self.upper, 0.05])))
        axes.set(xlim=(-0.02 * top, 1.02 * top), ylim=(-0.02 * top, 1.02 * top))
        axes.set_xlabel("predicted probability")
        axes.set_ylabel(f"observed share of the class, {self.level:.0%} intervals")
        axes.spines[["top", "right"]].set_visible(False)
        return axes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ThresholdCurve(Printed):
    """Measures of a class if all records with at least a given probability of it are selected.

    Attributes
    ----------
    positive : category
        The class.
    thresholds : ndarray
        Threshold of each row.
    measures : tuple of str
        Measure of each row: selected, sensitivity, specificity, positive and negative predictive value.
    values, stderr, lower, upper : ndarray
        Estimates, their standard errors and the limits of their intervals.
    level : float
        Confidence level of the intervals.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> model = mq.learn.naive_bayes(source, "sleep", ["pills"])
    >>> curve = mq.evaluate.performance(model, source, thresholds=[0.3, 0.6]).curve
    >>> print(curve)
    Thresholds of P(bad)
     threshold selected sensitivity specificity positive predictive value negative predictive value
        0.6000    0.210       0.416       0.894                     0.667                     0.751
    """

    positive: Category
    thresholds: Floats
    measures: tuple[str, ...]
    values: Floats
    stderr: Floats
    lower: Floats
    upper: Floats
    level: float = 0.95

    @printable
    def summary(self) -> str:
        """Return the estimates as text, one row per threshold."""
        wide = self.to_frame().pivot_table(
            index="threshold", columns="measure", values="estimate", sort=False, dropna=False
        )
        texts = wide.map(lambda x: "–" if np.isnan(x) else f"{x:.3f}").reset_index().rename_axis(None, axis=1)
        body = texts.to_string(index=False, float_format=lambda x: f"{x:.4f}")
        return f"Thresholds of P({category_text(self.positive)})\n{body}"

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: threshold, measure, estimate, stderr, lower, upper."""
        import pandas as pd  # noqa: PLC0415  (needed for frames only)

        return pd.DataFrame(
            {
                "threshold": self.thresholds,
                "measure": list(self.measures),
                "estimate": self.values,
                "stderr": self.stderr,
                "lower": self.lower,
                "upper": self.upper,
            }
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw sensitivity, specificity and predictive values against the threshold, with intervals."""
        axes = new_axes(6.8, 4.2) if ax is None else ax
        names = [name for name in dict.fromkeys(self.measures) if name != "selected"]
        for name, colour in zip(names, CATEGORIES, strict=False):
            rows = [i for i, measure in enumerate(self.measures) if measure == name]
            axes.plot(self.thresholds[rows], self.values[rows], "o-", color=colour, label=name, markersize=4)
            axes.fill_between(
                self.thresholds[rows], self.lower[rows], self.upper[rows], color=colour, alpha=0.15
            )
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlabel(f"threshold of P({category_text(self.positive)})")
        axes.set_ylabel(f"estimate, {self.level:.0%} intervals")
        axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        axes.grid(visible=True, color=GRID, linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines["bottom"].set_color(MUTED)
        return axes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Performance(Shown):
    """Measures of a classifier on test records, next to the measures of the trivial classifier.

    The trivial classifier predicts the most frequent class for every record. Estimates are not cut to [0, 1];
    intervals of shares are within [0, 1].

    Attributes
    ----------
    target : Variable
        The predicted variable.
    positive : category or None
        The class to which sensitivity, AUC, calibration and thresholds refer.
    common : category
        The class that the trivial classifier predicts.
    n : int
        Number of test records.
    level : float
        Confidence level of the intervals.
    measures : tuple of str
        Names of the measures.
    values, stderr, lower, upper : ndarray
        Estimates, their standard errors and the limits of their intervals.
    trivial : ndarray
        The same measures of the trivial classifier; NaN where it has none.
    confusion : Confusion
        The confusion matrix.
    calibration : Calibration or None
        Observed shares by predicted probability; None without probabilities or a positive class.
    curve : ThresholdCurve or None
        Measures by threshold; None without probabilities or a positive class.
    notes : tuple of str
        Remarks on the result.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> result = mq.evaluate.performance(mq.learn.naive_bayes(source, "sleep", ["pills"]), source)
    >>> round(result["sensitivity"].value, 3), round(result["AUC"].value, 3)
    (0.416, 0.655)
    """

    result_name: ClassVar[str] = "Performance"
    target: Variable
    positive: Category | None
    common: Category
    n: int
    level: float
    measures: tuple[str, ...]
    values: Floats
    stderr: Floats
    lower: Floats
    upper: Floats
    trivial: Floats
    confusion: Confusion
    calibration: Calibration | None
    curve: ThresholdCurve | None
    notes: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        """Return the title and the number of records."""
        positive = "" if self.positive is None else f" = {category_text(self.positive)}"
        return f"Test of a classifier of {self.target.name}{positive}, n = {self.n:,}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the confidence level, the trivial classifier and the notes."""
        trivial = f"trivial: predicts {category_text(self.common)} for every record"
        return (f"({self.level:.0%} intervals; {trivial})", *self.notes)

    @property
    def parts(self) -> tuple[Confusion | Calibration | ThresholdCurve, ...]:
        """Return the confusion matrix, and the calibration and the curve if they exist."""
        parts = (self.confusion, self.calibration, self.curve)
        return tuple(part for part in parts if part is not None)

    def __getitem__(self, measure: str) -> Measure:
        """Return one measure by its name."""
        if measure not in self.measures:
            raise InputError(f"There is no measure {measure!r}. There are: {', '.join(self.measures)}.")
        at = self.measures.index(measure)
        return Measure(measure, float(self.values[at]), float(self.stderr[at]), self.n)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: measure, estimate, stderr, lower, upper, trivial."""
        import pandas as pd  # noqa: PLC0415  (needed for frames only)

        return pd.DataFrame(
            {
                "measure": list(self.measures),
                "estimate": self.values,
                "stderr": self.stderr,
                "lower": self.lower,
                "upper": self.upper,
                "trivial": self.trivial,
            }
        )

    @printable
    def summary(self, max_rows: int = 60) -> str:
        """Return all measures, the confusion matrix, the calibration and the curve as text."""
        return "\n\n".join([Shown.summary(self, max_rows), *(part.summary() for part in self.parts)])

    def __repr__(self) -> str:
        """Return the table of measures as text."""
        return Shown.summary(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values: the measures, the confusion matrix, the calibration and the curve."""
        parts = {"confusion": self.confusion, "calibration": self.calibration, "thresholds": self.curve}
        return Shown.to_dict(self) | {
            name: None if part is None else plain_rows(part.to_frame()) for name, part in parts.items()
        }

    def _repr_html_(self) -> str:
        """Return the HTML for notebooks."""
        return "".join(map(html_of, (self, *self.parts)))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the measures with their intervals, and the measures of the trivial classifier."""
        places = [i for i, name in enumerate(self.measures) if "minus" not in name and "above" not in name]
        dots = Dots(self.values[places], self.lower[places], self.upper[places])
        trivial = Dots(self.trivial[places], faint=True)
        return dot_plot(
            [self.measures[i] for i in places],
            {"classifier": dots, f"always {category_text(self.common)}": trivial},
            ax,
            xlabel=f"estimate, {self.level:.0%} intervals",
            title=self.heading,
        )
