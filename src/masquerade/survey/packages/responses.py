"""Reader of other tools' exports: reports are decoded with the package's codes and written to a file.

The package and the export are untrusted: both are read within limits, and only columns listed in
`responses.json` are read. An error names row and column, never a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from masquerade.core.errors import InputError, UnknownValue
from masquerade.core.util.json_text import read_json
from masquerade.frames.file_reader import open_batches
from masquerade.survey.collector.export import write_reports
from masquerade.survey.collector.store import MODES
from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.packages.common import RESPONSES, SURVEY, TOOLS

MOST_COLUMNS: Final = 1000


@dataclass(frozen=True)
class _Column:
    """A column of an export: the reports that it holds, and their codes by value."""

    name: str
    reports: tuple[str, ...]
    codes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Responses:
    """The layout of a tool's exports, and the survey that they answer.

    Examples
    --------
    >>> Responses.load("package").write("responses.csv", "reports.parquet")  # doctest: +SKIP
    (412, 3)
    """

    survey: Survey
    columns: tuple[_Column, ...]
    mode: str
    mode_column: str | None

    @classmethod
    def load(cls, folder: str | Path) -> Responses:
        """Load the layout from the folder of a package.

        Parameters
        ----------
        folder : str or Path
            Folder that `build_package` wrote.

        Returns
        -------
        Responses
            Layout, checked against the survey.

        Raises
        ------
        InputError
            If the folder is not a package, or its files do not fit together.
        """
        place = Path(folder)
        survey = Survey.load(place / SURVEY)
        values = read_json(place / RESPONSES)
        try:
            return cls(survey, *_layout(values, survey))
        except InputError as error:
            raise InputError(f"{place / RESPONSES}: {error}") from None

    def write(
        self,
        source: str | Path,
        target: str | Path,
        *,
        codebook_to: str | Path | None = None,
        overwrite: bool = False,
    ) -> tuple[int, int]:
        """Write the reports of an export to a file.

        Parameters
        ----------
        source : str or Path
            Export of the tool (CSV, with question codes and answer codes).
        target : str or Path
            File to write.
        codebook_to : str or Path, optional
            File for the codebook (DDI).
        overwrite : bool
            True if existing files may be replaced.

        Returns
        -------
        tuple of int
            Number of reports written, and of rows omitted because an answer is missing.

        Raises
        ------
        UnknownValue
            If a cell has a value that the package does not list.
        """
        names = [column.name for column in self.columns]
        names += [] if self.mode_column is None else [self.mode_column]
        counts: Counter[tuple[int, tuple[int, ...]]] = Counter()
        incomplete = 0
        with open_batches(source, names) as batches:
            for batch in batches:
                rows = zip(*(batch[name].to_pylist() for name in names), strict=True)
                for number, cells in enumerate(rows, start=batches.rows_before + 1):
                    if None in cells:
                        incomplete += 1
                    else:
                        counts[self._report(cells, number)] += 1
        number = write_reports(
            counts,
            self.survey.policy,
            target,
            survey=self.survey,
            codebook_to=codebook_to,
            overwrite=overwrite,
        )
        return number, incomplete

    def _report(self, cells: tuple[Any, ...], row: int) -> tuple[int, tuple[int, ...]]:
        codes: dict[str, int] = {}
        for column, cell in zip(self.columns, cells, strict=False):
            drawn = column.codes.get(str(cell))
            if drawn is None:
                raise UnknownValue(column.name, row, "is not a code of the package")
            codes |= dict(zip(column.reports, drawn, strict=True))
        mode = self.mode if self.mode_column is None else str(cells[-1])
        if mode not in MODES:
            raise UnknownValue(str(self.mode_column), row, "is not a mode of drawing")
        return MODES.index(mode), tuple(codes[name] for name in self.survey.policy.observed)


def _layout(values: Any, survey: Survey) -> tuple[tuple[_Column, ...], str, str | None]:
    """Check the layout of exports against the policy; raise InputError."""
    policy = survey.policy
    if (
        not isinstance(values, dict)
        or values.get("masquerade_package") != 1
        or values.get("tool") not in TOOLS
    ):
        raise InputError("is not the layout of a package.")
    if values.get("policy") != policy.id:
        raise InputError("belongs to a different policy.")
    listed = values.get("columns")
    if not isinstance(listed, list) or len(listed) > MOST_COLUMNS:
        raise InputError("columns: must be a list.")
    if not listed:
        raise InputError("this tool sends its reports to the collector: use masquerade survey export.")
    columns = tuple(_column(one, place, survey) for place, one in enumerate(listed))
    reports = list(chain.from_iterable(column.reports for column in columns))
    if sorted(reports) != sorted(policy.observed):
        raise InputError("columns: must have each report of the policy once.")
    mode, by = values.get("mode", MODES[0]), values.get("mode_column")
    if mode not in MODES or not (by is None or isinstance(by, str)):
        raise InputError("mode: is not a mode of drawing.")
    return columns, mode, by


def _column(values: Any, place: int, survey: Survey) -> _Column:
    where, observed = f"columns.{place}", survey.policy.observed
    if not isinstance(values, dict):
        raise InputError(f"{where}: must have a column, reports and codes.")
    name, reports, codes = (values.get(key) for key in ("column", "reports", "codes"))
    if not isinstance(name, str) or not isinstance(reports, list) or not isinstance(codes, dict):
        raise InputError(f"{where}: must have a column, reports and codes.")
    if not all(isinstance(one, str) and one in observed for one in reports):
        raise InputError(f"{where}.reports: is not a report of the policy.")
    sizes = [len(observed[one]) for one in reports]
    for drawn in codes.values():
        valid = isinstance(drawn, list) and len(drawn) == len(sizes)
        if not valid or not all(
            type(one) is int and 0 <= one < size for one, size in zip(drawn, sizes, strict=True)
        ):
            raise InputError(f"{where}.codes: each value must have one valid code for each report.")
    return _Column(name, tuple(reports), {text: tuple(drawn) for text, drawn in codes.items()})
