"""Convert labels to codes and back: a column of text, numbers or booleans becomes small unsigned integers.

Each row first gets a mark: the code of its category, or one of three numbers above the last code that denote
a problem. Problems are reported with the numbers of at most ten rows, and never with a value.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from masquerade.core.errors import MOST_ROWS, SchemaError, UnknownValue, ValueProblem
from masquerade.core.schema import Category, DateReading, Field, is_decimal
from masquerade.core.util.formatting import category_text
from masquerade.frames.cores import on_all_cores
from masquerade.kernels.label_text import label_table, mark_texts
from masquerade.kernels.take import spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from masquerade.kernels.key_texts import Texts

UNKNOWN, MISSING, OUTSIDE = range(3)  # offsets of the three problem marks, added to the number of categories
Kind = Literal["text", "truth", "whole", "number", "other"]
WORDS = {"text": "text", "whole": "whole numbers", "number": "numbers", "truth": "true/false"}
_NUMBER = r"(?i)^[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|inf|infinity|nan)$"
_ISO_DATE = r"^\d{4}-\d{2}-\d{2}(?:[T ].*)?$"
_DOTTED_DATE = r"^(\d{2})\.(\d{2})\.(\d{4})$"
NEARLY = " (it differs only in capitals or blanks: see 'recode')"
_MANY = (
    1 << 12
)  # for at least this number of texts, the compiled lookup is faster than Arrow's, including its loading
MOST_COMPARED = 1000  # most unknown values of a batch that are compared with categories
MOST_COMPARED_BYTES = 1000  # most bytes of a value that is compared
_LARGEST_EXACT_FLOAT = 2**53
_LARGEST_STRING_COLUMN = 2**31 - 1  # bytes that 32-bit offsets can address


def kind_of(kind: pa.DataType) -> Kind:
    """Return the kind of values of an Arrow type; of a dictionary, the kind of its values."""
    types = pa.types
    if types.is_dictionary(kind):
        return kind_of(kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_boolean(kind):
        return "truth"
    if types.is_integer(kind):
        return "whole"
    return "number" if types.is_floating(kind) else "other"


def kind_words(kind: pa.DataType) -> str:
    """Return a description of the type of values, for messages."""
    return WORDS.get(kind_of(kind), f"values of type {kind}")


def encode(column: pa.Array | pa.ChunkedArray, field: Field, *, text: bool = False) -> NDArray[Any]:
    """Return the codes of a column, in the smallest unsigned type that can represent the field's categories.

    Labels match by type and value; with `text` (a CSV) by their text form. Raises `UnknownValue`, with rows
    counted from 1, for values that are unknown, outside the bins, or missing although the policy names no
    category for missing values.
    >>> encode(pa.array(["yes", "no"]), Field(mq.Variable("smoker", ("yes", "no")))).tolist()
    [0, 1]
    """
    size = len(field.variable)
    marks = np.empty(len(column), dtype=np.min_scalar_type(size + OUTSIDE))
    start, problems = 0, list[ValueProblem]()
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        found = marks[start : start + len(chunk)]
        if pa.types.is_dictionary(chunk.type):
            largest = _spread(chunk, field, found, text=text)
        else:
            found[:] = _marks(chunk, field, text=text)
            largest = size
        if len(found) and largest >= size and found.max() >= size:
            problems += _problems(chunk, found, field, start, text=text)
        start += len(chunk)
    if problems:
        raise UnknownValue.of(sorted(problems, key=lambda problem: problem.rows[0]))
    return marks.astype(np.min_scalar_type(size - 1), copy=False)


def encode_columns(
    columns: Mapping[str, Any], fields: Sequence[Field], *, text: bool | Sequence[bool]
) -> dict[str, NDArray[Any]]:
    """Return the codes of several columns; all their problems are raised as one `UnknownValue`."""

    def coded(one: tuple[Field, bool]) -> NDArray[Any] | UnknownValue:
        try:
            return encode(columns[one[0].variable.name], one[0], text=one[1])
        except UnknownValue as error:
            return error

    spelled = [text] * len(fields) if isinstance(text, bool) else text
    found = on_all_cores(coded, zip(fields, spelled, strict=True), rows=_rows(columns))
    problems = [problem for own in found if isinstance(own, UnknownValue) for problem in own.problems]
    if problems:
        raise UnknownValue.of(problems)
    return {
        field.variable.name: own
        for field, own in zip(fields, found, strict=True)
        if not isinstance(own, UnknownValue)
    }


def _rows(columns: Mapping[str, Any]) -> int:
    """Return the number of rows of columns, without converting a frame's column to Arrow."""
    known: int | None = getattr(columns, "rows", None)
    return max((len(values) for values in columns.values()), default=0) if known is None else known


