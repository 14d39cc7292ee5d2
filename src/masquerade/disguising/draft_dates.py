"""Dates in drafts of policies: ages, years, quarters or months, as the user requests."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping
from typing import Any, get_args

import pyarrow as pa
import pyarrow.compute as pc

from masquerade.channels.policy.fields import date_in_file
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.schema import DateReading, DateUnit
from masquerade.frames.label_codes import date_labels, days_of, kind_of

UNITS: tuple[DateUnit, ...] = get_args(DateUnit)
CHECKED = 1000  # a column of texts contains dates if its first distinct texts, up to this number, are dates
HINT = "dates: --date NAME=age, year, quarter or month reads them"


def parse_dates(texts: Iterable[str], today: dt.date | None = None) -> dict[str, DateReading]:
    """Parse the requested readings of date columns, such as "born=age" and "visit=month".

    Parameters
    ----------
    texts : iterable of str
        NAME=age, NAME=age:2026-01-31, NAME=year, NAME=quarter or NAME=month.
    today : date, optional
        Day on which ages are computed if a text states no day. By default, the current day.

    Returns
    -------
    dict of str to DateReading

    Raises
    ------
    InputError
        If a text has another form.

    Examples
    --------
    >>> from masquerade.disguising.draft_dates import parse_dates
    >>> parse_dates(["visit=month"])
    {'visit': DateReading(unit='month', on=None)}
    """
    readings: dict[str, DateReading] = {}
    for text in texts:
        name, _, stated = text.rpartition("=")
        word, _, day = stated.partition(":")
        unit = next((unit for unit in UNITS if unit == word.strip().rstrip("s")), None)
        if not name.strip() or unit is None or (day and unit != "age"):
            raise InputError(
                f"--date {text!r}: must be NAME=age, NAME=age:2026-01-31, NAME=year, NAME=quarter or "
                "NAME=month."
            )
        try:
            on = dt.date.fromisoformat(day.strip()) if day else today or dt.date.today()  # noqa: DTZ011
        except ValueError:
            raise InputError(f"--date {text!r}: the day of an age is written as 2026-01-31.") from None
        readings[name.strip()] = DateReading(unit, on if unit == "age" else None)
    return readings


def check_dates(readings: Collection[str], names: Collection[str]) -> None:
    """Raise InputError if a column of dates does not exist."""
    for name in readings:
        if name not in names:
            raise InputError(f"--date: there is no column {name!r}.{did_you_mean(name, names)}")


def labels_of_dates(column: Any, reading: DateReading) -> Any:
    """Return a column whose dates are replaced by ages, years, quarters or months."""
    values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    labels = date_labels(days_of(values), reading)
    return pc.coalesce(labels, values.cast(pa.string())) if kind_of(values.type) == "text" else labels


def is_dates(different: Any) -> bool:
    """Return True if the distinct values of a batch are dates, or texts of dates."""
    if pa.types.is_date(different.type) or pa.types.is_timestamp(different.type):
        return True
    few = different[:CHECKED]
    return kind_of(few.type) == "text" and len(few) > 0 and days_of(few).null_count == 0


def all_periods(reading: DateReading, seen: Collection[Any]) -> list[str]:
    """Return the quarters or months from the first to the last seen, without gaps.

    >>> from masquerade.core.schema import DateReading
    >>> from masquerade.disguising.draft_dates import all_periods
    >>> all_periods(DateReading("quarter"), ["2025-Q3", "2026-Q2"])
    ['2025-Q3', '2025-Q4', '2026-Q1', '2026-Q2']
    """
    separator, in_year, width = ("-Q", 4, 1) if reading.unit == "quarter" else ("-", 12, 2)
    ends = [text.split(separator) for text in (min(seen), max(seen))]
    first, last = (in_year * int(year) + int(part) - 1 for year, part in ends)
    return [
        f"{place // in_year:04d}{separator}{place % in_year + 1:0{width}d}"
        for place in range(first, last + 1)
    ]


def date_lines(reading: DateReading | None) -> list[str]:
    """Return the line of a policy that states how dates are read."""
    if reading is None:
        return []
    values: Mapping[str, str] = date_in_file(reading)
    return [f"date: {{{', '.join(f'{key}: {value}' for key, value in values.items())}}}"]
