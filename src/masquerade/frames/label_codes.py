"""Labels to codes and back: a column of text, numbers or truth values becomes small unsigned integers.

Every row first gets a mark: the code of its category, or one of three numbers past the last code that
say what is wrong with it. Of wrong ones the rows are reported, up to ten, and never a value.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from masquerade.core.errors import MOST_ROWS, SchemaError, UnknownValue, ValueProblem
from masquerade.core.schema import Category, Field
from masquerade.core.util.formatting import category_text
from masquerade.frames.cores import on_all_cores
from masquerade.kernels.label_text import label_table, mark_texts
from masquerade.kernels.take import spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from masquerade.kernels.key_texts import Texts

UNKNOWN, MISSING, OUTSIDE = range(3)  # added to the number of categories
Kind = Literal["text", "truth", "whole", "number", "other"]
WORDS = {"text": "text", "whole": "whole numbers", "number": "numbers", "truth": "true/false"}
_NUMBER = r"(?i)^[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|inf|infinity|nan)$"
NEARLY = " (but for capitals or blanks it is: see 'recode')"
_MANY = (
    1 << 12
)  # texts from which on our own look at them takes less time than Arrow's, and the loading of it
MOST_COMPARED = 1000  # values that are compared with categories, of a batch
_LARGEST_EXACT_FLOAT = 2**53
_LARGEST_STRING_COLUMN = 2**31 - 1  # bytes that 32-bit offsets can address


def kind_of(kind: pa.DataType) -> Kind:
    """Return what a column of an Arrow type holds, or the values of its dictionary."""
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
    """Return the same in words."""
    return WORDS.get(kind_of(kind), f"values of type {kind}")


def encode(column: pa.Array | pa.ChunkedArray, field: Field, *, text: bool = False) -> NDArray[Any]:
    """Return the codes of a column, in the smallest unsigned type that holds the field's categories.

    Labels match by type and value; with `text` (a CSV) by their text form. Values that are unknown, missing
    without a stand-in, or outside the bins are an `UnknownValue`, rows counted from 1.

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
    """Return the codes of several columns; what is wrong with any of them is said in one `UnknownValue`."""

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
    """Return how many rows columns have; a frame says so without turning one into Arrow."""
    known: int | None = getattr(columns, "rows", None)
    return max((len(values) for values in columns.values()), default=0) if known is None else known


def decode(codes: NDArray[Any], labels: Sequence[Category]) -> pa.Array:
    """Return the labels of `codes` as a plain column: text, whole numbers or truth values.

    Labels of different types come back as text, since a column has one type.

    >>> decode(np.array([1, 0], dtype=np.uint8), ["yes", "no"]).to_pylist()
    ['no', 'yes']
    """
    return expanded(dictionary_of(codes, labels))


def dictionary_of(codes: NDArray[Any], labels: Sequence[Category]) -> pa.DictionaryArray:
    """Return the same as a dictionary column: the codes themselves, which are not copied, beside the labels.

    >>> dictionary_of(np.array([1, 0], dtype=np.uint8), ["yes", "no"]).indices.to_pylist()
    [1, 0]
    """
    kinds = {type(label) for label in labels}
    plain = labels if kinds in ({bool}, {int}) else [category_text(label) for label in labels]
    kind = {frozenset({bool}): pa.bool_(), frozenset({int}): pa.int64()}.get(frozenset(kinds), pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(plain, type=kind), safe=False)


def expanded(values: pa.DictionaryArray) -> pa.Array:
    """Return a dictionary column as a plain one; text too long for 32-bit offsets gets wider ones."""
    words = values.dictionary
    if pa.types.is_string(words.type):
        longest = pc.max(pc.binary_length(words)).as_py() or 0
        if longest * len(values) > _LARGEST_STRING_COLUMN:
            words = words.cast(pa.large_string())
    return words.take(values.indices)


def _marks(values: pa.Array, field: Field, *, text: bool) -> NDArray[Any]:
    if pa.types.is_null(values.type):
        return np.full(len(values), missing_mark(field, text=text))
    if field.edges is not None:
        return _cut(values, field, text=text)
    return _look_up(values, field, text=text)


