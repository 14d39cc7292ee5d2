"""Likelihood fits of many links: is the child independent of a further parent?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.evidence import Evidence

Places = NDArray[np.int64]
SCORES = 1e-3  # coarser tolerance of a deviance: enough to compare scores


@dataclass(frozen=True, slots=True, eq=False)
class LinkFits:
    """Fits of "the child is independent of the new parent, given the other parents", one per link.

    Attributes
    ----------
    independent : array
        Deviance of the independence model.
    free : array
        Deviance of the saturated model, which is not 0 where the channel constrains the fit.
    df : array
        Degrees of freedom J(K_z − 1)(K_x − 1).
    settled : array of bool
        False if a fit was stopped because its statistic cannot exceed the threshold; the statistic is then
        only an upper bound.
    converged : array of bool
        True if both fits reached their tolerance.
    expected, likely : tuple of array
        Fitted tables (J, K_z, K_x) of the independent and the saturated model, for settled links.
    """

    independent: Floats
    free: Floats
    df: NDArray[np.int64]
    settled: NDArray[np.bool_]
    converged: NDArray[np.bool_]
    expected: tuple[Floats | None, ...]
    likely: tuple[Floats | None, ...]

    @property
    def statistic(self) -> Floats:
        """Return twice the gain in log-likelihood of each link; never negative."""
        return np.maximum(self.independent - self.free, 0.0)

    def __len__(self) -> int:
        """Return the number of links."""
        return len(self.independent)


@runtime_checkable
class LinkEvidence(Protocol):
    """Evidence whose class fits many links in one batch, which is faster than one by one."""

    @classmethod
    def fit_links(
        cls,
        batch: Sequence[Evidence],
        places: Sequence[Sequence[int]],
        least: Floats,
        tolerance: float,
    ) -> LinkFits:
        """Fit links as `fit_links` does."""


class LinkBatch(Protocol):
    """Links with the tables of their reports, laid out for a compiled fit without one object per link."""

    @property
    def n(self) -> int:
        """The number of equally weighted records."""

    def statistics(self, which: Places, least: Floats, tolerance: float = SCORES) -> Floats:
        """Return `LinkFits.statistic` of each link; only an upper bound where it is below the threshold."""


@runtime_checkable
class LinkTally(Protocol):
    """A source that counts and fits many links together. Any other `Tally` needs one table per link."""

    def links(self, names: Sequence[str], members: Places) -> LinkBatch | None:
        """Return the links to score if all their queries are allowed; None if tables must be queried.

        A row of `members` contains the positions in `names` of (other parents …, new parent, child), padded
        with −1.
        """


def fit_links(
    evidences: Sequence[Evidence],
    places: Sequence[Sequence[int]],
    *,
    least: Floats | Sequence[float] | None = None,
    tolerance: float = SCORES,
) -> LinkFits:
    """Fit "X ⟂ Z | J" and the saturated model to many tables of any shapes.

    Parameters
    ----------
    evidences : sequence of Evidence
        One per link.
    places : sequence of sequence of int
        Axes of each table in the order (other parents …, new parent Z, child X). Every axis is listed once.
    least : sequence of float, optional
        Threshold of the statistic, per link. The fit of a link that cannot exceed its threshold is stopped as
        soon as that is certain, often at the start.
    tolerance : float
        Tolerance of the deviances.

    Returns
    -------
    LinkFits
        One fit per link.

    Notes
    -----
    Formula: D = 2[ℓ(saturated reports) − ℓ(fit)] of the generators {J∪Z, J∪X} and {J∪Z∪X}. Any member of the
    first model gives an upper bound of its D, and D of the second is never negative.
    Cost: evidence of one class is fitted together, in compiled code if the class provides it.
    """
    if len(places) != len(evidences):
        raise ValueError(f"{len(evidences)} links need as many lists of axes. Got {len(places)} instead.")
    bounds = np.full(len(evidences), -np.inf) if least is None else np.asarray(least, dtype=float)
    kinds: dict[type, list[int]] = {}
    for i, evidence in enumerate(evidences):
        kinds.setdefault(type(evidence), []).append(i)
    parts: list[tuple[list[int], LinkFits]] = []
    for members in kinds.values():
        batch, where = [evidences[i] for i in members], [places[i] for i in members]
        first = batch[0]
        together = first.fit_links if isinstance(first, LinkEvidence) else fit_one_by_one
        parts.append((members, together(batch, where, bounds[members], tolerance)))
    return merge_fits(parts, len(evidences))


def fit_one_by_one(
    batch: Sequence[Evidence], places: Sequence[Sequence[int]], least: Floats, tolerance: float
) -> LinkFits:
    """Fit each link by the `fit` of its evidence; all links are settled."""
    del least, tolerance
    fits = [fit_one_link(evidence, where) for evidence, where in zip(batch, places, strict=True)]
    return merge_fits([([i], each) for i, each in enumerate(fits)], len(fits))


def fit_one_link(evidence: Evidence, places: Sequence[int]) -> LinkFits:
    """Fit one link."""
    *given, parent, child = places
    independent = evidence.fit([(*given, parent), (*given, child)])
    free = evidence.fit([tuple(places)])
    shape = [independent.expected.shape[place] for place in places]
    block = (prod(shape[:-2]), *shape[-2:])
    df = block[0] * (block[1] - 1) * (block[2] - 1)
    return LinkFits(
        np.array([independent.deviance]),
        np.array([free.deviance]),
        np.array([df]),
        np.array([True]),
        np.array([independent.converged and free.converged]),
        (independent.expected.transpose(places).reshape(block),),
        (free.expected.transpose(places).reshape(block),),
    )


def merge_fits(parts: Sequence[tuple[Sequence[int], LinkFits]], links: int) -> LinkFits:
    """Return fits of subsets of links in the order of all links."""
    independent, free = np.zeros(links), np.zeros(links)
    df = np.zeros(links, dtype=np.int64)
    settled, converged = np.zeros(links, dtype=bool), np.zeros(links, dtype=bool)
    expected: list[Floats | None] = [None] * links
    likely: list[Floats | None] = [None] * links
    for members, fits in parts:
        at = list(members)
        independent[at], free[at], df[at] = fits.independent, fits.free, fits.df
        settled[at], converged[at] = fits.settled, fits.converged
        for i, null, full in zip(at, fits.expected, fits.likely, strict=True):
            expected[i], likely[i] = null, full
    return LinkFits(independent, free, df, settled, converged, tuple(expected), tuple(likely))
