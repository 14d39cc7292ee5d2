"""Votes that are redrawn at random for each table, so that sums are private although votes are one-hot.

A user answers a table of K cells truthfully, or by a cell drawn uniformly. The order is: a durable claim that
the tables are spent, then the draw, then the vote. After a crash between two steps the tables are spent, and
no answer is drawn again.
Reference: Feldman, McMillan & Talwar (2021, 2023).
Records are no longer protected if more users of a roster than agreed reveal their votes to the miner.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from masquerade.core.errors import InputError
from masquerade.protocols.people.questions import Question, Sizes

if TYPE_CHECKING:
    from masquerade.channels.noise.redraws import RedrawTerms

BITS: Final = 32


@dataclass(frozen=True, slots=True)
class VoteNoise:
    """Noise of redrawn votes in frequency mining, which protects each record over all tables of an epoch.

    Every user redraws each answer at random, with a probability that the accountant computes. Nobody else
    knows which answers were redrawn.

    Parameters
    ----------
    epsilon : float
        ε of all tables together.
    tables : int
        Total number of tables that will be counted.
    colluders : int
        Number of users who may reveal their votes to the miner.
    delta : float, default 1e-6
        δ; at least 1e-10.

    Examples
    --------
    >>> mq.people.VoteNoise(epsilon=1, tables=10, colluders=100).delta
    1e-06
    """

    epsilon: float
    tables: int
    colluders: int
    delta: float = 1e-6

    @property
    def privacy(self) -> tuple[Fraction, Fraction]:
        """Return ε and δ, exactly as they were stated."""
        return Fraction(repr(float(self.epsilon))), Fraction(repr(float(self.delta)))

    def encode(self) -> bytes:
        """Return the bytes that represent this noise in hashes."""
        return f"votes {float(self.epsilon)!r} {float(self.delta)!r} {self.tables} {self.colluders}".encode()

    def terms(self, minimum: int, sizes: Sizes) -> RedrawTerms:
        """Return the terms of the accountant; raise InputError if too few people would be counted.

        Parameters
        ----------
        minimum : int
            Smallest number of users that are counted together.
        sizes : mapping of str to int
            Number of possible reports of each variable.

        Returns
        -------
        RedrawTerms
            Terms with the smallest redraw probability that keeps ε and δ.

        Raises
        ------
        InputError
            If `minimum` is too small for the number of colluders.
        """
        from masquerade.channels.noise.redraws import RedrawTerms  # noqa: PLC0415  (loads numpy)

        if minimum < self.colluders + 2:
            raise InputError(
                f"With {self.colluders} colluders at least {self.colluders + 2} users must be counted "
                f"together, so that two of them hide each other. Got {minimum}."
            )
        cells = max(min(sizes.values()), 2)
        terms = RedrawTerms(self.epsilon, self.tables, self.delta, minimum, self.colluders, cells)
        _ = terms.weight  # noise that cannot be computed is refused here
        return terms


def redrawn_cell(cell: int, cells: int, weight: int, word: int) -> int:
    """Return the cell that the 32-bit `word` draws, or the true one; `weight` words draw each cell.

    >>> from masquerade.protocols.frequency_mining.vote_noise import redrawn_cell
    >>> [redrawn_cell(2, 3, 1 << 29, word << 29) for word in range(8)]
    [0, 1, 2, 2, 2, 2, 2, 2]
    """
    drawn = word // weight
    return drawn if drawn < cells else cell


def redrawn_votes(
    questions: Sequence[Question], reports: Mapping[str, int], sizes: Sizes, weight: int
) -> list[int]:
    """Return the bits of a vote, with a fresh draw of OS randomness per question; call it once per round."""
    bits: list[int] = []
    for question in questions:
        cells, cell = question.cells(sizes), question.cell(reports, sizes)
        if cell is None:
            raise InputError("A table whose answers are redrawn has no conditions.")
        vote = [0] * cells
        vote[redrawn_cell(cell, cells, weight, secrets.randbits(BITS))] = 1
        bits += vote
    return bits
