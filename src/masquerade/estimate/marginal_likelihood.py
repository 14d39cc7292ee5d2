"""The marginal likelihood of reports with Dirichlet priors on the truth, for many links together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.estimate.reports import Reports

MOST_ROUNDS = 400
STILL = 1e-4  # a fit has converged when its penalized log-likelihood rises less than this in a round
SMALLEST = 1e-300


@dataclass(frozen=True, slots=True)
class LinkReports:
    """A table of reports with the axes (other parents, new parent, child), and the channel of each axis.

    Channels are truths × reports matrices; the channels of several parents form a Kronecker product. `clear`
    means that nothing is disguised.
    """

    observed: Floats
    channels: tuple[Floats, Floats, Floats]
    clear: bool = False

    @classmethod
    def of(cls, part: Reports, places: Sequence[int]) -> LinkReports | None:
        """Return the reports of a table; None if the three axes were not disguised separately."""
        groups = part.groups
        by_variable = {variable: i for i, group in enumerate(groups) for variable in group}
        *given, parent, child = (by_variable[part.reduction.keep[place]] for place in places)
        if len({parent, child, *given}) < 2 + len(set(given)):
            return None
        if any(len(groups[i]) != 1 for i in (parent, child)):
            return None
        channels = [
            np.eye(size) if P is None else P for P, size in zip(part.channels, part.latent, strict=True)
        ]
        before = sorted(set(given))
        joint: Floats = np.ones((1, 1))
        for i in before:
            joint = np.asarray(np.kron(joint, channels[i]))
        observed = part.observed.transpose([*before, parent, child])
        return cls(
            observed.reshape(-1, *observed.shape[-2:]),
            (joint, channels[parent], channels[child]),
            all(P is None for P in part.channels),
        )


def marginal_gains(reports: Sequence[LinkReports | None], prior: Callable[[int], float]) -> Floats:
    """Return each link's gain in log marginal likelihood (`log_marginals`); NaN without reports."""
    found = np.full(len(reports), np.nan)
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, each in enumerate(reports):
        if each is not None:
            shapes = [channel.shape for channel in each.channels]
            groups.setdefault((each.clear, *shapes), []).append(i)
    for members in groups.values():
        some = [each for i in members if (each := reports[i]) is not None]
        configurations, values, categories = (channel.shape[0] for channel in some[0].channels)
        parents = prior(configurations * values)
        with_link, without = prior(configurations * values * categories), prior(configurations * categories)
        if some[0].clear:
            counts = np.stack([each.observed for each in some])
            found[members] = _dirichlet(counts.reshape(len(some), -1, categories), with_link) - _dirichlet(
                counts.sum(axis=2), without
            )
        else:
            found[members] = log_marginals(some, parents, with_link, linked=True) - log_marginals(
                some, parents, without, linked=False
            )
    return found


def log_marginals(reports: Sequence[LinkReports], parents: float, child: float, *, linked: bool) -> Floats:
    """Return the log marginal likelihood of the reports of links of one shape.

    Truths have the probabilities P(j, z)·P(x | j, z), or P(j, z)·P(x | j) without the link, where j are the
    other parents, z is the new parent and x is the child. `parents` and `child` are the pseudo-counts per
    cell of the two factors.

    Formula: ln m(N̂) + ℓ(reports | θ̂) − ℓ(N̂ | θ̂), where θ̂ is the posterior mode of the log-odds, N̂ are
    the true counts expected at θ̂, and m(N̂) is their Dirichlet–multinomial likelihood, the ordinary score.
    If nothing is disguised, N̂ = N and only that score remains. Laplace's approximation would add ½
    ln(|I(N̂)|/|I(reports)|) with the information I about θ. That term is larger the less the reports reveal:
    a model that they cannot contradict loses little by its extra parameters. It is omitted, so that a lack of
    information never adds a link. BIC's penalty, too, depends on the number of records and not on their
    information.
    Reference: Cheeseman & Stutz (1996); Chickering & Heckerman (1997), §4.
    Cost: a few hundred contractions at most, all links together.
    """
    observed = np.stack([each.observed for each in reports])
    channels = [np.stack([each.channels[i] for each in reports]) for i in range(3)]
    state = _Mode(observed, channels, parents, child, linked=linked)
    theta, counts, likelihood = state.climb()
    families = counts if linked else counts.sum(axis=2, keepdims=True)
    margins = counts.sum(axis=3)
    categories, cells = counts.shape[-1], margins[0].size
    complete = (
        _dirichlet(margins.reshape(len(margins), 1, cells), parents)
        + _dirichlet(families.reshape(len(families), -1, categories), child)
        - np.sum(counts * np.log(np.maximum(theta, SMALLEST)), axis=(1, 2, 3))
    )
    return np.asarray(complete + likelihood)


