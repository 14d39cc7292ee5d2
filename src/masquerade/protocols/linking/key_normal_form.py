"""The normal form of a key: two spellings of the same key link, two keys never do."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from masquerade.core.errors import InputError

LONGEST_KEY = 1024
Key = str | int | tuple[str | int, ...]


def normal_form(key: Key) -> bytes:
    """Return the bytes that stand for a key: a text, a whole number, or several of them together.

    A text is brought to Unicode NFC, stripped of white space at both ends, runs of white space inside become
    one space, upper and lower case are folded, and NFC is applied again; a whole number stands for its
    decimal digits. What differs after that is different: leading zeros, hyphens, accents, abbreviations.

    >>> normal_form("  Ana  MÜLLER ") == normal_form("ana müller")
    True
    >>> normal_form(("müller", 1970)) == normal_form("müller 1970")
    False
    """
    parts = key if isinstance(key, tuple) else (key,)
    encoded = b"".join(len(part).to_bytes(2, "big") + part for part in map(_part, parts))
    if not parts or len(encoded) > LONGEST_KEY:
        raise InputError(f"A key has at least one part and at most {LONGEST_KEY} bytes.")
    return encoded


def _part(part: object) -> bytes:
    if isinstance(part, bool) or not isinstance(part, (str, int)):
        raise InputError("A key is a text or a whole number, or several of these in a tuple.")
    folded = " ".join(unicodedata.normalize("NFC", str(part)).split()).casefold()
    try:
        text = unicodedata.normalize("NFC", folded).encode()
    except UnicodeEncodeError:
        raise InputError("A key is not valid Unicode.") from None
    if not text or len(text) > LONGEST_KEY:
        raise InputError(f"A key, and every part of it, has from 1 to {LONGEST_KEY} bytes.")
    return text


def normal_forms(keys: Sequence[Key], most: int) -> list[bytes]:
    """Return all keys in normal form; two records with one key are refused, and so are too many."""
    check_count(keys, most)
    forms = [normal_form(key) for key in keys]
    check_repeated(len(forms) - len(set(forms)))
    return forms


def check_count(keys: Sequence[Key], most: int) -> None:
    """Refuse more keys than a session takes."""
    if len(keys) > most:
        raise InputError(f"At most {most:,} keys are linked in a session. Got {len(keys):,} instead.")


def check_repeated(repeated: int) -> None:
    """Refuse keys that name two records."""
    if repeated:
        raise InputError(
            f"{repeated:,} records have a key that another record has too (after normalising): a key must "
            "name one record."
        )
