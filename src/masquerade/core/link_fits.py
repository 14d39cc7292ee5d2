"""Many links judged by the likelihood of what was observed: is the child independent of a further parent?"""

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
SCORES = 1e-3  # the accuracy of a deviance that is enough for scores


@dataclass(frozen=True, slots=True, eq=False)
class LinkFits:
    """Fits of "the child is independent of the new parent, given the parents already there", link by link.

    `independent` is the deviance of that model and `free` the one of the most likely table of all, which is
    not 0 where channels bind; their difference, `statistic`, is twice what the link gains in log-likelihood
    and never negative. It has `df` = J(K_z − 1)(K_x − 1) degrees of freedom. Where `settled` is False the fit
    was given up because the statistic cannot exceed the one asked for; then it is only a bound from above.
    `expected` and `likely` are the fitted tables of both models, (J, K_z, K_x), of settled links.
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
        """Return twice the gain in log-likelihood of every link."""
        return np.maximum(self.independent - self.free, 0.0)

    def __len__(self) -> int:
        """Return how many links there are."""
        return len(self.independent)


@runtime_checkable
class LinkEvidence(Protocol):
    """Evidence whose kind fits many links faster together than one by one."""

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
    """Links with the tables of their reports, laid out for a compiled fit: no object for each of them."""

    @property
    def n(self) -> int:
        """How many equally weighted records there are."""

    def statistics(self, which: Places, least: Floats, tolerance: float = SCORES) -> Floats:
        """Return the `LinkFits.statistic` of some links, or a bound of those not above their least."""


@runtime_checkable
class LinkTally(Protocol):
    """A source that counts and fits many links at once. Any `Tally` does so with a table for each."""

    def links(self, names: Sequence[str], members: Places) -> LinkBatch | None:
        """Return links to be judged, all of its questions being allowed; None if tables must be asked for.

        A row of `members` has the places in `names` of (the parents already there …, the new parent, the
        child), then −1.
        """


def fit_links(
    evidences: Sequence[Evidence],
    places: Sequence[Sequence[int]],
    *,
    least: Floats | Sequence[float] | None = None,
    tolerance: float = SCORES,
) -> LinkFits:
    """Fit "X ⟂ Z | J" and the saturated model to many tables, of whatever shapes.

    `places[i]` are the axes of table i for (the parents already there …, the new parent Z, the child X): all
    of its axes, each once. `least[i]` is the statistic that link i must exceed to matter (−∞ if not given):
    a link that cannot is given up as soon as that is certain, often at the start. Deviances are
    within `tolerance` of their limits.

    Formula: D = 2[ℓ(saturated reports) − ℓ(fit)] of the generators {J∪Z, J∪X} and {J∪Z∪X}; any member of the
    first model bounds its D from above, and D of the second is never negative.
    Cost: evidence of one kind is fitted together, in compiled code where that kind has some.
    """
    if len(places) != len(evidences):
        raise ValueError(f"{len(evidences)} links need as many places. Got {len(places)} instead.")
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
    return merged(parts, len(evidences))


def fit_one_by_one(
    batch: Sequence[Evidence], places: Sequence[Sequence[int]], least: Floats, tolerance: float
) -> LinkFits:
    """Fit each link by the evidence's own `fit`; all are settled, whatever is `least`."""
    del least, tolerance
    found = [one_link(evidence, where) for evidence, where in zip(batch, places, strict=True)]
    return merged([([i], each) for i, each in enumerate(found)], len(found))


def one_link(evidence: Evidence, places: Sequence[int]) -> LinkFits:
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


def merged(parts: Sequence[tuple[Sequence[int], LinkFits]], links: int) -> LinkFits:
    """Put fits of some links each back into the order of all of them."""
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