def _dirichlet(counts: Floats, alpha: float) -> Floats:
    """Return Σ over families of the log Dirichlet–multinomial likelihood of (…, families, categories)."""
    from scipy.special import gammaln  # noqa: PLC0415  (slow to import)

    categories = counts.shape[-1]
    constant = gammaln(categories * alpha) - categories * gammaln(alpha)
    each = gammaln(counts + alpha).sum(axis=-1) - gammaln(counts.sum(axis=-1) + categories * alpha) + constant
    return np.asarray(each.sum(axis=-1))


class _Mode:
    """EM with extrapolation to the posterior mode of the log-odds, for many tables together."""

    def __init__(
        self, observed: Floats, channels: Sequence[Floats], parents: float, child: float, *, linked: bool
    ) -> None:
        self.observed, self.channels, self.linked = observed, channels, linked
        self.back = [channel.transpose(0, 2, 1) for channel in channels]
        self.parents, self.child = parents, child

    def climb(self) -> tuple[Floats, Floats, Floats]:
        """Return θ̂, N̂ and the log-likelihood of the reports."""
        shape = (len(self.observed), *(channel.shape[1] for channel in self.channels))
        theta = self.maximize(self.expect(np.full(shape, 1.0 / np.prod(shape[1:])))[0])
        height = self.height(theta)
        open_links = np.arange(len(theta))
        for _ in range(MOST_ROUNDS):
            some = self.select(open_links)
            start = theta[open_links]
            first = some.maximize(some.expect(start)[0])
            second = some.maximize(some.expect(first)[0])
            far = some.extrapolate(start, first, second)
            heights = np.stack([some.height(second), some.height(far)])
            farther = heights[1] > heights[0]
            theta[open_links] = np.where(farther[:, None, None, None], far, second)
            risen = heights.max(axis=0) - height[open_links]
            height[open_links] = heights.max(axis=0)
            open_links = open_links[risen > STILL]
            if not open_links.size:
                break
        counts, likelihood = self.expect(theta)
        return theta, counts, likelihood

    def select(self, chosen: NDArray[np.intp]) -> _Mode:
        """Return the state of the chosen tables."""
        channels = [channel[chosen] for channel in self.channels]
        return _Mode(self.observed[chosen], channels, self.parents, self.child, linked=self.linked)

    def apply_channels(self, cells: Floats, channels: Sequence[Floats]) -> Floats:
        """Return all tables multiplied by their channels, axis by axis."""
        for channel in channels:
            rest = cells.shape[2:]
            front = cells.reshape(len(cells), cells.shape[1], -1).transpose(0, 2, 1)
            moved = front @ channel
            cells = moved.reshape(len(cells), *rest, moved.shape[-1])
        return cells

    def expect(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return the expected true counts given the reports, and the log-likelihood of the reports."""
        expected = np.maximum(self.apply_channels(theta, self.channels), SMALLEST)
        likelihood = np.sum(self.observed * np.log(expected), axis=(1, 2, 3))
        return theta * self.apply_channels(self.observed / expected, self.back), likelihood

    def maximize(self, counts: Floats) -> Floats:
        """Return the most likely probabilities of the model given true counts and pseudo-counts."""
        margins = counts.sum(axis=3, keepdims=True) + self.parents
        margins = margins / margins.sum(axis=(1, 2), keepdims=True)
        families = (counts if self.linked else counts.sum(axis=2, keepdims=True)) + self.child
        return np.asarray(margins * (families / families.sum(axis=3, keepdims=True)))

    def extrapolate(self, start: Floats, first: Floats, second: Floats) -> Floats:
        """Return the extrapolation of two steps on the log scale."""
        logs = [np.log(np.maximum(theta, SMALLEST)) for theta in (start, first, second)]
        r, v = logs[1] - logs[0], logs[2] - 2 * logs[1] + logs[0]
        speed = np.sqrt((first * r**2).sum(axis=(1, 2, 3)))
        bend = np.sqrt((first * v**2).sum(axis=(1, 2, 3)))
        length = np.maximum(speed / np.maximum(bend, SMALLEST), 1.0)[:, None, None, None]
        jump = np.clip(logs[0] + 2 * length * r + length**2 * v - logs[2], -20.0, 20.0)
        theta = second * np.exp(jump)
        theta /= theta.sum(axis=(1, 2, 3), keepdims=True)
        counts, _ = self.expect(theta)
        return self.maximize(counts)

    def height(self, theta: Floats) -> Floats:
        """Return the log-likelihood of the reports plus the log prior density of the log-odds."""
        margins = theta.sum(axis=3)
        families = theta if self.linked else theta.sum(axis=2, keepdims=True)
        shares = families / np.maximum(families.sum(axis=3, keepdims=True), SMALLEST)
        prior = self.parents * np.log(np.maximum(margins, SMALLEST)).sum(axis=(1, 2))
        prior = prior + self.child * np.log(np.maximum(shares, SMALLEST)).sum(axis=(1, 2, 3))
        return np.asarray(self.expect(theta)[1] + prior)