def decode(codes: NDArray[Any], labels: Sequence[Category]) -> pa.Array:
    """Return the labels of `codes` as a plain column: text, whole numbers or truth values.

    Labels of different types come back as text, since a column has one type.

    >>> decode(np.array([1, 0], dtype=np.uint8), ["yes", "no"]).to_pylist()
    ['no', 'yes']
    """
    return expand_dictionary(dictionary_of(codes, labels))


def dictionary_of(codes: NDArray[Any], labels: Sequence[Category]) -> pa.DictionaryArray:
    """Return `codes` as a dictionary column: the codes, which are not copied, and the labels.

    >>> dictionary_of(np.array([1, 0], dtype=np.uint8), ["yes", "no"]).indices.to_pylist()
    [1, 0]
    """
    kinds = {type(label) for label in labels}
    plain = labels if kinds in ({bool}, {int}) else [category_text(label) for label in labels]
    kind = {frozenset({bool}): pa.bool_(), frozenset({int}): pa.int64()}.get(frozenset(kinds), pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(plain, type=kind), safe=False)


def expand_dictionary(values: pa.DictionaryArray) -> pa.Array:
    """Return a dictionary column as a plain column; text too long for 32-bit offsets gets 64-bit offsets."""
    words = values.dictionary
    if pa.types.is_string(words.type):
        import pyarrow.compute as pc  # noqa: PLC0415  (slow to import)

        longest = pc.max(pc.binary_length(words)).as_py() or 0
        if longest * len(values) > _LARGEST_STRING_COLUMN:
            words = words.cast(pa.large_string())
    return words.take(values.indices)


def _marks(values: pa.Array, field: Field, *, text: bool) -> NDArray[Any]:
    if pa.types.is_null(values.type):
        return np.full(len(values), missing_mark(field, text=text))
    if field.date is not None:
        return _mark_dates(values, field, field.date, text=text)
    if field.edges is not None:
        return _cut(values, field, text=text)
    return _look_up(values, field, text=text)


def _mark_dates(values: pa.Array, field: Field, reading: DateReading, *, text: bool) -> NDArray[Any]:
    """Mark dates by the category of their age, year, quarter or month.

    Texts that are not dates may be categories, such as a month or a missing answer, or recoded values.
    """
    plain = replace(field, date=None)
    days = days_of(values)
    is_date = days.is_valid().to_numpy(zero_copy_only=False)
    marks = _marks(date_labels(days, reading), plain, text=True).astype(np.int64)
    others = np.full(len(values), len(field.variable) + UNKNOWN)
    if kind_of(values.type) == "text":
        others = _look_up(values, plain, text=text).astype(np.int64)
    others[values.is_null().to_numpy(zero_copy_only=False)] = missing_mark(field, text=text)
    return np.where(is_date, marks, others)


def days_of(values: pa.Array) -> pa.Array:
    """Return the dates of a column, null where a value is not a date.

    Dates are Arrow's dates and timestamps, and texts such as 2026-01-31, with or without a time, and
    31.01.2026.
    """
    import pyarrow.compute as pc  # noqa: PLC0415  (slow to import)

    kind = values.type
    if pa.types.is_date(kind):
        return values.cast(pa.date32())
    if pa.types.is_timestamp(kind):
        return (pc.local_timestamp(values) if kind.tz else values).cast(pa.date32(), safe=False)
    if kind_of(kind) != "text":
        return pa.nulls(len(values), pa.date32())
    words = pc.utf8_trim_whitespace(values.cast(pa.string()))
    words = pc.replace_substring_regex(words, _DOTTED_DATE, r"\3-\2-\1")
    texts = pc.if_else(
        pc.match_substring_regex(words, _ISO_DATE), pc.utf8_slice_codeunits(words, 0, 10), None
    )
    found = pc.strptime(texts, format="%Y-%m-%d", unit="s", error_is_null=True)
    same = pc.equal(pc.strftime(found, format="%Y-%m-%d"), texts)  # False for dates such as 30 February
    return pc.if_else(same, found, None).cast(pa.date32())


