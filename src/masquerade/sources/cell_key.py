"""Published tables with cell-key noise: estimates and tests with honest errors.

Statistical offices perturb a count by a random number that depends on the people in the cell, drawn from a
row of a *ptable* (R package ptable; Enderle, Giessing and Tent 2018). Tables are read here, never protected:
the same people always get the same noise, so a nonzero difference between two tables proves that they are
about different people.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.covariance import IndependentCovariance, SumCovariance
from masquerade.core.errors import FileError, InputError
from masquerade.core.linear_covariance import LinearCovariance
from masquerade.core.table import CountTable
from masquerade.estimate.evidence import GaussianEvidence

MOST_BYTES = 1 << 24
NORMAL = 1.959964  # quantile of the normal distribution at 97.5%
ROUNDING = 1e-6
LARGEST = 1e15  # whole numbers up to here are exact


@dataclass(frozen=True, slots=True)
class PerturbationTable:
    """A ptable: for each count, the probabilities of the counts that are displayed instead.

    Rows have mean zero. Counts above the last row use the last row.

    Parameters
    ----------
    rows : mapping
        For each count from 0, the displayed counts and their probabilities.

    Raises
    ------
    InputError
        If a row is missing, or has probabilities that are not valid, or a mean that is not zero.

    Examples
    --------
    >>> import numpy as np
    >>> half = np.array([0.25, 0.5, 0.25])
    >>> ptable = mq.PerturbationTable({0: (np.array([0]), np.array([1.0])), 1: (np.arange(3), half)})
    >>> ptable.largest, ptable.variance(7)
    (1, 0.5)
    """

    rows: Mapping[int, tuple[Floats, Floats]]

    def __post_init__(self) -> None:
        if not self.rows or sorted(self.rows) != list(range(len(self.rows))):
            raise InputError("A ptable must have a row for every count from 0 to the last one.")
        for count, (displayed, chances) in self.rows.items():
            if not np.all(np.abs(displayed) <= LARGEST) or not np.all(np.isfinite(chances)):
                raise InputError(f"Row {count} of the ptable must have finite counts and probabilities.")
            total = float(chances.sum())
            if np.any(chances < -ROUNDING) or abs(total - 1) > 1e-4:
                raise InputError(f"Row {count} of the ptable must have probabilities with sum 1.")
            if abs(float(chances @ displayed) - count * total) > 1e-3:
                raise InputError(
                    f"Row {count} of the ptable has noise whose mean is not 0: it would bias counts."
                )

    @property
    def largest(self) -> int:
        """Return the largest change of a count."""
        return int(
            max(np.abs(displayed[chances > 0] - i).max() for i, (displayed, chances) in self.rows.items())
        )

    def variance(self, count: int) -> float:
        """Return the variance of the noise of a true count.

        Parameters
        ----------
        count : int
            The true count.

        Returns
        -------
        float
        """
        row = min(count, len(self.rows) - 1)
        displayed, chances = self.rows[row]
        return float(chances @ (displayed - row) ** 2)

    def shown_variance(self, displayed: float) -> float:
        """Return the largest variance among the counts that may be displayed as `displayed`.

        A displayed 0 may represent any count up to the largest change. Its variance is chosen so that a 95%
        interval reaches the largest change.

        Parameters
        ----------
        displayed : float
            The displayed count.

        Returns
        -------
        float
        """
        if displayed <= 0:
            return (self.largest / NORMAL) ** 2
        counts = range(max(1, round(displayed) - self.largest), round(displayed) + self.largest + 1)
        return max(self.variance(count) for count in counts)

    @classmethod
    def load(cls, path: str | Path) -> PerturbationTable:
        """Read a ptable from a CSV file.

        Parameters
        ----------
        path : str or Path
            A file with columns `i` (count), `j` (displayed count) or `v` (change), and `p` (probability), as
            the R package ptable has them, or a matrix with a row per count and a column per displayed count.
            Columns are separated by commas, or by semicolons with decimal commas.

        Returns
        -------
        PerturbationTable

        Raises
        ------
        FileError
            If the file cannot be read.
        InputError
            If the file is not a ptable.
        """
        try:
            with Path(path).open("rb") as stream:
                data = stream.read(MOST_BYTES + 1)
            text = data.decode("utf-8-sig")
        except OSError as error:
            raise FileError(f"{path}: {(error.strerror or 'cannot be read').lower()}.") from None
        except UnicodeDecodeError:
            raise InputError(f"{path}: is not a text file in UTF-8.") from None
        if len(data) > MOST_BYTES:
            raise InputError(f"{path}: is too long for a ptable.")
        apart = ";" if ";" in text.partition("\n")[0] else ","
        try:
            lines = [row for row in csv.reader(io.StringIO(text), delimiter=apart) if row]
            return cls(_parse(lines, decimal="," if apart == ";" else "."))
        except (ValueError, IndexError, OverflowError, csv.Error):
            raise InputError(
                f"{path}: is not a ptable: it needs columns i, j (or v) and p, or a matrix of probabilities."
            ) from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def _parse(lines: list[list[str]], decimal: str) -> dict[int, tuple[Floats, Floats]]:
    """Return the rows of a ptable; raise ValueError or IndexError if the lines are not a ptable."""
    head = [name.strip().strip('"') for name in lines[0]]
    parsed: dict[int, list[tuple[float, float]]] = {}
    if "i" in head and "p" in head and ("j" in head or "v" in head):
        for line in lines[1:]:
            row = {
                name: float(cell.replace(decimal, "."))
                for name, cell in zip(head, line, strict=True)
                if name in "ijvp"
            }
            displayed = row["j"] if "j" in row else row["i"] + row["v"]
            parsed.setdefault(int(row["i"]), []).append((displayed, row["p"]))
    else:
        columns = [float(name) for name in head[1:]]
        for line in lines[1:]:
            chances = [float(cell.replace(decimal, ".") or 0) for cell in line[1:]]
            parsed[int(float(line[0].strip('"')))] = list(zip(columns, chances, strict=True))
    return {
        count: (np.array([displayed for displayed, _ in row]), np.array([chance for _, chance in row]))
        for count, row in parsed.items()
    }


def cell_keyed(
    table: CountTable, ptable: PerturbationTable | str | Path, *, n: int | None = None
) -> CountTable:
    """Return a published table with the errors that its cell-key noise adds.

    Counts stay as published: the noise has mean 0. Each cell has its own noise, so the sum of c cells has c
    times its variance. Where the office publishes a margin, use it.

    Parameters
    ----------
    table : CountTable
        The published counts, such as an answer of the source ``mq.tally(frame, counts="count")``.
    ptable : PerturbationTable or path
        The perturbation table that the office used, or its CSV file.
    n : int, optional
        Number of records, if it is published. By default the sum of the cells.

    Returns
    -------
    CountTable
        The same counts, with the variance of sampling and of noise.

    Raises
    ------
    InputError
        If the counts are not whole numbers, or the file is not a ptable.

    Notes
    -----
    Formula: covariance of a sample plus the diagonal of the noise's variances. A displayed 0 has an
    interval up to the largest change.

    Examples
    --------
    >>> import numpy as np
    >>> half = np.array([0.25, 0.5, 0.25])
    >>> ptable = mq.PerturbationTable({0: (np.array([0]), np.array([1.0])), 1: (np.arange(3), half)})
    >>> [published] = mq.tally(mq.data.students()).answer([mq.Query(by="pills")])
    >>> table = mq.cell_keyed(published, ptable)
    >>> (table.stderr("given_records") ** 2).round(6).tolist()
    [0.5, 0.5]
    """
    noise = ptable if isinstance(ptable, PerturbationTable) else PerturbationTable.load(ptable)
    values = np.asarray(table.values, dtype=float)
    if table.adjusted or np.any(values < 0) or np.any(values != np.round(values)):
        raise InputError("Counts with cell-key noise are whole numbers of at least 0, as they are published.")
    total = int(values.sum()) if n is None else n
    if total <= 0:
        raise InputError("A table with cell-key noise must have records.")
    variances = np.vectorize(noise.shown_variance, otypes=[float])(values)
    names = tuple(axis.name for axis in table.axes)
    covariance = SumCovariance(
        (LinearCovariance.clear(values, total, names), IndependentCovariance(variances, variances, names))
    )
    return CountTable(table.axes, values, total, GaussianEvidence.of(values, covariance))
