"""Parse untrusted JSON within limits of length, depth and digits.

Files are read up to a maximum length. The parser rejects nesting deeper than `MOST_DEPTH`, numbers that are
too long or too large for floating point, duplicate keys, lone surrogates, `NaN` and `Infinity`, so that code
that walks the values never meets them. All problems are errors of masquerade.
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
MOST_PARTS = 1 << 22  # objects and lists: an empty list of three bytes takes sixty in memory
MOST_DIGITS = 300  # integers of this length still fit into floating point
MOST_EXPONENT = 10_000  # 1e999999999999 is short as text, but fills the memory as an exact number


def parse_json(text: str | bytes, *, exact: bool = False, most: int = MOST_BYTES) -> Any:
    """Return the plain values of JSON text.

    Parameters
    ----------
    text : str or bytes
        Untrusted JSON.
    exact : bool, default False
        Return decimals as `Decimal`, exactly as written.
    most : int
        Maximum length.

    Returns
    -------
    object
        Plain Python values.

    Raises
    ------
    InputError
        If the text is invalid or exceeds a limit. The message quotes no value.

    Examples
    --------
    >>> parse_json('{"p": 0.25}', exact=True)
    {'p': Decimal('0.25')}
    """
    if len(text) > most:
        raise InputError(f"too long: at most {most:,} bytes are read.")
    try:
        plain = text if isinstance(text, str) else text.decode("utf-8")
        if plain.count("[") + plain.count("{") > MOST_PARTS:
            raise InputError(f"more than {MOST_PARTS:,} objects and lists.")
        values = json.loads(
            plain,
            parse_int=_parse_int,
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
    """Return the text of a UTF-8 file of at most `most` bytes; raise FileError if that fails."""
    try:
        with path.open("rb") as stream:
            data = stream.read(most + 1)
    except (OSError, ValueError) as error:  # ValueError: a path that contains a zero byte
        reason = getattr(error, "strerror", None) or "no such file"
        raise FileError(f"{path}: cannot be read ({reason}).") from None
    if len(data) > most:
        raise FileError(f"{path}: is too long: at most {most:,} bytes are read.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise FileError(f"{path}: is not a text file in UTF-8.") from None


def read_json(path: Path, *, most: int = MOST_BYTES) -> Any:
    """Return the plain values of a JSON file; raise FileError, which names the file, if it is invalid."""
    text = read_text(path, most=most)
    try:
        return parse_json(text, most=most)
    except InputError as error:
        raise FileError(f"{path}: {error}") from None


def _parse_int(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise InputError(f"a number has more than {MOST_DIGITS} digits.")
    return int(digits)


def exact_decimal(digits: str) -> Decimal:
    """Return a decimal exactly as written; raise InputError if it is too long or its exponent too large."""
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
    raise InputError(f"{name} is not a valid JSON number.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InputError(f"{twice!r} is given twice.")
    return result


def check_plain(values: Any) -> None:
    """Raise InputError if plain values nest too deeply or contain a lone surrogate.

    The check proceeds level by level, so that no stack grows with the depth.
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
    """Raise InputError if text contains a lone surrogate, which cannot be encoded as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("a text contains half a character (a lone surrogate).") from None


def _too_deep() -> InputError:
    return InputError(f"nested deeper than {MOST_DEPTH} levels.")