def date_labels(days: pa.Array, reading: DateReading) -> pa.Array:
    """Return dates as text: their ages, years, quarters or months.

    >>> from masquerade.core.schema import DateReading
    >>> days = days_of(pa.array(["1990-06-15", "16.06.1990", "unknown"]))
    >>> date_labels(days, DateReading("quarter")).to_pylist()
    ['1990-Q2', '1990-Q2', None]
    """
    import pyarrow.compute as pc  # noqa: PLC0415  (slow to import)

    year, month = pc.year(days), pc.month(days)
    if reading.unit == "month":
        return pc.strftime(days, format="%Y-%m")
    if reading.unit == "quarter":
        return pc.binary_join_element_wise(year.cast(pa.string()), pc.quarter(days).cast(pa.string()), "-Q")
    if (on := reading.on) is not None:
        in_year = pc.add(pc.multiply(month, 100), pc.day(days))
        later = pc.greater(in_year, pa.scalar(100 * on.month + on.day, pa.int64()))
        year = pc.subtract(pc.subtract(pa.scalar(on.year, pa.int64()), year), later.cast(pa.int64()))
    return year.cast(pa.string())


def _spread(values: pa.DictionaryArray, field: Field, found: NDArray[Any], *, text: bool) -> int:
    """Mark the distinct values, then write their marks to the rows.

    Return the largest mark that a row may have. A dictionary entry that no row uses may be unknown: data
    frames often keep unused categories.
    """
    distinct = _marks(values.dictionary, field, text=text)
    table = np.append(distinct, missing_mark(field, text=text)).astype(found.dtype)
    indices = values.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(len(distinct))
    spread(indices.to_numpy(), table, found)
    return int((table if values.null_count else table[:-1]).max(initial=0))


def _look_up(values: pa.Array, field: Field, *, text: bool) -> NDArray[Any]:
    """Mark values by their index in the list of categories."""
    values = _comparable(values)
    known = labels_of_type(values.type, field, text=text)
    unknown = len(field.variable) + UNKNOWN
    table = np.array([*known.values(), unknown], dtype=np.min_scalar_type(unknown + OUTSIDE))
    labels = label_table(tuple(known)) if kind_of(values.type) == "text" and len(values) >= _MANY else None
    if labels is not None:
        marks = np.empty(len(values), dtype=table.dtype)
        mark_texts(_texts(values), labels, table, marks)
    elif known:
        # one hash pass yields the codes: a third faster than dictionary_encode followed by take
        import pyarrow.compute as pc  # noqa: PLC0415  (slow to import)

        places = pc.index_in(values, value_set=pa.array(list(known), type=values.type))
        if places.null_count:
            places = places.fill_null(len(known))
        marks = np.take(table, places.to_numpy())
    else:
        marks = np.full(len(values), unknown, dtype=table.dtype)
    return _with_missing(marks, values, field, text=text)


def _texts(values: pa.Array) -> Texts:
    """Return the bytes of a text column, and the offset of each row."""
    _, places, text = values.buffers()
    width: Any = np.int32 if pa.types.is_string(values.type) else np.int64
    offsets = np.frombuffer(places, dtype=width, count=values.offset + len(values) + 1)[values.offset :]
    return np.frombuffer(b"" if text is None else text, dtype=np.uint8), offsets


def _comparable(values: pa.Array) -> pa.Array:
    """Return values in a type that Arrow can hash, with equal values for equal labels."""
    if pa.types.is_string_view(values.type):
        return values.cast(pa.large_string())
    if pa.types.is_floating(values.type):
        import pyarrow.compute as pc  # noqa: PLC0415  (slow to import)

        return pc.add(values.cast(pa.float64()), 0.0)  # -0.0 becomes 0.0
    return values


