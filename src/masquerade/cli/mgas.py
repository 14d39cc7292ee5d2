"""Grouping of numbers by MGAS: `masquerade anonymize mgas`, and `--mgas` of `masquerade policy init`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

from masquerade.cli import output
from masquerade.cli.options import Data, Decimal, Encoding, Json, Separator, option
from masquerade.core.errors import InputError

if TYPE_CHECKING:
    from masquerade.anonymity.mgas import Bins
    from masquerade.frames.dialect import Dialect

Wanted = Annotated[
    list[str],
    option(
        "A numeric column, with the least number of records and the least width of a group; may be repeated.",
        "COLUMN=K,WIDTH",
    ),
]


class Requirement(NamedTuple):
    """A column, with the least number of records and the least width of its groups."""

    column: str
    k_min: int
    width: float


def requirement(text: str, flag: str) -> Requirement:
    """Parse COLUMN=K,WIDTH; `flag` is the name of the option, for the error message."""
    column, equals, numbers = text.rpartition("=")
    k_min, _, width = numbers.partition(",")
    try:
        return Requirement(column.strip() if equals else "", int(k_min), float(width))
    except ValueError:
        raise InputError(f"{flag} {text!r}: must have the form COLUMN=K,WIDTH, such as age=50,2.") from None


def group_columns(data: str | list[str], wanted: Sequence[Requirement], dialect: Dialect) -> dict[str, Bins]:
    """Return the groups of every requested column."""
    import numpy as np  # noqa: PLC0415  (slow to load)
    import pyarrow as pa  # noqa: PLC0415

    from masquerade.anonymity.mgas import mgas  # noqa: PLC0415
    from masquerade.frames.file_reader import open_batches  # noqa: PLC0415

    names = list(dict.fromkeys(item.column for item in wanted))
    parts: dict[str, list[np.ndarray[tuple[int], np.dtype[np.float64]]]] = {name: [] for name in names}
    with open_batches(data, names, dialect=dialect) as batches:
        for batch in batches:
            for name in names:
                try:
                    numbers = batch[name].drop_null().cast(pa.float64())
                except pa.ArrowInvalid:
                    raise InputError(
                        f"{name!r}: MGAS groups numbers, but some values are not numbers."
                    ) from None
                parts[name].append(np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64))
    columns = {name: np.concatenate(found) if found else np.zeros(0) for name, found in parts.items()}
    return {item.column: mgas(columns[item.column], item.k_min, item.width) for item in wanted}


def command(
    data: Data,
    *,
    column: Wanted,
    sep: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    json: Json = False,
) -> None:
    """Group a numeric column so that no group is too small or too narrow; print cut points for `bins:`.

    Edges and means are computed from the data: publishing them is itself a release.

    Example: masquerade anonymize mgas people.csv --column age=50,2
    """
    from masquerade.frames.dialect import Dialect  # noqa: PLC0415

    asked = [requirement(text, "--column") for text in column]
    with output.report_warnings():
        found = group_columns(data, asked, Dialect(sep, decimal, encoding))
    if json:
        output.emit(
            {
                name: {
                    "edges": bins.edges.tolist(),
                    "means": bins.means.tolist(),
                    "records": bins.counts.tolist(),
                }
                for name, bins in found.items()
            }
        )
        return
    parts = [
        f"{name}: {len(bins)} groups\n{bins.summary()}\nbins: [{', '.join(map(str, bins.policy_bins()))}]"
        for name, bins in found.items()
    ]
    output.emit("\n\n".join(parts) + "\n")
