"""Numbers of things, in words."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return how many there are of something.

    >>> counted(1, "row"), counted(2000, "row"), counted(1, "person", "people"), counted(0, "leaf", "leaves")
    ('1 row', '2,000 rows', '1 person', '0 leaves')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
