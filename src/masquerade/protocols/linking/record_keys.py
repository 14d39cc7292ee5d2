"""Keys of records: their normal form, and pseudonyms by a secret that parties share and no joiner has.

Two spellings of the same key link, two keys never do. The pseudonym of a key is HMAC-SHA256(secret, session ‖
normal form), cut to 16 bytes. Whoever has the secret and sees pseudonyms can try keys one by one, so one
party that helps the joiner opens the keys of all: where that is not acceptable, link privately
(`LinkingParty`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.crypto.symmetric import coder
from masquerade.protocols.codec import SESSION_SIZE
from masquerade.protocols.linking.messages import PSEUDONYM_SIZE

LONGEST_KEY = 1024
SECRET_SIZE = 32
MOST_KEYED = 30_000_000  # pseudonyms in a message
_AT_ONCE = 1 << 16
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
    _check_count(keys, most)
    forms = [normal_form(key) for key in keys]
    _check_repeated(len(forms) - len(set(forms)))
    return forms


def keyed_pseudonyms(
    keys: Sequence[Key], secret: bytes, session: bytes, *, most: int = MOST_KEYED
) -> NDArray[np.uint8]:
    """Return the pseudonyms of keys as an array, 16 bytes a row, in the order of the keys.

    >>> found = keyed_pseudonyms(["Ann", "bob"], secret=bytes(32), session=bytes(16))
    >>> found.shape, bytes(found[0]) == bytes(keyed_pseudonyms([" ANN"], bytes(32), bytes(16))[0])
    ((2, 16), True)
    """
    if len(session) != SESSION_SIZE:
        raise InputError(f"A session has {SESSION_SIZE} bytes.")
    if len(secret) != SECRET_SIZE:
        raise InputError(f"A linking secret has {SECRET_SIZE} random bytes. Got {len(secret)} instead.")
    _check_count(keys, most)
    digest = coder(secret)
    found = np.empty((len(keys), PSEUDONYM_SIZE), dtype=np.uint8)
    for begin in range(0, len(keys), _AT_ONCE):
        some = slice(begin, begin + _AT_ONCE)
        cut = b"".join([digest(session + normal_form(key))[:PSEUDONYM_SIZE] for key in keys[some]])
        found[some] = np.frombuffer(cut, dtype=np.uint8).reshape(-1, PSEUDONYM_SIZE)
    first = np.sort(found.view(np.uint64)[:, 0])
    if not np.all(first[1:] > first[:-1]):  # halves that agree do not yet mean that keys do
        _check_repeated(len(found) - len(np.unique(found, axis=0)))
    return found


def _check_count(keys: Sequence[Key], most: int) -> None:
    if len(keys) > most:
        raise InputError(f"At most {most:,} keys are linked in a session. Got {len(keys):,} instead.")


def _check_repeated(repeated: int) -> None:
    if repeated:
        raise InputError(
            f"{repeated:,} records have a key that another record has too (after normalising): a key must "
            "name one record."
        )
