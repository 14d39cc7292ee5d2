"""JSON from strangers: read within bounds of length, depth and digits, every mistake an error of ours.

Files are read up to a length and no further. What nests deeper than `MOST_DEPTH`, a number too long or too
large for floating point, a key that stands twice, half a character, `NaN` and `Infinity` are refused, so that
nobody who walks the values later meets them.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from masquerade.core.errors import FileError, InputError

MOST_BYTES = 1 << 24
MOST_DEPTH = 100
MOST_DIGITS = 300  # a whole number of so many still fits into floating point
MOST_EXPONENT = 10_000  # of decimals: 1e999999999999 is short to write, and fills the memory as a number


def parse_json(text: str | bytes, *, exact: bool = False, most: int = MOST_BYTES) -> Any:
    """Return the plain values of JSON text; whatever is wrong is an `InputError` that quotes nothing.

    With `exact`, decimals are kept as they are written.

    >>> parse_json('{"p": 0.25}', exact=True)
    {'p': Decimal('0.25')}
    """
    if len(text) > most:
        raise InputError(f"too long: at most {most:,} bytes are read.")
    try:
        values = json.loads(
            text if isinstance(text, str) else text.decode("utf-8"),
            parse_int=_whole,
            parse_float=exact_decimal if exact else _finite,
            parse_constant=_constant,
            object_pairs_hook=_unique,
        )
    except json.JSONDecodeError as error:
        raise InputError(f"line {error.lineno}: not valid JSON ({error.msg}).") from None
    except UnicodeDecodeError:
        raise InputError("not a text in UTF-8.") from None
    except RecursionError:
        raise _too_deep() from None
    check_plain(values)
    return values


def read_text(path: Path, *, most: int = MOST_BYTES) -> str:
    """Return the text of a file in UTF-8 of at most so many bytes; whatever is wrong is a `FileError`."""
    try:
        with path.open("rb") as stream:
            data = stream.read(most + 1)
    except (OSError, ValueError) as error:  # a name with a zero byte is no name
        reason = getattr(error, "strerror", None) or "no such file"
        raise FileError(f"{path}: cannot be read ({reason}).") from None
    if len(data) > most:
        raise FileError(f"{path}: is too long: at most {most:,} bytes are read.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise FileError(f"{path}: is not a text file in UTF-8.") from None


def read_json(path: Path, *, most: int = MOST_BYTES) -> Any:
    """Return the plain values of a JSON file; whatever is wrong is a `FileError` that names it."""
    text = read_text(path, most=most)
    try:
        return parse_json(text, most=most)
    except InputError as error:
        raise FileError(f"{path}: {error}") from None


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise InputError(f"a number has more than {MOST_DIGITS} digits.")
    return int(digits)


def exact_decimal(digits: str) -> Decimal:
    """Return a decimal as it is written; one too long is refused, and one that no whole number could hold."""
    if len(digits) > MOST_DIGITS:
        raise InputError(f"a number has more than {MOST_DIGITS} digits.")
    try:
        exact = Decimal(digits)
    except InvalidOperation:
        exact = Decimal("Infinity")
    if not exact.is_finite() or abs(exact.adjusted()) > MOST_EXPONENT:
        raise InputError(f"a number has an exponent beyond {MOST_EXPONENT:,}.")
    return exact


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise InputError("a number is too large.")
    return value


def _constant(name: str) -> float:
    raise InputError(f"{name} is no number that JSON knows.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InputError(f"{twice!r} is given twice.")
    return result


def check_plain(values: Any) -> None:
    """Refuse plain values that nest too deeply, or hold half a character (which no file can hold).

    Level by level: no stack grows with them.
    """
    level = [values]
    for _ in range(MOST_DEPTH + 1):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += value
                inner += value.values()
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, str) and not value.isascii():
                check_text(value)
        if not inner:
            return
        level = inner
    raise _too_deep()


def check_text(text: str) -> None:
    """Refuse text with half a character in it, a lone surrogate, which cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("a text holds half a character (a lone surrogate).") from None


def _too_deep() -> InputError:
    return InputError(f"nested deeper than {MOST_DEPTH} levels.")