def labels_of_type(kind: pa.DataType, field: Field, *, text: bool) -> Mapping[Any, int]:
    """Return the marks of all known values that a column of this type can contain, in the column's type.

    Known values are categories and recoded values; for bins, recoded values and missing categories.
    """
    categories = [
        (label, i)
        for i, label in enumerate(field.variable.categories)
        # for bins, only texts that denote missing values: a number always belongs to a bin
        if field.edges is None or (type(label) is str and label in field.variable.missing)
    ]
    others = [(value, _recode_mark(field, label, text=text)) for value, label in field.recodes]
    if kind_of(kind) == "text" and text:
        if len({category_text(label) for label, _ in categories}) < len(categories):
            raise SchemaError(
                f"Variable {field.variable.name!r} has categories that look the same as text: "
                "a CSV file cannot tell them apart."
            )
        return _text_forms(others) | _text_forms(categories)
    labels = [*others, *categories]
    if kind_of(kind) == "text":
        return {v: code for v, code in labels if type(v) is str}
    if pa.types.is_boolean(kind):
        return {v: code for v, code in labels if type(v) is bool}
    if pa.types.is_integer(kind):
        bounds = np.iinfo(kind.to_pandas_dtype())
        return {v: code for v, code in labels if type(v) is int and bounds.min <= v <= bounds.max}
    if pa.types.is_floating(kind):
        integers = {float(v): c for v, c in labels if type(v) is int and abs(v) <= _LARGEST_EXACT_FLOAT}
        # a decimal number is matched to a category by its repr
        return integers | {float(v): c for v, c in labels if is_decimal(v)}
    return {}


def _recode_mark(field: Field, label: Category | None, *, text: bool) -> int:
    return missing_mark(field, text=text) if label is None else field.variable.code(label)


def _text_forms(labels: Iterable[tuple[Category, int]]) -> dict[str, int]:
    """Return the mark of every text that represents a value."""
    exact: dict[str, int] = {}
    others: dict[str, int] = {}
    for label, mark in labels:
        exact[category_text(label)] = mark
        if isinstance(label, bool):
            others |= dict.fromkeys((str(label), str(label).upper()), mark)
        elif isinstance(label, int):
            others[f"{label}.0"] = mark  # what pandas writes once the column has a missing value
    return others | exact


def _cut(values: pa.Array, field: Field, *, text: bool) -> NDArray[Any]:
    """Mark numbers by the bin they fall into: [e_k, e_k+1), the last one closed."""
    import pyarrow.compute as pc  # noqa: PLC0415  (slow to import)

    size = len(field.variable)
    edges = np.array(field.edges, dtype=np.float64)
    numbers = _numbers(values, text=text)
    if numbers is None:
        return _look_up(values, field, text=text)
    known: NDArray[np.float64] = numbers.to_numpy(zero_copy_only=False)  # nulls become NaN
    marks: NDArray[Any] = np.searchsorted(edges, known, side="right") - 1
    marks[known == edges[-1]] = len(edges) - 2
    marks[(known < edges[0]) | (known > edges[-1])] = size + OUTSIDE
    marks[np.isnan(known)] = missing_mark(field, text=text)
    if numbers.null_count > values.null_count:
        no_number = pc.and_(numbers.is_null(), values.is_valid())
        marks[no_number.to_numpy(zero_copy_only=False)] = size + UNKNOWN
    if labels_of_type(values.type, field, text=text):
        listed = _look_up(values, field, text=text)
        read_otherwise = (listed != size + UNKNOWN) & values.is_valid().to_numpy(zero_copy_only=False)
        marks[read_otherwise] = listed[read_otherwise]
    return marks


def _numbers(values: pa.Array, *, text: bool) -> pa.Array | None:
    """Return values as floats, null if a text is not a number; None if the type is not numeric."""
    if kind_of(values.type) in {"whole", "number"}:
        return values.cast(pa.float64(), safe=False)
    if not (text and kind_of(values.type) == "text"):
        return None
    import pyarrow.compute as pc  # noqa: PLC0415  (slow to import)

    words = pc.utf8_trim_whitespace(values)
    numeric = pc.match_substring_regex(words, _NUMBER)
    return pc.if_else(numeric, words, None).cast(pa.float64())


def _with_missing(marks: NDArray[Any], values: pa.Array, field: Field, *, text: bool) -> NDArray[Any]:
    """Mark nulls (and NaN) as the category that the policy names for missing values."""
    nan = pa.types.is_floating(values.type)
    if values.null_count or (nan and np.isnan(values.to_numpy(zero_copy_only=False)).any()):
        holes = values.is_null(nan_is_null=nan).to_numpy(zero_copy_only=False)
        marks[holes] = missing_mark(field, text=text)
    return marks