def _spread(values: pa.DictionaryArray, field: Field, found: NDArray[Any], *, text: bool) -> int:
    """Mark the few distinct values, then write their marks to the rows that have them.

    Returns the largest mark that a row may have got. A listed value that no row uses may be unknown: frames
    carry such categories around.
    """
    distinct = _marks(values.dictionary, field, text=text)
    table = np.append(distinct, missing_mark(field, text=text)).astype(found.dtype)
    indices = values.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(len(distinct))
    spread(indices.to_numpy(), table, found)
    return int((table if values.null_count else table[:-1]).max(initial=0))


def _look_up(values: pa.Array, field: Field, *, text: bool) -> NDArray[Any]:
    """Mark values by their place in the list of categories."""
    values = _comparable(values)
    known = labels_of_type(values.type, field, text=text)
    unknown = len(field.variable) + UNKNOWN
    table = np.array([*known.values(), unknown], dtype=np.min_scalar_type(unknown + OUTSIDE))
    labels = label_table(tuple(known)) if kind_of(values.type) == "text" and len(values) >= _MANY else None
    if labels is not None:
        marks = np.empty(len(values), dtype=table.dtype)
        mark_texts(_texts(values), labels, table, marks)
    elif known:
        # One hash pass that already yields our codes: a third faster than dictionary_encode and a take.
        places = pc.index_in(values, value_set=pa.array(list(known), type=values.type))
        if places.null_count:
            places = places.fill_null(len(known))
        marks = np.take(table, places.to_numpy())
    else:
        marks = np.full(len(values), unknown, dtype=table.dtype)
    return _with_missing(marks, values, field, text=text)


def _texts(values: pa.Array) -> Texts:
    """Return the bytes of a column of text, and where every row of it begins."""
    _, places, text = values.buffers()
    width: Any = np.int32 if pa.types.is_string(values.type) else np.int64
    offsets = np.frombuffer(places, dtype=width, count=values.offset + len(values) + 1)[values.offset :]
    return np.frombuffer(b"" if text is None else text, dtype=np.uint8), offsets


def _comparable(values: pa.Array) -> pa.Array:
    """Return values in a type whose equality is the one we mean, and that Arrow can hash."""
    if pa.types.is_string_view(values.type):
        return values.cast(pa.large_string())
    if pa.types.is_floating(values.type):
        return pc.add(values.cast(pa.float64()), 0.0)  # -0.0 becomes 0.0
    return values


def labels_of_type(kind: pa.DataType, field: Field, *, text: bool) -> Mapping[Any, int]:
    """Return the marks of those values that a column of this type can hold, as it holds them.

    These are the categories and what is recoded; bins have no values but those that are recoded.
    """
    own = [] if field.edges is not None else [(label, i) for i, label in enumerate(field.variable.categories)]
    others = [(value, _recode_mark(field, label, text=text)) for value, label in field.recodes]
    if kind_of(kind) == "text" and text:
        if len({category_text(label) for label, _ in own}) < len(own):
            raise SchemaError(
                f"Variable {field.variable.name!r} has categories that look the same as text: "
                "a CSV file cannot tell them apart."
            )
        return _text_forms(others) | _text_forms(own)
    labels = [*others, *own]
    if kind_of(kind) == "text":
        return {v: code for v, code in labels if type(v) is str}
    if pa.types.is_boolean(kind):
        return {v: code for v, code in labels if type(v) is bool}
    if pa.types.is_integer(kind):
        bounds = np.iinfo(kind.to_pandas_dtype())
        return {v: code for v, code in labels if type(v) is int and bounds.min <= v <= bounds.max}
    if pa.types.is_floating(kind):
        return {float(v): c for v, c in labels if type(v) is int and abs(v) <= _LARGEST_EXACT_FLOAT}
    return {}


def _recode_mark(field: Field, label: Category | None, *, text: bool) -> int:
    return missing_mark(field, text=text) if label is None else field.variable.code(label)