def missing_texts(field: Field) -> frozenset[str]:
    """Return the texts by which the policy distinguishes several kinds of missing values in a file.

    These are the missing categories, and values that are recoded to them. All other values that a file marks
    as missing are read as empty cells, even if they look like an answer.

    >>> visits = mq.Variable("visits", (0, 1, "refused"), ["refused"])
    >>> sorted(missing_texts(Field(visits, "refused", recodes=((-8, "refused"),))))
    ['-8', 'refused']
    """
    variable = field.variable
    codes = [value for value, label in field.recodes if label is not None and label in variable.missing]
    return frozenset(map(category_text, [*variable.missing, *codes]))


def missing_texts_of(fields: Iterable[Field]) -> dict[str, frozenset[str]]:
    """Return `missing_texts` of several columns, by name."""
    return {field.variable.name: missing_texts(field) for field in fields if field.variable.missing}


def missing_mark(field: Field, *, text: bool) -> int:
    """Return the mark of a missing value: the code of its category, or a problem if the policy names none."""
    stands_for = field.missing
    if stands_for is None and text:
        stands_for = ""  # in a CSV an empty category can only be written as an empty cell
    for code, label in enumerate(field.variable.categories):
        if type(label) is type(stands_for) and label == stands_for:
            return code
    if field.missing is not None:
        return field.variable.code(field.missing)
    return len(field.variable) + MISSING


def _problems(
    values: pa.Array, marks: NDArray[Any], field: Field, before: int, *, text: bool
) -> Iterator[ValueProblem]:
    """Yield the problems of a chunk's values, with a few rows per problem."""
    size, name = len(field.variable), field.variable.name
    for mark in (UNKNOWN, MISSING, OUTSIDE):
        rows = np.flatnonzero(marks == size + mark)
        if not len(rows):
            continue
        problem = _problem(mark, values.type, field, text=text)
        nearly = _nearly_known(values, rows, field) if mark == UNKNOWN and field.edges is None else rows[:0]
        for some, words in ((np.setdiff1d(rows, nearly), problem), (nearly, problem + NEARLY)):
            if len(some):
                listed = tuple((some[:MOST_ROWS] + before + 1).tolist())
                yield ValueProblem(name, listed, words, more=len(some) > MOST_ROWS)


def _nearly_known(values: pa.Array, rows: NDArray[np.intp], field: Field) -> NDArray[np.intp]:
    """Return rows whose text is a category except for case and white space, among the first few rows."""
    if kind_of(values.type) != "text":
        return rows[:0]
    few = rows[:MOST_COMPARED]
    alike = {fold_label(label) for label in field.variable.categories if isinstance(label, str)}
    return few[[_folded_value(values[row]) in alike for row in few.tolist()]]


def _folded_value(value: Any) -> str | None:
    """Return `fold_label` of a value; None for a long text, because a file may repeat it in every row."""
    text = value.value if isinstance(value, pa.DictionaryScalar) else value
    return fold_label(text.as_py()) if text.as_buffer().size <= MOST_COMPARED_BYTES else None


def fold_label(label: str) -> str:
    """Return a text in lower case, without white space at its ends and with single spaces inside.

    >>> fold_label("  Very  Good ")
    'very good'
    """
    return " ".join(unicodedata.normalize("NFKC", label).split()).casefold()


def _problem(mark: int, kind: pa.DataType, field: Field, *, text: bool) -> str:
    if mark == MISSING:
        return (
            "is missing and the policy does not say what a missing value stands for (missing: …), and "
            "disguised records have no empty cells"
        )
    if mark == OUTSIDE:
        return "is outside the policy's bins"
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if field.date is not None:
        return (
            "is not a date, as 2026-01-31 or 31.01.2026, or its period is not one of the policy's categories"
        )
    if field.edges is not None:
        return (
            "is not a number" if text else f"holds {kind_words(kind)} where the policy cuts numbers into bins"
        )
    if labels_of_type(kind, field, text=text):
        return "is not one of the policy's categories"
    listed = {type(label) for label in field.variable.categories}
    names = {str: "text", int: "whole numbers", bool: "true/false"}
    wanted = " and ".join(name for label_type, name in names.items() if label_type in listed)
    return f"holds {kind_words(kind)} where the policy lists {wanted}"