def _text_forms(labels: Iterable[tuple[Category, int]]) -> dict[str, int]:
    """Return the mark of every text that stands for a value."""
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
    size = len(field.variable)
    edges = np.array(field.edges, dtype=np.float64)
    numbers = _numbers(values, text=text)
    if numbers is None:
        if field.recodes:
            return _look_up(values, field, text=text)
        return _with_missing(np.full(len(values), size + UNKNOWN), values, field, text=text)
    known: NDArray[np.float64] = numbers.to_numpy(zero_copy_only=False)  # nulls become NaN
    marks: NDArray[Any] = np.searchsorted(edges, known, side="right") - 1
    marks[known == edges[-1]] = len(edges) - 2
    marks[(known < edges[0]) | (known > edges[-1])] = size + OUTSIDE
    marks[np.isnan(known)] = missing_mark(field, text=text)
    if numbers.null_count > values.null_count:
        no_number = pc.and_(numbers.is_null(), values.is_valid())
        marks[no_number.to_numpy(zero_copy_only=False)] = size + UNKNOWN
    if field.recodes:
        listed = _look_up(values, field, text=text)
        read_otherwise = (listed != size + UNKNOWN) & values.is_valid().to_numpy(zero_copy_only=False)
        marks[read_otherwise] = listed[read_otherwise]
    return marks


def _numbers(values: pa.Array, *, text: bool) -> pa.Array | None:
    """Return values as floats, null where a text is no number; None if the type holds no numbers."""
    if kind_of(values.type) in {"whole", "number"}:
        return values.cast(pa.float64(), safe=False)
    if not (text and kind_of(values.type) == "text"):
        return None
    words = pc.utf8_trim_whitespace(values)
    numeric = pc.match_substring_regex(words, _NUMBER)
    return pc.if_else(numeric, words, None).cast(pa.float64())


def _with_missing(marks: NDArray[Any], values: pa.Array, field: Field, *, text: bool) -> NDArray[Any]:
    """Mark nulls (and NaN) as what the policy says they stand for."""
    nan = pa.types.is_floating(values.type)
    if values.null_count or (nan and pc.any(pc.is_nan(values)).as_py()):
        holes = values.is_null(nan_is_null=nan).to_numpy(zero_copy_only=False)
        marks[holes] = missing_mark(field, text=text)
    return marks


def missing_mark(field: Field, *, text: bool) -> int:
    """Return the mark of a missing value: a code if the policy names one."""
    stands_for = field.missing
    if stands_for is None and text:
        stands_for = ""  # a CSV cannot write a listed empty text otherwise
    for code, label in enumerate(field.variable.categories):
        if type(label) is type(stands_for) and label == stands_for:
            return code
    if field.missing is not None:
        return field.variable.code(field.missing)
    return len(field.variable) + MISSING


def _problems(
    values: pa.Array, marks: NDArray[Any], field: Field, before: int, *, text: bool
) -> Iterator[ValueProblem]:
    """Yield what is wrong with the values of a chunk, a few rows each."""
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
    """Return the rows, of the first few, whose text is a category but for capitals and blanks."""
    if kind_of(values.type) != "text":
        return rows[:0]
    few = rows[:MOST_COMPARED]
    alike = {folded(label) for label in field.variable.categories if isinstance(label, str)}
    return few[[folded(values[row].as_py()) in alike for row in few.tolist()]]


def folded(label: str) -> str:
    """Return a text without what people do not see: capitals, and blanks around or between words.

    >>> folded("  Very  Good ")
    'very good'
    """
    return " ".join(unicodedata.normalize("NFKC", label).split()).casefold()


def _problem(mark: int, kind: pa.DataType, field: Field, *, text: bool) -> str:
    if mark == MISSING:
        return (
            "is missing and the policy does not say what a missing value stands for (missing: …), "
            "and disguised records miss nothing"
        )
    if mark == OUTSIDE:
        return "lies outside the policy's bins"
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
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
